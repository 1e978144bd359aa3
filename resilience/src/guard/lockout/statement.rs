//! What a request says about who logs in, found where the handler will look for it.
//!
//! A handler that takes poem's `Json` or `Form` reads the body by its content type, and a form of a `GET` from the query.
//! Whoever could make this file look elsewhere would guess at one account and be counted for another.

use std::borrow::Cow;

use mime::Mime;
use poem::{
    Request,
    http::{HeaderMap, Method, header},
};

use super::{
    account::Place,
    body::{self, BodyBounds},
};
use crate::error::Error;

pub(super) struct Statement {
    /// Of a `GET`, where forms are read from it. A `HEAD` is one as far as poem's routes go.
    query: Option<String>,
    format: Format,
    body: Vec<u8>,
}

/// What the content type says about the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// Nothing: poem's extractors refuse it, and a handler that reads it all the same reads what its policy says.
    Unsaid,
    Json,
    Form,
    Other,
}

impl Statement {
    /// Reads the body and hands it on.
    pub(super) async fn read(request: &mut Request, bounds: BodyBounds) -> Result<Self, Error> {
        let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
        Ok(Self {
            query: is_get.then(|| request.uri().query().unwrap_or_default().to_owned()),
            format: Format::of(request.headers()),
            body: body::read(request, bounds).await?,
        })
    }

    /// The account that stands at this place; `None` if there is none, or none that all readers agree about.
    pub(super) fn account(&self, place: &Place) -> Option<Cow<'_, str>> {
        let bytes = match (place, &self.query, self.format) {
            (Place::Form(_), Some(query), Format::Form | Format::Unsaid) => query.as_bytes(),
            (Place::Form(_), None, Format::Form | Format::Unsaid) => &self.body,
            // Of a GET that does not say it is JSON, another reader may take the query.
            (Place::Json(_), _, Format::Json) | (Place::Json(_), None, Format::Unsaid) => &self.body,
            _ => return None,
        };
        place.account(bytes)
    }
}

impl Format {
    fn of(headers: &HeaderMap) -> Self {
        let mut types = headers.get_all(header::CONTENT_TYPE).iter();
        let Some(first) = types.next() else { return Self::Unsaid };
        let Some(mime) = first.to_str().ok().and_then(|text| text.parse::<Mime>().ok()) else {
            return Self::Other;
        };
        let is = |name: &str| mime.subtype() == name || mime.suffix().is_some_and(|suffix| suffix == name);
        match mime.type_() == mime::APPLICATION && types.next().is_none() {
            true if is("json") => Self::Json,
            true if is("x-www-form-urlencoded") => Self::Form,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_are_told_apart_as_poem_does() {
        for (types, format) in [
            (&[][..], Format::Unsaid),
            (&["application/json"], Format::Json),
            (&["Application/JSON; charset=utf-8"], Format::Json),
            (&["application/vnd.login+json"], Format::Json),
            (&["application/x-www-form-urlencoded"], Format::Form),
            (&["text/json"], Format::Other),
            (&["application/jsonp"], Format::Other),
            (&[""], Format::Other),
            (
                &["application/json", "application/x-www-form-urlencoded"],
                Format::Other,
            ),
        ] {
            let mut headers = HeaderMap::new();
            for value in types {
                headers.append(header::CONTENT_TYPE, value.parse().expect("a header value"));
            }
            assert_eq!(Format::of(&headers), format, "{types:?}");
        }
    }
}

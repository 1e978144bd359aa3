//! The body of an order.

use std::time::Duration;

use poem::{
    Request,
    error::ReadBodyError,
    http::{HeaderMap, header},
};
use serde::{Deserialize, Deserializer, de};
use tokio::time::timeout;

use crate::{error::Error, sharing::HoldState};

/// Most bytes that an order may have.
const BODY_MAX: usize = 4 * 1024;
/// How long it may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// What an operator asks for. Who asks is not the body's to say.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    #[serde(deserialize_with = "state")]
    pub(super) state: HoldState,
    #[serde(deserialize_with = "reason")]
    pub(super) reason: String,
    #[serde(default, deserialize_with = "expires_in")]
    pub(super) expires_in: Option<Duration>,
}

impl Wanted {
    pub(super) async fn read(request: &mut Request) -> Result<Self, Error> {
        if !is_json(request.headers()) {
            return Err(Error::unsupported_media_type());
        }
        let body = timeout(BODY_TIMEOUT, request.take_body().into_bytes_limit(BODY_MAX)).await;
        let body = match body.map_err(|_elapsed| Error::body_timeout())? {
            Ok(body) => body,
            Err(ReadBodyError::PayloadTooLarge) => return Err(Error::body_too_large(BODY_MAX)),
            Err(broken) => return Err(Error::order_invalid(&broken)),
        };
        serde_json::from_slice(&body).map_err(|mistake| Error::order_invalid(&mistake))
    }
}

/// Whether it says so, once. A form of another site can send text and forms, but nothing that says this.
fn is_json(headers: &HeaderMap) -> bool {
    let mut said = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (said.next(), said.next()) else {
        return false;
    };
    let media: Option<mime::Mime> = value.to_str().ok().and_then(|value| value.parse().ok());
    media.is_some_and(|media| media.essence_str() == mime::APPLICATION_JSON.essence_str())
}

fn state<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HoldState, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "open" => Ok(HoldState::Open),
        "closed" => Ok(HoldState::Closed),
        _ => Err(de::Error::custom("`state` must be `open` or `closed`")),
    }
}

fn reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let reason = String::deserialize(deserializer)?;
    if reason.trim().is_empty() {
        return Err(de::Error::custom("`reason` must say something"));
    }
    Ok(reason)
}

fn expires_in<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else {
        return Ok(None);
    };
    match humantime::parse_duration(&text) {
        Ok(lasts) if lasts >= Duration::from_millis(1) => Ok(Some(lasts)),
        _ => Err(de::Error::custom(
            "`expires_in` must be a duration with its unit, such as `10m`, of at least `1ms`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Wanted, String> {
        serde_json::from_str(body).map_err(|mistake: serde_json::Error| mistake.to_string())
    }

    #[test]
    fn an_order_says_what_and_why() {
        let wanted = |state, expires_in| Wanted {
            state,
            reason: "they deploy".to_owned(),
            expires_in,
        };
        assert_eq!(
            read(r#"{"state":"open","reason":"they deploy","expires_in":"1h 30m"}"#),
            Ok(wanted(HoldState::Open, Some(Duration::from_secs(90 * 60))))
        );
        for until_released in ["", r#","expires_in":null"#] {
            let body = format!(r#"{{"state":"closed","reason":"they deploy"{until_released}}}"#);
            assert_eq!(read(&body), Ok(wanted(HoldState::Closed, None)));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (body, named) in [
            (r#"{"reason":"r"}"#, "`state`"),
            (r#"{"state":"open"}"#, "`reason`"),
            (r#"{"state":"half-open","reason":"r"}"#, "`state`"),
            (r#"{"state":"OPEN","reason":"r"}"#, "`state`"),
            (r#"{"state":true,"reason":"r"}"#, "boolean"),
            (r#"{"state":"open","reason":" "}"#, "`reason`"),
            (r#"{"state":"open","reason":null}"#, "null"),
            (r#"{"state":"open","reason":"r","author":"eve"}"#, "`author`"),
            (r#"{"state":"open","state":"closed","reason":"r"}"#, "`state`"),
            (r#"{"state":"open","reason":"r","expires_in":"10"}"#, "`expires_in`"),
            (r#"{"state":"open","reason":"r","expires_in":"0s"}"#, "`expires_in`"),
            (r#"{"state":"open","reason":"r","expires_in":"-1s"}"#, "`expires_in`"),
            (
                r#"{"state":"open","reason":"r","expires_in":"99999999999999y"}"#,
                "`expires_in`",
            ),
            (r#"{"state":"open","reason":"r","expires_in":600}"#, "integer"),
            ("", "EOF"),
            ("[]", ""),
        ] {
            let mistake = read(body).expect_err(body);
            assert!(mistake.contains(named), "{body}: {mistake}");
        }
    }
}

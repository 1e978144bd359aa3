use poem::{
    IntoResponse, Response,
    error::{
        ParseFormError, ParseJsonError, ParsePathError, ParseQueryError, ParseTypedHeaderError, ReadBodyError,
        SizedLimitError,
    },
    http::StatusCode,
};

use crate::error::{Case, Error, refusal_in};

/// The outcome of a login, for `lockout`, where the status of the answer does not say it.
///
/// Without it the answer decides:
///
/// | the handler's answer | outcome |
/// |---|---|
/// | 2xx | `Succeeded` |
/// | 4xx, 3xx, 1xx | `Failed` |
/// | 5xx | `NotAnAttempt` |
/// | the error of one of poem's extractors, such as [`ParseJsonError`] | `NotAnAttempt`: the handler did not run |
/// | 429 with a code of this crate, such as `rate_limited` from a pipeline | `NotAnAttempt` |
///
/// An `Err` has not succeeded, even with a status of 2xx.
///
/// So every 2xx must mean that the client has proved its identity. If a form, a reminder or a first step answers 2xx, its
/// answer is [`NotAnAttempt`](Self::NotAnAttempt). A login that answers 200 or redirects either way puts an outcome into the
/// answer's data:
///
/// ```
/// use poem::{EndpointExt, IntoResponse, Response, Route, handler, post, web::{Form, Redirect}};
/// use resilience::{LoginOutcome, Resilience, resilient};
///
/// #[derive(serde::Deserialize)]
/// struct Credentials {
///     username: String,
///     password: String,
/// }
///
/// #[resilient(
///     lockout(5, "15m", key = account("form:username")),
///     lockout(20, "15m", key = ip),
/// )]
/// #[handler]
/// async fn login(Form(sent): Form<Credentials>) -> Response {
///     if sent.username == "ada" && sent.password == "correct horse battery" {
///         LoginOutcome::Succeeded.on(Redirect::see_other("/"))
///     } else {
///         LoginOutcome::Failed.on(Redirect::see_other("/login?again"))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let app = Route::new().at("/login", post(login)).with(Resilience::builder().memory().build()?);
/// let guess = || poem::Request::builder()
///     .method(poem::http::Method::POST)
///     .uri_str("/login")
///     .content_type("application/x-www-form-urlencoded")
///     .body("username=ada&password=guess");
/// # use poem::Endpoint;
/// for _ in 0..5 {
///     assert_eq!(app.get_response(guess()).await.status(), 303);
/// }
/// assert_eq!(app.get_response(guess()).await.status(), 429);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginOutcome {
    /// The client has proved its identity. Removes the failures of the same origin (this handler, this address, this
    /// spelling of the account) from the tallies of the account and the user, and only this attempt from those of the
    /// address and of keys of your own.
    Succeeded,
    /// The attempt is a failure: the one that reaches the limit locks.
    Failed,
    /// No password was checked: the attempt is removed from all tallies. A client that can cause this at will can guess
    /// without end, so never use it for a wrong password.
    NotAnAttempt,
}

impl LoginOutcome {
    /// An answer with this outcome.
    pub fn on(self, answer: impl IntoResponse) -> Response {
        let mut response = answer.into_response();
        response.set_data(self);
        response
    }

    /// An error with this outcome, for handlers that return `poem::Result`. An outcome in the response inside of an error
    /// is not seen.
    pub fn on_error(self, error: impl Into<poem::Error>) -> poem::Error {
        let mut error = error.into();
        error.set_data(self);
        error
    }

    /// The outcome that a handler's answer carries, or else the one that it implies.
    pub(crate) fn of(answer: &poem::Result<Response>) -> Self {
        match answer {
            Ok(response) => response
                .data()
                .copied()
                .unwrap_or_else(|| Self::of_status(response.status())),
            Err(error) => error.data().copied().unwrap_or_else(|| Self::of_error(error)),
        }
    }

    fn of_error(error: &poem::Error) -> Self {
        if is_of_an_extractor(error) || is_of_a_limit(error) {
            return Self::NotAnAttempt;
        }
        match Self::of_status(error.status()) {
            // An outcome in the response inside of an error is out of reach.
            Self::Succeeded => Self::Failed,
            outcome => outcome,
        }
    }

    fn of_status(status: StatusCode) -> Self {
        match status {
            _ if status.is_success() => Self::Succeeded,
            _ if status.is_server_error() => Self::NotAnAttempt,
            // Also 400 and 422, with which some logins answer a wrong password: OAuth's `invalid_grant` is a 400.
            _ => Self::Failed,
        }
    }
}

/// Whether the request could not be read into the handler's arguments.
fn is_of_an_extractor(error: &poem::Error) -> bool {
    error.is::<ReadBodyError>()
        || error.is::<ParseJsonError>()
        || error.is::<ParseFormError>()
        || error.is::<ParseQueryError>()
        || error.is::<ParsePathError>()
        || error.is::<ParseTypedHeaderError>()
        || error.is::<SizedLimitError>()
}

/// Whether a limit of this crate has refused a call inside the handler. Only 429: an outage's statuses are 5xx, and other
/// codes may be the answer to a wrong password.
fn is_of_a_limit(error: &poem::Error) -> bool {
    let is_limit = |refusal: Error| {
        let is_code = |case: &Case| case.code == refusal.code() && case.status == StatusCode::TOO_MANY_REQUESTS;
        refusal.http_status() == StatusCode::TOO_MANY_REQUESTS && Error::cases().iter().any(is_code)
    };
    refusal_in(error).is_some_and(is_limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_decides_unless_told_otherwise() {
        use LoginOutcome::{Failed, NotAnAttempt, Succeeded};
        for (status, meant) in [
            (101, Failed),
            (200, Succeeded),
            (204, Succeeded),
            (303, Failed),
            (304, Failed),
            (400, Failed),
            (401, Failed),
            (403, Failed),
            (404, Failed),
            (422, Failed),
            (429, Failed),
            (500, NotAnAttempt),
            (503, NotAnAttempt),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(LoginOutcome::of(&Ok(status.into())), meant, "{status}");
            let of_error = if meant == Succeeded { Failed } else { meant };
            let error = poem::Error::from_status(status);
            assert_eq!(LoginOutcome::of(&Err(error)), of_error, "{status}");
            for said in [Succeeded, Failed, NotAnAttempt] {
                assert_eq!(LoginOutcome::of(&Ok(said.on(status))), said);
                assert_eq!(
                    LoginOutcome::of(&Err(said.on_error(poem::Error::from_status(status)))),
                    said
                );
            }
        }
    }

    #[test]
    fn an_extractors_error_is_no_attempt() {
        let json: ParseJsonError = serde_json::from_str::<u8>("x")
            .map_err(ParseJsonError::Parse)
            .unwrap_err();
        for error in [
            json.into(),
            ReadBodyError::BodyHasBeenTaken.into(),
            ParsePathError.into(),
            SizedLimitError::PayloadTooLarge.into(),
        ] {
            let error: poem::Error = error;
            assert!(error.status().is_client_error() || error.status().is_server_error());
            assert_eq!(LoginOutcome::of(&Err(error)), LoginOutcome::NotAnAttempt);
        }
    }

    #[test]
    fn a_limit_inside_the_handler_is_no_attempt_and_a_code_of_its_own_is_one() {
        let second = std::time::Duration::from_secs(1);
        let own = |status, code: &'static str| Error::new(status, code, "Own.");
        for (error, outcome) in [
            (Error::rate_limited(second), LoginOutcome::NotAnAttempt),
            (Error::locked_out(second), LoginOutcome::NotAnAttempt),
            (Error::attempts_under_way(second), LoginOutcome::NotAnAttempt),
            (Error::timeout(), LoginOutcome::NotAnAttempt),
            (Error::invalid_api_key(), LoginOutcome::Failed),
            (Error::client_closed_request(), LoginOutcome::Failed),
            (own(StatusCode::TOO_MANY_REQUESTS, "too_many"), LoginOutcome::Failed),
            (own(StatusCode::BAD_REQUEST, "rate_limited"), LoginOutcome::Failed),
        ] {
            let code = error.code().to_owned();
            assert_eq!(LoginOutcome::of(&Err(error.into())), outcome, "{code}");
        }
    }
}

use poem::{IntoResponse, Response, http::StatusCode};

/// What a login came to, for `lockout`, where the status of the answer does not say it.
///
/// Without it the status decides: 2xx has succeeded; 401, 403 and 3xx have failed; anything else was no attempt. A login
/// that answers 200 or redirects either way says more by putting an outcome into the answer's data:
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
    /// Whoever it was has proved who they are: forgets the tallies of the account, the user and keys of your own, and
    /// takes this attempt off the address's.
    Succeeded,
    /// The attempt stays counted.
    Failed,
    /// Nothing was tried, or nothing was found out: the attempt is taken off all tallies. Whoever can bring this about
    /// at will can guess without end, so it is not for wrong passwords in any disguise.
    NotAnAttempt,
}

impl LoginOutcome {
    /// An answer that says so.
    pub fn on(self, answer: impl IntoResponse) -> Response {
        let mut response = answer.into_response();
        response.set_data(self);
        response
    }

    /// An error that says so, for handlers that return `poem::Result`.
    pub fn on_error(self, error: impl Into<poem::Error>) -> poem::Error {
        let mut error = error.into();
        error.set_data(self);
        error
    }

    /// What a handler's answer says: outright, or by its status.
    pub(crate) fn of(outcome: &poem::Result<Response>) -> Self {
        let (said, status) = match outcome {
            Ok(response) => (response.data(), response.status()),
            Err(error) => (error.data(), error.status()),
        };
        said.copied().unwrap_or_else(|| Self::of_status(status))
    }

    fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::Failed,
            _ if status.is_success() => Self::Succeeded,
            _ if status.is_redirection() => Self::Failed,
            _ => Self::NotAnAttempt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_decides_unless_told_otherwise() {
        use LoginOutcome::{Failed, NotAnAttempt, Succeeded};
        for (status, meant) in [
            (101, NotAnAttempt),
            (200, Succeeded),
            (204, Succeeded),
            (303, Failed),
            (304, Failed),
            (400, NotAnAttempt),
            (401, Failed),
            (403, Failed),
            (404, NotAnAttempt),
            (422, NotAnAttempt),
            (429, NotAnAttempt),
            (500, NotAnAttempt),
            (503, NotAnAttempt),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(LoginOutcome::of(&Ok(status.into())), meant, "{status}");
            assert_eq!(LoginOutcome::of(&Err(poem::Error::from_status(status))), meant, "{status}");
            for said in [Succeeded, Failed, NotAnAttempt] {
                assert_eq!(LoginOutcome::of(&Ok(said.on(status))), said);
                assert_eq!(LoginOutcome::of(&Err(said.on_error(poem::Error::from_status(status)))), said);
            }
        }
    }
}

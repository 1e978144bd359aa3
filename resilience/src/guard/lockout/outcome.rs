use poem::{IntoResponse, Response, http::StatusCode};

/// What a login came to, for `lockout`, where the status of the answer does not say it.
///
/// Without it the status decides: 2xx has succeeded; 401, 403, 3xx and 1xx have failed; anything else was no attempt. So
/// every 2xx must mean that somebody has proved who they are: one that a form, a reminder or a first step answers with
/// would clear the tally of whoever is named. Such an answer says [`NotAnAttempt`](Self::NotAnAttempt). A login
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
    /// Whoever it was has proved who they are: forgets the tallies of the account and the user, and takes this attempt off
    /// those of the address and of keys of your own.
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

    /// An error that says so, for handlers that return `poem::Result`. What the response inside of an error says is not
    /// seen.
    pub fn on_error(self, error: impl Into<poem::Error>) -> poem::Error {
        let mut error = error.into();
        error.set_data(self);
        error
    }

    /// What a handler's answer says: outright, or by its status.
    pub(crate) fn of(outcome: &poem::Result<Response>) -> Self {
        match outcome {
            Ok(response) => response
                .data()
                .copied()
                .unwrap_or_else(|| Self::of_status(response.status())),
            Err(error) => match (error.data().copied(), Self::of_status(error.status())) {
                (Some(said), _) => said,
                // What the response inside of an error says is out of reach.
                (None, Self::Succeeded) => Self::Failed,
                (None, meant) => meant,
            },
        }
    }

    fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::Failed,
            _ if status.is_success() => Self::Succeeded,
            _ if status.is_redirection() || status.is_informational() => Self::Failed,
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
            (101, Failed),
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
}

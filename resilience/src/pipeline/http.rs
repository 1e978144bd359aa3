//! Calls with `reqwest`: what their answers say, and the deadline as a header. With the feature `reqwest`.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use resilience::{
//!     breaker::CircuitBreaker,
//!     pipeline::{Pipeline, http::{Http, HttpError, RequestExt as _, ResponseExt as _}},
//! };
//!
//! # async fn quote() -> Result<String, Box<dyn std::error::Error>> {
//! let client = reqwest::Client::new();
//! let payments = Pipeline::builder()
//!     .classify(Http::idempotent())
//!     .deadline(Duration::from_secs(2))
//!     .retry(3)
//!     .breaker(CircuitBreaker::new("payments", Default::default())?)
//!     .deadline(Duration::from_millis(500))
//!     .build();
//!
//! let quote = payments
//!     .call(|| async {
//!         let request = client.get("http://payments/quote").with_deadline();
//!         // The body is read inside the call: within the deadline, and made again with it.
//!         Ok::<_, HttpError>(request.send().await?.checked()?.text().await?)
//!     })
//!     .await?;
//! # Ok(quote)
//! # }
//! ```
//!
//! # What an answer says
//!
//! | answer | to breakers | made again |
//! |---|---|---|
//! | 1xx to 3xx | success | no |
//! | 429 | neutral: it works, and limits | yes, after its `Retry-After` |
//! | other 4xx | neutral: not the dependency's failure | no |
//! | 5xx | failure | yes, after its `Retry-After` if it has one |
//! | no connection | failure | yes |
//! | connection broken, body cut off, out of time | failure | yes |
//! | body that is not what was expected, too many redirects | failure | no |
//! | request that could not be built | neutral | no |
//!
//! # Who decides what may be repeated
//!
//! The caller, when it makes the pipeline. [`Http::idempotent`] repeats as the table says: for `GET`, `PUT`, `DELETE`, and
//! a `POST` with an idempotency key. [`Http::not_idempotent`] repeats only what the dependency has surely not begun to
//! work on: a connection that could not be made, and a 429.

use std::{
    error::Error as StdError,
    fmt, io,
    time::{Duration, SystemTime},
};

use ::reqwest::{
    RequestBuilder, Response, StatusCode,
    header::{DATE, HeaderMap, HeaderName, RETRY_AFTER},
};
use poem::error::ResponseError;

use super::classify::{Classify, Verdict};
use crate::{deadline, error::Error};

/// The header in which a deadline goes on unless another is named: the whole milliseconds that are left.
pub const DEADLINE_HEADER: HeaderName = HeaderName::from_static("x-deadline-ms");

/// Judges answers of HTTP services; see the [module](self) for its table.
///
/// It is for calls that return `Result<reqwest::Response, reqwest::Error>`, where a 500 is an `Ok` that may be made again,
/// and comes out as an `Ok` at last; and for calls that return an [`HttpError`], with any value.
#[derive(Clone, Copy, Debug)]
pub struct Http {
    idempotent: bool,
}

impl Http {
    /// For requests that may be sent twice.
    #[must_use]
    pub const fn idempotent() -> Self {
        Self { idempotent: true }
    }

    /// For requests that must not be carried out twice, such as a `POST` that pays.
    #[must_use]
    pub const fn not_idempotent() -> Self {
        Self { idempotent: false }
    }

    fn status(self, status: StatusCode, retry_after: Option<Duration>) -> Verdict {
        let verdict = match status.as_u16() {
            429 => Verdict::neutral().retryable(),
            400..500 => Verdict::neutral(),
            ..400 => Verdict::success(),
            _ => self.cut_off(),
        };
        retry_after.map_or(verdict, |wait| verdict.with_retry_after(wait))
    }

    /// An attempt that was cut off may have been carried out.
    fn cut_off(self) -> Verdict {
        if self.idempotent {
            Verdict::failure().retryable()
        } else {
            Verdict::failure()
        }
    }

    fn error(self, error: &::reqwest::Error) -> Verdict {
        if let Some(status) = error.status() {
            return self.status(status, None);
        }
        if error.is_builder() {
            return Verdict::neutral();
        }
        // Before the others: a connection that timed out was never made.
        if error.is_connect() {
            return Verdict::failure().retryable();
        }
        if error.is_timeout() || error.is_request() || error.is_body() || is_io(error) {
            return self.cut_off();
        }
        Verdict::failure()
    }
}

impl Classify<Response, ::reqwest::Error> for Http {
    fn classify(&self, answer: Result<&Response, &::reqwest::Error>) -> Verdict {
        match answer {
            Ok(response) => self.status(response.status(), retry_after(response.headers(), SystemTime::now())),
            Err(error) => self.error(error),
        }
    }

    fn timed_out(&self) -> Verdict {
        self.cut_off()
    }
}

impl<T> Classify<T, HttpError> for Http {
    fn classify(&self, answer: Result<&T, &HttpError>) -> Verdict {
        match answer {
            Ok(_) => Verdict::success(),
            Err(HttpError::Status(status)) => self.status(status.status, status.retry_after),
            Err(HttpError::Request(error)) => self.error(error),
        }
    }

    fn timed_out(&self) -> Verdict {
        self.cut_off()
    }
}

/// Whether the connection is to blame. reqwest calls a body that was cut off an error of decoding, as one of the wrong form.
fn is_io(error: &(dyn StdError + 'static)) -> bool {
    std::iter::successors(Some(error), |error| (*error).source()).any(|error| error.is::<io::Error>())
}

/// A call that did not give what it was made for. As a poem error it answers 502 `bad_gateway`, and tells the client
/// nothing of the dependency.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The request, the connection or the body failed.
    #[error("the request failed")]
    Request(#[from] ::reqwest::Error),
    /// The answer's status was an error.
    #[error(transparent)]
    Status(#[from] ErrorStatus),
}

/// An answer with a status from 400 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorStatus {
    status: StatusCode,
    retry_after: Option<Duration>,
}

impl ErrorStatus {
    /// The status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// What the answer asked for in `Retry-After`.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for ErrorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer was {}", self.status)
    }
}

impl StdError for ErrorStatus {}

impl From<HttpError> for Error {
    fn from(error: HttpError) -> Self {
        bad_gateway().with_source(error)
    }
}

impl ResponseError for HttpError {
    fn status(&self) -> StatusCode {
        StatusCode::BAD_GATEWAY
    }

    fn as_response(&self) -> poem::Response {
        bad_gateway().as_response()
    }
}

fn bad_gateway() -> Error {
    Error::new(
        StatusCode::BAD_GATEWAY,
        "bad_gateway",
        "A dependency of this service did not answer well.",
    )
}

/// What [`reqwest::Response`] gains.
pub trait ResponseExt: Sized {
    /// The response, or its status as an error if that is from 400 on. Unlike `error_for_status` it keeps `Retry-After`.
    ///
    /// # Errors
    ///
    /// [`ErrorStatus`], which becomes an [`HttpError`] with `?`.
    fn checked(self) -> Result<Self, ErrorStatus>;
}

impl ResponseExt for Response {
    fn checked(self) -> Result<Self, ErrorStatus> {
        let status = self.status();
        if status.is_client_error() || status.is_server_error() {
            let retry_after = retry_after(self.headers(), SystemTime::now());
            return Err(ErrorStatus { status, retry_after });
        }
        Ok(self)
    }
}

/// What [`reqwest::RequestBuilder`] gains.
pub trait RequestExt: Sized {
    /// Sends on how much time is left, in [`DEADLINE_HEADER`]. Outside of any deadline the header is left out.
    #[must_use]
    fn with_deadline(self) -> Self {
        self.with_deadline_as(DEADLINE_HEADER)
    }

    /// [`with_deadline`](Self::with_deadline) in a header of another name.
    #[must_use]
    fn with_deadline_as(self, name: HeaderName) -> Self;
}

impl RequestExt for RequestBuilder {
    fn with_deadline_as(self, name: HeaderName) -> Self {
        match deadline::remaining() {
            // Rounded down: the dependency must not work longer than anybody waits.
            Some(left) => self.header(name, u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            None => self,
        }
    }
}

/// How long an answer asks to wait, given in seconds or as a date; `None` if it does not say, or says nothing of sense.
///
/// A date counts from the answer's own `Date` if there is one, so that the clocks of the two machines need not agree, and
/// from `now` if not. One that is past is no wait.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let date = |name| {
        let text = headers.get(name)?.to_str().ok()?;
        httpdate::parse_http_date(text.trim()).ok()
    };
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More seconds than there are numbers for is a wait too, and a long one.
        return Some(value.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let until = date(RETRY_AFTER)?;
    let from = date(DATE).unwrap_or(now);
    Some(until.duration_since(from).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use poem::http;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::{
        breaker::Outcome,
        pipeline::{Pipeline, PipelineError},
    };

    fn answer(status: u16, headers: &[(&str, &str)]) -> Response {
        let mut response = http::Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body("").expect("a response").into()
    }

    fn verdict(http: Http, response: Response) -> Verdict {
        let judged = http.classify(Ok::<_, &::reqwest::Error>(&response));
        // The same answer as an error says the same.
        if let Err(status) = response.checked() {
            let error = HttpError::from(status);
            assert_eq!(http.classify(Err::<&(), _>(&error)), judged);
        }
        judged
    }

    #[test]
    fn a_status_says_what_the_table_says() {
        use Outcome::{Failure, Neutral, Success};
        let rows = [
            (200, Success, false, false),
            (304, Success, false, false),
            (400, Neutral, false, false),
            (404, Neutral, false, false),
            (429, Neutral, true, true),
            (500, Failure, true, false),
            (503, Failure, true, false),
            (599, Failure, true, false),
        ];
        for (status, outcome, idempotent, not) in rows {
            for (http, again) in [(Http::idempotent(), idempotent), (Http::not_idempotent(), not)] {
                let verdict = verdict(http, answer(status, &[]));
                assert_eq!(
                    (verdict.outcome(), verdict.is_retryable()),
                    (outcome, again),
                    "{status}"
                );
                assert_eq!(verdict.retry_after(), None);
            }
        }
        for status in [429, 503] {
            let verdict = verdict(Http::idempotent(), answer(status, &[("retry-after", "7")]));
            assert_eq!(verdict.retry_after(), Some(Duration::from_secs(7)));
        }
    }

    #[tokio::test]
    async fn what_never_arrived_may_always_be_sent_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let client = ::reqwest::Client::new();

        // Accepted, and hung up before any answer.
        let (sent, ()) = tokio::join!(client.get(format!("http://{address}")).send(), async {
            drop(listener.accept().await);
        });
        let cut_off = sent.expect_err("no answer");
        drop(listener);
        let refused = client.get(format!("http://{address}")).send().await;
        let refused = refused.expect_err("nobody listens");
        // A body that ends before its length.
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sent, ()) = tokio::join!(client.get(format!("http://{address}")).send(), async {
            let (mut stream, _) = listener.accept().await.expect("the client");
            let mut request = [0; 1_024];
            assert!(stream.read(&mut request).await.expect("the request") > 0);
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n123";
            stream.write_all(head).await.expect("the answer");
        });
        let body = sent
            .expect("the head")
            .text()
            .await
            .expect_err("seven bytes are missing");
        let senseless = client.get("no url").send().await.expect_err("no request");

        for (error, outcome, idempotent, not) in [
            (refused, Outcome::Failure, true, true),
            (cut_off, Outcome::Failure, true, false),
            (body, Outcome::Failure, true, false),
            (senseless, Outcome::Neutral, false, false),
        ] {
            for (http, again) in [(Http::idempotent(), idempotent), (Http::not_idempotent(), not)] {
                let verdict = http.classify(Err::<&Response, _>(&error));
                assert_eq!(
                    (verdict.outcome(), verdict.is_retryable()),
                    (outcome, again),
                    "{error:?}"
                );
            }
            let error = HttpError::from(error);
            assert_eq!(Http::idempotent().classify(Err::<&(), _>(&error)).outcome(), outcome);
            let told = poem::Error::from(error).into_response();
            assert_eq!(told.status(), StatusCode::BAD_GATEWAY);
            let body = told.into_body().into_string().await.expect("text");
            assert!(!body.contains("127.0.0.1") && body.contains("bad_gateway"), "{body}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_out_of_time_is_sent_again_only_where_that_does_no_harm() {
        for (http, attempts) in [(Http::idempotent(), 3), (Http::not_idempotent(), 1)] {
            let pipeline = Pipeline::builder()
                .classify(http)
                .retry(2)
                .deadline(Duration::from_millis(10))
                .build();
            let mut made = 0;
            let answer = pipeline.call(|| {
                made += 1;
                std::future::pending::<Result<(), HttpError>>()
            });
            assert!(matches!(answer.await, Err(PipelineError::Timeout(_))));
            assert_eq!(made, attempts);
        }
    }

    #[test]
    fn retry_after_is_read_in_both_forms() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let read = |headers: &[(&str, &str)]| retry_after(answer(503, headers).headers(), now);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(read(&[("retry-after", "120")]), seconds(120));
        assert_eq!(read(&[("retry-after", " 0 ")]), seconds(0));
        assert_eq!(read(&[("retry-after", "99999999999999999999999")]), Some(Duration::MAX));
        let date = ("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT");
        assert_eq!(read(&[date]), seconds(60));
        // By the dependency's own clock, which is half a minute ahead.
        assert_eq!(read(&[date, ("date", "Sun, 06 Nov 1994 08:50:07 GMT")]), seconds(30));
        assert_eq!(read(&[date, ("date", "tomorrow")]), seconds(60));
        assert_eq!(read(&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")]), seconds(0));
        for nonsense in ["", "-1", "1.5", "soon", "Sun, 99 Nov 1994 08:50:37 GMT"] {
            assert_eq!(read(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
        assert_eq!(read(&[]), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_goes_on_in_whole_milliseconds() {
        let client = ::reqwest::Client::new();
        let header = |name: &str| {
            let request = client.get("http://payments/").with_deadline();
            let request = request.with_deadline_as(HeaderName::from_static("x-budget")).build();
            let headers = request.expect("a request").headers().clone();
            headers
                .get(name)
                .map(|value| value.to_str().expect("digits").to_owned())
        };
        assert_eq!(header("x-deadline-ms"), None);
        let inside = deadline::scope(Duration::from_micros(1_500_900), async {
            assert_eq!(header("x-budget").as_deref(), Some("1500"));
            tokio::time::advance(Duration::from_secs(2)).await;
            header("x-deadline-ms")
        });
        assert_eq!(inside.await, Ok(Some("0".to_owned())));
    }
}

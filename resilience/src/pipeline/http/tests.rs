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

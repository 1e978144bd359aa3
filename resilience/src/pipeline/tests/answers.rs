//! What comes out: fallbacks, errors, and what a handler answers.

use std::{error::Error as StdError, future::ready};

use poem::{
    Endpoint, Request,
    http::{StatusCode, header},
};
use tokio::time::sleep;

use super::{Down, Failed, inner, limit_of_one, limiter, millis, open_breaker};
use crate::{
    Error,
    breaker::{BreakerConfig, CircuitBreaker, CircuitOpen, State},
    concurrency::{Overloaded, Priority},
    deadline::DeadlineExceeded,
    pipeline::{AnyRejection, Claim, LimitError, PermitLimitExceeded, Pipeline, PipelineError, RateLimited},
};

#[tokio::test(start_paused = true)]
async fn a_fallback_answers_for_what_is_inside_it_alone() {
    let down = Down::default();
    let inside = Pipeline::builder()
        .fallback(|error: PipelineError<Failed>| async move { Ok(error.into_inner().map_or(0, |failed| failed.0)) })
        .retry(2)
        .build();
    assert_eq!(inside.call(|| down.ask()).await.unwrap(), 3);
    let outside = Pipeline::builder()
        .breaker(open_breaker())
        .fallback(|_| ready(Ok(7)))
        .build();
    assert!(matches!(outside.call(|| down.ask()).await, Err(PipelineError::Open(_))));
    // One that fails too: its error is the call's own.
    let failing = Pipeline::builder()
        .fallback(|_| ready(Err(Failed(99))))
        .breaker(open_breaker())
        .build();
    let Err(PipelineError::Inner(Failed(99))) = failing.call(|| down.ask()).await else {
        panic!("the fallback's own error");
    };
}

#[tokio::test(start_paused = true)]
async fn recovering_may_pass_an_error_on() {
    let recover = |error: PipelineError<Failed>| {
        ready(match error {
            PipelineError::Open(_) => Ok(1),
            other => Err(other),
        })
    };
    let down = Down::default();
    let pipeline = Pipeline::builder().recover(recover).breaker(open_breaker()).build();
    assert_eq!(pipeline.call(|| down.ask()).await.unwrap(), 1);
    let pipeline = Pipeline::builder().recover(recover).build();
    assert_eq!(inner(pipeline.call(|| down.ask()).await.unwrap_err()), Failed(1));
}

/// One of each rejection, as any pipeline can give it.
fn rejections() -> Vec<(PipelineError<Failed>, &'static str, StatusCode)> {
    let open = open_breaker().try_acquire().unwrap_err();
    let bulkhead = limit_of_one(0);
    let _holder = bulkhead.try_acquire(Priority::Default).unwrap();
    let full = bulkhead.try_acquire(Priority::Default).unwrap_err();
    let limits = limiter(1);
    limits.try_acquire("a").unwrap();
    let limited = match limits.try_acquire("a").unwrap_err() {
        LimitError::RateLimited(limited) => limited,
        LimitError::PermitLimitExceeded(_) => unreachable!("it costs 1"),
    };
    let over = match limits.try_acquire(Claim::shared().with_cost(2)).unwrap_err() {
        LimitError::PermitLimitExceeded(over) => over,
        LimitError::RateLimited(_) => unreachable!("2 is above the limit"),
    };
    vec![
        (
            PipelineError::Timeout(DeadlineExceeded),
            "timeout",
            StatusCode::GATEWAY_TIMEOUT,
        ),
        (
            PipelineError::Open(open),
            "circuit_open",
            StatusCode::SERVICE_UNAVAILABLE,
        ),
        (
            PipelineError::Overloaded(full),
            "overloaded",
            StatusCode::SERVICE_UNAVAILABLE,
        ),
        (
            PipelineError::RateLimited(limited),
            "rate_limited",
            StatusCode::TOO_MANY_REQUESTS,
        ),
        (
            PipelineError::PermitLimitExceeded(over),
            "permit_limit_exceeded",
            StatusCode::TOO_MANY_REQUESTS,
        ),
    ]
}

fn is_rejection(error: &(dyn StdError + 'static)) -> bool {
    error.is::<DeadlineExceeded>()
        || error.is::<CircuitOpen>()
        || error.is::<Overloaded>()
        || error.is::<RateLimited>()
        || error.is::<PermitLimitExceeded>()
}

#[tokio::test]
async fn each_rejection_says_what_it_is_everywhere() {
    for (rejection, code, status) in rejections() {
        assert_eq!(rejection.code(), Some(code));
        assert_eq!(rejection.http_status(), Some(status));
        assert!(is_rejection(rejection.source().expect("the rejection")), "{rejection}");

        let error = Error::from(with_own(rejection.clone()));
        assert_eq!((error.code(), error.http_status()), (code, status));
        assert!(is_rejection(error.source().expect("what it was made of")));
        assert_eq!(error.retry_after().is_some(), rejection.retry_after().is_some());

        let retry_after = rejection.retry_after();
        let answer = poem::Error::from(with_poem(rejection)).into_response();
        assert_eq!(answer.status(), status);
        assert_eq!(
            answer.headers().contains_key(header::RETRY_AFTER),
            retry_after.is_some()
        );
        let body = answer.into_body().into_string().await.unwrap();
        assert!(body.contains(&format!("\"error\":\"{code}\"")), "{body}");
    }
}

fn with_own(error: PipelineError<Failed>) -> PipelineError<Error> {
    error.map(|failed| Error::new(StatusCode::BAD_GATEWAY, "failed", failed.to_string()))
}

fn with_poem(error: PipelineError<Failed>) -> PipelineError<poem::Error> {
    error.map(poem::error::InternalServerError)
}

#[test]
fn the_call_s_own_error_passes_through_untouched() {
    let error = PipelineError::<_, AnyRejection>::Inner(Failed(3));
    assert_eq!(
        (error.code(), error.http_status(), error.retry_after()),
        (None, None, None)
    );
    assert!(error.source().expect("its own").is::<Failed>());
    assert_eq!(
        poem::Error::from(with_poem(error.clone())).status(),
        StatusCode::INTERNAL_SERVER_ERROR
    );
    assert_eq!(Error::from(with_own(error.clone())).code(), "failed");
    assert_eq!(with_own(error).flatten().code(), "failed");
}

#[tokio::test(start_paused = true)]
async fn a_question_mark_in_a_handler_does_what_it_should() {
    #[poem::handler]
    async fn quote(pipeline: poem::web::Data<&CircuitBreaker>) -> poem::Result<String> {
        let pipeline = Pipeline::builder()
            .deadline(millis(100))
            .breaker(pipeline.clone())
            .build();
        let name = String::from("quote");
        Ok(pipeline
            .call(|| async {
                sleep(millis(200)).await;
                Ok::<_, std::io::Error>(name.clone())
            })
            .await
            .map_err(|error| error.map(poem::error::BadGateway))?)
    }

    let ask = async |breaker: CircuitBreaker| {
        let app = poem::EndpointExt::data(quote, breaker);
        app.get_response(Request::default()).await.status()
    };
    let well = CircuitBreaker::new("test", BreakerConfig::default()).unwrap();
    assert_eq!(ask(well).await, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(ask(open_breaker()).await, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_opens_the_breaker() {
    let window = crate::breaker::RateWindow::Calls(2);
    let config = BreakerConfig::default().with_slow_calls(millis(80), 1.0, 2, window);
    let breaker = CircuitBreaker::new("test", config).unwrap();
    let pipeline = Pipeline::builder().breaker(breaker.clone()).build();
    for _ in 0..2 {
        let slow = pipeline.call(|| async {
            sleep(millis(100)).await;
            Ok::<_, Failed>(())
        });
        assert!(slow.await.is_ok());
    }
    assert_eq!(breaker.state(), State::Open);
}

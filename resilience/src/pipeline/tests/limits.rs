//! Bulkheads and rate limits around a call.

use std::{
    future::{pending, ready},
    time::Duration,
};

use super::{Failed, SECOND, limit_of_one, limiter, millis};
use crate::{
    Limit,
    clock::Clock,
    concurrency::{ConcurrencyConfig, ConcurrencyLimit, Priority, Shed},
    deadline::{self, DeadlineExceeded},
    pipeline::{Claim, Context, LimitError, Pipeline, PipelineError, RateLimiter},
};

#[tokio::test(start_paused = true)]
async fn a_full_bulkhead_refuses_and_a_spent_budget_is_no_overload() {
    let limit = limit_of_one(4);
    let _holder = limit.try_acquire(Priority::Default).unwrap();
    let pipeline = Pipeline::builder().bulkhead(limit.clone()).build();
    let call = || pipeline.call(|| ready(Ok::<_, Failed>(())));
    let Err(PipelineError::Overloaded(full)) = call().await else {
        panic!("no place in 100 ms");
    };
    assert_eq!(full.reason(), Shed::QueueTimeout);
    for budget in [20, 99] {
        let ended = deadline::scope(millis(budget), call()).await;
        assert!(matches!(
            ended,
            Ok(Err(PipelineError::Timeout(_))) | Err(DeadlineExceeded)
        ));
    }
    let full = Pipeline::builder().retry(3).bulkhead(limit_of_one(0)).build();
    let inside = full.call(|| async {
        let refused = full.call(|| ready(Ok::<(), Failed>(()))).await;
        assert!(matches!(&refused, Err(PipelineError::Overloaded(full)) if full.reason() == Shed::QueueFull));
        Ok::<_, Failed>(())
    });
    assert!(inside.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_adaptive_bulkhead_learns_from_what_runs_out_of_time_and_not_from_errors() {
    let limit = || ConcurrencyLimit::new("test", ConcurrencyConfig::new(64).with_adaptive(Default::default())).unwrap();
    let (failing, hanging) = (limit(), limit());
    let started = failing.limit();
    let pipeline = |limit: &ConcurrencyLimit| {
        let builder = Pipeline::builder().bulkhead(limit.clone());
        builder.deadline(millis(50)).build()
    };
    let (fails, hangs) = (pipeline(&failing), pipeline(&hanging));
    for _ in 0..50 {
        let calls = (0..4).map(|_| async {
            assert!(fails.call(|| ready(Err::<(), _>(Failed(1)))).await.is_err());
            assert!(hangs.call(pending::<Result<(), Failed>>).await.is_err());
        });
        futures_util::future::join_all(calls).await;
    }
    assert_eq!(failing.limit(), started, "a fast error says nothing of time");
    assert!(hanging.limit() < started, "{} of {started}", hanging.limit());
}

#[tokio::test(start_paused = true)]
async fn the_priority_of_the_context_decides_who_is_next() {
    let limit = limit_of_one(8);
    let holder = limit.try_acquire(Priority::Default).unwrap();
    let pipeline = Pipeline::builder().bulkhead(limit.clone()).build();
    let served = std::sync::Mutex::new(Vec::new());
    let call = |priority: Option<Priority>| {
        let context = priority.map_or_else(Context::new, |priority| Context::new().with(priority));
        let (pipeline, served) = (&pipeline, &served);
        async move {
            let answer = pipeline.call_with(&context, || {
                served.lock().unwrap().push(priority);
                ready(Ok::<_, Failed>(()))
            });
            answer.await.unwrap();
        }
    };
    let (background, critical) = (Some(Priority::Background), Some(Priority::Critical));
    tokio::join!(call(background), call(None), call(critical), async {
        tokio::task::yield_now().await;
        drop(holder);
    });
    assert_eq!(*served.lock().unwrap(), [critical, None, background]);
}

#[tokio::test]
async fn keys_and_costs_come_from_the_context() {
    #[derive(Clone)]
    struct Tenant(&'static str, u32);

    let pipeline = Pipeline::builder()
        .rate_limit_by(limiter(3), |context| match context.get::<Tenant>() {
            Some(Tenant(name, cost)) => Claim::new(*name).with_cost(*cost),
            None => Claim::shared(),
        })
        .build();
    let call = async |context: Context| pipeline.call_with(&context, || ready(Ok::<_, Failed>(()))).await;
    let tenant = |name, cost| Context::new().with(Tenant(name, cost));
    assert!(call(tenant("a", 2)).await.is_ok());
    let Err(PipelineError::RateLimited(limited)) = call(tenant("a", 2)).await else {
        panic!("two and two are more than three");
    };
    assert!(limited.retry_after() > Duration::ZERO);
    assert!(call(tenant("a", 1)).await.is_ok(), "what was refused took nothing");
    assert!(call(tenant("b", 3)).await.is_ok());
    assert!(call(tenant("b", 0)).await.is_ok(), "a call of no cost");
    for _ in 0..3 {
        assert!(call(Context::new()).await.is_ok());
    }
    assert!(call(Context::new()).await.is_err());
    let Err(PipelineError::PermitLimitExceeded(over)) = call(tenant("c", 4)).await else {
        panic!("four are more than three");
    };
    assert_eq!(over.limiter(), "test");
}

#[test]
fn a_limiter_of_no_sense_is_refused() {
    assert!(RateLimiter::local("test", Limit::new(0, SECOND)).is_err());
    assert!(RateLimiter::local("test", Limit::new(1, Duration::ZERO)).is_err());
}

#[test]
fn a_limiter_waits_for_its_window() {
    let clock = Clock::manual();
    let limiter = RateLimiter::local("test", Limit::new(1, SECOND))
        .unwrap()
        .with_clock(clock.clone());
    assert!(limiter.try_acquire("a").is_ok());
    let Err(LimitError::RateLimited(limited)) = limiter.clone().try_acquire("a") else {
        panic!("one in a second");
    };
    clock.advance(limited.retry_after());
    assert!(limiter.try_acquire("a").is_ok());
}

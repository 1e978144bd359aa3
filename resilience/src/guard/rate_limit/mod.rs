//! Quotas. All quotas of one phase are taken together or not at all.

use poem::Request;
use smallvec::SmallVec;

use super::auth::Identity;
use crate::{
    bound::{BoundQuota, Quotas},
    client::ClientKey,
    error::Error,
    observe::Answer,
    policy::{Key, OnOutage},
    question::{Asked, Outage, Question},
    runtime::Runtime,
    store::{StoreError, StoreErrorKind, Take, Taken},
    store_breaker::Operation,
    trail::{LimiterFallback, Trail},
};

/// One value for each quota of a phase: one or two, as a rule.
pub(crate) type PerQuota<T> = SmallVec<[T; 2]>;

/// A quota that counts the request, and who the request counts as.
pub(crate) struct Claim<'a> {
    quota: &'a BoundQuota,
    client: ClientKey,
}

/// The claims of a request on the quotas of a phase. Quotas by address have none for an exempt client.
pub(crate) fn claims<'a>(quotas: &'a Quotas, runtime: &Runtime, request: &Request) -> PerQuota<Claim<'a>> {
    let claim = |quota: &'a BoundQuota| {
        let client = match quota.spec.key {
            Key::Ip => runtime.settings.callers.key(request)?,
            Key::Global => ClientKey::global(),
            Key::Header(name) => ClientKey::header(request, name),
            Key::Custom(key) => ClientKey::custom(key.of(request).as_deref()),
            // The compiler has refused `key = user` without `auth`, and this phase comes after it.
            Key::User => Identity::of(request).map_or_else(|| ClientKey::user(""), |user| ClientKey::user(&user.0)),
        };
        Some(Claim { quota, client })
    };
    quotas.all.iter().filter_map(claim).collect()
}

pub(crate) fn takes<'a>(claims: &'a [Claim<'_>]) -> PerQuota<Take<'a>> {
    let take = |claim: &'a Claim<'_>| Take {
        quota: &claim.quota.quota,
        client: claim.client.as_str(),
        cost: claim.quota.spec.cost,
    };
    claims.iter().map(take).collect()
}

pub(crate) fn ask<'a>(
    runtime: &'a Runtime,
    quotas: &'a Quotas,
    takes: &'a [Take<'a>],
    asked: Asked,
) -> Question<'a, Vec<Taken>> {
    Question::of_store(&quotas.breaker, asked, quotas.deadline, |deadline| {
        runtime.store.take(takes, deadline)
    })
}

/// Reads the verdict.
pub(crate) fn read<'a>(
    question: &mut Question<'_, Vec<Taken>>,
    runtime: &Runtime,
    quotas: &'a Quotas,
    claims: &[Claim<'a>],
    takes: &[Take<'_>],
    trail: &mut Trail<'a>,
) -> Result<(), Error> {
    let answer = question.read();
    runtime.observer.note(Operation::RateLimit, &answer);
    match answer.0 {
        Ok(taken) => {
            if taken.len() != takes.len() {
                let error = StoreError::new(StoreErrorKind::Answered, "the store did not answer for each quota");
                return fall_back(&Outage::Failed(error), runtime, quotas, claims, takes, trail);
            }
            settle(counting(claims).zip(taken), trail, Answer::Passed)
        }
        Err(outage) => fall_back(&outage, runtime, quotas, claims, takes, trail),
    }
}

/// The quotas that count the request.
fn counting<'a>(claims: &[Claim<'a>]) -> impl Iterator<Item = &'a BoundQuota> {
    claims.iter().map(|claim| claim.quota)
}

/// What the quotas say while the store cannot: refusing outright comes first, so that it consumes nothing elsewhere.
fn fall_back<'a>(
    outage: &Outage,
    runtime: &Runtime,
    quotas: &'a Quotas,
    claims: &[Claim<'a>],
    takes: &[Take<'_>],
    trail: &mut Trail<'a>,
) -> Result<(), Error> {
    quotas.complaints.about(&"rate_limit", outage);
    let falls = |to: OnOutage| move |(quota, _): &(&BoundQuota, &Take<'_>)| quota.spec.on_outage == to;
    let pairs = || counting(claims).zip(takes);

    if pairs().any(|pair| falls(OnOutage::FailClosed)(&pair)) {
        pairs().for_each(|(quota, _)| quota.tally.count(Answer::Unavailable));
        trail.limiter_fell_back(LimiterFallback::Closed);
        return Err(Error::limiter_unavailable().with_retry_after(runtime.settings.retry_after));
    }

    for (quota, _) in pairs().filter(falls(OnOutage::FailOpen)) {
        quota.tally.count(Answer::Open);
        trail.limiter_fell_back(LimiterFallback::Open);
    }

    let (local, local_takes): (Vec<_>, Vec<_>) = pairs().filter(falls(OnOutage::FailLocal)).unzip();
    if local.is_empty() {
        return Ok(());
    }
    trail.limiter_fell_back(LimiterFallback::Local);
    let local_takes: Vec<Take<'_>> = local_takes.into_iter().copied().collect();
    let taken = runtime.insurance.take_now(&local_takes);
    settle(local.into_iter().zip(taken), trail, Answer::Local)
}

/// Notes what each quota said; the longest wait of those that refuse decides.
fn settle<'a>(
    answers: impl Iterator<Item = (&'a BoundQuota, Taken)>,
    trail: &mut Trail<'a>,
    passed: Answer,
) -> Result<(), Error> {
    let mut wait = None;
    for (quota, taken) in answers {
        if taken.allowed {
            quota.tally.count(passed);
        } else {
            quota.tally.count(Answer::Rejected);
            wait = wait.max(Some(taken.retry_after));
        }
        trail.quota_said(quota, taken);
    }
    match wait {
        None => Ok(()),
        Some(wait) => Err(Error::rate_limited(wait)),
    }
}

//! Quotas. All quotas of one phase are taken together or not at all.

use poem::Request;
use smallvec::SmallVec;

use super::auth::Identity;
use crate::{
    bound::{BoundQuota, Quotas},
    client::ClientKey,
    error::Error,
    limits::TermsRef,
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
    /// What holds for this request, to its end; `None` if nobody defines the quota.
    terms: Option<TermsRef<'a>>,
    client: ClientKey,
}

impl<'a> Claim<'a> {
    fn new(quota: &'a BoundQuota, client: ClientKey) -> Self {
        Self {
            terms: quota.terms(),
            quota,
            client,
        }
    }

    fn on_outage(&self) -> OnOutage {
        let decided = self.terms.as_ref().and_then(|terms| terms.on_outage);
        decided.unwrap_or(self.quota.spec.on_outage)
    }
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
        Some(Claim::new(quota, client))
    };
    quotas.all.iter().filter_map(claim).collect()
}

/// What to take: nothing if a quota that nobody defines refuses the request anyway.
pub(crate) fn takes<'a>(claims: &'a [Claim<'_>]) -> PerQuota<Take<'a>> {
    if claims.iter().any(is_refused_undefined) {
        return PerQuota::new();
    }
    let take = |(claim, terms): (&'a Claim<'_>, &'a TermsRef<'_>)| Take {
        quota: &terms.quota,
        client: claim.client.as_str(),
        cost: claim.quota.spec.cost,
    };
    counting(claims).map(take).collect()
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

/// What quotas that nobody defines say: as in an outage, since there is no number to count to.
pub(crate) fn undefined(runtime: &Runtime, claims: &[Claim<'_>], trail: &mut Trail<'_>) -> Result<(), Error> {
    for claim in claims.iter().filter(|claim| claim.terms.is_none()) {
        let name = claim.quota.spec.name.unwrap_or("default");
        claim.quota.complaints.say(
            &format_args!("rate_limit {name}"),
            &"nobody defines this quota: `Resilience::verify` tells so at the start",
        );
        if !is_refused_undefined(claim) {
            claim.quota.tally.count(Answer::Open);
            trail.limiter_fell_back(LimiterFallback::Open);
        }
    }
    if !claims.iter().any(is_refused_undefined) {
        return Ok(());
    }
    claims
        .iter()
        .for_each(|claim| claim.quota.tally.count(Answer::Unavailable));
    trail.limiter_fell_back(LimiterFallback::Closed);
    Err(Error::limiter_unavailable().with_retry_after(runtime.settings.retry_after))
}

fn is_refused_undefined(claim: &Claim<'_>) -> bool {
    claim.terms.is_none() && claim.on_outage() == OnOutage::FailClosed
}

/// The quotas that count the request, with their terms.
fn counting<'c, 'a>(claims: &'c [Claim<'a>]) -> impl Iterator<Item = (&'c Claim<'a>, &'c TermsRef<'a>)> {
    claims.iter().filter_map(|claim| Some((claim, claim.terms.as_ref()?)))
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
    let pairs = || counting(claims).zip(takes);
    let falling = |to: OnOutage| pairs().filter(move |((claim, _), _)| claim.on_outage() == to);

    if falling(OnOutage::FailClosed).next().is_some() {
        pairs().for_each(|((claim, _), _)| claim.quota.tally.count(Answer::Unavailable));
        trail.limiter_fell_back(LimiterFallback::Closed);
        return Err(Error::limiter_unavailable().with_retry_after(runtime.settings.retry_after));
    }

    for ((claim, _), _) in falling(OnOutage::FailOpen) {
        claim.quota.tally.count(Answer::Open);
        trail.limiter_fell_back(LimiterFallback::Open);
    }

    let (local, local_takes): (Vec<_>, Vec<_>) = falling(OnOutage::FailLocal).unzip();
    if local.is_empty() {
        return Ok(());
    }
    trail.limiter_fell_back(LimiterFallback::Local);
    let local_takes: Vec<Take<'_>> = local_takes.into_iter().copied().collect();
    let taken = runtime.insurance.take_now(&local_takes);
    settle(local.into_iter().zip(taken), trail, Answer::Local)
}

/// Notes what each quota said; the longest wait of those that refuse decides.
fn settle<'c, 'a: 'c>(
    answers: impl Iterator<Item = ((&'c Claim<'a>, &'c TermsRef<'a>), Taken)>,
    trail: &mut Trail<'a>,
    passed: Answer,
) -> Result<(), Error> {
    let mut wait = None;
    for ((claim, terms), taken) in answers {
        if taken.allowed {
            claim.quota.tally.count(passed);
        } else {
            claim.quota.tally.count(Answer::Rejected);
            wait = wait.max(Some(taken.retry_after));
        }
        trail.quota_said(terms.clone(), taken);
    }
    match wait {
        None => Ok(()),
        Some(wait) => Err(Error::rate_limited(wait)),
    }
}

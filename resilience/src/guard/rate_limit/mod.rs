//! Quotas. All quotas of one phase that decide are taken together or not at all; each that only observes is asked for by
//! itself.

mod blocked;

use std::{cell::OnceCell, time::Duration};

use poem::Request;
use smallvec::SmallVec;
use tokio::time::Instant;

pub(crate) use self::blocked::Blocked;
use super::auth::Identity;
use crate::{
    bound::{BoundQuota, Quotas},
    client::ClientKey,
    error::Error,
    limits::{Terms, TermsRef},
    observe::Answer,
    policy::{Key, OnOutage},
    question::{Asked, Outage, Pending, Question},
    runtime::Runtime,
    store::{StoreError, StoreErrorKind, Take, Taken},
    store_breaker::Operation,
    trail::{Counted, Fallback, Trail},
};

/// One value for each quota of a phase: one or two, as a rule.
type PerQuota<T> = SmallVec<[T; 2]>;

/// A quota that counts the request, and who the request counts as.
struct Claim<'a> {
    quota: &'a BoundQuota,
    /// What holds for this request, to its end.
    terms: TermsRef<'a>,
    client: ClientKey,
    /// What guards further out have not taken yet.
    cost: u32,
}

impl<'a> Claim<'a> {
    /// What happens in an outage: the limit's word counts for more than the handler's.
    fn on_outage(&self) -> OnOutage {
        self.terms.on_outage.unwrap_or(self.quota.spec.on_outage)
    }

    fn take<'q>(&'q self, terms: &'q Terms) -> Take<'q> {
        Take {
            quota: &terms.quota,
            client: self.client.as_str(),
            cost: self.cost,
        }
    }

    /// By what this process counts in an outage.
    fn local_terms(&self) -> TermsRef<'a> {
        self.terms.local(self.quota.spec.local_share)
    }
}

/// The claims of a request on the quotas of a phase. Quotas by address have none for an exempt client.
pub(crate) struct Claims<'a> {
    quotas: &'a Quotas,
    /// On those that decide, then on those that observe.
    all: PerQuota<Claim<'a>>,
    deciding: usize,
    /// Quotas that would decide, but that nobody defines.
    undefined: SmallVec<[&'a BoundQuota; 1]>,
}

impl<'a> Claims<'a> {
    pub(crate) fn new(quotas: &'a Quotas, runtime: &Runtime, request: &Request) -> Self {
        let address = OnceCell::new();
        let client = |quota: &BoundQuota| {
            Some(match quota.spec.key {
                // Once for all quotas: it may ask code of the user's own.
                Key::Ip => address.get_or_init(|| runtime.settings.callers.key(request)).clone()?,
                Key::Global => ClientKey::global(),
                Key::Header(name) => ClientKey::header(request, name),
                Key::Custom(key) => ClientKey::custom(key.of(request).as_deref()),
                // The compiler has refused `key = user` without `auth`, and this phase comes after it.
                Key::User => Identity::of(request).map_or_else(|| ClientKey::user(""), |user| ClientKey::user(&user.0)),
            })
        };
        let counted = Counted::of(request, runtime);
        // On those that have not counted the request already, for the rest of their cost.
        let claims =
            |quotas: &'a [BoundQuota], all: &mut PerQuota<Claim<'a>>, undefined: &mut dyn FnMut(&'a BoundQuota)| {
                for quota in quotas {
                    let Some(client) = client(quota) else { continue };
                    let Some(terms) = quota.terms() else {
                        undefined(quota);
                        continue;
                    };
                    let taken = counted.map_or(0, |counted| counted.cost_of(&terms.quota.id, &client));
                    let cost = quota.spec.cost.saturating_sub(taken);
                    if cost > 0 {
                        all.push(Claim {
                            quota,
                            terms,
                            client,
                            cost,
                        });
                    }
                }
            };
        let (mut all, mut undefined) = (PerQuota::new(), SmallVec::new());
        claims(&quotas.all, &mut all, &mut |quota| undefined.push(quota));
        let deciding = all.len();
        claims(&quotas.observed, &mut all, &mut |quota| say_undefined(quota));
        Self {
            quotas,
            all,
            deciding,
            undefined,
        }
    }

    /// What the store is asked for, in the order of the claims.
    pub(crate) fn takes(&self) -> PerQuota<Take<'_>> {
        self.all.iter().map(|claim| claim.take(&claim.terms)).collect()
    }

    /// Refuses what the store is known to refuse, in its words, so that nobody needs to ask it.
    ///
    /// # Errors
    ///
    /// The refusal, if any quota that decides would give one.
    pub(crate) fn check_known(&self, runtime: &Runtime, asked: Asked, trail: &mut Trail<'a>) -> Result<(), Error> {
        if runtime.blocked.is_idle(asked.at) {
            return Ok(());
        }
        let recall = |claim: &Claim<'_>| {
            let take = claim.take(&claim.terms);
            runtime.blocked.recall(&take, claim.terms.version(), asked.at)
        };
        let known: PerQuota<_> = self.deciding().iter().map(recall).collect();
        let Some(wait) = known.iter().flatten().map(|taken| taken.retry_after).max() else {
            return Ok(());
        };
        // In the order in which the store's answer is read: what nobody defines comes first.
        self.check_defined(runtime, trail)?;
        for (claim, known) in self.deciding().iter().zip(known) {
            if known.is_some() {
                claim.quota.tally.count(Answer::Rejected);
            }
            trail.quota_said(
                claim.terms.clone(),
                &claim.client,
                claim.cost,
                known.unwrap_or(NOT_ASKED),
            );
        }
        Err(Error::rate_limited(wait))
    }

    /// Quotas that nobody defines answer as in an outage, since there is no number to count to.
    fn check_defined(&self, runtime: &Runtime, trail: &mut Trail<'a>) -> Result<(), Error> {
        if self.is_refused() {
            for quota in self
                .undefined
                .iter()
                .copied()
                .chain(self.deciding().iter().map(|claim| claim.quota))
            {
                quota.tally.count(Answer::Unavailable);
            }
            self.undefined.iter().copied().for_each(say_undefined);
            trail.limiter_fell_back(Fallback::Closed);
            return Err(unavailable(runtime));
        }
        for quota in &self.undefined {
            say_undefined(quota);
            quota.tally.count(Answer::Open);
            trail.limiter_fell_back(Fallback::Open);
        }
        Ok(())
    }

    /// Whether a quota that nobody defines refuses the request: then nothing is taken from the others.
    fn is_refused(&self) -> bool {
        let closed = |quota: &&BoundQuota| quota.spec.on_outage == OnOutage::FailClosed;
        self.undefined.iter().any(closed)
    }

    fn deciding(&self) -> &[Claim<'a>] {
        &self.all[..self.deciding]
    }

    fn observing(&self) -> &[Claim<'a>] {
        &self.all[self.deciding..]
    }
}

/// Stands for a quota beside one that refuses: nothing but its policy shows.
const NOT_ASKED: Taken = Taken {
    allowed: true,
    remaining: u32::MAX,
    retry_after: Duration::ZERO,
    reset: Duration::ZERO,
};

/// The questions to the quotas of a phase: one to all that decide, if any counts the request, then one to each that observes.
pub(crate) struct QuotaQuestions<'q, 'a> {
    claims: &'q Claims<'a>,
    takes: &'q [Take<'q>],
    deciding: Option<Question<'q, Vec<Taken>>>,
    observing: SmallVec<[Question<'q, Vec<Taken>>; 1]>,
    asked: Instant,
}

impl<'q, 'a: 'q> QuotaQuestions<'q, 'a> {
    /// Asks for `takes`, which are those of the `claims`.
    pub(crate) fn ask(runtime: &'a Runtime, claims: &'q Claims<'a>, takes: &'q [Take<'q>], asked: Asked) -> Self {
        let breaker = &claims.quotas.breaker;
        let ask = |takes: &'q [Take<'q>], within| {
            Question::of_store(breaker, asked, within, |deadline| runtime.store.take(takes, deadline))
        };
        let (deciding, observing) = takes.split_at(claims.deciding);
        let deciding = if claims.is_refused() { &[] } else { deciding };
        Self {
            claims,
            takes: deciding,
            deciding: (!deciding.is_empty()).then(|| ask(deciding, claims.quotas.deadline)),
            observing: observing
                .chunks(1)
                .zip(claims.observing())
                .map(|(take, claim)| ask(take, claim.quota.deadline))
                .collect(),
            asked: asked.at,
        }
    }

    pub(crate) fn len(&self) -> usize {
        1 + self.observing.len()
    }

    pub(crate) fn question(&mut self, index: usize) -> Option<&mut dyn Pending> {
        let question = match index.checked_sub(1) {
            None => self.deciding.as_mut()?,
            Some(index) => &mut self.observing[index],
        };
        Some(question)
    }

    /// Reads the verdict, or what a quota that observes would have said.
    pub(crate) fn read(&mut self, index: usize, runtime: &Runtime, trail: &mut Trail<'a>) -> Result<(), Error> {
        let question = match index.checked_sub(1) {
            None => {
                self.claims.check_defined(runtime, trail)?;
                self.deciding.as_mut()
            }
            Some(index) => self.observing.get_mut(index),
        };
        let Some(question) = question else {
            return Ok(());
        };
        let answer = question.read();
        runtime.observer.note(Operation::RateLimit, &answer);
        let expected = index.checked_sub(1).map_or(self.takes.len(), |_| 1);
        let answer = answer.0.and_then(|taken| whole(taken, expected));
        if let Some(index) = index.checked_sub(1) {
            let claim = &self.claims.observing()[index];
            if observe(claim, self.claims.quotas, runtime, answer) {
                trail.quota_observed(&claim.terms, &claim.client, claim.cost);
            }
            return Ok(());
        }
        match answer {
            Ok(taken) => {
                for ((claim, take), taken) in self.claims.deciding().iter().zip(self.takes).zip(&taken) {
                    let version = claim.terms.version();
                    runtime.blocked.learn(take, version, self.asked, taken);
                }
                let answers = self.claims.deciding().iter().zip(taken);
                settle(
                    answers.map(|(claim, taken)| (claim, claim.terms.clone(), taken)),
                    trail,
                    Answer::Passed,
                )
            }
            Err(outage) => {
                for (claim, take) in self.claims.deciding().iter().zip(self.takes) {
                    runtime.blocked.forget(take, claim.terms.version(), self.asked);
                }
                fall_back(&outage, self.claims, runtime, trail)
            }
        }
    }
}

/// Answers of the number of questions.
fn whole(taken: Vec<Taken>, expected: usize) -> Result<Vec<Taken>, Outage> {
    if taken.len() == expected {
        return Ok(taken);
    }
    let error = StoreError::new(StoreErrorKind::Answered, "the store did not answer for each quota");
    Err(Outage::Failed(error))
}

/// What the quotas say while the store cannot: refusing outright comes first, so that it consumes nothing elsewhere.
fn fall_back<'a>(outage: &Outage, claims: &Claims<'a>, runtime: &Runtime, trail: &mut Trail<'a>) -> Result<(), Error> {
    claims.quotas.complaints.about(&"rate_limit", outage);
    if outage.is_shed() {
        // A flood must not pass uncounted because it is a flood.
        for claim in claims.deciding() {
            claim.quota.tally.count(Answer::Shed);
        }
        return Err(Error::too_busy());
    }
    let falls = |to: OnOutage| {
        let claims = claims.deciding().iter();
        claims.filter(move |claim| claim.on_outage() == to)
    };

    if falls(OnOutage::FailClosed).next().is_some() {
        for claim in claims.deciding() {
            claim.quota.tally.count(Answer::Unavailable);
        }
        trail.limiter_fell_back(Fallback::Closed);
        return Err(unavailable(runtime));
    }

    for claim in falls(OnOutage::FailOpen) {
        claim.quota.tally.count(Answer::Open);
        trail.limiter_fell_back(Fallback::Open);
    }

    let local: PerQuota<_> = falls(OnOutage::FailLocal).collect();
    if local.is_empty() {
        return Ok(());
    }
    trail.limiter_fell_back(Fallback::Local);
    let terms: PerQuota<_> = local.iter().map(|claim| claim.local_terms()).collect();
    let takes: PerQuota<_> = local
        .iter()
        .zip(&terms)
        .map(|(claim, terms)| claim.take(terms))
        .collect();
    let taken = runtime.insurance.take_now(&takes);
    drop(takes);
    let answers = local.iter().zip(terms).zip(taken);
    settle(
        answers.map(|((claim, terms), taken)| (*claim, terms, taken)),
        trail,
        Answer::Local,
    )
}

fn unavailable(runtime: &Runtime) -> Error {
    Error::limiter_unavailable().with_retry_after(runtime.settings.retry_after)
}

/// Notes what each quota said; the longest wait of those that refuse decides.
fn settle<'a: 'c, 'c>(
    answers: impl Iterator<Item = (&'c Claim<'a>, TermsRef<'a>, Taken)>,
    trail: &mut Trail<'a>,
    passed: Answer,
) -> Result<(), Error> {
    let mut wait = None;
    for (claim, terms, taken) in answers {
        if taken.allowed {
            claim.quota.tally.count(passed);
        } else {
            claim.quota.tally.count(Answer::Rejected);
            wait = wait.max(Some(taken.retry_after));
        }
        trail.quota_said(terms, &claim.client, claim.cost, taken);
    }
    match wait {
        None => Ok(()),
        Some(wait) => Err(Error::rate_limited(wait)),
    }
}

/// Notes what a quota would have done, and says whether it has counted the request. The request passes, and no header
/// speaks of it.
fn observe(claim: &Claim<'_>, quotas: &Quotas, runtime: &Runtime, answer: Result<Vec<Taken>, Outage>) -> bool {
    let quota = claim.quota;
    let (taken, passed) = match answer {
        Ok(taken) => (taken, Answer::Passed),
        Err(outage) => {
            quotas.complaints.about(&"rate_limit", &outage);
            match claim.on_outage() {
                OnOutage::FailOpen => (Vec::new(), Answer::Open),
                OnOutage::FailClosed => {
                    would_have(quota, &unavailable(runtime));
                    return false;
                }
                OnOutage::FailLocal => {
                    let terms = claim.local_terms();
                    (runtime.insurance.take_now(&[claim.take(&terms)]), Answer::Local)
                }
            }
        }
    };
    match taken.first() {
        Some(refused) if !refused.allowed => would_have(quota, &Error::rate_limited(refused.retry_after)),
        _ => quota.tally.count(passed),
    }
    taken.first().is_some_and(|taken| taken.allowed)
}

fn would_have(quota: &BoundQuota, refusal: &Error) {
    quota.tally.count(Answer::ObservedRejected);
    let guard = format_args!("rate_limit:{}", quota.label);
    quota.would_have.would_have_rejected(&guard, refusal);
}

fn say_undefined(quota: &BoundQuota) {
    let name = quota.spec.name.unwrap_or("default");
    quota.complaints.say(
        &format_args!("rate_limit {name}"),
        &"this quota has no definition: set it in the store, or define it by the builder's `.limit(…)`",
    );
}

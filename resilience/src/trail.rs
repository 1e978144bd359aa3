//! What the guards of one request have decided so far, and the headers that say so.

use std::sync::Arc;

use poem::{
    Request, Response,
    http::{HeaderName, HeaderValue},
};
use smallvec::SmallVec;

use crate::{
    bound::BoundFlag,
    client::ClientKey,
    error::number,
    fields::{self, RATELIMIT, RATELIMIT_POLICY},
    limits::TermsRef,
    runtime::{RateLimitHeaders, Runtime},
    store::Taken,
};

/// Notes of the guards that were read, in the order in which they were read.
#[derive(Debug, Default)]
pub(crate) struct Trail<'a> {
    flags: Vec<&'a BoundFlag>,
    guards: Vec<&'static str>,
    limiter: Option<Fallback>,
    lockout: Option<Fallback>,
    quotas: SmallVec<[(TermsRef<'a>, Taken); 2]>,
    /// What was counted, for guards further in; `None` where there are none to tell.
    counted: Option<Counted>,
}

/// What guards further out have counted a request in, for those further in: no quota counts a request twice.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    /// The address of the runtime that counted: another one has quotas of its own.
    runtime: usize,
    all: Vec<CountedIn>,
}

#[derive(Clone, Debug)]
struct CountedIn {
    terms: TermsRef<'static>,
    client: ClientKey,
    cost: u32,
    /// What the quota said; `None` if it only observes, and nobody is to hear of it.
    taken: Option<Taken>,
}

impl Counted {
    /// Nothing, by this runtime.
    pub(crate) fn by(runtime: &Arc<Runtime>) -> Self {
        Self {
            runtime: Arc::as_ptr(runtime).addr(),
            all: Vec::new(),
        }
    }

    /// What this runtime has counted the request in.
    pub(crate) fn of<'r>(request: &'r Request, runtime: &Runtime) -> Option<&'r Self> {
        let counted = request.extensions().get::<Self>();
        counted.filter(|counted| counted.runtime == std::ptr::from_ref(runtime).addr())
    }

    /// How much the quota of this id has taken of this client.
    pub(crate) fn cost_of(&self, quota: &str, client: &ClientKey) -> u32 {
        let same = |counted: &&CountedIn| counted.terms.quota.id == quota && counted.client == *client;
        let costs = self.all.iter().filter(same).map(|counted| counted.cost);
        costs.fold(0, u32::saturating_add)
    }
}

/// How limits or lockouts fell back. Ordered by what an operator must know most: a later one hides an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fallback {
    Local,
    Open,
    Closed,
}

impl Fallback {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

impl<'a> Trail<'a> {
    pub(crate) fn flag_fell_back(&mut self, flag: &'a BoundFlag) {
        self.flags.push(flag);
    }

    pub(crate) fn guard_fell_back(&mut self, name: &'static str) {
        self.guards.push(name);
    }

    pub(crate) fn limiter_fell_back(&mut self, to: Fallback) {
        self.limiter = self.limiter.max(Some(to));
    }

    pub(crate) fn lockout_fell_back(&mut self, to: Fallback) {
        self.lockout = self.lockout.max(Some(to));
    }

    pub(crate) fn quota_said(&mut self, terms: TermsRef<'a>, client: &ClientKey, cost: u32, taken: Taken) {
        self.count(&terms, client, cost, Some(taken));
        self.say(terms, taken);
    }

    /// A quota that only observes has counted the request.
    pub(crate) fn quota_observed(&mut self, terms: &TermsRef<'a>, client: &ClientKey, cost: u32) {
        self.count(terms, client, cost, None);
    }

    fn count(&mut self, terms: &TermsRef<'a>, client: &ClientKey, cost: u32, taken: Option<Taken>) {
        if let Some(counted) = &mut self.counted {
            counted.all.push(CountedIn {
                terms: terms.clone().into_owned(),
                client: client.clone(),
                cost,
                taken,
            });
        }
    }

    fn say(&mut self, terms: TermsRef<'a>, taken: Taken) {
        // What further in asks for the rest of its cost knows better how much is left.
        self.quotas.retain(|(other, _)| other.quota.id != terms.quota.id);
        self.quotas.push((terms, taken));
    }

    /// Keeps what is counted from here on for guards further in, after what was counted before.
    pub(crate) fn keep_counted(&mut self, before: Counted) {
        self.counted = Some(before);
    }

    /// What was counted, if anything was and anybody is to know.
    pub(crate) fn counted(&mut self) -> Option<Counted> {
        self.counted.take().filter(|counted| !counted.all.is_empty())
    }

    /// Goes on where guards further out have left off.
    pub(crate) fn resume(&mut self, counted: &Counted) {
        for counted in &counted.all {
            if let Some(taken) = counted.taken {
                self.say(counted.terms.clone(), taken);
            }
        }
    }

    /// The headers that stand on the answer, whoever gives it.
    pub(crate) fn headers(&self, families: RateLimitHeaders) -> DecidedHeaders {
        let mut headers = Vec::with_capacity(5);
        for flag in &self.flags {
            headers.push((FLAG_FALLBACK, flag.header.clone()));
        }
        for name in &self.guards {
            if let Ok(name) = HeaderValue::from_str(name) {
                headers.push((GUARD_FALLBACK, name));
            }
        }
        if let Some(fallback) = self.limiter {
            headers.push((LIMITER_FALLBACK, HeaderValue::from_static(fallback.as_str())));
        }
        if let Some(fallback) = self.lockout {
            headers.push((LOCKOUT_FALLBACK, HeaderValue::from_static(fallback.as_str())));
        }
        if families.legacy
            && let Some((terms, taken)) = self.tightest()
        {
            headers.push((LIMIT, terms.limit.clone()));
            headers.push((REMAINING, number(taken.remaining.into())));
        }
        if families.ietf && !self.quotas.is_empty() {
            headers.push((RATELIMIT_POLICY, self.ietf_policy()));
            let said = self.quotas.iter().map(|(terms, taken)| (&*terms.name, *taken));
            headers.push((RATELIMIT, fields::state(said)));
        }
        DecidedHeaders(headers)
    }

    /// The quota that `x-ratelimit-*` shows: one that refuses before any other, else the one with the least remaining.
    fn tightest(&self) -> Option<&(TermsRef<'a>, Taken)> {
        self.quotas
            .iter()
            .min_by_key(|(_, taken)| (taken.allowed, taken.remaining))
    }

    fn ietf_policy(&self) -> HeaderValue {
        match &self.quotas[..] {
            [(terms, _)] => terms.policy_item.clone(),
            several => fields::policies(several.iter().map(|(terms, _)| &terms.policy_item)),
        }
    }
}

/// Headers that guards have decided, ready to stand on an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecidedHeaders(Vec<(HeaderName, HeaderValue)>);

impl DecidedHeaders {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn extend(&mut self, later: Self) {
        if self.0.is_empty() {
            *self = later;
        } else {
            self.0.extend(later.0);
        }
    }

    /// Writes them over what the response says of the same names: the guards know, the handler does not.
    pub(crate) fn write(self, response: &mut Response) {
        let headers = response.headers_mut();
        headers.reserve(self.0.len());
        // Several may fall back, in a handler within a handler too: each is named, after what others said is gone.
        let (mut flags, mut guards) = (false, false);
        for (name, value) in self.0 {
            let again = (name == FLAG_FALLBACK && std::mem::replace(&mut flags, true))
                || (name == GUARD_FALLBACK && std::mem::replace(&mut guards, true));
            if again {
                headers.append(&name, value);
            } else {
                headers.insert(&name, value);
            }
        }
    }
}

const FLAG_FALLBACK: HeaderName = HeaderName::from_static("x-flag-fallback");
const GUARD_FALLBACK: HeaderName = HeaderName::from_static("x-guard-fallback");
const LIMITER_FALLBACK: HeaderName = HeaderName::from_static("x-ratelimit-fallback");
const LOCKOUT_FALLBACK: HeaderName = HeaderName::from_static("x-lockout-fallback");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");

//! The plain way: one guard after another, as the book describes them. Shares no code with the chain but the embedded
//! store, which counts for quotas that fail local.

use std::{collections::HashMap, time::Duration};

use poem::Endpoint;
use resilience::{
    Identity,
    guard::GuardOutage,
    policy::{Key, Mode, OnOutage},
    store::{MemoryStore, Quota, Store, StoreErrorKind, Take, Taken},
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Seen,
    notes::{Notes, Refusal},
    plan::{
        AUTH_DEADLINE, Behaviour, Case, FLAG_DEADLINE, FlagPlan, GUARD_DEADLINE, GuardSays, LIMIT_DEADLINE, Operation,
        RateLimitPlan, Step,
    },
};

pub(super) struct Reference<'a> {
    case: &'a Case,
    insurance: MemoryStore,
    last_known: HashMap<&'static str, (bool, Instant)>,
    /// What the store has refused: of which quota and whom, until when, and what it said.
    refused: HashMap<(String, &'static str), (Instant, Taken)>,
}

impl<'a> Reference<'a> {
    pub(super) fn new(case: &'a Case) -> Self {
        Self {
            case,
            insurance: MemoryStore::new(),
            last_known: HashMap::new(),
            refused: HashMap::new(),
        }
    }

    pub(super) async fn answer(&mut self, step: &Step) -> Seen {
        let mut notes = Notes::default();
        let mut seen = match self.guard(step, &mut notes).await {
            Ok(user) => self.handle(step, user).await,
            Err(refusal) => refusal.seen(step.request.accept.1),
        };
        for (name, values) in notes.headers() {
            seen.headers.retain(|(present, _)| present != name);
            seen.headers
                .extend(values.into_iter().map(|value| (name.to_owned(), value)));
        }
        seen.headers.sort_by(|(a, _), (b, _)| a.cmp(b));
        seen
    }

    async fn guard(&mut self, step: &Step, notes: &mut Notes<'a>) -> Result<Option<&'static str>, Refusal> {
        let asked = Instant::now();
        let case = self.case;
        self.limit(false, step, None, notes).await?;
        for (flag, behaviour) in case.flags.iter().zip(&step.store.flags) {
            self.flag(flag, behaviour, asked, notes).await?;
        }
        let user = if case.auth.is_some() {
            Some(self.authenticate(step).await?)
        } else {
            None
        };
        self.guards_of_the_users_own(notes).await?;
        self.limit(true, step, user, notes).await?;
        Ok(user)
    }

    /// The store's answer, unless its breaker is open, or it fails, or it comes later than the deadline: then `None`. A
    /// store that was not asked, since this process is short of something, is a refusal.
    async fn ask<T: Clone>(
        &self,
        operation: Operation,
        within: Duration,
        behaviour: &Behaviour<T>,
    ) -> Result<Option<T>, Refusal> {
        if self.case.is_open(operation) {
            return Ok(None);
        }
        let answer = async {
            sleep(behaviour.after).await;
            match &behaviour.outcome {
                Some(outcome) => outcome.clone(),
                None => std::future::pending().await,
            }
        };
        match timeout(within, answer).await {
            Ok(Ok(answer)) => Ok(Some(answer)),
            Ok(Err(StoreErrorKind::Saturated)) => {
                Err(Refusal::new(503, "overloaded", "The service is busy.").retry_after(1))
            }
            Ok(Err(_)) | Err(_) => Ok(None),
        }
    }

    async fn limit(
        &mut self,
        by_user: bool,
        step: &Step,
        user: Option<&'static str>,
        notes: &mut Notes<'a>,
    ) -> Result<(), Refusal> {
        let named = named(&self.case.quotas);
        let quotas: Vec<_> = named
            .into_iter()
            .filter(|(quota, _)| quota.is_by_user() == by_user && quota.mode == Mode::Enforce)
            .collect();
        let Some(within) = quotas
            .iter()
            .map(|(quota, _)| quota.deadline.unwrap_or(LIMIT_DEADLINE))
            .min()
        else {
            return Ok(());
        };
        let asked = Instant::now();
        let client = |quota: &RateLimitPlan| client(quota, step, user);
        let remembered = quotas.iter().map(|(quota, name)| {
            let (until, taken) = self.refused.get(&(name.clone(), client(quota)))?;
            (*until > asked).then(|| Taken {
                retry_after: *until - asked,
                allowed: false,
                ..*taken
            })
        });
        let remembered: Vec<_> = remembered.collect();
        if remembered.iter().any(Option::is_some) {
            let answers = quotas.into_iter().zip(remembered).map(|((quota, name), taken)| {
                // It was not asked: nothing that it says shows.
                let nothing = Taken {
                    allowed: true,
                    remaining: 0,
                    retry_after: Duration::ZERO,
                    reset: Duration::ZERO,
                };
                ((quota, name), quota.limit, taken.unwrap_or(nothing))
            });
            return notes.taken(answers);
        }
        match self.ask(Operation::RateLimit, within, &step.store.take).await? {
            Some(taken) => {
                let answers: Vec<_> = quotas
                    .into_iter()
                    .zip(taken)
                    .map(|((quota, name), taken)| ((quota, name), quota.limit, taken))
                    .collect();
                // One that took the last of its quota names the wait of the next one.
                let is_over = |((quota, _), _, taken): &&((&RateLimitPlan, String), u32, Taken)| {
                    !taken.allowed || (taken.remaining < quota.cost && !taken.retry_after.is_zero())
                };
                for ((quota, name), _, taken) in answers.iter().filter(is_over) {
                    if self.case.remembers {
                        let until = asked + taken.retry_after;
                        self.refused.insert((name.clone(), client(quota)), (until, *taken));
                    }
                }
                notes.taken(answers.into_iter())
            }
            None => {
                if quotas.iter().any(|(quota, _)| quota.on_outage == OnOutage::FailClosed) {
                    notes.limiter.push(OnOutage::FailClosed);
                    let message = "The request cannot be counted at the moment.";
                    return Err(Refusal::new(503, "limiter_unavailable", message).retry_after(30));
                }
                notes.limiter.extend(quotas.iter().map(|(quota, _)| quota.on_outage));
                let local = quotas
                    .into_iter()
                    .filter(|(quota, _)| quota.on_outage == OnOutage::FailLocal);
                let local: Vec<_> = local.collect();
                let taken = self.count_here(&local, step, user).await;
                let answers = local.into_iter().zip(taken);
                notes.taken(answers.map(|((quota, name), taken)| ((quota, name), quota.local(quota.limit), taken)))
            }
        }
    }

    async fn count_here(
        &self,
        quotas: &[(&RateLimitPlan, String)],
        step: &Step,
        user: Option<&'static str>,
    ) -> Vec<Taken> {
        let counted: Vec<_> = quotas
            .iter()
            .map(|(quota, name)| {
                let counted = Quota {
                    id: name.clone(),
                    limit: quota.local(quota.limit),
                    window: Duration::from_secs(quota.seconds),
                    algorithm: quota.algorithm,
                    burst: quota.local(quota.burst.unwrap_or(quota.limit)),
                };
                (counted, client(quota, step, user), quota.cost)
            })
            .collect();
        let takes: Vec<_> = counted
            .iter()
            .map(|&(ref quota, client, cost)| Take { quota, client, cost })
            .collect();
        self.insurance
            .take(&takes, Instant::now())
            .await
            .expect("it is in the process")
    }

    async fn flag(
        &mut self,
        flag: &FlagPlan,
        behaviour: &Behaviour<Option<bool>>,
        asked: Instant,
        notes: &mut Notes<'a>,
    ) -> Result<(), Refusal> {
        let within = flag.deadline.unwrap_or(FLAG_DEADLINE);
        let answer = match self.ask(Operation::Flag, within, behaviour).await {
            Err(_busy) if flag.mode == Mode::Observe => None,
            answer => answer?,
        };
        let on = match answer {
            Some(value) => {
                let on = value.unwrap_or(false);
                self.last_known.insert(flag.name, (on, asked));
                on
            }
            None => {
                if flag.mode == Mode::Enforce {
                    notes.flags.push(flag.name);
                }
                let known = self
                    .last_known
                    .get(flag.name)
                    .filter(|(_, at)| Some(asked - *at) <= flag.stale);
                known.map_or(flag.default, |(on, _)| *on)
            }
        };
        if on == flag.blocks_when && flag.mode == Mode::Enforce {
            let status = if flag.blocks_when { 503 } else { 404 };
            return Err(Refusal::new(
                status,
                "feature_disabled",
                "This feature is switched off.",
            ));
        }
        Ok(())
    }

    async fn authenticate(&self, step: &Step) -> Result<&'static str, Refusal> {
        let invalid = || Refusal::new(401, "invalid_api_key", "The API key is not valid.").challenge();
        let missing = || Refusal::new(401, "missing_api_key", "No API key was sent.").challenge();
        match step.request.keys {
            [] | [b""] => return Err(missing()),
            [key] if key.len() <= 512 && std::str::from_utf8(key).is_ok() => {}
            _ => return Err(invalid()),
        }
        let auth = self.case.auth.as_ref().expect("it is asked for");
        let within = auth.deadline.unwrap_or(AUTH_DEADLINE);
        match self.ask(Operation::Auth, within, &step.store.identity).await? {
            Some(user) => user.ok_or_else(invalid),
            None => {
                let message = "The caller cannot be verified at the moment.";
                Err(Refusal::new(503, "auth_unavailable", message).retry_after(30))
            }
        }
    }

    async fn guards_of_the_users_own(&self, notes: &mut Notes<'a>) -> Result<(), Refusal> {
        for guard in &self.case.guards {
            let says = async {
                sleep(guard.after).await;
                if let GuardSays::Nothing = guard.says {
                    std::future::pending::<()>().await;
                }
                guard.says
            };
            match timeout(GUARD_DEADLINE, says).await {
                Ok(GuardSays::Pass) => {}
                Ok(GuardSays::Reject) => {
                    return Err(Refusal::new(403, "told_so", "The plan says so.").retry_after(3));
                }
                Ok(GuardSays::Fail | GuardSays::Nothing) | Err(_) => match guard.on_outage {
                    GuardOutage::FailOpen => notes.guards.push(guard.name),
                    GuardOutage::FailClosed => {
                        let message = "The request cannot be checked at the moment.";
                        return Err(Refusal::new(503, "guard_unavailable", message));
                    }
                },
            }
        }
        Ok(())
    }

    async fn handle(&self, step: &Step, user: Option<&'static str>) -> Seen {
        let mut request = step.request.to_request(self.case.auth_header());
        if let Some(user) = user {
            request.extensions_mut().insert(Identity(user.into()));
        }
        let call = step.handler.get_response(request);
        match self.case.deadline {
            None => Seen::of(call.await).await,
            Some(deadline) => match timeout(deadline, call).await {
                Ok(response) => Seen::of(response).await,
                Err(_) => {
                    let message = "The request took longer than its deadline.";
                    Refusal::new(504, "timeout", message).seen(step.request.accept.1)
                }
            },
        }
    }
}

/// Whose bucket a request counts in.
fn client(quota: &RateLimitPlan, step: &Step, user: Option<&'static str>) -> &'static str {
    match quota.key {
        Key::Ip | Key::Global => "everybody",
        Key::User => user.expect("it is verified"),
        Key::Header(_) => step.request.tenant.unwrap_or("nobody"),
        other => unreachable!("no policy here has {other:?}"),
    }
}

/// Each quota with the name that its fields carry.
fn named(quotas: &[RateLimitPlan]) -> Vec<(&RateLimitPlan, String)> {
    let mut names = std::iter::once("default".to_owned()).chain((2..).map(|place| format!("default-{place}")));
    let mut name = |quota: &RateLimitPlan| match quota.name {
        Some(name) => name.to_owned(),
        None => names.next().expect("there is no end to them"),
    };
    quotas.iter().map(|quota| (quota, name(quota))).collect()
}

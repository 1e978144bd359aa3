//! What a case consists of.

use std::time::Duration;

use poem::{
    Endpoint, Request, Response, Result,
    http::{HeaderValue, StatusCode},
};
use resilience::{
    BreakerChoice, Error, Identity,
    guard::{BoxError, BoxFuture, Guard, GuardOutage, Verdict},
    policy::{Algorithm, Auth, Flag, Key, Mode, OnOutage, Policy, RateLimit},
    store::{StoreErrorKind, Taken},
    testing::{Answer, ScriptedStore},
};
use tokio::time::sleep;

use super::leaked;

/// The builder's deadlines. Those of a policy are among them too, and delays are around all of them.
pub(super) const LIMIT_DEADLINE: Duration = Duration::from_millis(8);
pub(super) const FLAG_DEADLINE: Duration = Duration::from_millis(10);
pub(super) const AUTH_DEADLINE: Duration = Duration::from_millis(15);
pub(super) const GUARD_DEADLINE: Duration = Duration::from_millis(12);

pub(super) const FLAG_NAMES: [&str; 2] = ["model-one", "model-two"];
pub(super) const QUOTA_NAMES: [&str; 3] = ["model-a", "model-b", "model-c"];
pub(super) const GUARD_NAMES: [&str; 2] = ["model-x", "model-y"];

pub(super) const BUILDERS_HEADER: &str = "x-api-key";

/// A policy, and requests to it in turn.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) quotas: Vec<RateLimitPlan>,
    pub(super) flags: Vec<FlagPlan>,
    pub(super) auth: Option<AuthPlan>,
    pub(super) guards: Vec<GuardPlan>,
    pub(super) deadline: Option<Duration>,
    pub(super) builders_breakers: BreakerChoice,
    pub(super) policys_breakers: Option<BreakerChoice>,
    /// Those whose breakers are open; any of them opens one that they share.
    pub(super) open: Vec<Operation>,
    pub(super) installed: Installed,
    /// Whether clients that the store has refused are remembered.
    pub(super) remembers: bool,
    pub(super) steps: Vec<Step>,
}

/// How the runtime reaches the handler.
#[derive(Clone, Copy, Debug)]
pub(super) enum Installed {
    With,
    Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Auth,
    Flag,
    RateLimit,
}

impl Operation {
    pub(super) const ALL: [Self; 3] = [Self::Auth, Self::Flag, Self::RateLimit];
}

#[derive(Clone, Debug)]
pub(super) struct RateLimitPlan {
    pub(super) limit: u32,
    pub(super) seconds: u64,
    pub(super) key: Key,
    pub(super) algorithm: Algorithm,
    pub(super) burst: Option<u32>,
    pub(super) cost: u32,
    pub(super) on_outage: OnOutage,
    /// In percent.
    pub(super) local_share: u8,
    pub(super) name: Option<&'static str>,
    pub(super) deadline: Option<Duration>,
    pub(super) mode: Mode,
}

#[derive(Clone, Debug)]
pub(super) struct FlagPlan {
    pub(super) name: &'static str,
    pub(super) default: bool,
    pub(super) blocks_when: bool,
    pub(super) stale: Option<Duration>,
    pub(super) deadline: Option<Duration>,
    pub(super) mode: Mode,
}

#[derive(Clone, Debug)]
pub(super) struct AuthPlan {
    pub(super) header: Option<&'static str>,
    pub(super) deadline: Option<Duration>,
}

/// A guard of the user's own that always says the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardPlan {
    pub(super) name: &'static str,
    pub(super) says: GuardSays,
    pub(super) after: Duration,
    pub(super) on_outage: GuardOutage,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum GuardSays {
    Pass,
    Reject,
    Fail,
    Nothing,
}

/// One request, and how things stand while it is served.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) request: RequestPlan,
    pub(super) store: StorePlan,
    pub(super) handler: HandlerPlan,
}

#[derive(Clone, Debug)]
pub(super) struct RequestPlan {
    pub(super) keys: &'static [&'static [u8]],
    pub(super) tenant: Option<&'static str>,
    /// An `Accept` header, and whether it prefers problem details.
    pub(super) accept: (Option<&'static str>, bool),
}

#[derive(Clone, Debug)]
pub(super) struct StorePlan {
    pub(super) identity: Behaviour<Option<&'static str>>,
    /// One for each flag.
    pub(super) flags: Vec<Behaviour<Option<bool>>>,
    /// What the first, second and third quota of a call say.
    pub(super) take: Behaviour<Vec<Taken>>,
}

/// What an operation of the store does.
#[derive(Clone, Debug)]
pub(super) struct Behaviour<T> {
    /// `None` is no answer at all.
    pub(super) outcome: Option<Result<T, StoreErrorKind>>,
    pub(super) after: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HandlerPlan {
    pub(super) fails: bool,
    pub(super) after: Duration,
}

impl Case {
    pub(super) fn policy(&self) -> Policy {
        let mut policy = Policy::new("chain_model", "random")
            .with_rate_limits(leaked(self.quotas.iter().map(RateLimitPlan::spec).collect::<Vec<_>>()))
            .with_flags(leaked(self.flags.iter().map(FlagPlan::spec).collect::<Vec<_>>()))
            .with_guards(leaked(
                self.guards
                    .iter()
                    .map(|guard| leaked(*guard) as &dyn Guard)
                    .collect::<Vec<_>>(),
            ));
        if let Some(auth) = &self.auth {
            let mut spec = Auth::fail_closed();
            spec = auth.header.map_or(spec, |header| spec.with_header(header));
            policy = policy.with_auth(auth.deadline.map_or(spec, |deadline| spec.with_deadline(deadline)));
        }
        if let Some(deadline) = self.deadline {
            policy = policy.with_deadline(deadline);
        }
        match self.policys_breakers {
            Some(breakers) => policy.with_breaker(breakers),
            None => policy,
        }
    }

    pub(super) fn auth_header(&self) -> &'static str {
        self.auth
            .as_ref()
            .and_then(|auth| auth.header)
            .unwrap_or(BUILDERS_HEADER)
    }

    pub(super) fn breakers(&self) -> BreakerChoice {
        self.policys_breakers.unwrap_or(self.builders_breakers)
    }

    /// Whether the breaker in front of this operation is open, from the beginning to the end.
    pub(super) fn is_open(&self, operation: Operation) -> bool {
        match self.breakers() {
            BreakerChoice::PerOperation => self.open.contains(&operation),
            BreakerChoice::Shared | BreakerChoice::Named(_) => !self.open.is_empty(),
        }
    }

    pub(super) fn breaker_of(&self, operation: Operation) -> &'static str {
        match (self.breakers(), operation) {
            (BreakerChoice::Shared, _) => "store",
            (BreakerChoice::Named(name), _) => name,
            (BreakerChoice::PerOperation, Operation::Auth) => "auth",
            (BreakerChoice::PerOperation, Operation::Flag) => "flag",
            (BreakerChoice::PerOperation, Operation::RateLimit) => "rate_limit",
        }
    }
}

impl RateLimitPlan {
    pub(super) fn is_by_user(&self) -> bool {
        matches!(self.key, Key::User)
    }

    /// The share of this that one process counts by itself.
    pub(super) fn local(&self, of: u32) -> u32 {
        (of * u32::from(self.local_share) / 100).max(1)
    }

    fn spec(&self) -> RateLimit {
        let mut spec = RateLimit::new(self.limit, Duration::from_secs(self.seconds))
            .with_key(self.key)
            .with_algorithm(self.algorithm)
            .with_cost(self.cost)
            .with_on_outage(self.on_outage)
            .with_local_share(self.local_share)
            .with_mode(self.mode);
        spec = self.burst.map_or(spec, |burst| spec.with_burst(burst));
        spec = self.name.map_or(spec, |name| spec.with_name(name));
        self.deadline.map_or(spec, |deadline| spec.with_deadline(deadline))
    }
}

impl FlagPlan {
    fn spec(&self) -> Flag {
        let mut spec = Flag::new(self.name, self.default)
            .with_blocks_when(self.blocks_when)
            .with_mode(self.mode);
        spec = self.stale.map_or(spec, |stale| spec.with_stale(stale));
        self.deadline.map_or(spec, |deadline| spec.with_deadline(deadline))
    }
}

impl Guard for GuardPlan {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Result<Verdict, BoxError>> {
        Box::pin(async {
            sleep(self.after).await;
            match self.says {
                GuardSays::Pass => Ok(Verdict::Pass),
                GuardSays::Reject => {
                    let error = Error::new(StatusCode::FORBIDDEN, "told_so", "The plan says so.");
                    Ok(Verdict::Reject(error.with_retry_after(Duration::from_millis(2_001))))
                }
                GuardSays::Fail => Err("the plan says so".into()),
                GuardSays::Nothing => std::future::pending().await,
            }
        })
    }

    fn deadline(&self) -> Duration {
        GUARD_DEADLINE
    }

    fn on_outage(&self) -> GuardOutage {
        self.on_outage
    }
}

impl RequestPlan {
    pub(super) fn to_request(&self, auth_header: &'static str) -> Request {
        let mut request = Request::default();
        let headers = request.headers_mut();
        for key in self.keys {
            headers.append(auth_header, HeaderValue::from_bytes(key).expect("a header value"));
        }
        if let Some(tenant) = self.tenant {
            headers.insert("x-tenant", HeaderValue::from_static(tenant));
        }
        if let (Some(accept), _) = self.accept {
            headers.insert("accept", HeaderValue::from_static(accept));
        }
        request
    }
}

impl StorePlan {
    pub(super) fn script(&self, store: &ScriptedStore) {
        store.on_identity(self.identity.answer());
        store.on_take_each(self.take.answer());
        for (place, flag) in self.flags.iter().enumerate() {
            store.on_flag_named(FLAG_NAMES[place], flag.answer());
        }
    }
}

impl<T: Clone> Behaviour<T> {
    fn answer(&self) -> Answer<T> {
        let answer = match &self.outcome {
            None => Answer::never(),
            Some(Ok(value)) => Answer::ok(value.clone()),
            Some(Err(kind)) => Answer::error(*kind),
        };
        answer.after(self.after)
    }
}

impl Endpoint for HandlerPlan {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        sleep(self.after).await;
        if self.fails {
            return Err(poem::Error::from_string("no such thing", StatusCode::IM_A_TEAPOT));
        }
        let user = Identity::of(&request).map_or("nobody", |user| &user.0);
        Ok(Response::builder()
            .header("x-own", "stays")
            .header("x-ratelimit-limit", "9999")
            .header("x-flag-fallback", "of the handler's own")
            .body(format!("for {user}")))
    }
}

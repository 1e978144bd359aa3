//! The guard chain of one request.
//!
//! The order is the same for every handler, whatever order its attribute is written in:
//!
//! 1. phase A, asked together and read in this order: quotas by address, header and everybody; flags; authentication
//! 2. guards of the user's own
//! 3. phase B: quotas by user, or by a key of the user's own
//! 4. lockouts: an attempt is counted before anything can be verified
//! 5. the handler, inside its deadline
//! 6. settling: what the answer makes of the attempt
//!
//! What consumes something that a rejection must not consume stands after phase A. Quotas that only observe are asked
//! beside those of their phase. A phase whose quotas are known to refuse asks nobody.

use std::{sync::Arc, time::Duration};

use poem::{Endpoint, IntoResponse, Request, Response};
use smallvec::SmallVec;

use crate::{
    bound::Bound,
    deadline,
    disconnect::{Hangup, unless_gone},
    error::{self, Error},
    guard::{
        GuardOutage, Verdict,
        auth::{AuthQuestion, Verified},
        flag,
        lockout::{self, LoginOutcome},
        rate_limit::{Claims, QuotaQuestions},
    },
    install::Installed,
    observe::Answer,
    policy::Policy,
    question::{Asked, Pending, Phase, Question, ask_together},
    runtime::Runtime,
    trail::Trail,
};

/// Runs a handler behind its policy.
///
/// # Errors
///
/// The handler's own, untouched, when [`Resilience`](crate::Resilience) was installed by `.with(…)`.
///
/// # Cancel safety
///
/// Dropped at any await it leaves breakers as they are; quotas that the store has taken by then stay taken.
pub async fn run<E: Endpoint>(policy: &'static Policy, mut request: Request, handler: E) -> poem::Result<Response> {
    let Some(installed) = Installed::of(&request) else {
        return Ok(not_installed(policy, &request));
    };
    let runtime = &installed.resilience().runtime;
    let bound = runtime.bound(policy);
    let mut trail = Trail::default();

    let hangup = Hangup::of(&request);
    let guards = guard(runtime, &bound, &mut request, &mut trail);
    let verdict = unless_gone(hangup.as_ref(), guards).await.flatten();
    // Before the handler runs: whoever answers for one that panics, or drops one that is slow, sends them too.
    let headers = installed.plant(trail.headers(runtime.settings.rate_limit_headers));
    let format = installed.format(&request);
    let outcome = match verdict {
        Err(refusal) => Ok(refusal.to_response(format)),
        // Called right here: every async fn between would hold the request and the handler's future once more.
        Ok(pending) => {
            // From here on the attempt counts, whatever becomes of this future, unless the handler's answer says otherwise.
            let entered = pending.and_then(lockout::Pending::enter);
            let outcome = match policy.deadline() {
                None => unless_gone(hangup.as_ref(), handler.call(request)).await,
                Some(budget) => {
                    let handling = Box::pin(deadline::scope(budget, handler.call(request)));
                    let outcome = unless_gone(hangup.as_ref(), handling).await;
                    outcome.and_then(|in_time| in_time.map_err(Error::from))
                }
            };
            let (outcome, in_time) = match outcome {
                Ok(outcome) => (outcome.map(IntoResponse::into_response), true),
                Err(dropped) => (Ok(dropped.to_response(format)), false),
            };
            // A scope within the handler may have noticed first that its time was up.
            let is_timeout =
                |error: &poem::Error| error::refusal_in(error).is_some_and(|refusal| refusal.code() == "timeout");
            let in_time = in_time && !outcome.as_ref().is_err_and(is_timeout);
            if let Some(entered) = entered.filter(|_| in_time) {
                Box::pin(entered.settle(LoginOutcome::of(&outcome))).await;
            }
            outcome
        }
    };
    installed.finish(outcome, headers, format)
}

/// Asks all guards. `Ok` means that the handler may run, with the attempts that were counted for it.
async fn guard<'a>(
    runtime: &'a Arc<Runtime>,
    bound: &'a Bound,
    request: &mut Request,
    trail: &mut Trail<'a>,
) -> Result<Option<lockout::Pending>, Error> {
    if let Some(verified) = phase_a(runtime, bound, request, trail).await? {
        verified.attach(request);
    }
    users_guards(bound, request, trail).await?;
    phase_b(runtime, bound, request, trail).await?;
    match &bound.lockouts {
        None => Ok(None),
        Some(lockouts) => Box::pin(lockout::begin(runtime, lockouts, request, trail))
            .await
            .map(Some),
    }
}

async fn phase_a<'a>(
    runtime: &'a Runtime,
    bound: &'a Bound,
    request: &Request,
    trail: &mut Trail<'a>,
) -> Result<Option<Verified>, Error> {
    let asked = Asked::now();
    let claims = Claims::new(&bound.quotas, runtime, request);
    claims.check_known(runtime, asked, trail)?;
    let takes = claims.takes();
    let mut phase = PhaseA {
        quotas: QuotaQuestions::ask(runtime, &claims, &takes, asked),
        flags: bound.flags.iter().map(|flag| flag::ask(runtime, flag, asked)).collect(),
        auth: bound
            .auth
            .as_ref()
            .map(|auth| AuthQuestion::ask(runtime, auth, request, asked)),
        verified: None,
        runtime,
        bound,
        asked,
        trail,
    };
    ask_together(&mut phase, asked).await?;
    Ok(phase.verified)
}

async fn phase_b<'a>(
    runtime: &'a Runtime,
    bound: &'a Bound,
    request: &Request,
    trail: &mut Trail<'a>,
) -> Result<(), Error> {
    if bound.user_quotas.is_empty() {
        return Ok(());
    }
    let asked = Asked::now();
    let claims = Claims::new(&bound.user_quotas, runtime, request);
    claims.check_known(runtime, asked, trail)?;
    let takes = claims.takes();
    let mut phase = PhaseB {
        quotas: QuotaQuestions::ask(runtime, &claims, &takes, asked),
        runtime,
        trail,
    };
    ask_together(&mut phase, asked).await
}

/// Quotas, flags, authentication: in this order.
struct PhaseA<'q, 'a> {
    quotas: QuotaQuestions<'q, 'a>,
    flags: SmallVec<[Question<'q, Option<bool>>; 2]>,
    auth: Option<AuthQuestion<'q>>,
    verified: Option<Verified>,
    runtime: &'a Runtime,
    bound: &'a Bound,
    asked: Asked,
    trail: &'q mut Trail<'a>,
}

impl Phase for PhaseA<'_, '_> {
    fn len(&self) -> usize {
        self.quotas.len() + self.flags.len() + 1
    }

    fn question(&mut self, index: usize) -> Option<&mut dyn Pending> {
        match index.checked_sub(self.quotas.len()) {
            None => self.quotas.question(index),
            Some(flag) => match self.flags.get_mut(flag) {
                Some(question) => Some(question),
                None => self.auth.as_mut()?.pending(),
            },
        }
    }

    fn read(&mut self, index: usize) -> Result<(), Error> {
        let Some(index) = index.checked_sub(self.quotas.len()) else {
            return self.quotas.read(index, self.runtime, self.trail);
        };
        if let Some(question) = self.flags.get_mut(index) {
            return flag::read(question, self.runtime, &self.bound.flags[index], self.asked, self.trail);
        }
        if let (Some(question), Some(auth)) = (&mut self.auth, &self.bound.auth) {
            self.verified = Some(question.read(self.runtime, auth)?);
        }
        Ok(())
    }
}

/// Quotas by user.
struct PhaseB<'q, 'a> {
    quotas: QuotaQuestions<'q, 'a>,
    runtime: &'a Runtime,
    trail: &'q mut Trail<'a>,
}

impl Phase for PhaseB<'_, '_> {
    fn len(&self) -> usize {
        self.quotas.len()
    }

    fn question(&mut self, index: usize) -> Option<&mut dyn Pending> {
        self.quotas.question(index)
    }

    fn read(&mut self, index: usize) -> Result<(), Error> {
        self.quotas.read(index, self.runtime, self.trail)
    }
}

/// Guards of the user's own, one after another.
async fn users_guards(bound: &Bound, request: &Request, trail: &mut Trail<'_>) -> Result<(), Error> {
    for guard in &bound.guards {
        match in_time(guard.guard.deadline(), guard.guard.check(request)).await {
            Some(Ok(Verdict::Pass)) => guard.tally.count(Answer::Passed),
            Some(Ok(Verdict::Reject(error))) => {
                guard.tally.count(Answer::Rejected);
                return Err(error);
            }
            undecided => {
                let name = guard.guard.name();
                match &undecided {
                    Some(Err(error)) => guard.complaints.say(&name, error),
                    _ => guard.complaints.say(&name, &"it did not decide within its deadline"),
                }
                match guard.guard.on_outage() {
                    GuardOutage::FailOpen => {
                        guard.tally.count(Answer::Open);
                        trail.guard_fell_back(name);
                    }
                    GuardOutage::FailClosed => {
                        guard.tally.count(Answer::Unavailable);
                        return Err(Error::guard_unavailable());
                    }
                }
            }
        }
    }
    Ok(())
}

/// The output, if it is there in time. A timeout alone would also take one that is ready too late.
async fn in_time<F: Future>(within: Duration, future: F) -> Option<F::Output> {
    let asked = tokio::time::Instant::now();
    let output = tokio::time::timeout(within, future).await.ok();
    output.filter(|_| asked.elapsed() <= within)
}

/// A guarded handler that nobody guards does not run.
fn not_installed(policy: &Policy, request: &Request) -> Response {
    tracing::error!(
        handler = policy.name(),
        module = policy.module(),
        "this handler is guarded by `#[resilient]`, but no `Resilience` is installed: add `.with(resilience)` to the \
         outermost endpoint"
    );
    Error::not_installed().to_response(crate::body::ErrorBody::default().format(request.headers()))
}

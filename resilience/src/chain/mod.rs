//! The guard chain of one request.
//!
//! The order is the same for every handler, whatever order its attribute is written in:
//!
//! 1. phase A, asked together and read in this order: quotas by address, header and everybody; flags; authentication
//! 2. guards of the user's own
//! 3. phase B: quotas by user, or by a key of the user's own
//! 4. lockouts: an attempt is counted before anything can be verified
//! 5. a slot, at once or after a wait in the queue; it is held until the answer has been sent
//! 6. the handler, inside its deadline
//! 7. settling: whether the attempt has failed, by the answer
//!
//! What consumes something that a rejection must not consume stands after phase A. Quotas that only observe are asked
//! beside those of their phase. A phase whose quotas are known to refuse asks nobody.

mod phases;

use std::{future::Future, sync::Arc, time::Duration};

use poem::{Endpoint, IntoResponse, Request, Response};
use tokio::time::Instant;

use self::phases::{phase_a, phase_b};
use crate::{
    bound::Bound,
    concurrency::Slot,
    deadline,
    disconnect::{Hangup, unless_gone, unless_gone_within},
    error::{self, Error},
    guard::{
        GuardOutage, Verdict, concurrency,
        lockout::{self, LoginOutcome},
    },
    install::Installed,
    observe::Answer,
    policy::Policy,
    runtime::{BoundRef, Runtime},
    sent::hold_until_sent,
    trail::{Counted, Trail},
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
pub fn run<E: Endpoint>(
    policy: &'static Policy,
    request: Request,
    handler: E,
) -> impl Future<Output = poem::Result<Response>> {
    behind(Guards::Of(policy), request, handler)
}

/// Which guards stand before an endpoint.
pub(crate) enum Guards {
    /// A handler's.
    Of(&'static Policy),
    /// A whole app's.
    Inbound(Arc<Bound>),
}

/// Runs an endpoint behind guards.
pub(crate) async fn behind<E: Endpoint>(guards: Guards, mut request: Request, handler: E) -> poem::Result<Response> {
    let Some(installed) = Installed::of(&request) else {
        return Ok(not_installed(&guards, &request));
    };
    let runtime = &installed.resilience().runtime;
    let (bound, is_outer) = match guards {
        Guards::Of(policy) => (runtime.bound(policy), false),
        Guards::Inbound(bound) => (BoundRef::Stray(bound), true),
    };
    let mut trail = Trail::default();
    let counted = Counted::of(&request, runtime);
    if let Some(counted) = counted {
        trail.resume(counted);
    }
    if is_outer {
        trail.keep_counted(counted.cloned().unwrap_or_else(|| Counted::by(runtime)));
    }

    let hangup = Hangup::of(&request);
    let left = runtime.settings.deadline_header.as_ref();
    let left = left.and_then(|header| header.budget(&request));
    let until = left.map(|left| Instant::now() + left);
    let guards = guard(runtime, &bound, &mut request, &mut trail);
    let verdict = match left {
        None => unless_gone(hangup.as_ref(), guards).await.flatten(),
        // A caller's time runs while guards are asked and a slot is waited for. With none left, nothing is asked, counted or
        // begun for nobody.
        Some(left) => {
            let in_time = unless_gone_within(hangup.as_ref(), left, guards).await;
            in_time.and_then(|in_time| in_time.map_err(Error::from)).flatten()
        }
    };
    // Before the handler runs: whoever answers for one that panics, or drops one that is slow, sends them too.
    let headers = installed.plant(trail.headers(runtime.settings.rate_limit_headers));
    if let Some(counted) = trail.counted() {
        request.extensions_mut().insert(counted);
    }
    let format = installed.format(&request);
    let outcome = match verdict {
        Err(refusal) => Ok(refusal.to_response(format)),
        // Called right here: every async fn between would hold the request and the handler's future once more.
        Ok(Admitted { pending, mut slot }) => {
            let budget = Budget::of(&bound, until);
            // From here on the attempt has failed if this future is dropped. One for whose caller it is too late is given
            // back.
            let pending = pending.filter(|_| budget.is_none_or(|budget| !budget.is_zero()));
            let entered = pending.map(lockout::Pending::enter);
            let outcome = match budget {
                None => unless_gone(hangup.as_ref(), handler.call(request)).await,
                Some(Budget { started, within, .. }) => {
                    let outcome = unless_gone_within(hangup.as_ref(), within, handler.call(request)).await;
                    bound.overruns.note(within, started.elapsed());
                    outcome.and_then(|in_time| in_time.map_err(Error::from))
                }
            };
            let (outcome, end) = match outcome {
                Ok(outcome) => {
                    let outcome = outcome.map(IntoResponse::into_response);
                    let end = End::of(&outcome, budget);
                    (outcome, end)
                }
                Err(dropped) => {
                    let out_of_time = budget.filter(|_| dropped.code() == "timeout");
                    let end = out_of_time.map_or(End::ClientGone, Budget::end);
                    (Ok(dropped.to_response(format)), end)
                }
            };
            // Without a word, a slot says how long its request had been under way.
            if let Some(slot) = slot.as_mut().filter(|_| end != End::ClientGone) {
                slot.served(concurrency::served(end, &outcome));
            }
            if let Some(entered) = entered.filter(|_| end == End::Answered) {
                Box::pin(entered.settle(LoginOutcome::of(&outcome))).await;
            }
            match slot {
                None => outcome,
                Some(slot) => outcome.map(|response| hold_until_sent(response, slot, runtime.settings.send_timeout)),
            }
        }
    };
    installed.finish(outcome, headers, format)
}

/// How long a handler may take: its own deadline, or what is left of its caller's if that is shorter.
#[derive(Clone, Copy, Debug)]
struct Budget {
    started: Instant,
    within: Duration,
    is_own: bool,
}

impl Budget {
    fn of(bound: &Bound, until: Option<Instant>) -> Option<Self> {
        if bound.deadline.is_none() && until.is_none() {
            return None;
        }
        let started = Instant::now();
        let own = bound.deadline.map(|within| (within, true));
        let callers = until.map(|until| (until.saturating_duration_since(started), false));
        let (within, is_own) = own.into_iter().chain(callers).min_by_key(|(within, _)| *within)?;
        Some(Self {
            started,
            within,
            is_own,
        })
    }

    const fn is_zero(&self) -> bool {
        self.within.is_zero()
    }

    /// What its end says: a caller that waits no longer is as good as gone.
    const fn end(self) -> End {
        if self.is_own { End::OutOfTime } else { End::ClientGone }
    }
}

/// What a request holds that may go on to its handler.
struct Admitted {
    /// The attempts that were counted for it.
    pending: Option<lockout::Pending>,
    /// Held until the answer has been sent.
    slot: Option<Slot>,
}

/// How a handler's run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered,
    /// Its own deadline is over.
    OutOfTime,
    /// Nobody waits for it: its client has gone, or a budget around it is spent.
    ClientGone,
}

impl End {
    /// A scope within the handler may notice first that its time is up. One that was shorter is the handler's own affair,
    /// and its timeout an answer like any other.
    fn of(outcome: &poem::Result<Response>, budget: Option<Budget>) -> Self {
        let refused = outcome.as_ref().err().and_then(error::refusal_in);
        if refused.is_none_or(|refused| refused.code() != "timeout") {
            return Self::Answered;
        }
        match budget.filter(|budget| budget.started.elapsed() >= budget.within) {
            Some(spent) => spent.end(),
            None if deadline::is_cancelled() => Self::ClientGone,
            None => Self::Answered,
        }
    }
}

/// Asks all guards. `Ok` means that the handler may run.
async fn guard<'a>(
    runtime: &'a Arc<Runtime>,
    bound: &'a Bound,
    request: &mut Request,
    trail: &mut Trail<'a>,
) -> Result<Admitted, Error> {
    if let Some(verified) = phase_a(runtime, bound, request, trail).await? {
        verified.attach(request);
    }
    users_guards(bound, request, trail).await?;
    phase_b(runtime, bound, request, trail).await?;
    let pending = match &bound.lockouts {
        None => None,
        Some(lockouts) => Some(Box::pin(lockout::begin(runtime, lockouts, request, trail)).await?),
    };
    // Last, so that nobody holds a slot who may not go on. Refused here, the attempts are given back.
    let slot = match &bound.slots {
        None => None,
        Some(slots) => Some(slots.acquire(runtime, request).await?),
    };
    Ok(Admitted { pending, slot })
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
    let asked = Instant::now();
    let output = tokio::time::timeout(within, future).await.ok();
    output.filter(|_| asked.elapsed() <= within)
}

/// A guarded handler that nobody guards does not run.
fn not_installed(guards: &Guards, request: &Request) -> Response {
    let (module, handler) = match guards {
        Guards::Of(policy) => (policy.place(), policy.name()),
        Guards::Inbound(bound) => (bound.module, bound.name),
    };
    tracing::error!(
        handler,
        module,
        "this handler is guarded by `#[resilient]`, but no `Resilience` is installed: add `.with(resilience)` to the \
         outermost endpoint"
    );
    Error::not_installed().to_response(crate::body::ErrorBody::default().format(request.headers()))
}

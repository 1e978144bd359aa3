//! The runtime: one store, its breakers, and every policy of the program bound to them.

use std::{
    collections::HashMap,
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use poem::{
    Request,
    http::{HeaderName, HeaderValue, header},
};
use tokio::sync::{Semaphore, broadcast};

use crate::{
    body::{BodyFormat, ErrorBody},
    bound::{Bound, BoundAuth},
    breaker::{BreakerEvent, CircuitBreaker, State},
    builder::Builder,
    client::Callers,
    concurrency::ConcurrencyLimit,
    deadline::DeadlineHeader,
    dependency::Dependencies,
    guard::{
        auth::Authenticator,
        concurrency::PriorityOf,
        flag::FlagState,
        lockout::{BodyBounds, Locked},
        rate_limit::Blocked,
    },
    limits::{self, Limits, NamedLimits},
    lockout::{InvalidLockout, Lockout, LockoutConfig},
    observe::Observer,
    policy::{BreakerChoice, Policy},
    reachable::Reachable,
    registry,
    sharing::{Core, Driver, SharedBreaker, SharedBreakers},
    standing::{Standing, Standings},
    store::{MemoryStore, Store},
    store_breaker::StoreBreakers,
    summary::PolicySummary,
};

/// What guarded handlers need at run time. A cheap handle: clones share everything.
///
/// ```
/// use poem::{EndpointExt, Route, get, handler};
/// use resilience::{Identity, Resilience, resilient};
///
/// #[resilient(auth = "fail_closed", rate_limit(30, 60))]
/// #[handler]
/// async fn checkout(Identity(user): Identity) -> String {
///     user
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let resilience = Resilience::builder().redis("redis://127.0.0.1:6379").build()?;
/// let app = Route::new().at("/api/checkout", get(checkout)).with(resilience);
/// # drop(app);
/// # Ok(())
/// # }
/// ```
///
/// Building needs a tokio runtime around it, and waits for nothing: an unreachable Redis is a warning, not an error.
#[derive(Clone)]
pub struct Resilience {
    pub(crate) runtime: Arc<Runtime>,
}

impl Resilience {
    /// Starts to build a runtime.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(mut runtime: Runtime) -> Self {
        // Binding now costs the first requests nothing, and makes every breaker known from the start.
        runtime.bind_all(registry::policies());
        let runtime = Arc::new(runtime);
        runtime.limits.attach(&runtime);
        #[cfg(feature = "metrics")]
        crate::publish::spawn(&runtime);
        Self { runtime }
    }

    pub(crate) fn format(&self, request: &Request) -> BodyFormat {
        self.runtime.settings.error_body.format(request.headers())
    }

    /// The guards of every guarded handler in this program, and those around whole apps (in the module `inbound`), in the
    /// order in which they run.
    #[must_use]
    pub fn policies(&self) -> Vec<PolicySummary> {
        let mut summaries: Vec<_> = registry::policies()
            .map(|policy| PolicySummary::new(&self.runtime.bound(policy)))
            .collect();
        summaries.extend(self.runtime.inbound().iter().map(|bound| PolicySummary::new(bound)));
        summaries.sort_by(|a, b| (a.module(), a.handler()).cmp(&(b.module(), b.handler())));
        summaries
    }

    /// The quotas that have a name: what is in force, and how to change it while the service runs, for all instances.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            runtime: Arc::clone(&self.runtime),
        }
    }

    /// Looks for mistakes that only the whole program shows: quotas or lockouts that share a name but not their numbers, a
    /// cost that its quota never has room for, an `auth(header)` that the installed authenticator never reads.
    ///
    /// A quota without a definition is not among them: [`Builder::build`] refuses it, unless
    /// [`Builder::late_limits`] allows it.
    ///
    /// # Errors
    ///
    /// All mistakes found, each with the handlers that make it.
    pub fn verify(&self) -> Result<(), VerifyError> {
        let policies: Vec<_> = registry::policies().collect();
        let mut mistakes = registry::mistakes(&policies, self.runtime.authenticator.is_some());
        mistakes.extend(limits::mistakes(&policies, &self.runtime.limits));
        if mistakes.is_empty() {
            Ok(())
        } else {
            Err(VerifyError(mistakes))
        }
    }

    /// The breakers in front of the store, sorted by name: to look at. [`events`](Self::events) tells of their changes.
    #[must_use]
    pub fn breakers(&self) -> Vec<BreakerView> {
        self.runtime.breakers.all().into_iter().map(BreakerView).collect()
    }

    /// Openings, half-openings and closings of all breakers in front of the store, from now on. A receiver that falls 64
    /// events behind misses the oldest.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<BreakerEvent> {
        self.runtime.breakers.events()
    }

    /// The slots of every handler that has a `concurrency`, by the handler's path, and those around whole apps: how many requests are in flight and how
    /// many wait, as it is now.
    #[must_use]
    pub fn concurrency_limits(&self) -> Vec<ConcurrencyLimit> {
        let mut limits = Vec::new();
        self.runtime
            .each_bound(|bound| limits.extend(bound.slots.as_ref().map(|slots| slots.limit.clone())));
        limits.sort_by(|a, b| a.name().cmp(b.name()));
        limits
    }

    /// Whether the store serves, and how its breakers stand. Takes 250 ms at most.
    ///
    /// The store is asked once a second at most, whatever the number of callers: they share its answer, and those that
    /// come while it is asked wait for it together. While a breaker is open the store is not asked: that answer is known.
    ///
    /// # Cancel safety
    ///
    /// Safe: it changes nothing, and other callers still get their answer.
    pub async fn health(&self) -> Health {
        let breakers = self.breakers();
        let all_closed = breakers.iter().all(|breaker| breaker.state() == State::Closed);
        Health {
            store_reachable: all_closed && self.runtime.reachable.look(&self.runtime.store).await,
            breakers: breakers
                .iter()
                .map(|breaker| (breaker.name().to_owned(), breaker.state()))
                .collect(),
            unreadable_flags: self.runtime.unreadable_flags(),
        }
    }

    /// A lockout for code that is no handler, or counts attempts on its own. Calls with the same name, attempts and durations
    /// share their tallies, over all instances; a handler's lockout of that name has tallies of its own.
    ///
    /// # Errors
    ///
    /// For settings out of range.
    pub fn lockout(&self, name: &str, config: LockoutConfig) -> Result<Lockout, InvalidLockout> {
        Lockout::new(&self.runtime, name, config)
    }

    /// What the app's `#[outbound]` fns call, by name: the registry that the builder was given, else the process's.
    #[must_use]
    pub fn dependencies(&self) -> Dependencies {
        let own = self.runtime.dependencies.clone();
        own.unwrap_or_else(|| Dependencies::global().clone())
    }

    /// The breakers that instances share, for operators: to list and to hold. `None` if the builder was not told to
    /// [share](Builder::share_breakers).
    #[must_use]
    pub fn shared_breakers(&self) -> Option<SharedBreakers> {
        self.core().map(SharedBreakers::new)
    }

    /// The breaker of a dependency: that of [`dependencies`](Self::dependencies), made at first use, with what other
    /// instances know of it if the builder was told to [share](Builder::share_breakers).
    ///
    /// A name lives as long as its registry: take names from the code, never from a client.
    #[must_use]
    pub fn breaker(&self, name: &str) -> SharedBreaker {
        SharedBreaker::new(self.dependencies().breaker(name), self.core())
    }

    fn core(&self) -> Option<Arc<Core>> {
        self.runtime.sharing.as_ref().map(|(core, _)| Arc::clone(core))
    }

    /// Publishes counts and samples to the `metrics` recorder now. They are published every second by themselves; call
    /// this before a scrape that must see the latest.
    #[cfg(feature = "metrics")]
    pub fn publish_metrics(&self) {
        crate::publish::publish(&self.runtime);
    }
}

impl fmt::Debug for Resilience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resilience")
            .field("store", &self.runtime.store)
            .field("breakers", &self.runtime.settings.breakers)
            .finish_non_exhaustive()
    }
}

/// A breaker in front of the store, to look at: only guards and their prober may change it.
#[derive(Clone, Debug)]
pub struct BreakerView(CircuitBreaker);

impl BreakerView {
    /// Its name: `store`, an operation's, or its own.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Where it stands now.
    #[must_use]
    pub fn state(&self) -> State {
        self.0.state()
    }

    /// How long it stays open, zero once a probe is due; `None` while it is closed or half-open.
    #[must_use]
    pub fn open_remaining(&self) -> Option<Duration> {
        self.0.open_remaining()
    }
}

/// The store's reachability and the state of each breaker in front of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Whether the store answered a write just now.
    pub store_reachable: bool,
    /// Name and state of each breaker, sorted by name.
    pub breakers: Vec<(String, State)>,
    /// Names of flags whose value the store has but cannot be read as on or off, sorted: their guards fall back. Known from
    /// requests, and cleared by the next readable answer.
    pub unreadable_flags: Vec<String>,
}

impl Health {
    /// Whether guards are falling back, or would at the next request.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        !self.store_reachable
            || !self.unreadable_flags.is_empty()
            || self.breakers.iter().any(|(_, state)| *state != State::Closed)
    }
}

/// Mistakes that [`Resilience::verify`] found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} of the guarded handlers' policies do not fit: {}", .0.len(), .0.join("; "))]
pub struct VerifyError(Vec<String>);

impl VerifyError {
    /// One sentence for each mistake.
    #[must_use]
    pub fn mistakes(&self) -> &[String] {
        &self.0
    }
}

/// Which rate limit headers an answer carries. Both families by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitHeaders {
    /// `x-ratelimit-limit` and `x-ratelimit-remaining`.
    pub legacy: bool,
    /// `RateLimit-Policy` and `RateLimit`, as the IETF draft has them.
    pub ietf: bool,
}

impl Default for RateLimitHeaders {
    fn default() -> Self {
        Self {
            legacy: true,
            ietf: true,
        }
    }
}

/// What the builder has decided, validated.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) breakers: BreakerChoice,
    pub(crate) auth_header: HeaderName,
    pub(crate) auth_deadline: Duration,
    pub(crate) flag_deadline: Duration,
    pub(crate) rate_limit_deadline: Duration,
    pub(crate) lockout_deadline: Duration,
    pub(crate) deadline_header: Option<DeadlineHeader>,
    pub(crate) priority: PriorityOf,
    pub(crate) send_timeout: Duration,
    pub(crate) login_body: BodyBounds,
    pub(crate) retry_after: Duration,
    pub(crate) callers: Callers,
    pub(crate) remember_blocked: usize,
    pub(crate) rate_limit_headers: RateLimitHeaders,
    pub(crate) error_body: ErrorBody,
}

/// Everything behind a [`Resilience`].
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) settings: Settings,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) authenticator: Option<Arc<dyn Authenticator>>,
    /// The `WWW-Authenticate` of a 401.
    pub(crate) challenge: HeaderValue,
    pub(crate) breakers: StoreBreakers,
    /// Counts for quotas that fail local.
    pub(crate) insurance: MemoryStore,
    /// Whom the store has refused.
    pub(crate) blocked: Blocked,
    /// Subjects that are locked out.
    pub(crate) locked: Locked,
    /// Quotas by name.
    pub(crate) limits: NamedLimits,
    pub(crate) observer: Observer,
    standings: Standings,
    reachable: Reachable,
    /// What the app calls, if it has a registry of its own.
    pub(crate) dependencies: Option<Dependencies>,
    /// The tie to other instances, if the builder was told to share.
    pub(crate) sharing: Option<(Arc<Core>, Driver)>,
    /// Settlements of attempts that wait for the store, at most.
    pub(crate) unsettled: Semaphore,
    flags: Mutex<HashMap<&'static str, Arc<FlagState>>>,
    /// Sorted by the policy's address.
    bound: Vec<(usize, Bound)>,
    strays: Mutex<HashMap<usize, Arc<Bound>>>,
    /// Guards around whole apps, for as long as these live.
    inbound: Mutex<Vec<Weak<Bound>>>,
}

/// A bound policy, borrowed where that is possible.
pub(crate) enum BoundRef<'a> {
    Registered(&'a Bound),
    Stray(Arc<Bound>),
}

impl Deref for BoundRef<'_> {
    type Target = Bound;

    fn deref(&self) -> &Bound {
        match self {
            Self::Registered(bound) => bound,
            Self::Stray(bound) => bound,
        }
    }
}

/// Policies are statics: their address tells them apart.
fn address(policy: &'static Policy) -> usize {
    std::ptr::from_ref(policy).addr()
}

impl Runtime {
    pub(crate) fn new(
        settings: Settings,
        store: Arc<dyn Store>,
        authenticator: Option<Arc<dyn Authenticator>>,
        challenge: HeaderValue,
        breakers: StoreBreakers,
        insurance: MemoryStore,
        limits: NamedLimits,
    ) -> Self {
        Self {
            blocked: Blocked::new(settings.remember_blocked),
            locked: Locked::new(settings.remember_blocked),
            settings,
            store,
            authenticator,
            challenge,
            breakers,
            insurance,
            limits,
            observer: Observer::default(),
            standings: Standings::new(),
            reachable: Reachable::default(),
            dependencies: None,
            sharing: None,
            unsettled: Semaphore::new(1_024),
            flags: Mutex::default(),
            bound: Vec::new(),
            strays: Mutex::default(),
            inbound: Mutex::default(),
        }
    }

    /// Gives the app a registry of its own for what it calls.
    pub(crate) fn with_dependencies(mut self, dependencies: Option<Dependencies>) -> Self {
        self.dependencies = dependencies;
        self
    }

    /// Ties its dependencies' breakers to those of other instances.
    pub(crate) fn with_sharing(mut self, core: Option<Arc<Core>>) -> Self {
        self.sharing = core.map(|core| {
            let driver = Driver::start(&core);
            (core, driver)
        });
        self
    }

    /// Binds the policies that registered themselves. The runtime serves after this.
    pub(crate) fn bind_all(&mut self, policies: impl Iterator<Item = &'static Policy>) {
        let mut bound: Vec<_> = policies
            .map(|policy| (address(policy), Bound::new(policy, self)))
            .collect();
        bound.sort_unstable_by_key(|(address, _)| *address);
        bound.dedup_by_key(|(address, _)| *address);
        self.bound = bound;
    }

    /// How the caller of this request was answered lately. Looked up only while questions wait in line.
    pub(crate) fn standing(&self, auth: Option<&BoundAuth>, request: &Request) -> Standing {
        if !self.store.has_line() {
            return Standing::Unknown;
        }
        let client = || Some(self.settings.callers.subject(request).as_str().to_owned());
        self.standings.of(self.credential(auth, request), client)
    }

    /// Notes how authentication has answered this request's caller.
    pub(crate) fn note_standing(&self, auth: &BoundAuth, request: &Request, verified: bool) {
        match self.credential(Some(auth), request) {
            Some(credential) if verified => self.standings.verified(credential),
            Some(_) => self.standings.refused(self.settings.callers.subject(request).as_str()),
            None => {}
        }
    }

    /// The text by which a caller is told from others: its API key, or its `Authorization`.
    fn credential<'r>(&self, auth: Option<&BoundAuth>, request: &'r Request) -> Option<&'r str> {
        let header = match (&self.authenticator, auth) {
            (Some(_), _) => &header::AUTHORIZATION,
            (None, Some(auth)) => &auth.header,
            (None, None) => &self.settings.auth_header,
        };
        request.headers().get(header)?.to_str().ok()
    }

    /// The policy, bound to this runtime.
    ///
    /// A policy that did not register itself (built by hand, or on a platform without link-time registration) is bound
    /// at its first request, and kept: policies are statics, so there is an end to them.
    pub(crate) fn bound(&self, policy: &'static Policy) -> BoundRef<'_> {
        let address = address(policy);
        match self.bound.binary_search_by_key(&address, |(address, _)| *address) {
            Ok(index) => BoundRef::Registered(&self.bound[index].1),
            Err(_) => {
                let mut strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
                let stray = strays
                    .entry(address)
                    .or_insert_with(|| Arc::new(Bound::new(policy, self)));
                BoundRef::Stray(Arc::clone(stray))
            }
        }
    }

    pub(crate) fn each_bound(&self, mut each: impl FnMut(&Bound)) {
        self.bound.iter().for_each(|(_, bound)| each(bound));
        let strays: Vec<_> = self
            .strays
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect();
        strays.iter().for_each(|bound| each(bound));
        self.inbound().iter().for_each(|bound| each(bound));
    }

    /// Keeps an eye on guards around a whole app; not on those whose name others have.
    pub(crate) fn watch_inbound(&self, bound: &Arc<Bound>) -> bool {
        let mut inbound = self.inbound.lock().unwrap_or_else(PoisonError::into_inner);
        inbound.retain(|bound| bound.strong_count() > 0);
        let mut others = inbound.iter().filter_map(Weak::upgrade);
        let is_free = others.all(|other| other.name != bound.name);
        if is_free {
            inbound.push(Arc::downgrade(bound));
        }
        is_free
    }

    fn inbound(&self) -> Vec<Arc<Bound>> {
        let inbound = self.inbound.lock().unwrap_or_else(PoisonError::into_inner);
        inbound.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn flag_state(&self, flag: &'static str) -> Arc<FlagState> {
        let mut flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(flags.entry(flag).or_default())
    }

    /// Names of flags whose last answer was unreadable, sorted.
    fn unreadable_flags(&self) -> Vec<String> {
        let flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);
        let unreadable = flags.iter().filter(|(_, flag)| flag.is_unreadable());
        let mut names: Vec<_> = unreadable.map(|(name, _)| (*name).to_owned()).collect();
        drop(flags);
        names.sort_unstable();
        names
    }
}

//! What a service calls, by name: one breaker and one retry budget for each dependency, whoever calls it.

use std::{
    borrow::Borrow,
    collections::HashMap,
    fmt,
    future::Future,
    hash::Hash,
    sync::{Arc, LazyLock, PoisonError, RwLock, Weak},
    time::Duration,
};

use tokio::sync::broadcast;

use crate::{
    breaker::{BreakerConfig, BreakerEvent, CircuitBreaker, ConfigError},
    clock::Clock,
    concurrency::{ConcurrencyConfig, ConcurrencyLimit},
    pipeline::RetryBudget,
    sharing::Core,
};

/// The breakers, retry budgets and bulkheads of the services that this one calls. Clones are handles on one registry.
///
/// [`#[outbound]`](macro@crate::outbound) finds its breaker here by the name that it is given, so that all fns which call
/// `payments` learn from each other. It looks in the registry of the enclosing [`scope`](Self::scope), else in the
/// [`global`](Self::global) one.
///
/// ```
/// use std::time::Duration;
///
/// use resilience::{Dependencies, breaker::{BreakerConfig, State}};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dependencies = Dependencies::new();
/// // Before the first call, or the name has the settings of all others.
/// dependencies.configure("payments", BreakerConfig::default().with_open_for(Duration::from_secs(1)))?;
///
/// let payments = dependencies.breaker("payments");
/// assert_eq!(payments.state(), State::Closed);
/// assert_eq!(dependencies.all().len(), 1);
/// # Ok(())
/// # }
/// ```
///
/// A name lives as long as its registry: take names from the code, never from a client.
#[derive(Clone)]
pub struct Dependencies {
    shared: Arc<Shared>,
}

struct Shared {
    breakers: Table<Arc<str>, CircuitBreaker>,
    budgets: Table<Arc<str>, RetryBudget>,
    /// Of fns that name no dependency.
    own_budgets: Table<usize, RetryBudget>,
    bulkheads: Table<(Owner, Places), ConcurrencyLimit>,
    /// Valid, and what every breaker has that was not configured.
    config: BreakerConfig,
    clock: Clock,
    events: broadcast::Sender<BreakerEvent>,
    /// Who shares the breakers with other instances.
    sharing: RwLock<Weak<Core>>,
}

/// Whose a budget or a bulkhead is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// All fns that use the name.
    Named(&'static str),
    /// One fn, by the address of its static.
    Fn(usize),
}

/// The numbers of a bulkhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Places {
    pub(crate) limit: u32,
    pub(crate) queue: u32,
    /// `None` for the default.
    pub(crate) queue_timeout: Option<Duration>,
}

impl Places {
    fn config(self) -> ConcurrencyConfig {
        let config = ConcurrencyConfig::new(self.limit).with_queue(self.queue);
        match self.queue_timeout {
            Some(timeout) => config.with_queue_timeout(timeout),
            None => config,
        }
    }
}

/// Events that a receiver may be late by before it misses some.
const EVENTS_KEPT: usize = 64;

static GLOBAL: LazyLock<Dependencies> = LazyLock::new(Dependencies::new);

tokio::task_local! {
    static CURRENT: Dependencies;
}

impl Dependencies {
    /// An empty registry, whose breakers have the default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::assemble(BreakerConfig::default(), Clock::system())
    }

    /// An empty registry, whose breakers have these settings unless they are [configured](Self::configure) by name.
    ///
    /// # Errors
    ///
    /// If an option makes no sense; the error names it.
    pub fn with_config(config: BreakerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self::assemble(config, Clock::system()))
    }

    /// A new, empty registry with the same settings whose breakers and budgets live by `clock`.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self::assemble(self.shared.config.clone(), clock)
    }

    /// The registry of the process: what `#[outbound]` uses outside of any [`scope`](Self::scope).
    #[must_use]
    pub fn global() -> &'static Self {
        &GLOBAL
    }

    /// The registry of the enclosing [`scope`](Self::scope), else the [`global`](Self::global) one.
    #[must_use]
    pub fn current() -> Self {
        CURRENT
            .try_with(Clone::clone)
            .unwrap_or_else(|_| Self::global().clone())
    }

    /// Runs `future` with this registry as the [`current`](Self::current) one.
    ///
    /// A task that is spawned inside is outside of the scope: open another one in it.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `future` itself: the scope holds nothing but the future.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        CURRENT.scope(self.clone(), future).await
    }

    /// The breaker of this dependency, made at first use. Costs a look-up: ask for it at each call and keep none, since
    /// another registry has another.
    #[must_use]
    pub fn breaker(&self, name: &str) -> CircuitBreaker {
        let make = || {
            let breaker = self.new_breaker(name, self.shared.config.clone());
            let breaker = breaker.expect("validated with the registry");
            // Before anybody else can have it: what is known of the name holds for its first call.
            self.join(&breaker);
            breaker
        };
        self.shared.breakers.entry(name, || name.into(), make)
    }

    /// Makes the breaker of this dependency with settings of its own.
    ///
    /// # Errors
    ///
    /// [`DependencyError::InUse`] if it was made already, by its first use or by an earlier `configure`: two settings for
    /// one name are a mistake, and calls under way would count by the old ones. [`DependencyError::Config`] if an option
    /// makes no sense.
    pub fn configure(&self, name: &str, config: BreakerConfig) -> Result<(), DependencyError> {
        let breaker = self.new_breaker(name, config)?;
        self.shared.breakers.insert(name, name.into(), breaker.clone())?;
        self.join(&breaker);
        Ok(())
    }

    /// The breakers made so far, sorted by name.
    #[must_use]
    pub fn all(&self) -> Vec<CircuitBreaker> {
        let mut breakers = self.shared.breakers.values();
        breakers.sort_by(|one, other| one.name().cmp(other.name()));
        breakers
    }

    /// Openings, half-openings and closings of all its breakers, from now on. A receiver that falls 64 events behind
    /// misses the oldest.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<BreakerEvent> {
        self.shared.events.subscribe()
    }

    /// The retry budget of this dependency, made at first use with the defaults of [`RetryBudget`].
    ///
    /// A pipeline that calls the same dependency takes its tokens from it with
    /// [`Retry::with_budget`](crate::pipeline::Retry::with_budget).
    #[must_use]
    pub fn retry_budget(&self, name: &str) -> RetryBudget {
        self.shared.budgets.entry(name, || name.into(), || self.new_budget())
    }

    /// Gives this dependency a retry budget of your own.
    ///
    /// # Errors
    ///
    /// [`DependencyError::InUse`] if it has one already.
    pub fn configure_retry_budget(&self, name: &str, budget: RetryBudget) -> Result<(), DependencyError> {
        self.shared.budgets.insert(name, name.into(), budget)
    }

    /// The bulkheads that `#[outbound]` has made so far, sorted by name: to look at how many calls are in flight.
    ///
    /// Fns that use one name with the same numbers share one; with other numbers the name stands here twice.
    #[must_use]
    pub fn bulkheads(&self) -> Vec<ConcurrencyLimit> {
        let mut bulkheads = self.shared.bulkheads.values();
        bulkheads.sort_by(|one, other| one.name().cmp(other.name()));
        bulkheads
    }

    pub(crate) fn budget_of(&self, owner: Owner) -> RetryBudget {
        match owner {
            Owner::Named(name) => self.retry_budget(name),
            Owner::Fn(address) => self
                .shared
                .own_budgets
                .entry(&address, || address, || self.new_budget()),
        }
    }

    /// The bulkhead of this owner with these numbers, made and named at first use.
    pub(crate) fn bulkhead_of(
        &self,
        owner: Owner,
        places: Places,
        name: impl FnOnce() -> Arc<str>,
    ) -> ConcurrencyLimit {
        let key = (owner, places);
        let make = || {
            ConcurrencyLimit::new(name(), places.config())
                .expect("the attribute has checked it")
                .with_clock(self.shared.clock.clone())
        };
        self.shared.bulkheads.entry(&key, || key, make)
    }

    /// Shares all breakers, those to come too. `false` if another runtime does so already.
    pub(crate) fn share(&self, core: &Arc<Core>) -> bool {
        {
            let mut sharing = self.shared.sharing.write().unwrap_or_else(PoisonError::into_inner);
            if sharing.upgrade().is_some_and(|other| !other.is_over()) {
                return false;
            }
            *sharing = Arc::downgrade(core);
        }
        // Those made from here on join by themselves.
        self.shared
            .breakers
            .values()
            .iter()
            .for_each(|breaker| core.join(breaker));
        true
    }

    fn join(&self, breaker: &CircuitBreaker) {
        let sharing = self
            .shared
            .sharing
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .upgrade();
        if let Some(core) = sharing {
            core.join(breaker);
        }
    }

    fn new_breaker(&self, name: &str, config: BreakerConfig) -> Result<CircuitBreaker, ConfigError> {
        Ok(CircuitBreaker::new(name, config)?
            .with_clock(self.shared.clock.clone())
            .with_events(self.shared.events.clone()))
    }

    fn new_budget(&self) -> RetryBudget {
        RetryBudget::default().with_clock(self.shared.clock.clone())
    }

    fn assemble(config: BreakerConfig, clock: Clock) -> Self {
        Self {
            shared: Arc::new(Shared {
                breakers: Table::default(),
                budgets: Table::default(),
                own_budgets: Table::default(),
                bulkheads: Table::default(),
                config,
                clock,
                events: broadcast::Sender::new(EVENTS_KEPT),
                sharing: RwLock::default(),
            }),
        }
    }
}

impl Default for Dependencies {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Dependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dependencies")
            .field("breakers", &self.all())
            .field("bulkheads", &self.bulkheads())
            .finish_non_exhaustive()
    }
}

/// Why a dependency was not configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DependencyError {
    /// It was used or configured before.
    #[error("the dependency `{name}` is in use already: configure it once, before its first call")]
    InUse {
        /// The dependency's name.
        name: String,
    },
    /// The settings make no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Values made at first use. They are never removed.
struct Table<K, V>(RwLock<HashMap<K, V>>);

impl<K: Eq + Hash, V: Clone> Table<K, V> {
    fn entry<Q>(&self, key: &Q, own: impl FnOnce() -> K, make: impl FnOnce() -> V) -> V
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if let Some(value) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return value.clone();
        }
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Two may have come here at once: the second finds what the first has made.
        table.entry(own()).or_insert_with(make).clone()
    }

    fn insert(&self, name: &str, key: K, value: V) -> Result<(), DependencyError> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if table.contains_key(&key) {
            return Err(DependencyError::InUse { name: name.to_owned() });
        }
        table.insert(key, value);
        Ok(())
    }

    fn values(&self) -> Vec<V> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.values().cloned().collect()
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breaker::State;

    #[test]
    fn a_name_is_one_breaker_whoever_asks_first() {
        let dependencies = Dependencies::new();
        let breakers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| dependencies.breaker("payments")))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        for _ in 0..5 {
            breakers[0].record_failure();
        }
        assert!(breakers.iter().all(|breaker| breaker.state() == State::Open));
        assert_eq!(dependencies.breaker("search").state(), State::Closed);
        let names: Vec<_> = dependencies
            .all()
            .iter()
            .map(|breaker| breaker.name().to_owned())
            .collect();
        assert_eq!(names, ["payments", "search"]);
    }

    #[test]
    fn settings_come_before_the_first_use_and_once() {
        let strict = BreakerConfig::default().with_failures_in_a_row(1);
        let dependencies = Dependencies::new();
        dependencies.configure("payments", strict.clone()).expect("it is new");
        dependencies.breaker("payments").record_failure();
        assert_eq!(dependencies.breaker("payments").state(), State::Open);
        let _ = dependencies.breaker("search");
        for name in ["payments", "search"] {
            let in_use = DependencyError::InUse { name: name.to_owned() };
            assert_eq!(dependencies.configure(name, strict.clone()), Err(in_use));
        }
        let senseless = dependencies.configure("mail", strict.clone().with_probes(0));
        assert!(matches!(senseless, Err(DependencyError::Config(error)) if error.option() == "probes"));
        assert_eq!(dependencies.all().len(), 2);
        assert!(Dependencies::with_config(strict.with_jitter(2.0)).is_err());
    }

    #[test]
    fn events_of_all_breakers_are_told_in_one_place() {
        let dependencies =
            Dependencies::with_config(BreakerConfig::default().with_failures_in_a_row(1)).expect("valid");
        let mut events = dependencies.events();
        for name in ["payments", "search"] {
            dependencies.breaker(name).record_failure();
            assert_eq!(&*events.try_recv().expect("it has opened").breaker, name);
        }
    }

    #[test]
    fn budgets_are_shared_by_name_and_may_be_brought_along() {
        let dependencies = Dependencies::new();
        dependencies
            .configure_retry_budget("payments", RetryBudget::new(0.0, 0).with_saved(1))
            .expect("it is new");
        assert!(dependencies.retry_budget("payments").try_withdraw());
        assert!(!dependencies.budget_of(Owner::Named("payments")).try_withdraw());
        assert!(dependencies.budget_of(Owner::Fn(1)).try_withdraw());
        assert_eq!(dependencies.budget_of(Owner::Fn(1)).available(), 9);
        assert_eq!(dependencies.budget_of(Owner::Fn(2)).available(), 10);
        let again = dependencies.configure_retry_budget("payments", RetryBudget::default());
        assert!(matches!(again, Err(DependencyError::InUse { .. })));
    }

    #[tokio::test]
    async fn scopes_nest_and_end() {
        let (one, two) = (Dependencies::new(), Dependencies::new());
        one.scope(async {
            let _ = Dependencies::current().breaker("outer");
            two.scope(async { Dependencies::current().breaker("inner") }).await;
            let _ = Dependencies::current().breaker("outer again");
        })
        .await;
        assert_eq!((one.all().len(), two.all().len()), (2, 1));
        assert!(Arc::ptr_eq(
            &Dependencies::current().shared,
            &Dependencies::global().shared
        ));
    }
}

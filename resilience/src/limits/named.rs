//! What is in force under each name.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, atomic::AtomicBool},
};

use arc_swap::ArcSwap;
use tokio::time::{Instant, timeout_at};

use super::{
    LimitInForce, LimitSource, document,
    terms::{Terms, TermsRef, named_family},
};
use crate::{
    policy::{Key, Limit, RateLimit},
    runtime::Runtime,
    store::{Store, StoreError, StoreErrorKind},
};

/// All quotas that have a name.
#[derive(Debug, Default)]
pub(crate) struct NamedLimits {
    by_name: Mutex<BTreeMap<String, Arc<NamedLimit>>>,
    pub(super) file: Option<LimitsFile>,
    /// One reading or change at a time: an answer from before a change must not undo it.
    stored: tokio::sync::Mutex<Stored>,
    /// Whose quotas they are, once the runtime serves.
    pub(super) home: OnceLock<Weak<Runtime>>,
    pub(super) watched: AtomicBool,
}

/// A file as it was read when the runtime was built.
#[derive(Debug)]
pub(crate) struct LimitsFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// What is known of the store's definitions.
#[derive(Debug, Default)]
struct Stored {
    /// Texts that made no quota: each was complained about once.
    rejected: HashMap<String, String>,
}

/// One name: its definitions, and what follows from them.
#[derive(Debug)]
pub(crate) struct NamedLimit {
    name: String,
    definitions: Mutex<Definitions>,
    current: ArcSwap<Current>,
}

#[derive(Debug, Default)]
struct Definitions {
    by_source: BTreeMap<LimitSource, Limit>,
    /// What handlers use the name with.
    keys: Vec<Key>,
}

#[derive(Debug, Default)]
struct Current {
    in_force: Option<(LimitSource, Limit)>,
    version: u64,
    terms: Vec<(Key, Arc<Terms>)>,
}

impl NamedLimits {
    /// Definitions from the builder and from a file.
    pub(crate) fn new(
        builder: impl IntoIterator<Item = (String, Limit)>,
        file: Option<(LimitsFile, BTreeMap<String, Limit>)>,
    ) -> Self {
        let mut limits = Self::default();
        for (name, limit) in builder {
            limits.named(&name).define(LimitSource::Builder, Some(limit));
        }
        if let Some((file, defined)) = file {
            limits.file_says(&defined);
            limits.file = Some(file);
        }
        limits
    }

    /// The quota of this name, which a handler uses.
    pub(crate) fn used(&self, name: &str, spec: &RateLimit) -> Arc<NamedLimit> {
        let named = self.named(name);
        named.used(spec);
        self.watch();
        named
    }

    /// Whether a handler uses any.
    pub(super) fn is_used(&self) -> bool {
        let by_name = self.by_name();
        by_name.values().any(|named| !named.definitions().keys.is_empty())
    }

    pub(crate) fn known(&self, name: &str) -> Option<Arc<NamedLimit>> {
        self.by_name().get(name).cloned()
    }

    /// What a quota's numbers are by anybody's word but the store's, which may be down when the next instance starts.
    pub(crate) fn defined(&self, spec: &RateLimit) -> Option<Limit> {
        let named = spec.name.and_then(|name| self.known(name));
        named.and_then(|named| named.without_store()).or(spec.limit)
    }

    /// All of them, sorted by name.
    pub(crate) fn all(&self) -> Vec<Arc<NamedLimit>> {
        self.by_name().values().cloned().collect()
    }

    /// Takes over what a file says, all of it.
    pub(super) fn file_says(&self, defined: &BTreeMap<String, Limit>) {
        for name in defined.keys() {
            self.named(name);
        }
        for named in self.all() {
            named.define(LimitSource::File, defined.get(&named.name).copied());
        }
    }

    /// Takes over what the store says, but for what makes no sense.
    pub(super) async fn read_store(&self, store: &dyn Store, deadline: Instant) -> Result<(), StoreError> {
        let mut stored = within(deadline, self.stored.lock()).await?;
        let texts: HashMap<_, _> = within(deadline, store.limits(deadline)).await??.into_iter().collect();
        for named in self.all() {
            let name = &named.name;
            match texts.get(name).map(|text| (text, document::from_json(text))) {
                None => {
                    stored.rejected.remove(name);
                    named.define(LimitSource::Store, None);
                }
                Some((_, Ok(limit))) => {
                    stored.rejected.remove(name);
                    named.define(LimitSource::Store, Some(limit));
                }
                Some((text, Err(reason))) => {
                    if stored.rejected.get(name) != Some(text) {
                        tracing::warn!(%name, %reason, "the store holds an invalid quota: what was in force stays");
                        stored.rejected.insert(name.clone(), text.clone());
                    }
                }
            }
        }
        Ok(())
    }

    /// Changes what the store says, and takes it over.
    pub(super) async fn write_store(
        &self,
        store: &dyn Store,
        named: &NamedLimit,
        limit: Option<Limit>,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let mut stored = within(deadline, self.stored.lock()).await?;
        let text = limit.map(|limit| document::to_json(&limit));
        within(deadline, store.set_limit(&named.name, text.as_deref(), deadline)).await??;
        stored.rejected.remove(&named.name);
        named.define(LimitSource::Store, limit);
        Ok(())
    }

    fn named(&self, name: &str) -> Arc<NamedLimit> {
        let mut by_name = self.by_name();
        if let Some(named) = by_name.get(name) {
            return Arc::clone(named);
        }
        let named = Arc::new(NamedLimit {
            name: name.to_owned(),
            definitions: Mutex::default(),
            current: ArcSwap::default(),
        });
        by_name.insert(name.to_owned(), Arc::clone(&named));
        named
    }

    fn by_name(&self) -> MutexGuard<'_, BTreeMap<String, Arc<NamedLimit>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NamedLimit {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What holds now for a handler that uses the name with this key, and has these numbers of its own; `None` if nobody
    /// says. Waits for nobody.
    pub(crate) fn terms<'a>(&self, key: Key, own: Option<&'a Arc<Terms>>) -> Option<TermsRef<'a>> {
        let current = self.current.load();
        let overridden = matches!(current.in_force, Some((source, _)) if source != LimitSource::Attribute);
        if let Some(own) = own
            && !overridden
        {
            return Some(TermsRef::Fixed(own, current.version));
        }
        let (_, terms) = current.terms.iter().find(|(other, _)| *other == key)?;
        Some(TermsRef::Current(Arc::clone(terms), current.version))
    }

    pub(crate) fn in_force(&self) -> LimitInForce {
        let current = self.current.load();
        LimitInForce {
            name: self.name.clone(),
            limit: current.in_force.map(|(_, limit)| limit),
            source: current.in_force.map(|(source, _)| source),
            version: current.version,
        }
    }

    /// What is defined by anybody but the store.
    fn without_store(&self) -> Option<Limit> {
        let definitions = self.definitions();
        let others = definitions
            .by_source
            .iter()
            .filter(|(source, _)| **source != LimitSource::Store);
        others.map(|(_, limit)| *limit).next()
    }

    fn used(&self, spec: &RateLimit) {
        let mut definitions = self.definitions();
        if !definitions.keys.contains(&spec.key) {
            definitions.keys.push(spec.key);
        }
        if let Some(limit) = spec.limit {
            definitions.by_source.entry(LimitSource::Attribute).or_insert(limit);
        }
        self.put_in_force(&definitions);
    }

    fn define(&self, source: LimitSource, limit: Option<Limit>) {
        let mut definitions = self.definitions();
        let before = match limit {
            Some(limit) => definitions.by_source.insert(source, limit),
            None => definitions.by_source.remove(&source),
        };
        if before != limit {
            self.put_in_force(&definitions);
        }
    }

    /// Works out what follows from the definitions, whose lock the caller holds.
    fn put_in_force(&self, definitions: &Definitions) {
        let before = self.current.load();
        let in_force = definitions
            .by_source
            .first_key_value()
            .map(|(source, limit)| (*source, *limit));
        let changed = before.in_force.is_some() && before.in_force != in_force;
        let family = named_family(&self.name);
        let terms = |(_, limit)| {
            let keys = definitions.keys.iter();
            keys.map(|&key| (key, Arc::new(Terms::new(&family, limit, key, &self.name))))
                .collect()
        };
        let version = before.version + u64::from(changed || (before.in_force.is_none() && in_force.is_some()));
        if changed {
            tracing::info!(name = %self.name, ?in_force, "a quota has changed");
        }
        self.current.store(Arc::new(Current {
            in_force,
            version,
            terms: in_force.map(terms).unwrap_or_default(),
        }));
    }

    fn definitions(&self) -> MutexGuard<'_, Definitions> {
        self.definitions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn within<F: Future>(deadline: Instant, future: F) -> Result<F::Output, StoreError> {
    timeout_at(deadline, future)
        .await
        .map_err(|_| StoreError::new(StoreErrorKind::Unavailable, "no answer within the deadline"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::MemoryStore;

    const MINUTE: Duration = Duration::from_secs(60);

    fn soon() -> Instant {
        Instant::now() + MINUTE
    }

    fn requests(named: &NamedLimit, key: Key) -> Option<(u32, u64)> {
        let terms = named.terms(key, None)?;
        Some((terms.quota.limit, terms.version()))
    }

    #[tokio::test]
    async fn the_store_comes_before_the_file_before_the_builder_before_the_attribute() {
        let store = MemoryStore::new();
        let limits = NamedLimits::new([("api".to_owned(), Limit::new(2, MINUTE))], None);
        let spec = RateLimit::new(1, MINUTE).with_name("api");
        let api = limits.used("api", &spec);
        assert_eq!(requests(&api, Key::Ip), Some((2, 1)));
        limits.file_says(&BTreeMap::from([("api".to_owned(), Limit::new(3, MINUTE))]));
        assert_eq!(requests(&api, Key::Ip), Some((3, 2)));
        let four = Some(Limit::new(4, MINUTE));
        limits.write_store(&store, &api, four, soon()).await.unwrap();
        assert_eq!(requests(&api, Key::Ip), Some((4, 3)));
        assert_eq!(api.in_force().source, Some(LimitSource::Store));
        // The file goes on changing behind it, and nothing of that is in force.
        limits.file_says(&BTreeMap::new());
        assert_eq!(requests(&api, Key::Ip), Some((4, 3)));
        limits.write_store(&store, &api, None, soon()).await.unwrap();
        assert_eq!(requests(&api, Key::Ip), Some((2, 4)));
        assert_eq!(api.in_force().source, Some(LimitSource::Builder));
    }

    #[test]
    fn a_key_that_comes_later_has_terms_too() {
        let limits = NamedLimits::new([("api".to_owned(), Limit::new(2, MINUTE))], None);
        let api = limits.used("api", &RateLimit::named("api"));
        assert_eq!(requests(&api, Key::Global), None);
        limits.used("api", &RateLimit::named("api").with_key(Key::Global));
        assert_eq!(requests(&api, Key::Global), Some((2, 1)));
        assert_eq!(
            api.terms(Key::Global, None).unwrap().quota.id,
            "=api:60000ms:sliding:global"
        );
    }

    #[tokio::test]
    async fn handlers_keep_their_own_numbers_until_somebody_else_defines_the_name() {
        let limits = NamedLimits::default();
        let (minute, hour) = (RateLimit::new(1, MINUTE), RateLimit::new(9, MINUTE * 60));
        let own = Arc::new(Terms::new("=api", hour.limit.unwrap(), Key::Ip, "api"));
        limits.used("api", &minute.with_name("api"));
        let api = limits.used("api", &hour.with_name("api"));
        assert_eq!(api.terms(Key::Ip, Some(&own)).unwrap().quota.limit, 9);
        limits
            .write_store(&MemoryStore::new(), &api, Some(Limit::new(1, MINUTE)), soon())
            .await
            .unwrap();
        assert_eq!(api.terms(Key::Ip, Some(&own)).unwrap().quota.limit, 1);
    }

    #[tokio::test]
    async fn what_makes_no_sense_in_the_store_leaves_what_was_in_force() {
        let store = MemoryStore::new();
        let limits = NamedLimits::default();
        let api = limits.used("api", &RateLimit::named("api"));
        assert_eq!(requests(&api, Key::Ip), None);
        for (text, in_force) in [
            (Some(r#"{"limit":5,"window":"1m"}"#), Some((5, 1))),
            (Some("{"), Some((5, 1))),
            (Some(r#"{"limit":0,"window":"1m"}"#), Some((5, 1))),
            (Some(r#"{"limit":6,"window":"1m"}"#), Some((6, 2))),
            (None, None),
        ] {
            store.set_limit("api", text, soon()).await.unwrap();
            limits.read_store(&store, soon()).await.unwrap();
            assert_eq!(requests(&api, Key::Ip), in_force, "{text:?}");
        }
    }
}

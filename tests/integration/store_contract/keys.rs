//! Keys, flags and probes.

use super::*;

pub(super) async fn api_keys_belong_to_users(subject: Subject) {
    let store = &subject.store;
    assert_eq!(subject.identity("letmein").await, None);
    store.add_api_key("letmein", "user-42").await.unwrap();
    store.add_api_key("schlüssel \u{1f511}", "Jürgen").await.unwrap();
    assert_eq!(subject.identity("letmein").await.as_deref(), Some("user-42"));
    assert_eq!(subject.identity("schlüssel \u{1f511}").await.as_deref(), Some("Jürgen"));
    assert_eq!(subject.identity("LETMEIN").await, None);
    store.add_api_key("letmein", "user-43").await.unwrap();
    assert_eq!(subject.identity("letmein").await.as_deref(), Some("user-43"));
    assert!(store.remove_api_key("letmein").await.unwrap());
    assert!(!store.remove_api_key("letmein").await.unwrap());
    assert_eq!(subject.identity("letmein").await, None);
}

pub(super) async fn flags_are_unset_on_or_off(subject: Subject) {
    let store = &subject.store;
    assert_eq!(subject.flag("checkout").await, None);
    for on in [true, false, true] {
        store.set_flag("checkout", on).await.unwrap();
        assert_eq!(subject.flag("checkout").await, Some(on));
    }
    assert_eq!(subject.flag("check").await, None);
    assert!(store.clear_flag("checkout").await.unwrap());
    assert!(!store.clear_flag("checkout").await.unwrap());
    assert_eq!(subject.flag("checkout").await, None);
}

pub(super) async fn limits_are_kept_by_name(subject: Subject) {
    let store = &subject.store;
    let all = async || {
        let mut all = store.limits(soon()).await.unwrap();
        all.sort();
        all
    };
    let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    assert_eq!(all().await, []);
    store.set_limit("api", Some("{}"), soon()).await.unwrap();
    store
        .set_limit("team/login:v2", Some("any text \u{1f511}"), soon())
        .await
        .unwrap();
    store.set_limit("api", Some("other"), soon()).await.unwrap();
    let both = [pair("api", "other"), pair("team/login:v2", "any text \u{1f511}")];
    assert_eq!(all().await, both);
    store.set_limit("unknown", None, soon()).await.unwrap();
    store.set_limit("api", None, soon()).await.unwrap();
    assert_eq!(all().await, both[1..]);
    store.set_limit("team/login:v2", None, soon()).await.unwrap();
    assert_eq!(all().await, []);
}

pub(super) async fn keys_and_flags_have_names_of_their_own(subject: Subject) {
    subject.store.set_flag("same", true).await.unwrap();
    subject.store.add_api_key("same", "user-1").await.unwrap();
    assert!(subject.take(&yearly("same", 1), "same").await.allowed);
    assert_eq!(subject.flag("same").await, Some(true));
    assert_eq!(subject.identity("same").await.as_deref(), Some("user-1"));
    assert_eq!(subject.identity("flag:same").await, None);
}

pub(super) async fn admin_refuses_what_no_request_could_present(subject: Subject) {
    let store = &subject.store;
    let longest = "k".repeat(512);
    store.add_api_key(&longest, "user-1").await.unwrap();
    for (api_key, user) in [("", "user-1"), (&*(longest + "k"), "user-1"), ("letmein", "")] {
        let error = store.add_api_key(api_key, user).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Answered);
    }
}

pub(super) async fn an_operation_that_is_never_polled_takes_nothing(subject: Subject) {
    let quota = yearly("q", 2);
    let takes = [Take {
        quota: &quota,
        client: "client",
        cost: 1,
    }];
    drop(subject.store.take(&takes, soon()));
    assert_eq!(subject.take(&quota, "client").await.remaining, 1);
}

pub(super) async fn probes_find_a_store_that_serves(subject: Subject) {
    for kind in [Probe::Write, Probe::Read] {
        subject.store.probe(kind, soon()).await.unwrap();
    }
}

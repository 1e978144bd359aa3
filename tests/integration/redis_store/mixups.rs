//! Replies that are lost, doubled, reordered, cut or scrambled on the way: no answer is ever taken for another's.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use poem::{Endpoint, EndpointExt, Request, handler};
use resilience::{
    Identity, Resilience,
    breaker::State,
    resilient,
    store::{Attempt, Lockout, RedisStore, Store, StoreAdmin, StoreError, StoreErrorKind, Take},
};
use resilience_tests::{Garble, PATIENCE, Proxy, RedisServer, eventually};
use tokio::{task::JoinSet, time::Instant};

use super::{connect, connected, quota, soon};

const ALL: [Garble; 5] = [
    Garble::Lose,
    Garble::Double,
    Garble::Swap,
    Garble::Cut,
    Garble::Scramble,
];

const USERS: usize = 16;

fn key(user: usize) -> String {
    format!("key{user:02}")
}

fn name(user: usize) -> String {
    format!("user{user:02}")
}

async fn with_users(server: &RedisServer) {
    let store = connect(server.url()).await;
    for user in 0..USERS {
        store.add_api_key(&key(user), &name(user)).await.unwrap();
    }
}

#[resilient(auth = "fail_closed")]
#[handler]
async fn whoami(Identity(user): Identity) -> String {
    user
}

/// That of the breaker which all handlers here share.
fn state_of_store(resilience: &Resilience) -> State {
    let breakers = resilience.breakers();
    let shared = breakers.iter().find(|breaker| breaker.name() == "store");
    shared.expect("handlers share it").state()
}

/// Many callers at once, each of whom must be told who it is, or nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_is_ever_taken_for_another() {
    let server = RedisServer::start();
    with_users(&server).await;
    let proxy = Proxy::start(server.port()).await;
    let store = connect(proxy.url()).await;
    let resilience = Resilience::builder().store(store.clone()).build().unwrap();
    let app = Arc::new(whoami.with(resilience.clone()));
    let done = Arc::new(AtomicBool::new(false));
    let right = Arc::new(AtomicU32::new(0));
    let mut callers = JoinSet::new();
    for user in 0..USERS {
        let (app, done, right) = (Arc::clone(&app), Arc::clone(&done), Arc::clone(&right));
        callers.spawn(async move {
            let mut refused = 0;
            while !done.load(Ordering::Relaxed) {
                let request = Request::builder().header("x-api-key", key(user)).finish();
                let response = app.get_response(request).await;
                if response.status() == 200 {
                    let told = response.into_body().into_string().await.unwrap();
                    assert_eq!(told, name(user), "{} was taken for another", name(user));
                    right.fetch_add(1, Ordering::Relaxed);
                } else {
                    refused += 1;
                }
                // A refusal waits for nothing.
                tokio::task::yield_now().await;
            }
            refused
        });
    }
    let mut longest = Duration::ZERO;
    for round in 0..40 {
        proxy.garble(ALL[round % ALL.len()], format!("user{:02}", round % USERS).as_bytes());
        eventually("a reply is garbled", async || proxy.has_garbled()).await;
        let garbled = Instant::now();
        let before = right.load(Ordering::Relaxed);
        eventually("callers are told who they are again", async || {
            right.load(Ordering::Relaxed) >= before + 200 && store.is_connected()
        })
        .await;
        longest = longest.max(garbled.elapsed());
        assert_eq!(state_of_store(&resilience), State::Closed, "one reply is no outage");
    }
    done.store(true, Ordering::Relaxed);
    let refused: u32 = callers.join_all().await.into_iter().sum();
    // Each round costs the questions that were open on one connection, never more.
    assert!(
        refused <= 40 * 2 * u32::try_from(USERS).unwrap(),
        "{refused} were refused"
    );
    println!("{refused} refused in 40 rounds; healed within {longest:?}");
}

/// Questions that wait together meet one pause of the server together. That is one failure, and a server that stays away
/// is more of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_pause_of_the_server_is_one_failure() {
    let server = RedisServer::start();
    with_users(&server).await;
    let store = connect(server.url()).await;
    let resilience = Resilience::builder().store(store).build().unwrap();
    let app = Arc::new(whoami.with(resilience.clone()));
    let ask = |user: usize| {
        let app = Arc::clone(&app);
        async move {
            let request = Request::builder().header("x-api-key", key(user)).finish();
            app.get_response(request).await.status().as_u16()
        }
    };
    assert_eq!(ask(0).await, 200);
    server.freeze();
    // All at once: they go out in one write, or two.
    let answers = futures_util::future::join_all((0..60).map(|nth| ask(nth % USERS))).await;
    assert_eq!(answers, [503; 60]);
    let state = || state_of_store(&resilience);
    assert_eq!(state(), State::Closed);
    eventually("the breaker opens on a server that stays away", async || {
        ask(0).await;
        state() == State::Open
    })
    .await;
    server.thaw();
    eventually("callers are verified again", async || ask(0).await == 200).await;
}

/// A reply that is lost when nothing else is under way is missed at once by the next question.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_after_a_lost_reply_is_not_answered_by_it() {
    for how in ALL {
        let server = RedisServer::start();
        with_users(&server).await;
        let proxy = Proxy::start(server.port()).await;
        let store = connect(proxy.url()).await;
        proxy.garble(how, b"user00");
        let ask = async |user: usize| {
            let deadline = Instant::now() + Duration::from_millis(100);
            store.identity(&key(user), deadline).await
        };
        // Doubled, it is answered rightly; the second copy is what goes astray.
        match ask(0).await {
            Ok(user) => assert_eq!((how, user), (Garble::Double, Some(name(0)))),
            Err(error) => assert_ne!(error.kind(), StoreErrorKind::Saturated, "{error}"),
        }
        assert!(proxy.has_garbled());
        for user in 1..USERS {
            if let Ok(told) = ask(user).await {
                assert_eq!(told, Some(name(user)), "{how:?}");
            }
        }
        eventually("all are told who they are again", async || {
            let mut all = true;
            for user in 0..USERS {
                all &= store
                    .identity(&key(user), soon())
                    .await
                    .is_ok_and(|told| told == Some(name(user)));
            }
            all
        })
        .await;
    }
}

/// Every kind of question, against answers that only fit the one that was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_kind_of_question_takes_the_answer_of_another() {
    let server = RedisServer::start();
    with_users(&server).await;
    let proxy = Proxy::start(server.port()).await;
    let store = connect(proxy.url()).await;
    store.set_flag("on", true).await.unwrap();
    store.set_flag("off", false).await.unwrap();
    let lockout = Lockout {
        id: "login".to_owned(),
        attempts: 1_000,
        durations: vec![Duration::from_secs(60)],
    };
    // Each quota has a limit of its own, by which its answers are known.
    let kinds: [fn(RedisStore, Lockout, u64) -> Asked; 5] = [
        |store, _, _| {
            Box::pin(async move {
                let user = store.identity("key07", soon()).await?;
                assert_eq!(user.as_deref(), Some("user07"));
                Ok(())
            })
        },
        |store, _, _| {
            Box::pin(async move {
                assert_eq!(store.flag("on", soon()).await?, Some(true));
                Ok(())
            })
        },
        |store, _, _| {
            Box::pin(async move {
                assert_eq!(store.flag("off", soon()).await?, Some(false));
                Ok(())
            })
        },
        |store, _, seed| {
            Box::pin(async move {
                let limit = 2_000_000 + u32::try_from(seed % 1_000).unwrap() * 100_000;
                let mut quota = quota(limit);
                quota.id = format!("q{limit}");
                let take = Take {
                    quota: &quota,
                    client: "client",
                    cost: 1,
                };
                let taken = store.take(&[take], soon()).await?;
                let remaining = taken[0].remaining;
                assert!((limit - 100_000..limit).contains(&remaining), "{remaining} of {limit}");
                Ok(())
            })
        },
        |store, lockout, seed| {
            Box::pin(async move {
                let attempt = Attempt {
                    lockout: &lockout,
                    subject: "ip:a",
                    id: seed,
                    origin: 0,
                };
                let begun = store.begin_attempts(&[attempt], soon()).await?;
                assert_eq!(begun.len(), 1);
                Ok(())
            })
        },
    ];
    for round in 0..60 {
        proxy.garble(ALL[round % ALL.len()], b"");
        let mut questions = JoinSet::new();
        for nth in 0..50 {
            questions.spawn(kinds[nth % kinds.len()](
                store.clone(),
                lockout.clone(),
                fastrand::u64(..),
            ));
        }
        let answers = tokio::time::timeout(PATIENCE, questions.join_all()).await;
        for error in answers.expect("all are answered").into_iter().filter_map(Result::err) {
            assert_ne!(error.kind(), StoreErrorKind::Saturated, "{error}");
        }
        connected(&store).await;
    }
}

type Asked = std::pin::Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

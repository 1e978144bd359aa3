//! Several quotas, several clients, many requests at once.

use super::*;

pub(super) async fn quotas_of_all_algorithms_are_taken_all_or_none(subject: Subject) {
    let quotas = ALGORITHMS.map(|algorithm| quota(&format!("{algorithm:?}"), 10, YEAR, algorithm));
    for (tight, refuses) in quotas.iter().enumerate() {
        let client = &*refuses.id;
        assert!(subject.take_for(9, refuses, client).await.allowed);
        // In every order, and each at a cost of its own.
        for first in 0..quotas.len() {
            let mut order: Vec<usize> = (0..quotas.len()).collect();
            order.rotate_left(first);
            let takes: Vec<Take<'_>> = order
                .iter()
                .map(|&at| Take {
                    quota: &quotas[at],
                    client,
                    cost: 2 + at as u32,
                })
                .collect();
            for (&at, taken) in order.iter().zip(subject.take_all(&takes).await) {
                assert_eq!(taken.allowed, at != tight);
                assert_eq!(taken.remaining, if at == tight { 1 } else { 10 });
            }
        }
    }
    let takes: Vec<Take<'_>> = (1..)
        .zip(&quotas)
        .map(|(cost, quota)| Take {
            quota,
            client: "client",
            cost,
        })
        .collect();
    let remaining: Vec<u32> = subject
        .take_all(&takes)
        .await
        .iter()
        .map(|taken| taken.remaining)
        .collect();
    assert_eq!(remaining, [9, 8, 7]);
}

pub(super) async fn several_quotas_are_taken_all_or_none(subject: Subject) {
    let (burst, daily) = (yearly("burst", 2), yearly("daily", 5));
    let both = [&burst, &daily].map(|quota| Take {
        quota,
        client: "client",
        cost: 1,
    });
    for remaining in [(1, 4), (0, 3)] {
        let taken = subject.take_all(&both).await;
        assert!(taken.iter().all(|taken| taken.allowed));
        assert_eq!((taken[0].remaining, taken[1].remaining), remaining);
    }
    for _ in 0..3 {
        let taken = subject.take_all(&both).await;
        assert!(!taken[0].allowed && taken[1].allowed);
        assert_eq!((taken[0].remaining, taken[1].remaining), (0, 3));
        assert_eq!(taken[1].retry_after, Duration::ZERO);
    }
    // And the other way round: the one that refuses stands last.
    let reversed = [both[1], both[0]];
    let taken = subject.take_all(&reversed).await;
    assert!(taken[0].allowed && !taken[1].allowed);
    assert_eq!(subject.take(&daily, "client").await.remaining, 2);
}

pub(super) async fn quotas_of_different_clients_are_taken_all_or_none(subject: Subject) {
    let (per_client, global) = (yearly("per client", 1), yearly("global", 3));
    let takes = |client| {
        [
            Take {
                quota: &per_client,
                client,
                cost: 1,
            },
            Take {
                quota: &global,
                client: "everybody",
                cost: 1,
            },
        ]
    };
    for client in ["a", "b"] {
        assert!(subject.take_all(&takes(client)).await.iter().all(|taken| taken.allowed));
        let again = subject.take_all(&takes(client)).await;
        assert!(!again[0].allowed && again[1].allowed);
    }
    assert_eq!(subject.take_all(&takes("c")).await[1].remaining, 0);
    let refused = subject.take_all(&takes("d")).await;
    assert!(refused[0].allowed && !refused[1].allowed);
    assert_eq!(refused[0].remaining, 1);
}

pub(super) async fn concurrent_requests_admit_exactly_the_limit(subject: Subject) {
    for algorithm in ALGORITHMS {
        let quota = quota(&format!("{algorithm:?}"), 50, YEAR, algorithm);
        let taken = concurrently(&subject, &[&quota], 200).await;
        assert_eq!(taken.iter().filter(|taken| taken[0].allowed).count(), 50);
        let mut remaining: Vec<u32> = taken
            .iter()
            .filter(|taken| taken[0].allowed)
            .map(|t| t[0].remaining)
            .collect();
        remaining.sort_unstable();
        assert_eq!(remaining, (0..50).collect::<Vec<_>>());
    }
}

pub(super) async fn concurrent_requests_on_two_quotas_admit_the_smaller_one(subject: Subject) {
    let (small, large) = (yearly("small", 30), yearly("large", 50));
    let taken = concurrently(&subject, &[&large, &small], 200).await;
    let admitted = taken
        .iter()
        .filter(|taken| taken.iter().all(|taken| taken.allowed))
        .count();
    assert_eq!(admitted, 30);
    assert_eq!(subject.take(&large, "client").await.remaining, 19);
}

/// As many requests at the same time, each on a task of its own.
async fn concurrently(subject: &Subject, quotas: &[&Quota], requests: usize) -> Vec<Vec<Taken>> {
    let requests = (0..requests).map(|_| {
        let store = Arc::clone(&subject.store);
        let quotas: Vec<Quota> = quotas.iter().map(|&quota| quota.clone()).collect();
        tokio::spawn(async move {
            let client = "client";
            let takes: Vec<Take<'_>> = quotas.iter().map(|quota| Take { quota, client, cost: 1 }).collect();
            store.take(&takes, soon()).await.unwrap()
        })
    });
    join_all(requests).await.into_iter().map(Result::unwrap).collect()
}

pub(super) async fn clients_and_quotas_never_meet(subject: Subject) {
    let ids = ["q", "}:q", "a}:q", "%7D:q", ":", ""];
    let clients = [
        "a", "a}", "a}:q", "a}:a", "{a", "{a}", "}:", "%7D", "a\0", "a\r\n", "A", "ä", "", "rl:{a}:q", "*",
    ];
    for id in ids {
        let quota = yearly(id, 1);
        for client in clients {
            assert!(subject.take(&quota, client).await.allowed, "{id:?} {client:?}");
        }
    }
    for id in ids {
        let quota = yearly(id, 1);
        for client in clients {
            assert!(!subject.take(&quota, client).await.allowed, "{id:?} {client:?}");
        }
    }
}

pub(super) async fn nothing_is_asked_of_no_quota(subject: Subject) {
    assert_eq!(subject.take_all(&[]).await, []);
}

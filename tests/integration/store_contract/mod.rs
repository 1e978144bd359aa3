//! What every store promises, checked over each of them.

mod boards;
mod keys;
mod lockouts;
mod quotas;
mod several;
mod sliding;

use std::{sync::Arc, time::Duration};

use bb8_redis::RedisConnectionManager;
use futures_util::future::join_all;
use resilience::{
    clock::Clock,
    policy::Algorithm,
    store::{MemoryStore, Probe, Quota, RedisStore, StoreAdmin, StoreErrorKind, Take, Taken},
};
use resilience_tests::{PATIENCE, RedisServer, eventually};
use tokio::time::{Instant, sleep};

/// So long that no boundary between windows is met by chance.
const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// So short that a test can wait for it.
const SHORT: Duration = Duration::from_millis(250);

const ALGORITHMS: [Algorithm; 3] = [Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::TokenBucket];

/// A store, and the way its time passes.
struct Subject {
    store: Arc<dyn StoreAdmin>,
    time: Time,
    /// Whether it tells of changes.
    pushes: bool,
}

enum Time {
    Moved(Clock),
    /// By the clock of this server, which is what the store goes by.
    Passing(RedisServer),
}

impl Subject {
    async fn memory() -> Self {
        let clock = Clock::manual();
        Self {
            store: Arc::new(MemoryStore::builder().clock(clock.clone()).build()),
            time: Time::Moved(clock),
            pushes: true,
        }
    }

    async fn redis() -> Self {
        let server = RedisServer::start();
        let store = RedisStore::new(server.url()).unwrap();
        eventually("connected", async || store.is_connected()).await;
        Self {
            store: Arc::new(store),
            time: Time::Passing(server),
            pushes: true,
        }
    }

    async fn lent_pool() -> Self {
        let server = RedisServer::start();
        let manager = RedisConnectionManager::new(server.url()).unwrap();
        let pool = bb8_redis::bb8::Pool::builder()
            .max_size(4)
            .build(manager)
            .await
            .unwrap();
        Self {
            store: Arc::new(RedisStore::from_pool(pool)),
            time: Time::Passing(server),
            pushes: false,
        }
    }

    /// Lets this much time pass, and hardly more.
    async fn pass(&self, time: Duration) {
        match &self.time {
            Time::Moved(clock) => clock.advance(time),
            Time::Passing(server) => {
                let until = server_time(server) + time;
                while let Some(rest) = until.checked_sub(server_time(server)).filter(|rest| !rest.is_zero()) {
                    sleep(rest).await;
                }
            }
        }
    }

    async fn identity(&self, api_key: &str) -> Option<String> {
        self.store.identity(api_key, soon()).await.unwrap()
    }

    async fn flag(&self, name: &str) -> Option<bool> {
        self.store.flag(name, soon()).await.unwrap()
    }

    async fn take(&self, quota: &Quota, client: &str) -> Taken {
        self.take_for(1, quota, client).await
    }

    async fn take_for(&self, cost: u32, quota: &Quota, client: &str) -> Taken {
        self.take_all(&[Take { quota, client, cost }]).await[0]
    }

    async fn take_all(&self, takes: &[Take<'_>]) -> Vec<Taken> {
        self.store.take(takes, soon()).await.unwrap()
    }
}

fn server_time(server: &RedisServer) -> Duration {
    let reply = server.cli(&["TIME"]);
    let (seconds, micros) = reply.split_once('\n').unwrap();
    Duration::from_secs(seconds.parse().unwrap()) + Duration::from_micros(micros.parse().unwrap())
}

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

fn quota(id: &str, limit: u32, window: Duration, algorithm: Algorithm) -> Quota {
    Quota {
        id: id.to_owned(),
        limit,
        window,
        algorithm,
        burst: limit,
    }
}

fn yearly(id: &str, limit: u32) -> Quota {
    quota(id, limit, YEAR, Algorithm::SlidingWindow)
}

use self::{boards::*, keys::*, lockouts::*, quotas::*, several::*, sliding::*};

/// Runs every check over every store.
macro_rules! contract {
    ($($check:ident),* $(,)?) => {
        contract!(@on memory: $($check)*);
        contract!(@on redis: $($check)*);
        contract!(@on lent_pool: $($check)*);
    };
    (@on $subject:ident: $($check:ident)*) => {
        mod $subject {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    super::$check(super::Subject::$subject().await).await;
                }
            )*
        }
    };
}

contract! {
    api_keys_belong_to_users,
    flags_are_unset_on_or_off,
    keys_and_flags_have_names_of_their_own,
    limits_are_kept_by_name,
    admin_refuses_what_no_request_could_present,
    a_quota_counts_down_to_a_refusal,
    a_retry_passes_after_the_wait,
    the_next_request_passes_after_the_wait_that_the_last_one_was_told,
    refused_requests_consume_nothing,
    a_window_of_a_millisecond_passes,
    a_cost_is_taken_whole_or_not_at_all,
    a_costly_retry_passes_after_the_wait,
    a_bucket_lets_its_burst_pass_and_then_what_it_gains,
    a_bucket_of_many_tokens_loses_none_of_them,
    a_steady_client_gets_the_whole_limit,
    units_leave_a_log_one_by_one,
    the_reset_of_a_log_is_when_its_oldest_unit_leaves,
    no_wait_of_a_large_limit_is_longer_than_its_window,
    a_limit_that_is_changed_keeps_what_was_counted,
    the_largest_log_and_the_smallest_counters_admit_their_limit,
    quotas_of_all_algorithms_are_taken_all_or_none,
    several_quotas_are_taken_all_or_none,
    quotas_of_different_clients_are_taken_all_or_none,
    concurrent_requests_admit_exactly_the_limit,
    concurrent_requests_on_two_quotas_admit_the_smaller_one,
    clients_and_quotas_never_meet,
    nothing_is_asked_of_no_quota,
    an_operation_that_is_never_polled_takes_nothing,
    failures_count_down_to_a_lock,
    a_retry_passes_after_the_lock,
    attempts_during_a_lock_do_not_extend_it,
    each_lock_lasts_longer_than_the_one_before,
    a_success_removes_the_failures_of_its_origin,
    an_attempt_without_an_origin_clears_itself_alone,
    the_history_of_locks_is_forgotten_if_one_origin_led_to_all,
    attempts_under_way_are_no_failures_and_no_more_than_the_limit,
    an_attempt_that_is_given_back_lifts_the_lock_that_came_of_it,
    ids_of_all_bits_are_told_apart,
    several_tallies_count_all_or_none,
    of_two_hundred_guesses_at_once_five_begin,
    subjects_and_lockouts_never_meet,
    an_operator_unlocks,
    probes_find_a_store_that_serves,
    one_vote_opens_where_one_is_enough,
    a_quorum_counts_each_instance_once,
    as_many_as_are_alive_are_enough,
    a_vote_ends_with_its_window,
    a_vote_is_taken_back,
    a_trip_changes_nothing_while_it_is_open,
    an_end_is_remembered_and_comes_once,
    the_fleet_that_was_seen_counts_where_the_store_has_forgotten_it,
    a_failed_probe_opens_for_another_while,
    a_forgotten_opening_is_written_again,
    an_opening_is_due_after_its_open_time,
    of_many_instances_one_has_the_lease,
    a_lease_runs_out_unless_it_is_extended,
    only_the_holder_settles,
    a_lease_is_of_the_present_opening,
    a_lease_is_given_back_by_its_holder_alone,
    the_holder_sees_that_somebody_else_wants_it,
    a_wish_is_forgotten_after_some_seconds,
    a_wish_ends_when_it_is_granted,
    a_hold_stands_until_it_is_released,
    a_hold_runs_out,
    a_hold_ends_the_opening,
    nothing_opens_or_closes_while_it_is_held,
    instances_and_names_are_those_that_were_seen,
    whatever_is_under_a_name_makes_it_known,
    systems_and_names_never_meet,
    nothing_is_so_long_that_it_overflows,
    changes_are_heard,
}

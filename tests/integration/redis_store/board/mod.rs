//! Boards in Redis: how they lie there, what may lie there instead, and what they survive.

mod outage;
mod records;
mod times;

use std::time::Duration;

use resilience::store::{
    BreakerBoard, RedisStore, Store,
    board::{At, Board, Circuit, Entry, HoldState, NewHold, Presence, Trip},
};
use resilience_tests::RedisServer;

use super::{connect, soon};

const HOUR: Duration = Duration::from_secs(60 * 60);
const SHORT: Duration = Duration::from_millis(250);
const SYSTEM: &str = "payments-team";
const NAME: &str = "payments";
const NAMES: &str = "breaker:{payments-team}:names";
const INSTANCES: &str = "breaker:{payments-team}:instances";

/// The key of the breaker's `kind`.
fn key(kind: &str) -> String {
    format!("breaker:{{{SYSTEM}}}:{kind}:{NAME}")
}

fn at(instance: &str) -> At<'_> {
    At {
        system: SYSTEM,
        name: NAME,
        instance,
    }
}

fn trip(opening: &str) -> Trip<'_> {
    Trip {
        opening,
        open_for: HOUR,
        failed_probes: 0,
        since: None,
        round: 0,
        reason: "5 failures in a row",
        quorum: 1,
        fleet: 0,
        window: HOUR,
    }
}

fn hold() -> NewHold {
    NewHold {
        state: HoldState::Open,
        reason: "a new database".to_owned(),
        author: "ada".to_owned(),
        lasts: None,
    }
}

fn board(store: &RedisStore) -> &dyn BreakerBoard {
    store.board().expect("it carries boards")
}

/// Looks as one that only looks.
async fn look(store: &RedisStore) -> Board {
    board(store).look(SYSTEM, None, soon()).await.unwrap()
}

async fn entry(store: &RedisStore) -> Entry {
    let entries = look(store).await.entries;
    let entry = entries.into_iter().find(|entry| entry.name == NAME);
    entry.unwrap_or_else(|| Entry::unknown(NAME))
}

/// Looks as an instance that is here.
async fn arrive(store: &RedisStore, instance: &str) -> Board {
    let names = [NAME.to_owned()];
    let presence = Presence {
        instance,
        names: &names,
    };
    board(store).look(SYSTEM, Some(presence), soon()).await.unwrap()
}

async fn open(store: &RedisStore, opening: &str) -> Entry {
    board(store).trip(at("a"), &trip(opening), soon()).await.unwrap()
}

async fn lease(store: &RedisStore, instance: &str, opening: &str, ttl: Duration) -> bool {
    let leased = board(store).lease(at(instance), opening, ttl, soon()).await;
    leased.unwrap().granted
}

fn time_to_live(server: &RedisServer, key: &str) -> i64 {
    server.cli(&["PTTL", key]).parse().unwrap()
}

/// Milliseconds of the server's clock.
fn now(server: &RedisServer) -> i64 {
    let reply = server.cli(&["TIME"]);
    let (seconds, micros) = reply.split_once('\n').unwrap();
    let (seconds, micros): (i64, i64) = (seconds.parse().unwrap(), micros.parse().unwrap());
    seconds * 1_000 + micros / 1_000
}

/// Puts a hash there, and the name where it is found.
fn put(server: &RedisServer, kind: &str, fields: &[(&str, String)]) {
    let key = key(kind);
    server.cli(&["DEL", &key]);
    let mut command = vec!["HSET", &key];
    for (name, value) in fields {
        command.extend([*name, value.as_str()]);
    }
    server.cli(&command);
    server.cli(&["ZADD", NAMES, "0", NAME]);
}

/// An opening as it lies there, with these times.
fn opening(since: i64, until: i64, open_for: i64) -> Vec<(&'static str, String)> {
    vec![
        ("v", "1".to_owned()),
        ("state", "open".to_owned()),
        ("id", "o".to_owned()),
        ("round", "3".to_owned()),
        ("since", since.to_string()),
        ("until", until.to_string()),
        ("open_for", open_for.to_string()),
        ("failed_probes", "2".to_owned()),
        ("reason", "timeouts".to_owned()),
        ("by", "b".to_owned()),
    ]
}

fn closing(since: i64) -> Vec<(&'static str, String)> {
    vec![
        ("v", "1".to_owned()),
        ("state", "closed".to_owned()),
        ("id", "o".to_owned()),
        ("since", since.to_string()),
        ("reason", "healed".to_owned()),
        ("by", "b".to_owned()),
    ]
}

fn held(since: i64, until: Option<i64>) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("v", "1".to_owned()),
        ("state", "closed".to_owned()),
        ("reason", "a false alarm".to_owned()),
        ("author", "ada".to_owned()),
        ("since", since.to_string()),
    ];
    fields.extend(until.map(|until| ("until", until.to_string())));
    fields
}

/// All records like `whole` of which one field is missing, or is none of these numbers.
fn broken(whole: &[(&'static str, String)], numbers: &[&str]) -> Vec<Vec<(&'static str, String)>> {
    let mut broken = Vec::new();
    for place in 0..whole.len() {
        let mut fields = whole.to_vec();
        let (name, _) = fields.remove(place);
        broken.push(fields);
        if numbers.contains(&name) {
            for senseless in ["", "-1", "1.5", "1e3", "0x10", "nan", "soon", "99999999999999999999"] {
                let mut fields = whole.to_vec();
                fields[place].1 = senseless.to_owned();
                broken.push(fields);
            }
        }
    }
    broken
}

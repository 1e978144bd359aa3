//! What others have left in Redis: broken, newer, or of another type.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_keeps_nobody_open() {
    let redis = RedisServer::start();
    let fleet = fleet(&redis, (0..2).map(|_| redis.url())).await;
    let wrecks: [(&str, &[&str]); 4] = [
        ("text", &["SET", "circuit:text", "open"]),
        (
            "half",
            &["HSET", "circuit:half", "v", "1", "state", "open", "until", "soon"],
        ),
        ("newer", &["HSET", "circuit:newer", "v", "2", "state", "ajar"]),
        ("vote", &["SET", "votes:vote", "two"]),
    ];
    for (name, command) in wrecks {
        let breakers = named(&fleet, name);
        let key = format!("{KEYS}{}", command[1]);
        let mut command = command.to_vec();
        command[1] = &key;
        redis.cli(&command);
        redis.cli(&["PUBLISH", &format!("{KEYS}changes"), name]);
        trip(&breakers[0]);
        trip(&breakers[1]);
        eventually("both close again", async || {
            breakers.iter().for_each(|breaker| _ = call(breaker, true));
            all_are(&breakers, State::Closed)
        })
        .await;
    }
}

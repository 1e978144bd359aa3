//! Logging in: who gets in, and who is locked out for how long.

use resilience_tests::RedisServer;
use serde_json::json;

use crate::process::{Service, eventually, run};

const PASSWORD: &str = "correct horse battery";
const WINDOW: u64 = 15 * 60;

#[test]
fn the_right_password_gets_in_and_any_other_does_not() {
    let service = Service::start(&[]);
    let right = service.login("ada", PASSWORD);
    assert_eq!(
        (right.status, right.json()),
        (200, json!({ "ok": true, "user": "ada" }))
    );
    let (wrong, unknown) = (service.login("ada", "battery staple"), service.login("eve", PASSWORD));
    assert_eq!((wrong.status, wrong.error().as_str()), (401, "invalid_credentials"));
    assert_eq!((unknown.status, &unknown.body), (401, &wrong.body));
}

#[test]
fn the_sixth_guess_has_to_wait_and_says_nothing_about_the_account() {
    let service = Service::start(&[]);
    for account in ["ada", "nobody"] {
        for _ in 0..5 {
            assert_eq!(service.login(account, "guess").status, 401);
        }
    }
    // The right password does not help any more, nor does another spelling of the name.
    let (known, unknown) = (service.login(" ADA ", PASSWORD), service.login("nobody", "guess"));
    for locked in [&known, &unknown] {
        assert_eq!((locked.status, locked.error().as_str()), (429, "locked_out"));
        assert!(
            (WINDOW - 60..=WINDOW).contains(&locked.number("retry-after")),
            "{locked:?}"
        );
    }
    assert_eq!(known.body, unknown.body);
    // Ten attempts stand on the address's tally by now: it may go on with another account.
    assert_eq!(service.login("grace", "guess").status, 401);
}

#[test]
fn a_success_clears_the_account_and_not_the_address() {
    let service = Service::start(&[]);
    for _ in 0..4 {
        assert_eq!(service.login("ada", "guess").status, 401);
    }
    assert_eq!(service.login("ada", PASSWORD).status, 200);
    for _ in 0..4 {
        assert_eq!(service.login("ada", "guess").status, 401);
    }
    assert_eq!(service.login("ada", PASSWORD).status, 200);
    // Eight stand on the address, twelve more lock it: for every account, and whatever the body is.
    for nth in 0..12 {
        assert_eq!(service.login(&format!("user-{nth}"), "guess").status, 401);
    }
    for locked in [service.login("ada", PASSWORD), service.post("/login", "{")] {
        assert_eq!((locked.status, locked.error().as_str()), (429, "locked_out"));
    }
}

#[test]
fn no_body_escapes_the_accounts_tally() {
    let service = Service::start(&[]);
    for body in [
        "{}",
        "",
        "{\"username\":\"\",\"password\":\"guess\"}",
        "{\"username\":7,\"password\":\"guess\"}",
        "{\"username\":\"eve\",\"username\":\"ada\",\"password\":\"guess\"}",
    ] {
        let answer = service.post("/login", body);
        assert_eq!(
            (answer.status, answer.error().as_str()),
            (400, "account_unreadable"),
            "{body}"
        );
    }
    let padded = format!(
        "{{\"padding\":\"{}\",\"username\":\"ada\",\"password\":\"guess\"}}",
        "x".repeat(65_536)
    );
    let answer = service.post("/login", &padded);
    assert_eq!((answer.status, answer.error().as_str()), (413, "body_too_large"));
}

#[test]
fn an_operator_unlocks_an_account_for_all_instances() {
    let redis = RedisServer::start();
    let url = redis.url();
    let settings = [("REDIS_URL", url.as_str())];
    let services = [Service::start(&settings), Service::start(&settings)];
    // Guesses that the store has counted: a busy machine may be too late for one.
    eventually("the account is locked", || {
        services[0].login("ada", "guess").status == 429
    });
    eventually("for all instances", || services[1].login("ada", PASSWORD).status == 429);

    let unlock = |account| run(&["unlock", account], &settings);
    let unlocked = unlock("Ada");
    assert!(unlocked.status.success(), "{unlocked:?}");
    assert_eq!(String::from_utf8_lossy(&unlocked.stdout), "Ada may try again\n");
    eventually("the store answers in time", || {
        services[1].login("ada", PASSWORD).status == 200
    });
    let nothing = unlock("grace");
    assert_eq!(
        String::from_utf8_lossy(&nothing.stdout),
        "there was nothing to unlock for grace\n"
    );
}

#[test]
fn nobody_logs_in_while_attempts_cannot_be_counted() {
    let mut redis = RedisServer::start();
    let service = Service::start(&[("REDIS_URL", &redis.url())]);
    eventually("the store answers in time", || {
        service.login("ada", PASSWORD).status == 200
    });
    redis.stop();
    for _ in 0..10 {
        let refused = service.login("ada", PASSWORD);
        assert_eq!((refused.status, refused.error().as_str()), (503, "lockout_unavailable"));
        assert_eq!(refused.number("retry-after"), 30);
        assert_eq!(refused.header("x-lockout-fallback"), Some("closed"));
    }
    redis.restart();
    eventually("logins are back", || service.login("ada", PASSWORD).status == 200);
}

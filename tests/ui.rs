//! What the attribute accepts and what it refuses, in the words of the compiler.
//!
//! After a change of a message: `TRYBUILD=overwrite cargo test -p resilience-tests --test ui`, and read the difference.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.pass("ui/pass/*.rs");
    for topic in [
        "auth",
        "flag",
        "rate_limit",
        "lockout",
        "concurrency",
        "deadline",
        "breaker",
        "guard",
        "placement",
        "several",
        "outbound",
        "inbound",
        "admin",
    ] {
        cases.compile_fail(format!("ui/{topic}/*.rs"));
    }
}

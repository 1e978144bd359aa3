//! What the reference's guards have said, and how that reads on an answer.

use std::time::Duration;

use resilience::{policy::OnOutage, store::Taken};
use serde_json::{Value, json};

use super::{Body, Seen, plan::RateLimitPlan};

/// A refusal before it has a format.
pub(super) struct Refusal {
    status: u16,
    code: &'static str,
    message: String,
    header: Option<(&'static str, String)>,
}

/// What the guards have said so far.
#[derive(Default)]
pub(super) struct Notes<'a> {
    pub(super) flags: Vec<&'static str>,
    pub(super) guards: Vec<&'static str>,
    pub(super) limiter: Vec<OnOutage>,
    quotas: Vec<Said<'a>>,
}

/// A quota, its name, the limit that it counted by, and what it said.
type Said<'a> = (&'a RateLimitPlan, String, u32, Taken);

impl Refusal {
    pub(super) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            header: None,
        }
    }

    pub(super) fn retry_after(mut self, seconds: u64) -> Self {
        self.header = Some(("retry-after", seconds.to_string()));
        self
    }

    pub(super) fn challenge(mut self) -> Self {
        self.header = Some(("www-authenticate", "ApiKey".into()));
        self
    }

    pub(super) fn seen(self, problem: bool) -> Seen {
        let Self {
            status, code, message, ..
        } = self;
        let (media_type, body) = if problem {
            ("application/problem+json", problem_details(status, code, &message))
        } else {
            (
                "application/json",
                json!({ "statusCode": status, "error": code, "message": message }),
            )
        };
        let mut headers = vec![("content-type".to_owned(), media_type.to_owned())];
        headers.extend(self.header.map(|(name, value)| (name.to_owned(), value)));
        Seen {
            status,
            headers,
            body: Body::Json(body),
        }
    }
}

fn problem_details(status: u16, code: &str, message: &str) -> Value {
    let title = match status {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => unreachable!("no guard says {status}"),
    };
    json!({ "type": "about:blank", "title": title, "status": status, "detail": message, "error": code })
}

impl<'a> Notes<'a> {
    pub(super) fn taken(
        &mut self,
        answers: impl Iterator<Item = ((&'a RateLimitPlan, String), u32, Taken)>,
    ) -> Result<(), Refusal> {
        let mut longest = None;
        for ((quota, name), limit, taken) in answers {
            if !taken.allowed {
                longest = longest.max(Some(taken.retry_after));
            }
            self.quotas.push((quota, name, limit, taken));
        }
        let Some(wait) = longest.map(seconds) else {
            return Ok(());
        };
        let message = format!("Too many requests. Retry after {wait} s.");
        Err(Refusal::new(429, "rate_limited", message).retry_after(wait))
    }

    /// Names with their values.
    pub(super) fn headers(&self) -> Vec<(&'static str, Vec<String>)> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut headers = vec![
            ("x-flag-fallback", owned(&self.flags)),
            ("x-guard-fallback", owned(&self.guards)),
        ];
        let fell_back = [
            (OnOutage::FailClosed, "closed"),
            (OnOutage::FailOpen, "open"),
            (OnOutage::FailLocal, "local"),
        ];
        let fell_back = fell_back.into_iter().find(|(answer, _)| self.limiter.contains(answer));
        headers.push((
            "x-ratelimit-fallback",
            fell_back.into_iter().map(|(_, word)| word.to_owned()).collect(),
        ));
        let refused = self.quotas.iter().any(|(.., taken)| !taken.allowed);
        let shown = || self.quotas.iter().filter(|(.., taken)| !refused || !taken.allowed);
        let mut tightest: Option<&Said<'_>> = None;
        for quota in shown() {
            if tightest.is_none_or(|(.., tightest)| quota.3.remaining < tightest.remaining) {
                tightest = Some(quota);
            }
        }
        if let Some((_, _, limit, taken)) = tightest {
            headers.push(("x-ratelimit-limit", vec![limit.to_string()]));
            headers.push(("x-ratelimit-remaining", vec![taken.remaining.to_string()]));
            let policies = self.quotas.iter().map(|(quota, name, limit, _)| {
                let RateLimitPlan { seconds, .. } = quota;
                format!("\"{name}\";q={limit};w={seconds}")
            });
            headers.push(("ratelimit-policy", vec![policies.collect::<Vec<_>>().join(", ")]));
            let states = shown().map(|(_, name, _, taken)| {
                let back = seconds(if taken.allowed { taken.reset } else { taken.retry_after });
                format!("\"{name}\";r={};t={back}", taken.remaining)
            });
            headers.push(("ratelimit", vec![states.collect::<Vec<_>>().join(", ")]));
        }
        headers.retain(|(_, values)| !values.is_empty());
        headers
    }
}

/// Whole seconds, rounded up, at least one.
fn seconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis().div_ceil(1_000))
        .expect("it is no eternity")
        .max(1)
}

//! Rules across options, and between the options and the fn.

use std::time::Duration;

use proc_macro2::Span;
use syn::{Error, ReceiverKind, Type};

use super::{
    function::{Function, text},
    model::{Outbound, Retry, parsed},
};
use crate::errors::Errors;

/// Notes what the options say that cannot be, or without what it needs.
pub(crate) fn options(outbound: &Outbound, errors: &mut Errors) {
    let timeout = parsed(outbound.timeout.as_ref()).copied();
    attempts(outbound, timeout, errors);
    if let Some(retry) = &outbound.retry {
        waits(retry, timeout, errors);
    }
    if let Some(timeout) = timeout
        && let Some(bulkhead) = &outbound.bulkhead
        && let Some(set) = &bulkhead.queue_timeout
        && set.parsed.is_some_and(|queue_timeout| queue_timeout >= timeout)
    {
        errors.push(set.error(format!(
            "whoever waits in the queue that long has no time left for the call: write less than the `timeout` of {}",
            show(timeout)
        )));
    }
    if let Some(classify) = &outbound.classify
        && outbound.retry.is_none()
        && outbound.breaker.is_none()
    {
        errors.push(classify.error(
            "`classify` says what a breaker counts and what is tried again, and there is neither: add `breaker = \"…\"` \
             or `retry(3)`, or remove it",
        ));
    }
}

/// Notes what the options ask of this fn that it cannot give.
pub(crate) fn function(function: &Function, outbound: &Outbound, errors: &mut Errors) {
    let name = function.sig.ident.span();
    if function.attribute("outbound").is_some() {
        errors.push(Error::new(
            name,
            "`#[outbound]` stands twice: write all options into one, which keeps them in order",
        ));
    }
    for attribute in ["handler", "resilient"] {
        if function.attribute(attribute).is_some() {
            errors.push(Error::new(
                name,
                format!(
                    "`#[outbound]` is for calls to others, and `#[{attribute}]` makes this a poem handler: move the call \
                     into an `async fn` of its own with `#[outbound]` above it, and guard the handler with `#[resilient]`"
                ),
            ));
        }
    }
    if function.sig.asyncness.is_none() {
        let message = if function.output().is_some_and(is_boxed_future) {
            "`#[outbound]` needs an `async fn`, and a macro such as `#[async_trait]` has turned this one into another: \
             put it on an inherent method, and call that from the trait's"
        } else {
            "`#[outbound]` needs an `async fn`, which can be ended when its time is over: make it `async`"
        };
        errors.push(Error::new(function.sig.fn_token.span, message));
    } else {
        match function.output() {
            None => errors.push(Error::new(name, NO_RESULT)),
            Some(ty) if is_no_result(ty) => errors.push(Error::new_spanned(ty, NO_RESULT)),
            Some(_) => {}
        }
    }
    if outbound.retry.is_some() {
        parameters(function, errors);
    }
}

/// Notes an attribute that says nothing.
pub(crate) fn empty(errors: &mut Errors) {
    errors.push(Error::new(
        Span::call_site(),
        "this attribute adds nothing to the call: name what it should do, such as `#[outbound(breaker = \"payments\", \
         timeout = \"500ms\")]`, or remove it",
    ));
}

const NO_RESULT: &str = "`#[outbound]` needs a fn that returns a `Result<T, E>`: its errors are what a breaker counts and \
                         what is tried again, and it returns one when the call is refused or late";

/// Notes attempts that cannot have the time that they are given.
fn attempts(outbound: &Outbound, timeout: Option<Duration>, errors: &mut Errors) {
    let Some(set) = &outbound.attempt_timeout else {
        return;
    };
    let Some(retry) = &outbound.retry else {
        errors.push(
            set.error("without `retry` there is one attempt, which `timeout` bounds: write that, or add `retry(3)`"),
        );
        return;
    };
    let (Some(timeout), Some(attempt)) = (timeout, set.parsed) else {
        return;
    };
    if attempt > timeout {
        errors.push(set.error(format!(
            "one attempt cannot take longer than the whole call: write less than the `timeout` of {}",
            show(timeout)
        )));
        return;
    }
    if let Some(retries) = retry.retries {
        let attempts = retries.get() + 1;
        let all = attempt * attempts;
        if all > timeout {
            errors.push(set.error(format!(
                "{attempts} attempts of {} take up to {}, more than the `timeout` of {}: allow fewer retries, shorten the \
                 attempts, or lengthen `timeout`",
                show(attempt),
                show(all),
                show(timeout)
            )));
        }
    }
}

/// Notes waits between attempts that contradict each other or the time of the call.
fn waits(retry: &Retry, timeout: Option<Duration>, errors: &mut Errors) {
    let backoff = parsed(retry.backoff.as_ref()).copied();
    let max_backoff = parsed(retry.max_backoff.as_ref()).copied();
    let base = backoff.unwrap_or(DEFAULT_BACKOFF);
    let cap = max_backoff.unwrap_or(DEFAULT_MAX_BACKOFF);
    if base > cap {
        if let Some(set) = &retry.max_backoff {
            errors.push(set.error(format!(
                "the longest wait is shorter than the first one: write at least {}",
                show(base)
            )));
        } else if let Some(set) = &retry.backoff {
            errors.push(set.error(format!(
                "the first wait is longer than the longest one, which is {} unless told otherwise: add `max_backoff`",
                show(cap)
            )));
        }
        return;
    }
    // After a mistake in one of them the default would stand in for what was meant.
    let known = |meant: bool, value: Option<Duration>| !meant || value.is_some();
    let (Some(timeout), Some(retries)) = (timeout, retry.retries) else {
        return;
    };
    if !known(retry.backoff.is_some(), backoff) || !known(retry.max_backoff.is_some(), max_backoff) {
        return;
    }
    let mean = mean_of_waits(retries.get(), base, cap);
    if mean >= timeout {
        errors.push(Error::new(
            retry.span,
            format!(
                "the waits between these attempts alone take {} on average, and the `timeout` is {}: allow fewer retries, \
                 shorten `backoff`, or lengthen `timeout`",
                show(mean),
                show(timeout)
            ),
        ));
    }
}

/// As the runtime has them.
const DEFAULT_BACKOFF: Duration = Duration::from_millis(50);
const DEFAULT_MAX_BACKOFF: Duration = Duration::from_secs(2);

/// Full jitter draws each wait from zero to its longest, so half of that on average.
fn mean_of_waits(retries: u32, base: Duration, cap: Duration) -> Duration {
    let longest = (0..retries).map(|nth| base.saturating_mul(1 << nth.min(31)).min(cap));
    longest.sum::<Duration>() / 2
}

/// Notes what only one attempt could have.
fn parameters(function: &Function, errors: &mut Errors) {
    if let Some(receiver) = function.receiver() {
        let by_shared_reference = match &receiver.kind {
            ReceiverKind::Reference(_, _, mutability) => mutability.is_none(),
            ReceiverKind::Typed(_, ty) => matches!(&**ty, Type::Reference(reference) if reference.mutability.is_none()),
            _ => false,
        };
        if !by_shared_reference {
            errors.push(Error::new_spanned(
                receiver,
                "`retry` calls the body several times, and the first attempt would use this up or leave it changed for \
                 the next one: take `&self`, or remove `retry`",
            ));
        }
    }
    for ty in function.types() {
        if let Type::Reference(reference) = ty
            && reference.mutability.is_some()
        {
            errors.push(Error::new_spanned(
                ty,
                "`retry` calls the body several times, and an attempt that failed would leave this changed for the next \
                 one: take it by shared reference or by value, or remove `retry`",
            ));
        }
    }
}

/// Whether this is surely no `Result`, judged by its name. An alias may be called anything.
fn is_no_result(ty: &Type) -> bool {
    match ty {
        Type::Group(group) => is_no_result(&group.elem),
        Type::Paren(paren) => is_no_result(&paren.elem),
        Type::Path(path) => path
            .path
            .segments
            .last()
            .is_some_and(|last| NO_RESULTS.contains(&&*last.ident.to_string())),
        Type::Macro(_) | Type::Verbatim(_) => false,
        _ => true,
    }
}

/// Types that are at hand everywhere, and often forgotten around.
const NO_RESULTS: [&str; 21] = [
    "Option", "String", "Vec", "Box", "Arc", "Json", "Response", "bool", "char", "str", "u8", "u16", "u32", "u64",
    "usize", "i32", "i64", "isize", "f32", "f64", "Duration",
];

fn is_boxed_future(ty: &Type) -> bool {
    let ty = text(ty);
    ty.contains("Pin<") && ty.contains("Future")
}

/// A duration as one would write it.
fn show(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis.is_multiple_of(1000) {
        format!("{} s", millis / 1000)
    } else if millis == 0 {
        "less than 1 ms".to_owned()
    } else {
        format!("{millis} ms")
    }
}

//! `concurrency(64, queue = 16, …)`.

use proc_macro2::{Group, Ident};
use syn::Error;

use super::option;
use crate::{
    args::Arguments,
    errors::Errors,
    model::{Concurrency, Policy},
    value,
};

pub(super) const OPTIONS: [&str; 3] = ["queue", "queue_timeout", "adaptive"];

impl Policy {
    pub(super) fn concurrency(guard: &Ident, list: &Group, errors: &mut Errors) -> Concurrency {
        let mut arguments = Arguments::parse(guard, list, 1, &OPTIONS, errors);
        let limit = arguments.next();
        if limit.is_none() {
            errors.push(Error::new(
                arguments.span,
                "`concurrency` needs a number of requests that may be in flight: write `concurrency(64)`",
            ));
        }
        let limit = limit.and_then(|value| errors.keep(value::slots(&value)));
        let queue = option(&arguments, "queue", value::queue, errors);
        let queue_timeout = option(&arguments, "queue_timeout", value::queue_timeout, errors);
        if let Some(value) = arguments.option("queue_timeout")
            && !arguments.mentions("queue")
        {
            errors.push(value.error(
                "`queue_timeout` bounds the wait in a queue, and there is none: add `queue = 16`, or remove it",
            ));
        }
        let adaptive = option(&arguments, "adaptive", value::boolean, errors).unwrap_or_default();
        if let Some(value) = arguments.option("adaptive")
            && adaptive
            && limit.is_some_and(|limit| limit.get() == 1)
        {
            errors.push(value.error("a limit of 1 has nothing below it to adapt to: raise it, or remove `adaptive`"));
        }
        Concurrency {
            limit,
            has_queue: arguments.mentions("queue"),
            queue,
            queue_timeout,
            adaptive,
        }
    }
}

//! The `#[resilient]` and `#[outbound]` attributes of the crate `resilience`, which re-exports them. Use them from there.
//!
//! The pipeline, one file a step: `args` (tokens to spanned entries), `value` (typed values), `model` (a policy that
//! cannot hold nonsense) and `handler` (the fn), `check` (rules across guards and fn), `expand` (code). `outbound` goes the
//! same way in a folder of its own.

mod args;
mod check;
mod errors;
mod expand;
mod guards;
mod handler;
mod model;
mod outbound;
mod rate;
#[cfg(test)]
mod tests;
mod value;

use proc_macro2::TokenStream;
use quote::quote;

use crate::{errors::Errors, handler::Handler, model::Policy};

/// Guards a poem handler: who may call it, how often, and what happens while the store cannot tell.
///
/// The attribute stands above poem's `#[handler]`. What it makes is still an ordinary poem endpoint, so `get(checkout)`,
/// extractors and their errors, generics, visibility, docs and other attributes work as they do without it.
///
/// ```
/// # use poem::handler;
/// # use resilience::{Identity, resilient};
/// #[resilient(
///     auth = "fail_closed",
///     flag("checkout", default = false),
///     rate_limit(30, 60),
///     deadline = "2s",
/// )]
/// #[handler]
/// async fn checkout(Identity(user): Identity) -> String {
///     format!("Thank you, {user}.")
/// }
/// # let _endpoint = poem::get(checkout);
/// ```
///
/// Guards and options may be written in any order, and a trailing comma is fine. Numbers and texts are literals, so that
/// the compiler can check them; all mistakes of one attribute are reported in one compile.
///
/// # Guards
///
/// | guard | what it asks | how often |
/// |---|---|---|
/// | [`auth`](#auth) | Is the caller verified? | once |
/// | [`flag`](#flag) | Is the feature switched off? | once per flag |
/// | [`rate_limit`](#rate_limit) | Is the caller within the quota? | several |
/// | [`lockout`](#lockout) | Have there been too many attempts? | several |
/// | [`guard`](#guard) | A question of your own. | several |
/// | [`concurrency`](#concurrency) | Is there room for one more? | once |
/// | [`priority`](#priority) | Who is served first, and shed last? | once |
/// | [`deadline`](#deadline) | How long may the handler take? | once |
/// | [`breaker`](#breaker) | Which circuit breakers stand before the store? | once |
///
/// ## `auth`
///
/// `auth = "fail_closed"`, or with options `auth("fail_closed", header = "x-api-key", deadline = "150ms")`. Refuses
/// whoever has no valid credential with 401, and everybody with 503 while nobody can be verified. There is no
/// `"fail_open"`: it would be an authentication bypass. The handler may then take an `Identity` parameter.
///
/// | option | value | default |
/// |---|---|---|
/// | `header` | the header that carries the credential | the builder's (`x-api-key`) |
/// | `deadline` | bound of the look-up, 1 ms to 1 h | the builder's (150 ms) |
///
/// ## `flag`
///
/// `flag("checkout", default = false)`: a switch that an operator turns while the service runs. Blocks with 503 while it
/// is on, or with 404 while it is off if `blocks_when = "off"`.
///
/// | option | value | default |
/// |---|---|---|
/// | `default` | `true` (on) or `false` (off): what counts while the store cannot be read | none, it must be written |
/// | `blocks_when` | `"on"` for a kill switch, `"off"` for a feature gate | `"on"` |
/// | `stale` | how long the last known value serves in an outage before `default` does, 1 ms to 366 days | not at all |
/// | `deadline` | bound of the look-up, 1 ms to 1 h | the builder's (100 ms) |
/// | `mode` | `"enforce"`, or `"observe"`: the request passes, and what the flag would have done is in the log and in the metrics | `"enforce"` |
///
/// ## `rate_limit`
///
/// `rate_limit("api")`: the quota of that name, whose numbers the builder, a file or the store defines (see
/// `Builder::limit`). It takes `key`, `cost`, `on_outage` and `deadline`; `algorithm` and `burst` belong to the definition.
///
/// `rate_limit(30, 60)`: 30 requests in 60 seconds. The limit is 1 to `u32::MAX`. The window is a whole number of seconds
/// or a [duration](#durations), 1 ms to 366 days. Over the quota the answer is 429. Several quotas (a burst and a daily
/// one) are taken all or none.
///
/// | option | value | default |
/// |---|---|---|
/// | `key` | who shares the quota: `ip`, `user` (needs `auth`), `global`, `header("x-tenant")`, or the path of a `fn(&poem::Request) -> Option<String>` | `ip` |
/// | `algorithm` | `"sliding_window"`, `"fixed_window"` or `"token_bucket"` | `"sliding_window"` |
/// | `burst` | how much a token bucket lets pass at once, 1 to the limit | the limit |
/// | `cost` | as how many requests one counts, 1 to the limit, and to the burst of a token bucket | 1 |
/// | `on_outage` | `"fail_open"` (pass), `"fail_closed"` (503) or `"fail_local"` (count in this process) | `"fail_open"` |
/// | `local_share` | how much of the quota this process counts by itself with `"fail_local"`, `"1%"` to `"100%"` | `"100%"` |
/// | `name` | shares the quota among all handlers that name it so | the handler's path, limit, window and key |
/// | `deadline` | bound of the store's answer, 1 ms to 1 h | the builder's (80 ms) |
/// | `mode` | `"enforce"`, or `"observe"`: it counts, the request passes, and what it would have done is in the log and in the metrics | `"enforce"` |
///
/// A fn of your own is asked after authentication, so that it may look at the `Identity` in the request. All requests for
/// which it returns `None` share one bucket.
///
/// ## `lockout`
///
/// `lockout(5, "15m", key = account("json:/username"))`: the fifth failed attempt locks the account for 15 minutes. The limit
/// is 1 to 1,000 attempts. The duration is how long a failure counts and how long the lock lasts, a whole number of seconds
/// or a [duration](#durations), 1 ms to 366 days; several rising ones (`"1m, 5m, 15m, 1h"`) make each lock last longer than
/// the one before. An attempt is counted before the handler runs, and settled by its answer: 2xx has succeeded, 4xx and 3xx
/// have failed, 5xx was no attempt. A success removes the failures of the same handler, address and spelling of the account
/// (of an address's tally only its own attempt). `LoginOutcome` in the answer's data overrides the status. Failures and
/// attempts under way never exceed the limit: others are refused for a moment. The usual pair is one by account and one by
/// address, with a larger number.
///
/// | option | value | default |
/// |---|---|---|
/// | `key` | whose attempts: `ip`, `user` (needs `auth`), `account("json:/username")` (a JSON pointer), `account("form:username")`, or the path of a fn of yours | none, it must be written |
/// | `on_outage` | `"fail_closed"` (503), `"fail_open"` (pass, uncounted) or `"fail_local"` (count in this process) | `"fail_closed"` |
/// | `name` | shares the tally among all handlers that name it so | the handler's path, numbers and key |
/// | `deadline` | bound of each answer of the store, 1 ms to 1 h | the builder's (100 ms) |
/// | `mode` | `"enforce"`, or `"observe"`: counts and refuses nobody | `"enforce"` |
///
/// ## `concurrency`
///
/// `concurrency(64)`: at most 64 requests of this handler are in flight; one more is refused with 503 `overloaded` at once.
/// A request holds its slot until its answer has been sent, or for the builder's `send_timeout` (30 s) at most; event
/// streams and upgrades free theirs with their headers.
///
/// | option | value | default |
/// |---|---|---|
/// | `queue` | how many may wait for a slot, 1 to 1,000,000 | none |
/// | `queue_timeout` | how long each may wait, 1 ms to 10 minutes; needs `queue` | 100 ms |
/// | `adaptive` | `true`: the limit follows the measured latency, up to the number of slots | `false` |
///
/// ## `priority`
///
/// `priority = "critical"`, `"default"` or `"background"`: who leaves the queue of `concurrency` first. A full queue sheds
/// one that waits with a lower priority to make room for a higher one. Needs a queue. The builder's `priority` raises or
/// lowers it for single requests. `"default"` without it.
///
/// ## `guard`
///
/// `guard(path::to::MY_GUARD)`: a static or constant whose type implements the trait `Guard`, which also says how long it
/// may take (100 ms by default) and what happens when it cannot decide (503 by default).
///
/// ## `deadline`
///
/// `deadline = "2s"`: the budget of the handler and of all it calls, 1 ms to 1 h. After it the answer is 504. Without it
/// the handler takes as long as it likes.
///
/// ## `breaker`
///
/// `breaker = "shared"` puts one circuit breaker before all operations of all handlers, `"per_operation"` one before each
/// kind of operation, and any other name one before the operations of all handlers that use this name. Without it the
/// builder decides.
///
/// # Durations
///
/// A whole number and its unit, without a space: `"150ms"`, `"30s"`, `"15m"`, `"1h"`, `"1d"`.
///
/// # Names
///
/// Names of flags, quotas, lockouts and breakers have 1 to 64 printable ASCII characters other than space, `"`, `\`, `{` and `}`,
/// since they go into keys and headers. Names of headers may be written in any case.
///
/// # Order
///
/// However the guards are written, they answer in this order, and the first that rejects ends the request:
///
/// 1. rate limits by `ip`, `global` and `header`
/// 2. flags
/// 3. `auth`
/// 4. guards of your own, in the order in which they were written
/// 5. rate limits by `user` and by keys of your own
/// 6. lockouts by `ip`, `user` and keys of your own, then the body is read, and lockouts by `account` follow
/// 7. a slot, at once or after a wait in the queue
/// 8. the deadline starts, and the handler runs
/// 9. the attempt is settled, and the slot is free when the answer has been sent
///
/// The first three are asked at the same time, the others after those have passed.
///
/// # Errors
///
/// The compiler refuses, among others: an `auth` that fails open, a flag without a default, limits and windows that are
/// zero, negative, too large or no literals, a burst or cost above the limit, a burst without a token bucket, malformed
/// durations and names, durations that do not rise, a lockout that does not say whose attempts count or that anybody could
/// escape or abuse, a JSON pointer that is none, a `priority` or a `queue_timeout` without a queue, unknown guards and options, the same guard twice, `key = user` or an `Identity` parameter without `auth` (`Option<Identity>` needs none), an attribute with no
/// guards, and one that has no `#[handler]` under it. It judges `Identity` and `#[handler]` by their names.
#[proc_macro_attribute]
pub fn resilient(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    guarded(attribute.into(), item.into()).into()
}

/// Puts strategies around a call to a dependency: a breaker, a time, retries, a bound on what is in flight, a fallback.
///
/// The attribute stands above any `async fn` that returns a `Result`, methods, associated and generic fns included:
///
/// ```
/// # use resilience::outbound;
/// # #[derive(Clone)] struct Order;
/// # struct Client;
/// # impl Client { async fn quote(&self, _: &Order) -> std::io::Result<u32> { Ok(7) } }
/// #[derive(Debug)]
/// enum PaymentError {
///     Io(std::io::Error),
///     /// The call was refused, or late.
///     Refused(resilience::Error),
/// }
/// # impl From<std::io::Error> for PaymentError { fn from(error: std::io::Error) -> Self { Self::Io(error) } }
///
/// impl From<resilience::Error> for PaymentError {
///     fn from(error: resilience::Error) -> Self {
///         Self::Refused(error)
///     }
/// }
///
/// #[outbound(breaker = "payments", timeout = "500ms", retry(2), fallback = cached_quote)]
/// async fn quote(client: &Client, order: Order) -> Result<u32, PaymentError> {
///     Ok(client.quote(&order).await?)
/// }
///
/// async fn cached_quote(_: PaymentError) -> Result<u32, PaymentError> {
///     Ok(42)
/// }
/// # drop(quote(&Client, Order));
/// ```
///
/// The body becomes a block of its own, one for each attempt: `?` and `return` end the attempt, and what it returned is
/// counted and judged. Docs, visibility, generics and all other attributes stay as they are.
///
/// # Options
///
/// They may be written in any order, each once. Numbers and texts are literals, so that the compiler can check them; all
/// mistakes of one attribute are reported in one compile.
///
/// | option | what it does | bounds |
/// |---|---|---|
/// | `breaker = "payments"` | refuses while the circuit of this dependency is open, with `circuit_open` | a [name](macro@resilient#names) |
/// | `timeout = "500ms"` | the time of the whole call, waits included; then it is dropped, with `timeout` | 1 ms to 1 h |
/// | `attempt_timeout = "200ms"` | the time of each attempt; needs `retry` | 1 ms to 1 h |
/// | `retry(3)` | makes a failed call again, up to this many times | 1 to 20 |
/// | `bulkhead(16)` | at most so many in flight; others are refused with `overloaded` | 1 to 1,048,576 |
/// | `fallback = path::to::fn` | an `async fn(E) -> Result<T, E>`, which answers in the place of every error | |
/// | `classify = path::to::fn` | a `fn(Result<&T, &E>) -> Verdict`, which says what the breaker counts and what is tried again; needs `breaker` or `retry` | |
///
/// `retry` takes:
///
/// | option | value | default |
/// |---|---|---|
/// | `backoff` | the longest first wait, 1 ms to 1 h; each later one is up to twice as long | `"50ms"` |
/// | `max_backoff` | the longest wait of all, `backoff` to 1 h | `"2s"` |
/// | `budget` | the name of the retry budget that bounds the retries of all calls together | the breaker's name, else this fn's own |
///
/// `bulkhead` takes:
///
/// | option | value | default |
/// |---|---|---|
/// | `queue` | how many may wait for a place, 1 to 1,048,576 | none |
/// | `queue_timeout` | how long they may, 1 ms to 10 minutes; needs `queue` | `"100ms"` |
/// | `name` | shares the places among all fns that use this name with the same numbers | the breaker's name, else this fn's own |
///
/// Without `classify` an `Ok` is a success, and an `Err` a failure that may be tried again: retry only what may safely
/// happen twice. An attempt that ran out of `attempt_timeout` is such a failure. One that `timeout` has ended is a failure if
/// it had at least half of that time, and neutral if a queue, earlier attempts or the request's own deadline took it away.
///
/// # Order
///
/// However the options are written, from the outermost to the call:
///
/// `fallback` → `timeout` → `retry` → `breaker` → `bulkhead` → `attempt_timeout` → the body
///
/// - The fallback answers for everything, rejections included, and has time of its own.
/// - The timeout bounds what the caller waits for: all attempts and the waits between them.
/// - The breaker and the bulkhead stand inside the retries: the breaker counts what the dependency really answered, and
///   one that opens in the midst of a call ends it; no place is held through a wait.
/// - The bulkhead stands inside the breaker: nobody queues for a dependency that is known to be down.
/// - The time of an attempt begins when it has its place, so that a queue of ours is not taken for slowness of theirs.
///
/// Another order is a `resilience::pipeline::Pipeline`, written out.
///
/// # Dependencies by name
///
/// All fns with the same breaker name share one breaker, one retry budget and, with the same numbers, one bulkhead. They
/// come from the `Dependencies` of the enclosing `scope`, else from the one of the process; their settings are made there.
///
/// # What the fn has to be
///
/// - Its error type takes our rejections: it has `From<resilience::Error>`, as `resilience::Error`, `poem::Error`,
///   `anyhow::Error` and `Box<dyn std::error::Error + Send + Sync>` do.
/// - Its future and what it returns can be sent between threads.
/// - With `retry`, arguments by value are `Clone`, and each attempt has a copy; `self` is `&self`, and `&mut` arguments are
///   refused, since an attempt that failed would have changed them.
/// - It is a fn with a body, and not the product of another macro: under `#[async_trait]` it would not be `async` any more.
///
/// # Cancel safety
///
/// Dropping the call drops the attempt under way and gives back what it holds. The breaker counts it as neutral.
///
/// # Errors
///
/// The compiler refuses, among others: an attribute without options, unknown options and the same one twice, numbers and
/// durations that are zero or absurd, names that are taken by the breakers before the store, a fn that is not `async` or
/// returns no `Result` (judged by name where that suffices), `#[handler]` under it, a fallback or a classifier of the wrong
/// shape, and what cannot fit into the `timeout`:
///
/// - an `attempt_timeout` longer than it, or all attempts of it together (`attempt_timeout` times `retry` plus one);
/// - waits between the attempts that take as long on average, half the longest ones together;
/// - a `queue_timeout` that leaves no time.
#[proc_macro_attribute]
pub fn outbound(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    outbound::outbound(attribute.into(), item.into()).into()
}

/// The guarded handler; or all mistakes, and the item without its guards.
fn guarded(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    if attribute.is_empty() {
        check::empty(&mut errors);
    }
    let policy = Policy::parse(args::entries(attribute, &mut errors), &mut errors);
    check::policy(&policy, &mut errors);
    let Some(handler) = errors.keep(syn::parse2::<Handler>(item.clone())) else {
        let errors = errors.into_compile_errors();
        return quote!(#errors #item);
    };
    check::handler(&handler, &policy, &mut errors);
    if errors.is_empty() {
        expand::expand(&policy, &handler)
    } else {
        let (errors, item) = (errors.into_compile_errors(), handler.unguarded());
        quote!(#errors #item)
    }
}

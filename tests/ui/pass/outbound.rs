//! `#[outbound]` on fns of every shape: free, in impls and traits, generic, with lifetimes and patterns.

use std::{fmt::Display, future::Future, io, sync::Arc, time::Duration};

use resilience::{outbound, pipeline::Verdict};

#[derive(Debug)]
pub enum PaymentError {
    Declined,
    Io(io::Error),
    Refused(resilience::Error),
}

impl From<io::Error> for PaymentError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<resilience::Error> for PaymentError {
    fn from(error: resilience::Error) -> Self {
        Self::Refused(error)
    }
}

type Answer<T> = Result<T, PaymentError>;

#[derive(Clone, Debug)]
pub struct Order(u32);

pub struct NoClone(u32);

async fn ask(ok: bool) -> io::Result<u32> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    if ok { Ok(7) } else { Err(io::Error::other("down")) }
}

/// Every option, in no order.
#[outbound(
    classify = judge,
    fallback = cached,
    attempt_timeout = "200ms",
    bulkhead(16, queue = 8, queue_timeout = "50ms", name = "payments"),
    retry(3, backoff = "50ms", max_backoff = "1s", budget = "payments"),
    timeout = "2s",
    breaker = "payments",
)]
#[inline]
#[must_use]
pub(crate) async fn every(order: Order, mut again: bool) -> Answer<u32> {
    if order.0 == 0 {
        return Err(PaymentError::Declined);
    }
    again |= ask(true).await? > 0;
    Ok(order.0 + u32::from(again))
}

async fn cached(error: PaymentError) -> Answer<u32> {
    match error {
        PaymentError::Declined => Err(error),
        _ => Ok(1),
    }
}

fn judge(answer: Result<&u32, &PaymentError>) -> Verdict {
    match answer {
        Ok(_) => Verdict::success(),
        Err(PaymentError::Declined) => Verdict::neutral(),
        Err(_) => Verdict::failure().retryable(),
    }
}

fn any<T, E>(_: Result<&T, &E>) -> Verdict {
    Verdict::neutral()
}

/// Early `return` and `?` of another error type, with no tail to infer from.
#[outbound(timeout = "1s")]
async fn early(order: &Order) -> Result<(), PaymentError> {
    for _ in 0..order.0 {
        if ask(false).await? > 0 {
            return Ok(());
        }
    }
    return Err(PaymentError::Declined);
}

#[outbound(retry(1))]
async fn never() -> Result<std::convert::Infallible, PaymentError> {
    loop {
        ask(false).await?;
    }
}

/// What is not `Clone` is taken once, and may be borrowed mutably.
#[outbound(breaker = "payments", timeout = "1s")]
async fn used_up(order: NoClone, log: &mut Vec<u32>, _: Arc<str>, (low, Order(high)): (u32, Order)) -> Answer<u32> {
    log.push(order.0);
    Ok(ask(true).await? + low + high)
}

/// Patterns and reference parameters with retries; the parameter is called as a local of the expansion may be.
#[outbound(retry(2), timeout = "1s")]
async fn patterns(
    (low, Order(high)): (u32, Order),
    [first, ..]: [u8; 2],
    answer: &str,
    name: Option<&NoClone>,
    r#type: u32,
    _: Order,
) -> Answer<u32> {
    let name = name.map_or(0, |name| name.0);
    Ok(ask(true).await? + low + high + u32::from(first) + answer.len() as u32 + name + r#type)
}

#[outbound(retry(2), breaker = "search")]
async fn generic<'a, T, const N: usize>(parts: &'a [T; N], what: impl Display + Clone + Send) -> Answer<&'a T>
where
    T: Sync,
{
    let at = ask(true).await? as usize + what.to_string().len();
    parts.get(at % N).ok_or(PaymentError::Declined)
}

#[outbound(timeout = "1s", classify = any, breaker = "search")]
async fn opaque(order: &Order) -> Result<impl Iterator<Item = u32> + use<>, PaymentError> {
    let end = order.0;
    ask(true).await?;
    Ok(0..end)
}

#[outbound(timeout = "1s", fallback = anyhow_like)]
async fn boxed() -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
    let number: u32 = "7".parse()?;
    Ok(number + ask(true).await?)
}

fn anyhow_like(
    error: Box<dyn std::error::Error + Send + Sync>,
) -> impl Future<Output = Result<u32, Box<dyn std::error::Error + Send + Sync>>> {
    std::future::ready(Err(error))
}

#[outbound(timeout = "1s")]
async fn for_a_handler() -> poem::Result<u32> {
    Ok(ask(true).await.map_err(poem::error::InternalServerError)?)
}

#[outbound(timeout = "1s")]
async fn ours() -> Result<u32, resilience::Error> {
    Ok(1)
}

struct Payments<T> {
    base: T,
    calls: u32,
}

impl<T: Sync + Clone + Into<u32>> Payments<T> {
    #[outbound(breaker = "payments", retry(2), fallback = Self::cached)]
    async fn fetch(&self, order: Order) -> Answer<u32> {
        Ok(ask(true).await? + order.0 + self.base.clone().into())
    }

    async fn cached(_: PaymentError) -> Answer<u32> {
        Ok(0)
    }

    #[outbound(retry(2))]
    async fn shared(self: &Arc<Self>) -> Answer<u32>
    where
        T: Send,
    {
        self.fetch(Order(1)).await
    }

    #[outbound(timeout = "1s", bulkhead(4))]
    async fn count(&mut self) -> Answer<u32>
    where
        T: Send,
    {
        self.calls += 1;
        Ok(self.calls)
    }

    #[outbound(timeout = "1s")]
    async fn into_base(mut self) -> Answer<(T, u32)>
    where
        T: Send,
    {
        self.calls += 1;
        Ok((self.base, self.calls))
    }

    #[outbound(bulkhead(2))]
    pub async fn associated(base: T) -> Answer<Self>
    where
        T: Send,
    {
        Ok(Self { base, calls: 0 })
    }
}

trait Quotes {
    fn quote(&self, order: &Order) -> impl Future<Output = Answer<u32>> + Send;
}

impl Quotes for Payments<u32> {
    #[outbound(breaker = "payments", retry(1))]
    async fn quote(&self, order: &Order) -> Answer<u32> {
        self.fetch(order.clone()).await
    }
}

macro_rules! call {
    ($name:ident, $timeout:literal, $retries:expr, $answer:ty) => {
        #[outbound(timeout = $timeout, retry($retries))]
        async fn $name(order: &Order) -> $answer {
            Ok(ask(true).await? + order.0)
        }
    };
}

call!(by_a_macro, "1s", 2, Answer<u32>);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    assert_eq!(every(Order(1), false).await.unwrap(), 2);
    assert!(matches!(every(Order(0), false).await, Err(PaymentError::Declined)));
    assert!(matches!(early(&Order(1)).await, Err(PaymentError::Io(_))));
    assert!(never().await.is_err());
    let mut log = Vec::new();
    assert_eq!(used_up(NoClone(3), &mut log, "x".into(), (1, Order(2))).await.unwrap(), 10);
    assert_eq!(log, [3]);
    let sum = patterns((1, Order(2)), [3, 4], "four", Some(&NoClone(5)), 6, Order(0)).await;
    assert_eq!(sum.unwrap(), 28);
    assert_eq!(generic(&["a", "b", "c"], 12).await.unwrap(), &"a");
    assert_eq!(opaque(&Order(3)).await.unwrap().count(), 3);
    assert_eq!(boxed().await.unwrap(), 14);
    assert_eq!(for_a_handler().await.unwrap(), 7);
    assert_eq!(ours().await.unwrap(), 1);
    let mut payments = Payments::associated(1_u32).await.unwrap();
    assert_eq!(payments.count().await.unwrap(), 1);
    assert_eq!(payments.quote(&Order(2)).await.unwrap(), 10);
    assert_eq!(Arc::new(Payments { base: 1_u32, calls: 0 }).shared().await.unwrap(), 9);
    assert_eq!(payments.into_base().await.unwrap(), (1, 2));
    assert_eq!(by_a_macro(&Order(1)).await.unwrap(), 8);
    // All of it can be sent to another thread, borrows included.
    let spawned = tokio::spawn(async {
        let order = Order(1);
        let payments = Payments { base: 1_u32, calls: 0 };
        payments.quote(&order).await.and(generic(&["a"], 1).await.map(|part| part.len()))
    });
    assert_eq!(spawned.await.unwrap().unwrap(), 1);
}

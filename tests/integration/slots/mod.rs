//! Slots as an app sees them: who is let in, who waits, who is shed, and when a slot is free again. Time is paused.

mod freed;
mod shed;

use std::sync::Arc;

use poem::{Endpoint, EndpointExt, Request, Response, handler, web::Data};
use resilience::{Builder, Resilience, concurrency::ConcurrencyLimit};
use tokio::sync::{Semaphore, mpsc};

/// What a handler does in a test: it says that it has begun, and waits until it is let go.
#[derive(Clone)]
struct Gate {
    begun: mpsc::UnboundedSender<String>,
    let_go: Arc<Semaphore>,
}

impl Gate {
    fn new() -> (Self, mpsc::UnboundedReceiver<String>) {
        let (begun, seen) = mpsc::unbounded_channel();
        let let_go = Arc::new(Semaphore::new(0));
        (Self { begun, let_go }, seen)
    }

    /// Lets one handler go on.
    fn open(&self) {
        self.let_go.add_permits(1);
    }

    async fn pass(&self, who: &str) {
        self.begun.send(who.to_owned()).expect("the test listens");
        self.let_go.acquire().await.expect("it is never closed").forget();
    }
}

#[resilience::resilient(concurrency(2, queue = 2, queue_timeout = "100ms"))]
#[handler]
async fn two_at_once(Data(gate): Data<&Gate>, request: &Request) -> String {
    gate.pass(request.header("x-who").unwrap_or("-")).await;
    "served".to_owned()
}

fn settings() -> Builder {
    Resilience::builder().memory()
}

/// The handler behind a runtime with these settings, and its slots.
fn app(
    settings: Builder,
    handler: impl Endpoint + 'static,
    gate: Gate,
) -> (impl Endpoint<Output = Response> + 'static, ConcurrencyLimit) {
    let resilience = settings.build().expect("valid settings");
    let limits = resilience.concurrency_limits();
    let limit = limits.into_iter().find(|limit| limit.name().ends_with("two_at_once"));
    (handler.data(gate).with(resilience), limit.expect("the handler's"))
}

fn request(who: &str) -> Request {
    Request::builder().header("x-who", who).finish()
}

/// Lets every task run that can.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

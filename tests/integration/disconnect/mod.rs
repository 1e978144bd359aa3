//! Clients that go before they are answered, over real sockets. Every wait is for an event.

mod guards;
mod http1;
mod http2;
mod listeners;

use std::{net::SocketAddr, sync::Arc};

use poem::{
    Endpoint, EndpointExt, Response, Server, handler,
    http::StatusCode,
    listener::{Acceptor, Listener, TcpListener},
    web::Data,
};
use resilience::{Resilience, disconnect::DisconnectExt, resilient};
use resilience_tests::PATIENCE;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Semaphore, mpsc},
    time::timeout,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Began,
    /// The handler's future was dropped before its end.
    Dropped,
    Finished,
    /// The app has answered, whoever reads it.
    Answered(StatusCode),
    /// A handler was told that its client has gone.
    Noticed,
}

/// What a handler tells the test, and what it waits for.
#[derive(Clone)]
struct Stage {
    events: mpsc::UnboundedSender<Event>,
    gate: Arc<Semaphore>,
}

impl Stage {
    fn tell(&self, event: Event) {
        // The test may have seen all that it wanted to.
        let _ = self.events.send(event);
    }

    /// Runs until the test opens the gate.
    async fn play(&self) -> &'static str {
        let mut play = Play {
            stage: self,
            last: Event::Dropped,
        };
        self.tell(Event::Began);
        self.gate.acquire().await.unwrap().forget();
        play.last = Event::Finished;
        "done"
    }
}

struct Play<'a> {
    stage: &'a Stage,
    last: Event,
}

impl Drop for Play<'_> {
    fn drop(&mut self) {
        self.stage.tell(self.last);
    }
}

#[resilient(flag("disconnect", default = false), deadline = "1h")]
#[handler]
async fn with_deadline(Data(stage): Data<&Stage>) -> &'static str {
    stage.play().await
}

#[resilient(flag("disconnect", default = false))]
#[handler]
async fn guarded(Data(stage): Data<&Stage>) -> &'static str {
    stage.play().await
}

/// A server and what its handlers tell.
struct Scene {
    address: SocketAddr,
    gate: Arc<Semaphore>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Scene {
    /// A server that notices when its clients go.
    async fn watched(handler: impl Endpoint + 'static, resilience: Resilience) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").cancel_on_disconnect();
        Self::on(listener, handler, resilience).await
    }

    async fn on(
        listener: impl Listener<Acceptor: 'static>,
        handler: impl Endpoint + 'static,
        resilience: Resilience,
    ) -> Self {
        let acceptor = listener.into_acceptor().await.unwrap();
        let address = *acceptor.local_addr()[0].as_socket_addr().unwrap();
        let (stage, gate, events) = stage();
        tokio::spawn(Server::new_with_acceptor(acceptor).run(app(handler, resilience, stage)));
        Self { address, gate, events }
    }

    async fn next(&mut self) -> Event {
        timeout(PATIENCE, self.events.recv()).await.expect("an event").unwrap()
    }

    async fn expect(&mut self, events: &[Event]) {
        for expected in events {
            assert_eq!(self.next().await, *expected);
        }
    }

    fn open_gate(&self) {
        self.gate.add_permits(1);
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A client whose request has reached its handler.
    async fn asking(&mut self) -> TcpStream {
        let mut client = self.connect().await;
        client.write_all(REQUEST).await.unwrap();
        self.expect(&[Event::Began]).await;
        client
    }
}

fn stage() -> (Stage, Arc<Semaphore>, mpsc::UnboundedReceiver<Event>) {
    let (tell, events) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let stage = Stage {
        events: tell,
        gate: Arc::clone(&gate),
    };
    (stage, gate, events)
}

fn app(handler: impl Endpoint + 'static, resilience: Resilience, stage: Stage) -> impl Endpoint<Output = Response> {
    let audience = stage.clone();
    handler
        .with(resilience)
        .data(stage)
        .map_to_response()
        .after(move |outcome: poem::Result<Response>| {
            let audience = audience.clone();
            async move {
                let status = outcome.as_ref().map_or_else(poem::Error::status, Response::status);
                audience.tell(Event::Answered(status));
                outcome
            }
        })
}

fn memory() -> Resilience {
    Resilience::builder().memory().build().unwrap()
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// One answer of a connection that stays open.
async fn read_answer(client: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut answer = Vec::new();
    let read = async {
        while !answer.ends_with(b"done") {
            answer.push(client.read_u8().await.unwrap());
        }
    };
    timeout(PATIENCE, read).await.expect("an answer");
    String::from_utf8(answer).unwrap()
}

/// nginx's status of a request whose client has closed the connection.
fn closed() -> Event {
    Event::Answered(StatusCode::from_u16(499).unwrap())
}

const OK: Event = Event::Answered(StatusCode::OK);

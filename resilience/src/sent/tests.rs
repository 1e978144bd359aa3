use std::net::SocketAddr;

use futures_util::stream;
use http_body_util::BodyExt;
use poem::{
    Body as PoemBody, Server,
    endpoint::make_sync,
    http::HeaderMap,
    listener::{Acceptor, Listener, TcpListener},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{mpsc, oneshot},
};

use super::*;

const LONG: Duration = Duration::from_secs(30);

/// Stands for a slot: its other end tells whether it is still held.
fn slot() -> (oneshot::Sender<()>, oneshot::Receiver<()>) {
    oneshot::channel()
}

fn is_held(slot: &mut oneshot::Receiver<()>) -> bool {
    slot.try_recv() == Err(oneshot::error::TryRecvError::Empty)
}

/// A body whose frames a test sends.
struct Fed(mpsc::UnboundedReceiver<Frame<Bytes>>);

impl Body for Fed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

fn fed() -> (mpsc::UnboundedSender<Frame<Bytes>>, PoemBody) {
    let (feed, frames) = mpsc::unbounded_channel();
    (feed, BoxBody::new(Fed(frames)).into())
}

fn respond(body: PoemBody) -> Response {
    Response::builder().body(body)
}

/// Both ends of a held response whose frames a test sends.
struct Case {
    feed: mpsc::UnboundedSender<Frame<Bytes>>,
    body: BoxBody<Bytes, io::Error>,
    slot: oneshot::Receiver<()>,
}

impl Case {
    fn new(length: Option<u64>) -> Self {
        let (feed, body) = fed();
        let mut response = respond(body);
        if let Some(length) = length {
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        }
        let (guard, slot) = slot();
        let body = hold_until_sent(response, guard, LONG).take_body().into();
        Self { feed, body, slot }
    }

    fn send(&self, data: &'static str) {
        self.feed.send(Frame::data(data.into())).unwrap();
    }

    async fn receive(&mut self) -> Bytes {
        self.body.frame().await.unwrap().unwrap().into_data().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_in_memory_holds_nothing_and_stays_what_it_is() {
    for body in [PoemBody::from("whole"), PoemBody::from(Bytes::from_static(b"whole"))] {
        let (guard, mut slot) = slot();
        let mut response = hold_until_sent(respond(body), guard, LONG);
        assert!(!is_held(&mut slot));
        let body = BoxBody::from(response.take_body());
        assert_eq!(body.size_hint().exact(), Some(5));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "whole");
    }
    let (guard, mut slot) = slot();
    let mut response = hold_until_sent(respond(PoemBody::empty()), guard, LONG);
    assert!(!is_held(&mut slot));
    assert!(BoxBody::from(response.take_body()).is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn a_large_body_in_memory_holds_until_it_is_handed_over() {
    let large = "x".repeat(64 * 1024 + 1);
    let (guard, mut slot) = slot();
    let mut response = hold_until_sent(respond(PoemBody::from(large.clone())), guard, LONG);
    let mut body = BoxBody::from(response.take_body());
    assert!(is_held(&mut slot));
    assert_eq!(body.size_hint().exact(), Some(large.len() as u64));
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame, large[1..]);
    assert!(is_held(&mut slot) && !body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(1));
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame, "x");
    assert!(!is_held(&mut slot) && body.is_end_stream());

    // And nobody keeps it by not taking it.
    let (guard, slot) = self::slot();
    let body = hold_until_sent(respond(PoemBody::from(large)), guard, LONG);
    let begun = Instant::now();
    assert!(slot.await.is_err());
    assert_eq!(begun.elapsed(), LONG);
    drop(body);
}

#[tokio::test(start_paused = true)]
async fn event_streams_and_upgrades_hold_nothing() {
    let event_stream = |content_type: &str| {
        let (_, body) = fed();
        respond(body).with_content_type(content_type)
    };
    let (_, body) = fed();
    let upgrade = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS).body(body);
    for response in [
        event_stream("text/event-stream"),
        event_stream("Text/Event-Stream; charset=utf-8"),
        upgrade,
    ] {
        let (guard, mut slot) = slot();
        let response = hold_until_sent(response, guard, LONG);
        assert!(!is_held(&mut slot));
        drop(response);
    }
    let (guard, mut slot) = slot();
    let _response = hold_until_sent(event_stream("text/event-streams"), guard, LONG);
    assert!(is_held(&mut slot));
}

trait WithContentType {
    fn with_content_type(self, content_type: &str) -> Self;
}

impl WithContentType for Response {
    fn with_content_type(mut self, content_type: &str) -> Self {
        self.headers_mut()
            .insert(header::CONTENT_TYPE, content_type.parse().unwrap());
        self
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_holds_until_its_end_and_keeps_frames_and_trailers() {
    let mut case = Case::new(None);
    case.send("one");
    assert_eq!(case.receive().await, "one");
    assert!(is_held(&mut case.slot));
    let trailers = HeaderMap::from_iter([(header::ETAG, "x".parse().unwrap())]);
    case.feed.send(Frame::trailers(trailers.clone())).unwrap();
    assert_eq!(
        case.body.frame().await.unwrap().unwrap().into_trailers().unwrap(),
        trailers
    );
    assert!(is_held(&mut case.slot));
    drop(case.feed);
    assert!(case.body.frame().await.is_none());
    assert!(!is_held(&mut case.slot));
    assert!(case.body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_last_byte_of_a_known_size_is_the_end() {
    let mut case = Case::new(Some(6));
    case.send("one");
    case.send("two");
    assert_eq!(case.receive().await, "one");
    assert!(is_held(&mut case.slot));
    assert_eq!(case.receive().await, "two");
    assert!(!is_held(&mut case.slot), "nobody asks further once all bytes are there");
    tokio::time::sleep(LONG * 2).await;
    drop(case.feed);
    assert!(case.body.frame().await.is_none(), "a whole body does not expire");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_body_frees_at_once() {
    let mut case = Case::new(None);
    case.send("one");
    case.receive().await;
    assert!(is_held(&mut case.slot));
    drop(case.body);
    assert!(!is_held(&mut case.slot));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_asks_for_frees_after_its_time_and_is_broken_off() {
    let mut case = Case::new(None);
    case.send("one");
    let started = Instant::now();
    (&mut case.slot).await.unwrap_err();
    assert_eq!(started.elapsed(), LONG);
    let error = case.body.frame().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(case.body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_frame_is_woken_when_the_time_is_over() {
    let mut case = Case::new(None);
    let error = case.body.frame().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(!is_held(&mut case.slot));
}

#[tokio::test(start_paused = true)]
async fn a_time_beyond_the_clock_is_no_limit() {
    let (guard, mut slot) = slot();
    let (_feed, body) = fed();
    let response = hold_until_sent(respond(body), guard, Duration::MAX);
    tokio::time::sleep(Duration::from_secs(60 * 60 * 24 * 365)).await;
    assert!(is_held(&mut slot));
    drop(response);
    assert!(!is_held(&mut slot));
}

/// A body of two frames whose size is known, as of one that is cut up.
struct Halves(Vec<&'static str>);

impl Body for Halves {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.0.pop().map(|half| Ok(Frame::data(half.into()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|half| half.len() as u64).sum())
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_size_is_kept_though_the_first_frame_was_looked_at() {
    let (guard, mut slot) = slot();
    let response = respond(BoxBody::new(Halves(vec!["second", "first"])).into());
    let mut body = BoxBody::from(hold_until_sent(response, guard, LONG).take_body());
    assert_eq!(body.size_hint().exact(), Some(11));
    assert!(!body.is_end_stream() && is_held(&mut slot));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
    assert_eq!(body.size_hint().exact(), Some(6));
    assert!(is_held(&mut slot));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "second");
    assert!(!is_held(&mut slot));
}

/// A poem server whose every answer is `response`, and the slots of those answers.
async fn serve(
    send_timeout: Duration,
    response: impl Fn() -> Response + Send + Sync + 'static,
) -> (SocketAddr, mpsc::UnboundedReceiver<oneshot::Receiver<()>>) {
    let acceptor = TcpListener::bind("127.0.0.1:0").into_acceptor().await.unwrap();
    let address = *acceptor.local_addr()[0].as_socket_addr().unwrap();
    let (slots, taken) = mpsc::unbounded_channel();
    let endpoint = make_sync(move |_| {
        let (guard, freed) = slot();
        slots.send(freed).unwrap();
        hold_until_sent(response(), guard, send_timeout)
    });
    tokio::spawn(Server::new_with_acceptor(acceptor).run(endpoint));
    (address, taken)
}

/// A client that has asked it once, and the slot of the answer.
async fn ask(
    request: &str,
    send_timeout: Duration,
    response: impl Fn() -> Response + Send + Sync + 'static,
) -> (TcpStream, oneshot::Receiver<()>) {
    let (address, mut taken) = serve(send_timeout, response).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let freed = taken.recv().await.unwrap();
    (client, freed)
}

fn endless() -> Response {
    let chunk = || Ok::<_, io::Error>(Bytes::from_static(&[0; 65_536]));
    respond(PoemBody::from_bytes_stream(stream::repeat_with(chunk)))
}

async fn freed(slot: oneshot::Receiver<()>) {
    let freed = tokio::time::timeout(Duration::from_secs(20), slot).await;
    assert!(freed.expect("it is freed").is_err());
}

#[tokio::test]
async fn a_client_that_reads_nothing_has_the_slot_for_its_time_only() {
    let (client, slot) = ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n", Duration::from_millis(100), endless).await;
    freed(slot).await;
    drop(client);
}

#[tokio::test]
async fn a_large_body_in_memory_is_not_sent_before_its_client_takes_it() {
    const LARGE: usize = 64 << 20;
    let large = Bytes::from(vec![b'x'; LARGE]);
    let response = move || respond(PoemBody::from(large.clone()));
    let (mut client, mut slot) = ask(
        "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        Duration::from_secs(3_600),
        response,
    )
    .await;
    let mut head = [0; 1_024];
    client.read_exact(&mut head).await.unwrap();
    assert!(String::from_utf8_lossy(&head).contains(&format!("content-length: {LARGE}")));
    assert!(is_held(&mut slot), "most of it is still to be sent");
    let mut rest = vec![0; LARGE - 1_024];
    client.read_exact(&mut rest).await.unwrap();
    freed(slot).await;
}

#[tokio::test]
async fn a_connection_that_is_dropped_frees_at_once() {
    let (mut client, mut slot) = ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n", Duration::from_secs(3_600), endless).await;
    client.read_exact(&mut [0; 200_000]).await.unwrap();
    assert!(is_held(&mut slot));
    drop(client);
    freed(slot).await;
}

#[tokio::test]
async fn the_head_says_the_size_as_before() {
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let halves = || respond(BoxBody::new(Halves(vec!["second", "first"])).into());
    let (mut client, slot) = ask(request, LONG, halves).await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains("content-length: 11") && !head.contains("chunked"),
        "{head}"
    );
    assert_eq!(body, "firstsecond");
    freed(slot).await;
}

#[tokio::test]
async fn what_has_no_body_frees_with_its_head() {
    for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304)] {
        let request = format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n");
        let response = move || {
            let mut response = respond(BoxBody::new(Fed(mpsc::unbounded_channel().1)).into());
            response.set_status(StatusCode::from_u16(status).unwrap());
            response
        };
        let (_client, slot) = ask(&request, Duration::from_secs(3_600), response).await;
        freed(slot).await;
    }
}

#[tokio::test]
async fn an_event_stream_frees_with_its_head() {
    let events = || endless().with_content_type("text/event-stream");
    let (mut client, slot) = ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n", Duration::from_secs(3_600), events).await;
    freed(slot).await;
    client.read_exact(&mut [0; 200_000]).await.unwrap();
}

#[tokio::test]
async fn streams_of_a_client_that_opens_no_window_have_the_slot_for_their_time_only() {
    // HTTP/2 asks a body for nothing before there is room for it.
    let (address, mut taken) = serve(Duration::from_millis(100), endless).await;
    let io = TcpStream::connect(address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let (client, connection) = builder.initial_window_size(0).handshake::<_, Bytes>(io).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = poem::http::Request::get(format!("http://{address}/")).body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    freed(taken.recv().await.unwrap()).await;
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
}

use std::{
    future::{Future, poll_fn},
    sync::mpsc::{Receiver, Sender, TryRecvError, channel},
};

use futures_util::stream;
use tokio::time::{advance, sleep};

use super::*;

/// Tells when it is dropped.
struct Guard(#[expect(dead_code, reason = "its drop is what is heard")] Sender<()>);

fn held(response: Response) -> (BoxBody<Bytes, io::Error>, Receiver<()>) {
    let (guard, freed) = channel();
    let mut response = hold_until_sent(response, Guard(guard), Duration::from_secs(30));
    (response.take_body().into(), freed)
}

fn is_free(freed: &Receiver<()>) -> bool {
    freed.try_recv() == Err(TryRecvError::Disconnected)
}

fn body(body: impl Into<Body>) -> Response {
    Response::builder().body(body)
}

/// Parts, one after another, each a second after the one before.
fn parts(parts: u32) -> Body {
    Body::from_bytes_stream(stream::unfold(0, move |part| async move {
        if part == parts {
            return None;
        }
        sleep(Duration::from_secs(1)).await;
        Some((Ok::<_, io::Error>("part"), part + 1))
    }))
}

async fn frame(body: &mut BoxBody<Bytes, io::Error>) -> Option<Result<Frame<Bytes>, io::Error>> {
    poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

#[tokio::test(start_paused = true)]
async fn a_whole_body_frees_it_when_it_is_handed_over() {
    let (mut body, freed) = held(body("twelve bytes"));
    assert_eq!(body.size_hint().exact(), Some(12));
    assert!(!is_free(&freed));
    assert!(frame(&mut body).await.unwrap().is_ok());
    assert!(is_free(&freed) && body.is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn no_body_frees_it_at_once_and_a_dropped_one_when_it_is_dropped() {
    let (_body, freed) = held(body(()));
    assert!(is_free(&freed));
    let (dropped, freed) = held(body("never asked for"));
    assert!(!is_free(&freed));
    drop(dropped);
    assert!(is_free(&freed));
    let (mut half, freed) = held(body(parts(3)));
    assert!(frame(&mut half).await.unwrap().is_ok());
    assert!(!is_free(&freed));
    drop(half);
    assert!(is_free(&freed));
}

#[tokio::test(start_paused = true)]
async fn a_stream_frees_it_at_its_end() {
    let (mut body, freed) = held(body(parts(3)));
    for _ in 0..3 {
        assert!(!is_free(&freed));
        assert!(frame(&mut body).await.unwrap().is_ok());
    }
    assert!(frame(&mut body).await.is_none());
    assert!(is_free(&freed));
}

#[tokio::test(start_paused = true)]
async fn the_time_is_up_whether_anybody_asks_or_not() {
    let (mut body, freed) = held(body(parts(100)));
    assert!(frame(&mut body).await.unwrap().is_ok());
    // The connection is blocked: nobody asks for more.
    advance(Duration::from_secs(30)).await;
    sleep(Duration::from_millis(1)).await;
    assert!(is_free(&freed));
    let error = frame(&mut body).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(frame(&mut body).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_part_is_told_when_the_time_is_up() {
    let begun = Instant::now();
    let never = Body::from_bytes_stream(stream::pending::<Result<Bytes, io::Error>>());
    let (mut body, freed) = held(body(never));
    let error = frame(&mut body).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, 30));
    assert!(is_free(&freed));
}

#[tokio::test(start_paused = true)]
async fn an_error_frees_it() {
    let broken = Body::from_bytes_stream(stream::iter([Err::<Bytes, _>(io::Error::other("broken"))]));
    let (mut body, freed) = held(body(broken));
    assert!(frame(&mut body).await.unwrap().is_err());
    assert!(is_free(&freed));
}

#[tokio::test(start_paused = true)]
async fn what_has_no_end_frees_it_at_once() {
    for content_type in [
        "text/event-stream",
        "text/event-stream; charset=utf-8",
        "Text/Event-Stream",
    ] {
        let response = Response::builder().content_type(content_type).body(parts(3));
        let (mut body, freed) = held(response);
        assert!(is_free(&freed), "{content_type}");
        assert!(frame(&mut body).await.unwrap().is_ok());
    }
    let upgrade = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .body(parts(3));
    assert!(is_free(&held(upgrade).1));
}

#[test]
fn it_can_be_sent() {
    fn is_send(_: impl Future + Send) {}
    let (guard, _freed) = channel();
    is_send(async move {
        let response = hold_until_sent(body("x"), Guard(guard), Duration::from_secs(1));
        std::future::ready(()).await;
        drop(response);
    });
}

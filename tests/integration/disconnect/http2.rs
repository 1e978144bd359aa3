//! Streams of HTTP/2, which poem's server speaks without TLS to clients that know.

use h2::{Reason, client};
use poem::http::Request;

use super::*;

/// A client whose connection ends with the task.
async fn connect(scene: &Scene) -> (client::SendRequest<&'static [u8]>, tokio::task::JoinHandle<()>) {
    let (client, connection) = client::Builder::new().handshake(scene.connect().await).await.unwrap();
    let driver = tokio::spawn(async move {
        // How it ends is up to the server.
        let _ = connection.await;
    });
    (client.ready().await.unwrap(), driver)
}

fn ask(client: &mut client::SendRequest<&'static [u8]>) -> (client::ResponseFuture, h2::SendStream<&'static [u8]>) {
    let request = Request::get("http://localhost/").body(()).unwrap();
    client.send_request(request, true).unwrap()
}

#[tokio::test]
async fn a_reset_stream_drops_its_handler_and_no_other() {
    let mut scene = Scene::watched(guarded, memory()).await;
    let (mut client, _driver) = connect(&scene).await;
    let (stays, _) = ask(&mut client);
    scene.expect(&[Event::Began]).await;
    let (_goes, mut stream) = ask(&mut client);
    scene.expect(&[Event::Began]).await;
    stream.send_reset(Reason::CANCEL);
    scene.expect(&[Event::Dropped]).await;
    scene.open_gate();
    scene.expect(&[Event::Finished, OK]).await;
    assert_eq!(stays.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_closed_connection_drops_all_its_handlers() {
    all_are_dropped(Scene::watched(guarded, memory()).await).await;
}

#[tokio::test]
async fn here_it_needs_no_listener() {
    all_are_dropped(Scene::on(TcpListener::bind("127.0.0.1:0"), guarded, memory()).await).await;
}

async fn all_are_dropped(mut scene: Scene) {
    let (mut client, driver) = connect(&scene).await;
    let _streams = [ask(&mut client), ask(&mut client)];
    scene.expect(&[Event::Began, Event::Began]).await;
    driver.abort();
    let mut dropped = 0;
    while dropped < 2 {
        match scene.next().await {
            Event::Dropped => dropped += 1,
            event => assert_eq!(event, closed()),
        }
    }
}

//! Connections of HTTP/1.1.

use resilience::disconnect::Hangup;

use super::*;

#[tokio::test]
async fn a_closed_connection_drops_the_handler() {
    let mut scene = Scene::watched(guarded, memory()).await;
    drop(scene.asking().await);
    scene.expect(&[Event::Dropped, closed()]).await;
}

#[tokio::test]
async fn a_closed_connection_drops_the_handler_inside_its_deadline() {
    let mut scene = Scene::watched(with_deadline, memory()).await;
    drop(scene.asking().await);
    scene.expect(&[Event::Dropped, closed()]).await;
}

#[tokio::test]
async fn a_reset_connection_drops_the_handler() {
    let unwatched = Scene::on(TcpListener::bind("127.0.0.1:0"), guarded, memory()).await;
    for mut scene in [Scene::watched(guarded, memory()).await, unwatched] {
        let client = scene.asking().await;
        client.set_zero_linger().unwrap();
        drop(client);
        // poem itself may be the first to drop it, and then there is no answer.
        scene.expect(&[Event::Dropped]).await;
    }
}

#[tokio::test]
async fn a_client_that_closes_its_sending_side_has_gone() {
    let mut scene = Scene::watched(guarded, memory()).await;
    let mut client = scene.asking().await;
    client.shutdown().await.unwrap();
    scene.expect(&[Event::Dropped, closed()]).await;
}

#[tokio::test]
async fn clients_that_stay_are_not_disturbed() {
    let mut scene = Scene::watched(guarded, memory()).await;
    let mut client = scene.asking().await;
    for _ in 0..3 {
        let other = scene.asking().await;
        drop(other);
        scene.expect(&[Event::Dropped, closed()]).await;
        scene.open_gate();
        scene.expect(&[Event::Finished, OK]).await;
        assert!(read_answer(&mut client).await.starts_with("HTTP/1.1 200"));
        client.write_all(REQUEST).await.unwrap();
        scene.expect(&[Event::Began]).await;
    }
    drop(client);
    scene.expect(&[Event::Dropped, closed()]).await;
}

/// Why the listener is needed: the server has read the end of the connection, and the handler lives on.
#[handler]
async fn unguarded(Data(stage): Data<&Stage>, hangup: Hangup) -> &'static str {
    assert!(!hangup.is_gone());
    hangup.gone().await;
    assert!(hangup.is_gone());
    stage.tell(Event::Noticed);
    stage.play().await
}

#[tokio::test]
async fn poem_alone_drops_no_handler_but_it_may_ask() {
    let mut scene = Scene::watched(unguarded, memory()).await;
    let mut client = scene.connect().await;
    client.write_all(REQUEST).await.unwrap();
    drop(client);
    scene.expect(&[Event::Noticed, Event::Began]).await;
    scene.open_gate();
    scene.expect(&[Event::Finished, OK]).await;
}

#[tokio::test]
async fn without_the_listener_a_handler_runs_to_its_end() {
    let mut scene = Scene::on(TcpListener::bind("127.0.0.1:0"), guarded, memory()).await;
    drop(scene.asking().await);
    scene.open_gate();
    scene.expect(&[Event::Finished, OK]).await;
}

#[tokio::test]
async fn behind_a_second_request_a_close_is_not_noticed_and_nothing_else_breaks() {
    let mut scene = Scene::watched(guarded, memory()).await;
    let mut client = scene.connect().await;
    client.write_all(&REQUEST.repeat(2)).await.unwrap();
    scene.expect(&[Event::Began]).await;
    drop(client);
    scene.open_gate();
    scene.expect(&[Event::Finished, OK]).await;
    // Whether the second begins, and is dropped or not, is up to when the server reads on. Others are served.
    let mut other = scene.connect().await;
    other.write_all(REQUEST).await.unwrap();
    scene.open_gate();
    scene.open_gate();
    assert!(read_answer(&mut other).await.starts_with("HTTP/1.1 200"));
}

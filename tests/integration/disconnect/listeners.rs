//! Every way to put the listener together.

use resilience::disconnect::CancelOnDisconnect;

use super::*;

fn tcp() -> TcpListener<&'static str> {
    TcpListener::bind("127.0.0.1:0")
}

async fn notices(listener: impl Listener<Acceptor: 'static>) {
    let mut scene = Scene::on(listener, guarded, memory()).await;
    drop(scene.asking().await);
    scene.expect(&[Event::Dropped, closed()]).await;
    let mut client = scene.asking().await;
    scene.open_gate();
    scene.expect(&[Event::Finished, OK]).await;
    assert!(read_answer(&mut client).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn it_may_stand_inside_others_or_around_them() {
    notices(tcp().boxed().cancel_on_disconnect()).await;
    notices(tcp().cancel_on_disconnect().boxed()).await;
    notices(tcp().combine(tcp()).cancel_on_disconnect()).await;
    notices(tcp().cancel_on_disconnect().combine(tcp())).await;
    notices(CancelOnDisconnect::new(tcp())).await;
}

#[cfg(unix)]
#[tokio::test]
async fn clients_of_a_unix_socket_are_served() {
    use poem::listener::UnixListener;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(path.clone()).cancel_on_disconnect();
    let acceptor = listener.into_acceptor().await.unwrap();
    let (stage, gate, mut events) = stage();
    tokio::spawn(Server::new_with_acceptor(acceptor).run(app(guarded, memory(), stage)));
    let mut client = tokio::net::UnixStream::connect(&path).await.unwrap();
    client.write_all(REQUEST).await.unwrap();
    assert_eq!(events.recv().await, Some(Event::Began));
    gate.add_permits(1);
    assert!(read_answer(&mut client).await.starts_with("HTTP/1.1 200"));
}

//! A TCP proxy that misbehaves when told to.

use std::{
    future, io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot, watch},
    task::{AbortHandle, JoinSet},
};

use crate::{
    free_port,
    garbler::{Garble, Garbler, Next},
};

/// Stands on a free loopback port in front of a server.
///
/// What a method orders has happened when it returns. Ends with this value.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    accepted: Arc<AtomicUsize>,
    garble: Next,
    orders: mpsc::Sender<(Order, oneshot::Sender<()>)>,
    task: AbortHandle,
}

/// What becomes of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Pass { delay: Duration },
    Blackhole,
    Refuse,
}

#[derive(Debug)]
enum Order {
    Cut,
    Become(Mode),
}

impl Proxy {
    /// Stands in front of the server on this loopback port, and passes everything on.
    pub async fn start(upstream: u16) -> Self {
        let port = free_port();
        let listener = bind(port).await;
        let accepted = Arc::new(AtomicUsize::new(0));
        let (orders, received) = mpsc::channel(1);
        let garble = Next::default();
        let server = serve(
            listener,
            (port, upstream),
            Arc::clone(&accepted),
            garble.clone(),
            received,
        );
        Self {
            port,
            accepted,
            garble,
            orders,
            task: tokio::spawn(server).abort_handle(),
        }
    }

    /// The port that clients connect to.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many connections were accepted so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Closes all connections; new ones are accepted as before.
    pub async fn cut(&self) {
        self.order(Order::Cut).await;
    }

    /// Closes all connections and refuses new ones.
    pub async fn refuse(&self) {
        self.order(Order::Become(Mode::Refuse)).await;
    }

    /// Keeps all connections and accepts new ones, but passes nothing on.
    pub async fn blackhole(&self) {
        self.order(Order::Become(Mode::Blackhole)).await;
    }

    /// Passes everything on with this delay, each way.
    pub async fn delay(&self, delay: Duration) {
        self.order(Order::Become(Mode::Pass { delay })).await;
    }

    /// Passes everything on again, also what a black hole has swallowed.
    pub async fn heal(&self) {
        self.delay(Duration::ZERO).await;
    }

    /// Garbles the next reply of the server that contains these bytes, on whatever connection it comes.
    pub fn garble(&self, how: Garble, containing: &[u8]) {
        self.garble.set(how, containing);
    }

    /// Whether a reply was garbled since [`garble`](Self::garble) was called.
    #[must_use]
    pub fn has_garbled(&self) -> bool {
        self.garble.is_done()
    }

    async fn order(&self, order: Order) {
        let (done, obeyed) = oneshot::channel();
        self.orders.send((order, done)).await.expect("the proxy runs");
        obeyed.await.expect("the proxy runs");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    listener: TcpListener,
    (port, upstream): (u16, u16),
    accepted: Arc<AtomicUsize>,
    garble: Next,
    mut orders: mpsc::Receiver<(Order, oneshot::Sender<()>)>,
) {
    let mut listener = Some(listener);
    let mode = watch::Sender::new(Mode::Pass { delay: Duration::ZERO });
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some((order, done)) = orders.recv() => {
                match order {
                    Order::Cut => connections.shutdown().await,
                    Order::Become(Mode::Refuse) => {
                        listener = None;
                        connections.shutdown().await;
                    }
                    Order::Become(new) => {
                        if listener.is_none() {
                            listener = Some(bind(port).await);
                        }
                        mode.send_replace(new);
                    }
                }
                // Whoever gave the order may have stopped waiting.
                _ = done.send(());
            }
            client = accept(listener.as_ref()) => {
                accepted.fetch_add(1, Ordering::SeqCst);
                connections.spawn(relay(client, upstream, mode.subscribe(), garble.clone()));
            }
        }
    }
}

async fn bind(port: u16) -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .expect("a loopback port can be bound")
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    match listener {
        Some(listener) => listener.accept().await.expect("a loopback listener accepts").0,
        None => future::pending().await,
    }
}

/// Passes both directions on until either ends.
async fn relay(client: TcpStream, upstream: u16, mut mode: watch::Receiver<Mode>, garble: Next) {
    if !passes(&mut mode).await {
        return;
    }
    let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, upstream));
    let Ok(server) = TcpStream::connect(upstream).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        _ = pass_on(from_client, to_server, mode.clone(), None) => {}
        _ = pass_on(from_server, to_client, mode, Some(Garbler::new(garble))) => {}
    }
}

async fn pass_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
    mut garbler: Option<Garbler>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 || !passes(&mut mode).await {
            return Ok(());
        }
        let Some(garbler) = &mut garbler else {
            to.write_all(&buffer[..read]).await?;
            continue;
        };
        let passed = garbler.pass(&buffer[..read]);
        to.write_all(&passed.bytes).await?;
        if passed.is_cut {
            return Ok(());
        }
    }
}

/// Waits for as long as the mode says; `false` when the proxy has ended.
async fn passes(mode: &mut watch::Receiver<Mode>) -> bool {
    let passing = mode.wait_for(|mode| matches!(mode, Mode::Pass { .. })).await;
    let Ok(Mode::Pass { delay }) = passing.map(|mode| *mode) else {
        return false;
    };
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    true
}

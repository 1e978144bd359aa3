//! Serving, from the listening socket to the last request.

use std::{error::Error, time::Duration};

use metrics_exporter_prometheus::PrometheusBuilder;
use poem::{
    Server,
    listener::{Acceptor, Listener, TcpListener},
};
use resilience::Resilience;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    config::{Config, DEMO_KEY},
    routes,
};

/// How long requests in flight may take after a signal to stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);

pub(crate) async fn serve(config: &Config, resilience: Resilience) -> Result<(), Box<dyn Error>> {
    resilience.verify()?;
    let metrics = PrometheusBuilder::new().install_recorder()?;
    // Signals are caught before anybody is told that the service is up.
    let stop = stop_signal()?;
    let acceptor = TcpListener::bind((config.host, config.port)).into_acceptor().await?;
    let address = acceptor
        .local_addr()
        .first()
        .and_then(|address| address.as_socket_addr().copied())
        .ok_or("the listening socket has no address")?;

    tokio::spawn(warn_if_degraded(resilience.clone()));
    println!("listening on http://{address}");
    if config.redis_url.is_none() {
        println!("no REDIS_URL: the embedded store serves, with one key. Try:");
        println!("  curl -i http://{address}/api/checkout");
        println!("  curl -i -H 'x-api-key: {DEMO_KEY}' http://{address}/api/checkout");
        println!("  curl -i http://{address}/api/catalog");
        println!("  curl -s http://{address}/readyz");
    }

    Server::new_with_acceptor(acceptor)
        .run_with_graceful_shutdown(routes::app(resilience, metrics), stop, Some(SHUTDOWN_GRACE))
        .await?;
    println!("stopped");
    Ok(())
}

/// Says so if the service starts degraded. Serving does not wait for it.
async fn warn_if_degraded(resilience: Resilience) {
    if resilience.health().await.is_degraded() {
        tracing::warn!("Redis is unreachable: serving degraded, and recovering by itself once it is back");
    }
}

/// Ends at the first SIGTERM or ctrl-c.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: requests in flight may finish");
    })
}

//! Serving, from the listening socket to the last request.

use std::{error::Error, time::Duration};

use metrics_exporter_prometheus::PrometheusBuilder;
use poem::{
    Server,
    listener::{Acceptor, Listener, TcpListener},
};
use resilience::{Resilience, disconnect::DisconnectExt};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    config::{Config, DEMO_KEY},
    payments::{self, Knobs, Payments},
    routes,
};

/// How long requests in flight may take after a signal to stop: less than the 10 s after which `docker stop` kills. Idle
/// connections are closed at once, so that only a client that never ends its request makes us wait so long.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(8);

pub(crate) async fn serve(config: &Config) -> Result<(), Box<dyn Error>> {
    let resilience = config.resilience()?;
    resilience.verify()?;
    let admin = config.breaker_admin(&resilience)?;
    let metrics = PrometheusBuilder::new().install_recorder()?;
    // Signals are caught before anybody is told that the service is up.
    let stop = stop_signal()?;
    let acceptor = TcpListener::bind(config.address)
        .cancel_on_disconnect()
        .into_acceptor()
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", config.address))?;
    let address = acceptor
        .local_addr()
        .first()
        .and_then(|address| address.as_socket_addr().copied())
        .ok_or("the listening socket has no address")?;

    let (payments, knobs) = match &config.payments_url {
        Some(url) => (Payments::at(url.clone()), None),
        None => {
            let knobs = Knobs::default();
            let stub = payments::stub(knobs.clone()).await?;
            (Payments::at(format!("http://{stub}")), Some(knobs))
        }
    };
    tokio::spawn(warn_if_degraded(resilience.clone()));
    println!("listening on http://{address}");
    if config.is_embedded() {
        println!("no REDIS_URL: the embedded store serves, with one key. Try:");
        println!("  curl -i http://{address}/api/checkout");
        println!("  curl -i -H 'x-api-key: {DEMO_KEY}' http://{address}/api/checkout");
        println!("  curl -i http://{address}/api/catalog");
        println!("  curl -s http://{address}/readyz");
    } else {
        println!("keys and flags come from Redis: see `example-app key` and `example-app flag`");
    }
    if admin.is_some() {
        println!("operators: curl -H 'authorization: Bearer <ADMIN_TOKEN>' http://{address}/admin/breakers");
    }
    if knobs.is_some() {
        println!("no PAYMENTS_URL: a stub of the payments service answers. Try, and turn its knobs:");
        println!("  curl -i http://{address}/api/quote");
        let knobs = r#"{"latency_ms":0,"fail":true}"#;
        println!("  curl -H 'content-type: application/json' -d '{knobs}' http://{address}/demo/payments");
    }

    Server::new_with_acceptor(acceptor)
        .run_with_graceful_shutdown(
            routes::app(resilience, metrics, payments, knobs, admin),
            stop,
            Some(SHUTDOWN_GRACE),
        )
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

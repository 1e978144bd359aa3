//! How the pool opens connections and tells the living from the dead.

use std::{sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ErrorKind, ProtocolVersion, RedisError, RedisResult,
    aio::{MultiplexedConnection, SendError},
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::time::Instant;

use super::{
    connection::{Connection, Health},
    link::Link,
    mode,
};

/// Commands that wait to be written on one connection before callers wait in turn.
const PIPELINE_BUFFER: usize = 1_024;
/// Opens connections, no faster than the [`Link`]'s back-off allows.
///
/// bb8-redis's own manager sends a `PING` with every checkout and takes no connection for broken. Here neither costs a
/// round trip: the connection's task says when it has ended.
#[derive(Debug)]
pub(super) struct Connector {
    resp3: Client,
    /// For servers before Redis 6. A death is noticed by the next operation only.
    resp2: Client,
    timeout: Duration,
    link: Arc<Link>,
}

impl Connector {
    pub(super) fn new(client: &Client, timeout: Duration, link: Arc<Link>) -> RedisResult<Self> {
        let info = client.get_connection_info().clone().set_tcp_settings(tcp_settings());
        let speaking = |protocol| {
            let settings = info.redis_settings().clone();
            let settings = settings
                .set_protocol(protocol)
                .set_lib_name("resilience", env!("CARGO_PKG_VERSION"));
            Client::open(info.clone().set_redis_settings(settings))
        };
        Ok(Self {
            resp3: speaking(ProtocolVersion::RESP3)?,
            resp2: speaking(ProtocolVersion::RESP2)?,
            timeout,
            link,
        })
    }

    /// For connections that listen, which every server lets speak the older protocol.
    pub(super) fn listener(&self) -> Client {
        self.resp2.clone()
    }

    async fn open(&self) -> RedisResult<Connection> {
        let health = Health::new(Arc::clone(&self.link));
        let observer = Arc::clone(&health);
        let config = self.config().set_push_sender(move |push| {
            observer.observe(&push);
            Ok::<_, SendError>(())
        });
        let connection = match self.connect_with(&self.resp3, &config).await {
            Err(error) if refuses_resp3(&error) => self.connect_with(&self.resp2, &self.config()).await,
            connection => connection,
        };
        let connection = Connection::own(connection?, health);
        if connection.is_dead() {
            // In the pool it would lie until a checkout meets it: its loss has been told already.
            return Err(RedisError::from((
                ErrorKind::Io,
                "the connection ended with its handshake",
            )));
        }
        Ok(connection)
    }

    async fn connect_with(
        &self,
        client: &Client,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<MultiplexedConnection> {
        let deadline = Instant::now() + self.timeout;
        let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
        let protocol = client.get_connection_info().redis_settings().protocol();
        if mode::is_cluster(&mut connection, protocol, deadline).await? {
            self.link.refused_cluster();
            return Err(mode::refusal());
        }
        Ok(connection)
    }

    fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            // The caller's deadline is the only clock of an operation.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_BUFFER)
    }
}

impl bb8::ManageConnection for Connector {
    type Connection = Connection;
    type Error = RedisError;

    async fn connect(&self) -> Result<Connection, RedisError> {
        if let Some(error) = self.link.held_back() {
            return Err(error);
        }
        let connection = self.open().await;
        if let Err(error) = &connection {
            self.link.attempt_failed(error);
        }
        connection
    }

    async fn is_valid(&self, connection: &mut Connection) -> Result<(), RedisError> {
        if connection.is_dead() {
            return Err(RedisError::from((ErrorKind::Io, "the connection is dead")));
        }
        Ok(())
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        connection.is_dead()
    }
}

/// Whether the server does not know `HELLO`. redis-rs knows one wording of that, Redis has had two, and proxies have theirs.
fn refuses_resp3(error: &RedisError) -> bool {
    let is_unknown = |detail: &str| {
        let detail = detail.to_ascii_lowercase();
        detail.contains("unknown command") && detail.contains("hello")
    };
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || error.detail().is_some_and(is_unknown)
}

fn tcp_settings() -> TcpSettings {
    // After so much silence the kernel asks, every second, whether the server's host still stands.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(1));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    // And so long may sent bytes stay unacknowledged; by default it is a quarter of an hour.
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(Duration::from_secs(2));
    settings
}

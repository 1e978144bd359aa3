//! A connection that listens for changes.

use futures_util::{StreamExt, stream::BoxStream};
use redis::Client;
use tokio::time::{Instant, timeout_at};

use crate::store::{StoreError, StoreErrorKind, redis::classify::store_error};

/// Subscribes on a connection of its own, which ends with the stream. What a message says is not looked at: anybody may
/// have sent it.
pub(super) async fn listen(
    client: Option<&Client>,
    channel: &str,
    deadline: Instant,
) -> Result<BoxStream<'static, ()>, StoreError> {
    let Some(client) = client else {
        return Err(StoreError::new(
            StoreErrorKind::Answered,
            "a store on a pool of the caller's own has no connection to listen on",
        ));
    };
    let subscribed = timeout_at(deadline, async {
        let mut listener = client.get_async_pubsub().await?;
        listener.subscribe(channel).await?;
        Ok(listener.into_on_message().map(drop).boxed())
    });
    match subscribed.await {
        Ok(subscribed) => subscribed.map_err(store_error),
        Err(_) => Err(StoreError::new(
            StoreErrorKind::Unavailable,
            "Redis has not let us listen in time",
        )),
    }
}

//! Wakes readers of logs that another host appends to.
//!
//! Each append sends a notification with the end of its log. A notification only wakes: a reader
//! reads from the store by sequence number. One task listens on a connection of its own, and reads
//! the ends of the subscribed logs at an interval, and after each connect, because notifications
//! are lost while it is not connected.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::{ConversationId, EventId};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, Error, Notification};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connector::Connector;
use super::database::DatabaseError;

/// Channel of the notifications. The payload is the id after the last event, a space, and the
/// conversation.
pub(super) const CHANNEL: &str = "glovebox_appends";

/// Interval at which the ends of subscribed logs are read.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Time to connect, and to wait for the response to a poll.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Delay after a connection that failed.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

const ENDS: &str = "SELECT id, events FROM conversations WHERE id = ANY ($1::text[])";

/// The subscriptions of a store.
#[derive(Clone, Default)]
pub(super) struct Wakeups {
    /// A blocking mutex, because it is never held across an await.
    ends: Arc<Mutex<HashMap<String, watch::Sender<EventId>>>>,
}

impl Wakeups {
    /// Starts the task that listens, until `stop`.
    pub(super) fn start(
        connector: &Connector,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let wakeups = Self::default();
        let receiver = wakeups.clone();
        let connector = connector
            .with_notifications(Arc::new(move |message| receiver.on_notification(message)));
        let listening = wakeups.clone();
        tasks.spawn(async move {
            stop.run_until_cancelled(listening.listen(&connector)).await;
        });
        wakeups
    }

    /// Returns the end of the log as far as it is known: [`EventId::FIRST`] until the first
    /// notification or poll.
    pub(super) fn subscribe(&self, conversation: &ConversationId) -> watch::Receiver<EventId> {
        let mut ends = self.ends();
        let end = ends
            .entry(conversation.to_string())
            .or_insert_with(|| watch::Sender::new(EventId::FIRST));
        end.subscribe()
    }

    async fn listen(&self, connector: &Connector) {
        loop {
            let Err(error) = self.listen_on_one_connection(connector).await;
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot listen for appends of other hosts"
            );
            self.subscribed(); // so that the map stays small while the server is unavailable
            sleep(RECONNECT_DELAY).await;
        }
    }

    async fn listen_on_one_connection(
        &self,
        connector: &Connector,
    ) -> Result<std::convert::Infallible, DatabaseError> {
        let (client, mut driver) = bounded(connect(connector)).await?;
        loop {
            bounded(self.poll(&client)).await?;
            // Also notices that the connection broke, which ends its driver.
            let _ = timeout(POLL_INTERVAL, &mut driver).await;
        }
    }

    /// Reads the ends of the subscribed logs. The connection is that of the notifications, so that
    /// a later notification is received after the response.
    async fn poll(&self, client: &Client) -> Result<(), Error> {
        let subscribed = self.subscribed();
        // Even if there are none: the query detects a broken connection.
        for row in client.query(ENDS, &[&subscribed]).await? {
            let end: i64 = row.try_get(1)?;
            self.advance(row.try_get(0)?, EventId(end.unsigned_abs()));
        }
        Ok(())
    }

    /// Returns the subscribed conversations. Forgets those without a receiver.
    fn subscribed(&self) -> Vec<String> {
        let mut ends = self.ends();
        ends.retain(|_, end| end.receiver_count() > 0);
        ends.keys().cloned().collect()
    }

    fn on_notification(&self, notification: &Notification) {
        let parsed = notification
            .payload()
            .split_once(' ')
            .and_then(|(end, conversation)| Some((conversation, EventId(end.parse().ok()?))));
        match parsed {
            Some((conversation, end)) => self.advance(conversation, end),
            None => tracing::warn!(
                payload = notification.payload(),
                "received an unknown notification"
            ),
        }
    }

    fn advance(&self, conversation: &str, to: EventId) {
        if let Some(end) = self.ends().get(conversation) {
            end.send_if_modified(|end| std::mem::replace(end, to) != to);
        }
    }

    fn ends(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<EventId>>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a connection and listens on it.
async fn connect(connector: &Connector) -> Result<(Client, JoinHandle<()>), Error> {
    let (client, driver) = connector.open().await?;
    client.batch_execute(&format!("LISTEN {CHANNEL}")).await?;
    Ok((client, driver))
}

/// Limits the time of an operation. A server that accepts connections may still not respond.
async fn bounded<T>(operation: impl Future<Output = Result<T, Error>>) -> Result<T, DatabaseError> {
    match timeout(RESPONSE_TIMEOUT, operation).await {
        Ok(result) => Ok(result?),
        Err(source) => Err(DatabaseError::Unresponsive {
            after: RESPONSE_TIMEOUT,
            source,
        }),
    }
}

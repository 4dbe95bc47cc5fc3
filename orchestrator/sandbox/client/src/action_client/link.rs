//! One connection to a server, which is reopened on demand after it breaks.
//!
//! One task owns the connection, and opens it only when a sender is requested. The task ends with
//! the [`Link`].

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use protocol::BootId;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::connection::{Connection, RequestSender};
use super::dialer::{DialError, DialPolicy, Dialer, PauseTracker};

/// How long connecting again may take before it is reported.
const UNREPORTED_DELAY: Duration = Duration::from_millis(1500);

/// Bounds the queue of the task. With a full queue, callers wait in front of it.
const MAX_QUEUED_CALLERS: usize = 16;

type SenderResult = Result<RequestSender, DialError>;

pub(super) struct Link {
    queue: mpsc::Sender<oneshot::Sender<SenderResult>>,
    pauses: PauseTracker,
    _task: AbortOnDropHandle<()>,
}

impl Link {
    /// Starts with `connection`, and opens others only to the server with this boot id. Without a
    /// connection, the first one is opened on demand.
    pub(super) fn new(
        dialer: Arc<Dialer>,
        connection: Option<Connection>,
        boot_id: BootId,
    ) -> Self {
        let (queue, callers) = mpsc::channel(MAX_QUEUED_CALLERS);
        let pauses = dialer.pauses();
        let task = LinkTask {
            dialer,
            connection,
            boot_id,
            callers,
        };
        Self {
            queue,
            pauses,
            _task: AbortOnDropHandle::new(tokio::spawn(task.run())),
        }
    }

    /// Returns when the server was last seen paused. `None` if never.
    pub(super) fn last_paused_at(&self) -> Option<Instant> {
        self.pauses.last_paused_at()
    }

    /// Returns a sender over an open connection. It may break at any time.
    pub(super) async fn sender(&self) -> SenderResult {
        let (caller, result) = oneshot::channel();
        let ended = || DialError::Gone("the task of its connection has ended".into());
        self.queue.send(caller).await.map_err(|_| ended())?;
        result.await.map_err(|_| ended())?
    }
}

struct LinkTask {
    dialer: Arc<Dialer>,
    connection: Option<Connection>,
    boot_id: BootId,
    callers: mpsc::Receiver<oneshot::Sender<SenderResult>>,
}

impl LinkTask {
    async fn run(mut self) {
        while let Some(caller) = self.callers.recv().await {
            let sender = self.sender().await;
            if sender.is_err() {
                // The other callers have waited for the same attempt. Otherwise each would wait for
                // a timeout of its own.
                while let Ok(waiting) = self.callers.try_recv() {
                    let _ = waiting.send(sender.clone());
                }
            }
            let _ = caller.send(sender); // fails if the caller was dropped
        }
    }

    async fn sender(&mut self) -> SenderResult {
        if let Some(sender) = self.connection.as_ref().and_then(Connection::sender) {
            return Ok(sender);
        }
        let limit = self.dialer.reconnect_timeout();
        let mut dialing = pin!(
            self.dialer
                .dial(Some(&self.boot_id), limit, DialPolicy::Reconnect)
        );
        let dialed = match timeout(UNREPORTED_DELAY, &mut dialing).await {
            Ok(dialed) => dialed,
            Err(_) => {
                // An error, because the program's users see these, and wait.
                tracing::error!(
                    "no connection to the sandbox: trying again for {} s{}",
                    limit.as_secs(),
                    self.dialer.last_failure()
                );
                dialing.await
            }
        };
        let (connection, _info) = dialed?;
        // The server has just responded.
        let ended = || DialError::Unreachable("the new connection ended immediately".into());
        self.connection
            .insert(connection)
            .sender()
            .ok_or_else(ended)
    }
}

//! Keeps one connection to a server, and opens another when it has broken and is asked for.
//!
//! One task owns it; everyone else asks that task. It never opens a connection that nobody asked for, and ends with
//! the [`Link`].

use std::sync::Arc;

use protocol::BootId;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::connection::{Connection, Requests};
use super::dialer::{DialError, Dialer, Frozen, Trust};

/// Those who ask wait for the same connection; a full queue only makes them wait in front of it.
const ASKING_AT_ONCE: usize = 16;

type Answer = Result<Requests, DialError>;

/// A connection that is made again when it breaks.
pub(super) struct Link {
    asking: mpsc::Sender<oneshot::Sender<Answer>>,
    frozen: Frozen,
    _keeper: AbortOnDropHandle<()>,
}

impl Link {
    /// Keeps `connection`, and after it others to the life `boot_id` of the same server. Without one, the first is opened
    /// when it is asked for.
    pub(super) fn keep(dialer: Arc<Dialer>, connection: Option<Connection>, boot_id: BootId) -> Self {
        let (asking, asked) = mpsc::channel(ASKING_AT_ONCE);
        let frozen = dialer.frozen();
        let keeper = Keeper { dialer, connection, boot_id, asked };
        Self { asking, frozen, _keeper: AbortOnDropHandle::new(tokio::spawn(keeper.run())) }
    }

    /// When the server was last seen frozen on purpose, by those who waited for a connection; nothing: never.
    pub(super) fn last_frozen(&self) -> Option<Instant> {
        self.frozen.last_seen()
    }

    /// A connection that was open a moment ago.
    pub(super) async fn requests(&self) -> Answer {
        let (answer, answered) = oneshot::channel();
        let ended = |()| DialError::Gone("the task that keeps its connection has ended".into());
        self.asking.send(answer).await.map_err(|_| ended(()))?;
        answered.await.map_err(|_| ended(()))?
    }
}

struct Keeper {
    dialer: Arc<Dialer>,
    connection: Option<Connection>,
    boot_id: BootId,
    asked: mpsc::Receiver<oneshot::Sender<Answer>>,
}

impl Keeper {
    async fn run(mut self) {
        while let Some(answer) = self.asked.recv().await {
            let requests = self.requests().await;
            if requests.is_err() {
                // Who asked meanwhile has waited as long: one after another they would wait for many patiences.
                while let Ok(waiting) = self.asked.try_recv() {
                    let _ = waiting.send(requests.clone()); // gone: no longer interested
                }
            }
            let _ = answer.send(requests);
        }
    }

    async fn requests(&mut self) -> Answer {
        if let Some(requests) = self.connection.as_ref().and_then(Connection::requests) {
            return Ok(requests);
        }
        let patience = self.dialer.patience();
        let (connection, _info) = self.dialer.dial(Some(&self.boot_id), patience, Trust::Known).await?;
        let ended = || DialError::Gone("the new connection ended at once".into());
        self.connection.insert(connection).requests().ok_or_else(ended)
    }
}

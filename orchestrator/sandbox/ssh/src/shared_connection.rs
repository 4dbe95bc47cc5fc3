//! The connection that all sandboxes of a host share. It is reopened on the next use after it
//! breaks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::config::SshConfig;
use super::connection::Connection;
use super::error::SshError;
use super::target::resolve_hops;

/// Average delays in ms between the attempts of a login that the server drops.
const DROPPED_DELAYS: [u64; 6] = [200, 400, 800, 1600, 3200, 3200];

type PendingConnection = Shared<BoxFuture<'static, Result<Arc<Connection>, SshError>>>;

/// Opens one connection at a time. Concurrent callers share the attempt and its error.
pub(super) struct SharedConnection {
    config: Arc<SshConfig>,
    /// Locked only to read or replace the future, never across an await.
    current: Mutex<Option<PendingConnection>>,
}

impl SharedConnection {
    pub(super) fn new(config: Arc<SshConfig>) -> Self {
        Self {
            config,
            current: Mutex::new(None),
        }
    }

    /// Returns the open connection, or opens one. Bounded by the login timeout, plus the time in
    /// which the user confirms a host key.
    pub(super) fn get(&self) -> BoxFuture<'_, Result<Arc<Connection>, SshError>> {
        async {
            let opening = {
                let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
                match current.as_ref().filter(|opening| is_reusable(opening)) {
                    Some(opening) => opening.clone(),
                    None => current.insert(self.open()).clone(),
                }
            };
            opening.await
        }
        .boxed()
    }

    /// Opens a separate connection, for streams that would occupy the sessions of the shared one.
    pub(super) fn open_dedicated(&self) -> BoxFuture<'_, Result<Arc<Connection>, SshError>> {
        open(&self.config).boxed()
    }

    fn open(&self) -> PendingConnection {
        let config = Arc::clone(&self.config);
        // A separate task, so that the attempt continues if its callers are cancelled: the user's
        // answer about a host key is not lost. It is aborted with the provider.
        let opening = tokio::spawn(async move { open(&config).await });
        let opening = AbortOnDropHandle::new(opening);
        let opened = async move {
            opening.await.unwrap_or_else(|lost| {
                Err(SshError::Permanent(format!("opening a connection: {lost}")))
            })
        };
        opened.boxed().shared()
    }
}

/// Opens a connection. Tries again if the server drops it because others log in at the same time.
async fn open(config: &SshConfig) -> Result<Arc<Connection>, SshError> {
    let hops = resolve_hops(config)?;
    for delay in DROPPED_DELAYS {
        match Connection::open(&hops).await {
            Err(SshError::Dropped { .. }) => {
                // Others that were dropped try again too.
                sleep(Duration::from_millis(delay).mul_f64(0.5 + fastrand::f64())).await;
            }
            opened => return opened,
        }
    }
    Connection::open(&hops).await
}

/// Whether the connection is being opened, or is open and responsive.
fn is_reusable(opening: &PendingConnection) -> bool {
    match opening.peek() {
        None => true,
        Some(Ok(connection)) => connection.is_usable(),
        Some(Err(_)) => false,
    }
}

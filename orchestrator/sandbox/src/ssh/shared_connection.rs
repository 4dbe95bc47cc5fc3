//! The connection that all sandboxes of a host share. It is reopened on the next use after it
//! breaks.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio_util::task::AbortOnDropHandle;

use super::config::SshConfig;
use super::connection::Connection;
use super::error::SshError;
use super::target::resolve_hops;

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
        async { Connection::open(&resolve_hops(&self.config)?).await }.boxed()
    }

    fn open(&self) -> PendingConnection {
        let config = Arc::clone(&self.config);
        // A separate task, so that the attempt continues if its callers are cancelled: the user's
        // answer about a host key is not lost. It is aborted with the provider.
        let opening = tokio::spawn(async move { Connection::open(&resolve_hops(&config)?).await });
        let opening = AbortOnDropHandle::new(opening);
        let opened = async move {
            opening.await.unwrap_or_else(|lost| {
                Err(SshError::Permanent(format!("opening a connection: {lost}")))
            })
        };
        opened.boxed().shared()
    }
}

/// Whether the connection is being opened, or is open and responsive.
fn is_reusable(opening: &PendingConnection) -> bool {
    match opening.peek() {
        None => true,
        Some(Ok(connection)) => connection.is_usable(),
        Some(Err(_)) => false,
    }
}

//! The one connection that all sandboxes of a host share, made again when it has broken and is asked for.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio_util::task::AbortOnDropHandle;

use super::config::SshConfig;
use super::connection::Connection;
use super::error::SshError;
use super::target::hops;

type Opening = Shared<BoxFuture<'static, Result<Arc<Connection>, SshError>>>;

/// Opens connections, one at a time: everyone who asks meanwhile gets that one, or its error.
pub(super) struct SharedConnection {
    config: Arc<SshConfig>,
    /// Locked only to look at it and to put another in its place, never across a wait.
    current: Mutex<Option<Opening>>,
}

impl SharedConnection {
    /// Opens nothing yet.
    pub(super) fn new(config: Arc<SshConfig>) -> Self {
        Self { config, current: Mutex::new(None) }
    }

    /// A connection that stood a moment ago. Bounded as logging in is, and by whoever is asked about a host's key.
    pub(super) async fn get(&self) -> Result<Arc<Connection>, SshError> {
        let opening = {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            match current.as_ref().filter(|opening| is_of_use(opening)) {
                Some(opening) => opening.clone(),
                None => current.insert(self.open()).clone(),
            }
        };
        opening.await
    }

    /// A connection of one's own, for what would take up too much of a shared one.
    pub(super) async fn another(&self) -> Result<Arc<Connection>, SshError> {
        Connection::open(&hops(&self.config)?).await
    }

    fn open(&self) -> Opening {
        let config = Arc::clone(&self.config);
        // A task of its own: it goes on when whoever asked first does not wait; it ends with the last who could.
        let opening = tokio::spawn(async move { Connection::open(&hops(&config)?).await });
        let opening = AbortOnDropHandle::new(opening);
        let opened = async move {
            opening
                .await
                .unwrap_or_else(|lost| Err(SshError::Hopeless(format!("opening a connection: {lost}"))))
        };
        opened.boxed().shared()
    }
}

/// Under way, or open.
fn is_of_use(opening: &Opening) -> bool {
    match opening.peek() {
        None => true,
        Some(Ok(connection)) => connection.is_usable(),
        Some(Err(_)) => false,
    }
}

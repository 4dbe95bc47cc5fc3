//! Pool of connections for reading. Opened on demand.
//!
//! A read whose future is dropped still completes, within the limit of its rows.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use engine::events::StoreError;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::failed;
use super::open::{Location, OpenError};

/// Maximum number of connections. Reads are served from the page cache, so more of them only use
/// memory and threads.
const MAX_CONNECTIONS: usize = 4;

const OPERATION: &str = "read the event store";

pub(super) struct Readers {
    permits: Arc<Semaphore>,
    idle: Arc<IdleConnections>,
}

/// Connections that are not in use. The mutex is not held during a read.
struct IdleConnections {
    location: Location,
    connections: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(location: Location) -> Self {
        let idle = IdleConnections {
            location,
            connections: Mutex::new(Vec::with_capacity(MAX_CONNECTIONS)),
        };
        Self {
            permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            idle: Arc::new(idle),
        }
    }

    pub(super) fn file(&self) -> &Path {
        self.idle.location.file()
    }

    /// Runs `read` with a connection, on a blocking thread.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|error| failed(OPERATION, error))?;
        let idle = Arc::clone(&self.idle);
        let reading = tokio::task::spawn_blocking(move || {
            let mut connection = idle.acquire().map_err(|error| failed(OPERATION, error))?;
            let result = read(&mut connection);
            idle.release(connection);
            drop(permit); // after the release, so that the next read reuses the connection
            result
        });
        reading.await.map_err(|error| failed(OPERATION, error))?
    }
}

impl IdleConnections {
    fn acquire(&self) -> Result<Connection, OpenError> {
        let idle = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        idle.map_or_else(|| self.open(), Ok)
    }

    fn open(&self) -> Result<Connection, OpenError> {
        let connection = self.location.connect()?;
        connection
            .pragma_update(None, "query_only", true)
            .map_err(|source| OpenError::open(self.location.file().to_owned(), source))?;
        Ok(connection)
    }

    fn release(&self, connection: Connection) {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
    }
}

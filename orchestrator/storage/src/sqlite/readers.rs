//! Connections for reading: opened when first needed, then kept, never more than a few.
//!
//! A read that nobody waits for any more runs to its end, which its limit bounds.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use engine::events::StoreError;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::failed;
use super::open::{Location, OpenError};

/// Reads are served from the page cache; more connections than this only take memory and blocking threads.
const READERS: usize = 4;

const DOING: &str = "reading the event store";

pub(super) struct Readers {
    permits: Arc<Semaphore>,
    idle: Arc<Idle>,
}

/// A plain mutex: held to take or to give back, never while reading.
struct Idle {
    location: Location,
    connections: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(location: Location) -> Self {
        let idle = Idle { location, connections: Mutex::new(Vec::with_capacity(READERS)) };
        Self { permits: Arc::new(Semaphore::new(READERS)), idle: Arc::new(idle) }
    }

    pub(super) fn file(&self) -> &Path {
        self.idle.location.file()
    }

    /// Lends a connection to `read`, on a thread that may block.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|error| failed(DOING, error))?;
        let idle = Arc::clone(&self.idle);
        let reading = tokio::task::spawn_blocking(move || {
            let mut connection = idle.take().map_err(|error| failed(DOING, error))?;
            let result = read(&mut connection);
            idle.give_back(connection);
            drop(permit); // after the connection is back, so that the next one finds it
            result
        });
        reading.await.map_err(|error| failed(DOING, error))?
    }
}

impl Idle {
    fn take(&self) -> Result<Connection, OpenError> {
        let idle = self.connections.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| self.open(), Ok)
    }

    fn open(&self) -> Result<Connection, OpenError> {
        let connection = self.location.connect()?;
        connection
            .pragma_update(None, "query_only", true)
            .map_err(|source| OpenError::Open { file: self.location.file().to_owned(), source })?;
        Ok(connection)
    }

    fn give_back(&self, connection: Connection) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}

//! Thread that writes. Commits all queued changes in one transaction, and sends each caller its
//! result.
//!
//! A rejected change is rolled back without effect on the others. The thread ends when the store is
//! dropped, after it has committed the queue. It does not retry, because SQLite has already waited
//! for the busy timeout.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use engine::events::StoreError;
use protocol::ConversationId;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::append::{self, ChangeError};
use super::open::{Location, OpenError};
use super::{failed, migrations, remove};
use crate::event_batch::EventBatch;

/// Maximum number of queued changes, and of changes in a transaction. Each conversation has at most
/// one.
const QUEUE_CAPACITY: usize = 256;

/// Free space below which the store is not writable.
const MIN_FREE_BYTES: u64 = 1 << 20;

pub(super) const OPERATION: &str = "change the event store";

type ChangeResult = Result<(), StoreError>;

pub(super) struct Writer {
    /// `None` during the drop. Closing the queue ends the thread.
    queue: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

struct Request {
    change: Change,
    reply: oneshot::Sender<ChangeResult>,
}

/// A change, which is written in its own savepoint.
pub(super) enum Change {
    Append(Box<EventBatch>),
    Remove(ConversationId),
    /// Writes a page without a change.
    Touch,
}

impl Change {
    fn write(&self, connection: &Connection) -> Result<(), ChangeError> {
        match self {
            Self::Append(batch) => append::write(connection, batch),
            Self::Remove(conversation) => Ok(remove::write(connection, conversation)?),
            Self::Touch => touch(connection),
        }
    }
}

/// Writes a page, which fails if the file system has become read-only. A full disk can have room
/// for it in the file of the last commits, and none for an event.
fn touch(connection: &Connection) -> Result<(), ChangeError> {
    let folder = connection
        .path()
        .and_then(|file| Path::new(file).parent())
        .unwrap_or(Path::new("/"));
    let problem = match rustix::fs::statvfs(folder) {
        Ok(space) if space.f_bavail.saturating_mul(space.f_frsize) >= MIN_FREE_BYTES => {
            return Ok(migrations::touch(connection)?);
        }
        Ok(_) => io::ErrorKind::StorageFull.into(),
        Err(error) => io::Error::from(error),
    };
    Err(ChangeError::Rejected(failed(OPERATION, problem)))
}

#[derive(Debug, thiserror::Error)]
#[error("the writer thread has ended")]
struct WriterEnded;

impl Writer {
    pub(super) fn start(connection: Connection, location: &Location) -> Result<Self, OpenError> {
        let (queue, requests) = mpsc::channel(QUEUE_CAPACITY);
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || run(connection, requests))
            .map_err(|source| OpenError::Thread {
                file: location.file().to_owned(),
                source,
            })?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    pub(super) async fn perform(&self, change: Change) -> ChangeResult {
        let (reply, outcome) = oneshot::channel();
        let ended = || failed(OPERATION, WriterEnded);
        let queue = self.queue.as_ref().ok_or_else(ended)?;
        queue
            .send(Request { change, reply })
            .await
            .map_err(|_| ended())?;
        outcome.await.unwrap_or_else(|_| Err(ended()))
    }
}

impl Drop for Writer {
    /// Blocks until all queued changes are committed.
    fn drop(&mut self) {
        drop(self.queue.take());
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the writer of the event store has panicked");
        }
    }
}

fn run(mut connection: Connection, mut requests: mpsc::Receiver<Request>) {
    let mut group = Vec::with_capacity(QUEUE_CAPACITY);
    while requests.blocking_recv_many(&mut group, QUEUE_CAPACITY) > 0 {
        let outcomes = commit(&mut connection, &group);
        for (request, outcome) in group.drain(..).zip(outcomes) {
            // The caller may have dropped its future. The change stays.
            let _ = request.reply.send(outcome);
        }
    }
}

fn commit(connection: &mut Connection, group: &[Request]) -> Vec<ChangeResult> {
    write_all(connection, group).unwrap_or_else(|error| {
        let error = Arc::new(error);
        group
            .iter()
            .map(|_| Err(failed(OPERATION, Arc::clone(&error))))
            .collect()
    })
}

/// Writes the changes in one transaction, each in a savepoint. On an error nothing is committed.
fn write_all(
    connection: &mut Connection,
    group: &[Request],
) -> rusqlite::Result<Vec<ChangeResult>> {
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut outcomes = Vec::with_capacity(group.len());
    for Request { change, .. } in group {
        let savepoint = transaction.savepoint()?;
        let error = change.write(&savepoint).err();
        match error {
            None => {
                savepoint.commit()?;
                outcomes.push(Ok(()));
            }
            // An error such as a full disk rolls back the whole transaction. After that, each
            // savepoint would start a new transaction and commit a change that is reported as
            // failed.
            Some(ChangeError::Failed(error)) if savepoint.is_autocommit() => return Err(error),
            Some(ChangeError::Failed(error)) => outcomes.push(Err(failed(OPERATION, error))),
            Some(ChangeError::Rejected(error)) => outcomes.push(Err(error)),
        }
    }
    transaction.commit()?;
    Ok(outcomes)
}

//! The one thread that writes: takes what is queued, commits it together, tells each caller its own outcome.
//!
//! A change that is refused leaves nothing and harms no other. The thread ends when the store is dropped, after the
//! queue is committed. It never retries: SQLite has waited its busy timeout by then.

use std::sync::Arc;
use std::thread::JoinHandle;

use engine::events::StoreError;
use protocol::ConversationId;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::append::{Append, Refusal};
use super::open::{Location, OpenError};
use super::{failed, remove};

/// Callers that wait for a commit, and with it the size of a group: each conversation has at most one, so this many
/// conversations append at once before one waits to be queued.
const QUEUE: usize = 256;

pub(super) const DOING: &str = "changing the event store";

type Outcome = Result<(), StoreError>;

pub(super) struct Writer {
    /// Taken at the end, which ends the thread.
    queue: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

struct Request {
    change: Change,
    reply: oneshot::Sender<Outcome>,
}

/// What is written in one savepoint.
pub(super) enum Change {
    Append(Append),
    Remove(ConversationId),
}

impl Change {
    fn write(&self, connection: &Connection) -> Result<(), Refusal> {
        match self {
            Self::Append(append) => append.write(connection),
            Self::Remove(conversation) => Ok(remove::write(connection, conversation)?),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the writer has ended")]
struct WriterEnded;

impl Writer {
    pub(super) fn start(connection: Connection, location: &Location) -> Result<Self, OpenError> {
        let (queue, requests) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || run(connection, requests))
            .map_err(|source| OpenError::Thread { file: location.file().to_owned(), source })?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    pub(super) async fn perform(&self, change: Change) -> Outcome {
        let (reply, outcome) = oneshot::channel();
        let ended = || failed(DOING, WriterEnded);
        let queue = self.queue.as_ref().ok_or_else(ended)?;
        queue.send(Request { change, reply }).await.map_err(|_| ended())?;
        outcome.await.unwrap_or_else(|_| Err(ended()))
    }
}

impl Drop for Writer {
    /// Waits, so that whoever opens the file next finds everything in it.
    fn drop(&mut self) {
        drop(self.queue.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the writer of the event store has panicked");
        }
    }
}

fn run(mut connection: Connection, mut requests: mpsc::Receiver<Request>) {
    let mut group = Vec::with_capacity(QUEUE);
    while requests.blocking_recv_many(&mut group, QUEUE) > 0 {
        let outcomes = commit(&mut connection, &group);
        for (request, outcome) in group.drain(..).zip(outcomes) {
            // Whoever asked may have gone; what is committed stays.
            let _ = request.reply.send(outcome);
        }
    }
}

fn commit(connection: &mut Connection, group: &[Request]) -> Vec<Outcome> {
    write_all(connection, group).unwrap_or_else(|error| {
        let error = Arc::new(error);
        group.iter().map(|_| Err(failed(DOING, Arc::clone(&error)))).collect()
    })
}

/// One transaction, one savepoint a change. An error here is everyone's: nothing was committed.
fn write_all(connection: &mut Connection, group: &[Request]) -> rusqlite::Result<Vec<Outcome>> {
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut outcomes = Vec::with_capacity(group.len());
    for Request { change, .. } in group {
        let savepoint = transaction.savepoint()?;
        let refusal = change.write(&savepoint).err();
        match refusal {
            None => {
                savepoint.commit()?;
                outcomes.push(Ok(()));
            }
            // A full disk and its like end the whole transaction. To go on would begin a new one with each savepoint,
            // and commit what is then reported as failed.
            Some(Refusal::Failed(error)) if savepoint.is_autocommit() => return Err(error),
            Some(Refusal::Failed(error)) => outcomes.push(Err(failed(DOING, error))),
            Some(Refusal::Rejected(error)) => outcomes.push(Err(error)),
        }
    }
    transaction.commit()?;
    Ok(outcomes)
}

//! Task that writes. Commits the queued appends of different conversations in one statement, and
//! sends each caller its result.
//!
//! One statement at a time: while the server commits it, the next group gathers. The task ends when
//! the store is closed or dropped, after it has written the queue.
//!
//! If the connection breaks, the result is determined from the log: an append whose events are
//! stored succeeded, any other failed. No append is sent twice.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use engine::events::StoreError;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::append::{self, FencedBatch};
use super::database::{Database, DatabaseError};
use crate::failure::failed;

/// Maximum number of queued appends, and of appends in a statement. Each conversation has at most
/// one.
const QUEUE_CAPACITY: usize = 256;

/// Size at which a group is complete. A larger append is a group of its own.
const MAX_GROUP_BYTES: usize = 4 << 20;

const OPERATION: &str = "append events";

type AppendResult = Result<(), StoreError>;

/// The queue of the task.
pub(super) struct Writer {
    queue: mpsc::Sender<Request>,
}

struct Request {
    batch: FencedBatch,
    reply: oneshot::Sender<AppendResult>,
}

#[derive(Debug, thiserror::Error)]
#[error("the store is closed")]
struct StoreClosed;

impl Writer {
    pub(super) fn start(
        database: Arc<Database>,
        host: Uuid,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let (queue, requests) = mpsc::channel(QUEUE_CAPACITY);
        tasks.spawn(run(database, host, requests, stop));
        Self { queue }
    }

    pub(super) async fn append(&self, batch: FencedBatch) -> AppendResult {
        let (reply, result) = oneshot::channel();
        let closed = || failed(OPERATION, StoreClosed);
        self.queue
            .send(Request { batch, reply })
            .await
            .map_err(|_| closed())?;
        result.await.unwrap_or_else(|_| Err(closed()))
    }
}

async fn run(
    database: Arc<Database>,
    host: Uuid,
    requests: mpsc::Receiver<Request>,
    stop: CancellationToken,
) {
    let mut queue = Queue {
        requests,
        waiting: VecDeque::new(),
    };
    while let Some(group) = queue.next_group(&stop).await {
        let (batches, replies): (Vec<_>, Vec<_>) = group
            .into_iter()
            .map(|Request { batch, reply }| (batch, reply))
            .unzip();
        let results = write(&database, host, &batches.iter().collect::<Vec<_>>()).await;
        for (reply, result) in replies.into_iter().zip(results) {
            // The caller may have dropped its future. The events stay.
            let _ = reply.send(result);
        }
    }
}

/// Writes a group. If the server rejects the statement, nothing of it was written; then each append
/// is a statement of its own, so that a damaged log affects only its own conversation.
async fn write(database: &Database, host: Uuid, group: &[&FencedBatch]) -> Vec<AppendResult> {
    match append::write(database, host, group).await {
        Ok(results) => results,
        Err(error) if error.is_rejection() && group.len() > 1 => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a group of appends was rejected: writing each on its own"
            );
            let mut results = Vec::with_capacity(group.len());
            for batch in group {
                results.extend(Box::pin(write(database, host, &[batch])).await);
            }
            results
        }
        Err(error) if error.is_result_unknown() => {
            determine_results(database, group, Arc::new(error)).await
        }
        Err(error) => fail_all(group.len(), &Arc::new(error)),
    }
}

/// Determines from the logs which appends succeeded.
async fn determine_results(
    database: &Database,
    group: &[&FencedBatch],
    error: Arc<DatabaseError>,
) -> Vec<AppendResult> {
    let mut results = Vec::with_capacity(group.len());
    for batch in group {
        match append::is_written(database, batch).await {
            Ok(true) => results.push(Ok(())),
            Ok(false) => results.push(Err(failed(OPERATION, Arc::clone(&error)))),
            // Nor can the others be determined. Each attempt takes seconds.
            Err(_) => break,
        }
    }
    results.extend(fail_all(group.len() - results.len(), &error));
    results
}

fn fail_all(count: usize, error: &Arc<DatabaseError>) -> Vec<AppendResult> {
    (0..count)
        .map(|_| Err(failed(OPERATION, Arc::clone(error))))
        .collect()
}

/// Received requests, in order.
struct Queue {
    requests: mpsc::Receiver<Request>,
    /// Those that did not fit into the previous group. At most [`QUEUE_CAPACITY`].
    waiting: VecDeque<Request>,
}

impl Queue {
    /// Waits for requests. `None` once the queue is closed, or `stop` is cancelled, and all have
    /// been returned.
    async fn next_group(&mut self, stop: &CancellationToken) -> Option<Vec<Request>> {
        if self.waiting.is_empty() {
            let first = match stop.run_until_cancelled(self.requests.recv()).await {
                Some(first) => first,
                None => {
                    self.requests.close();
                    self.requests.recv().await
                }
            };
            self.waiting.push_back(first?);
        }
        while self.waiting.len() < QUEUE_CAPACITY
            && let Ok(request) = self.requests.try_recv()
        {
            self.waiting.push_back(request);
        }
        Some(self.take_group())
    }

    /// Takes at most one request of each conversation: its first one, so that they stay in order.
    fn take_group(&mut self) -> Vec<Request> {
        let mut conversations = HashSet::new();
        let mut size_bytes = 0;
        let (mut group, mut rest) = (Vec::new(), VecDeque::new());
        for request in self.waiting.drain(..) {
            let is_first = conversations.insert(request.batch.conversation().clone());
            let size = request.batch.size_bytes();
            if is_first && (group.is_empty() || size_bytes + size <= MAX_GROUP_BYTES) {
                size_bytes += size;
                group.push(request);
            } else {
                rest.push_back(request);
            }
        }
        self.waiting = rest;
        group
    }
}

#[cfg(test)]
mod tests {
    use protocol::action::MessageAction;
    use protocol::{Action, Event, EventId, EventSource, Timestamp};

    use super::*;
    use crate::event_batch::EventBatch;

    fn request(conversation: &str, id: u64, length: usize) -> Request {
        let timestamp = Timestamp::try_from("2026-01-02T03:04:05.678901".to_owned()).unwrap();
        let message = MessageAction {
            content: "x".repeat(length),
            ..Default::default()
        };
        let event = Event::new(
            EventId(id),
            timestamp,
            EventSource::User,
            Action::from(message),
        );
        let batch = EventBatch::new(&conversation.parse().unwrap(), &[event])
            .unwrap()
            .unwrap();
        Request {
            batch: FencedBatch::new(batch, None).unwrap(),
            reply: oneshot::channel().0,
        }
    }

    fn groups(requests: impl IntoIterator<Item = Request>) -> Vec<Vec<String>> {
        let mut queue = Queue {
            requests: mpsc::channel(1).1,
            waiting: requests.into_iter().collect(),
        };
        let mut groups = Vec::new();
        while !queue.waiting.is_empty() {
            let group = queue.take_group();
            groups.push(
                group
                    .iter()
                    .map(|request| request.batch.conversation().to_string())
                    .collect(),
            );
        }
        groups
    }

    #[test]
    fn group_has_one_append_per_conversation() {
        let requests = [
            request("a", 0, 1),
            request("a", 1, 1),
            request("b", 0, 1),
            request("a", 2, 1),
        ];
        assert_eq!(groups(requests), [vec!["a", "b"], vec!["a"], vec!["a"]]);
    }

    #[test]
    fn large_append_does_not_let_a_later_one_pass() {
        let requests = [
            request("a", 0, 1),
            request("b", 0, MAX_GROUP_BYTES),
            request("b", 1, 1),
            request("c", 0, 1),
        ];
        assert_eq!(groups(requests), [vec!["a", "c"], vec!["b"], vec!["b"]]);
    }
}

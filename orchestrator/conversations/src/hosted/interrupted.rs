//! Resumes conversations whose process ended while their agent worked, or whose log could not be
//! appended to.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use protocol::client_api::v2::ConversationStatus;
use protocol::{ConversationId, UserCommand};
use tokio::time::{Instant, sleep};

use super::{CONCURRENT_CHANGES, HostedConversations};
use crate::error::ConversationsError;
use crate::list::ConversationFilter;

/// Delay before the next attempt while the maximum number of conversations runs, or the store is
/// not available.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Interval at which conversations are resumed whose log could not be appended to.
const FAILED_INTERVAL: Duration = Duration::from_secs(5);

/// Delay before a conversation is tried again that cannot be resumed. Doubles with each attempt.
const MIN_FAILURE_DELAY: Duration = Duration::from_secs(10);

/// Maximum of it.
const MAX_FAILURE_DELAY: Duration = Duration::from_mins(10);

/// Conversations that could not be resumed.
#[derive(Default)]
struct Failures(BTreeMap<ConversationId, Failure>);

struct Failure {
    delay: Duration,
    next_attempt: Instant,
}

impl HostedConversations {
    /// Resumes all conversations whose process ended while their agent worked. Repeats that at an
    /// `interval` if other hosts share the store, because one of them may end. Without an interval,
    /// returns once all are resumed that can be.
    pub async fn resume_interrupted(self: &Arc<Self>, interval: Option<Duration>) {
        let mut failures = Failures::default();
        loop {
            let is_complete = self
                .resume_once(&mut failures)
                .await
                .unwrap_or_else(|error| {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot find the conversations to resume"
                    );
                    false
                });
            match interval {
                Some(interval) => sleep(interval).await,
                None if is_complete => return,
                None => sleep(RETRY_DELAY).await,
            }
        }
    }

    /// Resumes the conversations of this process that were closed because their log could not be
    /// appended to, for example because the disk was full. Never returns. Not needed next to
    /// [`resume_interrupted`](Self::resume_interrupted) with an interval.
    pub async fn resume_failed(self: &Arc<Self>) -> Infallible {
        let mut failures = Failures::default();
        loop {
            sleep(FAILED_INTERVAL).await;
            let failed = self
                .failed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            failures.0.retain(|id, _| failed.contains(id));
            for id in failed {
                // The user may have stopped it meanwhile.
                let is_failed = self
                    .failed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .contains(&id);
                if !is_failed || failures.is_waiting(&id) {
                    continue;
                }
                match self.apply(&id, UserCommand::AwaitMessage).await {
                    Ok(_) => {
                        tracing::info!(conversation = %id, "resumed a conversation whose log had failed");
                    }
                    Err(ConversationsError::Unknown(_) | ConversationsError::Locked(_)) => {}
                    Err(error) => {
                        tracing::debug!(conversation = %id, error = &error as &dyn std::error::Error, "its log fails");
                        failures.add(id);
                        continue;
                    }
                }
                self.failed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&id);
            }
        }
    }

    /// Returns whether no conversation is left that waits for others to end.
    async fn resume_once(
        self: &Arc<Self>,
        failures: &mut Failures,
    ) -> Result<bool, ConversationsError> {
        let statuses = vec![ConversationStatus::Interrupted];
        let filter = ConversationFilter {
            statuses,
            ..ConversationFilter::default()
        };
        let interrupted = self.conversations.list(&filter).await?;
        let interrupted: Vec<_> = interrupted
            .into_iter()
            .filter_map(|entry| Some(entry.summary?.id))
            .collect();
        failures.0.retain(|id, _| interrupted.contains(id));
        let due = interrupted
            .into_iter()
            .filter(|id| !failures.is_waiting(id));
        // Concurrently, so that one that waits for others of its user delays no other user's.
        let starting =
            due.map(|id| async move { (self.apply(&id, UserCommand::AwaitMessage).await, id) });
        let started =
            stream::iter(starting.collect::<Vec<_>>()).buffer_unordered(CONCURRENT_CHANGES);
        let mut is_complete = true;
        for (result, id) in started.collect::<Vec<_>>().await {
            match result {
                Ok(_) => tracing::info!(conversation = %id, "resumed an interrupted conversation"),
                // Another host was faster.
                Err(ConversationsError::Locked(_)) => {}
                Err(ConversationsError::TooManyRunning(_)) => is_complete = false,
                Err(ConversationsError::ShuttingDown) => {}
                Err(error) => {
                    tracing::warn!(
                        conversation = %id,
                        error = &error as &dyn std::error::Error,
                        "cannot resume an interrupted conversation"
                    );
                    failures.add(id);
                }
            }
        }
        Ok(is_complete)
    }
}

impl Failures {
    fn is_waiting(&self, id: &ConversationId) -> bool {
        self.0
            .get(id)
            .is_some_and(|failure| Instant::now() < failure.next_attempt)
    }

    fn add(&mut self, id: ConversationId) {
        let delay = self
            .0
            .get(&id)
            .map_or(MIN_FAILURE_DELAY, |failure| failure.delay * 2)
            .min(MAX_FAILURE_DELAY);
        self.0.insert(
            id,
            Failure {
                delay,
                next_attempt: Instant::now() + delay,
            },
        );
    }
}

//! State that all handlers share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conversations::{HostedConversations, UserProfiles};
use protocol::ConversationId;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::auth::ApiKey;
use crate::signature::TimedSignatures;
use crate::{AllowedHosts, Choices, PortHosts, ServerConfig};

/// Maximum number of workspaces that are downloaded concurrently.
const MAX_DOWNLOADS: usize = 8;

pub(crate) struct ServerState {
    pub(crate) conversations: Arc<HostedConversations>,
    pub(crate) profiles: Arc<UserProfiles>,
    pub(crate) key: ApiKey,
    pub(crate) signatures: TimedSignatures,
    pub(crate) allowed_hosts: AllowedHosts,
    pub(crate) choices: Choices,
    pub(crate) port_hosts: PortHosts,
    pub(crate) page_folder: Option<PathBuf>,
    pub(crate) started_at: Instant,
    /// Time of the last request with a key, in seconds since the start.
    last_request_secs: AtomicU64,
    /// Ends all streams and sockets when it is cancelled.
    pub(crate) streams: CancellationToken,
    /// One for each workspace that may be downloaded concurrently, because each occupies a thread.
    pub(crate) downloads: Arc<Semaphore>,
    /// Number of open streams and sockets of each conversation that has some. A blocking mutex, because it is never held
    /// across an await.
    connections: Mutex<BTreeMap<ConversationId, usize>>,
}

/// Counts a stream as open until it is dropped.
pub(crate) struct ConnectionGuard {
    state: Arc<ServerState>,
    conversation: ConversationId,
}

impl ServerState {
    pub(crate) fn new(
        conversations: Arc<HostedConversations>,
        profiles: Arc<UserProfiles>,
        config: ServerConfig,
    ) -> Self {
        let ServerConfig { key, allowed_hosts, choices, port_hosts, page_folder } = config;
        Self {
            conversations,
            profiles,
            key: ApiKey::new(&key),
            signatures: TimedSignatures::new(&key),
            allowed_hosts,
            choices,
            port_hosts,
            page_folder,
            started_at: Instant::now(),
            last_request_secs: AtomicU64::new(0),
            streams: CancellationToken::new(),
            downloads: Arc::new(Semaphore::new(MAX_DOWNLOADS)),
            connections: Mutex::default(),
        }
    }

    /// Records that a client has sent a request.
    pub(crate) fn record_request(&self) {
        self.last_request_secs.store(self.started_at.elapsed().as_secs(), Ordering::Relaxed);
    }

    /// Returns the time since the last request of a client.
    pub(crate) fn idle_time(&self) -> Duration {
        let last = Duration::from_secs(self.last_request_secs.load(Ordering::Relaxed));
        self.started_at.elapsed().saturating_sub(last)
    }

    /// Counts a stream of a conversation.
    pub(crate) fn connect(self: &Arc<Self>, conversation: &ConversationId) -> ConnectionGuard {
        self.change_connections(|connections| *connections.entry(conversation.clone()).or_default() += 1);
        ConnectionGuard { state: Arc::clone(self), conversation: conversation.clone() }
    }

    /// Returns the number of open streams and sockets of a conversation.
    pub(crate) fn connection_count(&self, conversation: &ConversationId) -> usize {
        self.change_connections(|connections| connections.get(conversation).copied().unwrap_or_default())
    }

    fn change_connections<T>(&self, change: impl FnOnce(&mut BTreeMap<ConversationId, usize>) -> T) -> T {
        change(&mut self.connections.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.state.change_connections(|connections| {
            if let Some(count) = connections.get_mut(&self.conversation) {
                *count -= 1;
                if *count == 0 {
                    connections.remove(&self.conversation);
                }
            }
        });
    }
}

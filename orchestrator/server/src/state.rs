//! State that all handlers share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

use accounts::{AccountStore, AuditStore, Authenticator, Caller, Credential};
use conversations::{
    Choices, ConversationsError, HostedConversations, UserProfiles, WorkspaceFiles,
};
use git_providers::GitClient;
use protocol::{ConversationId, UserId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::audit::AuditLog;
use crate::cached::Cached;
use crate::client_events::ClientEvents;
use crate::error::{ApiError, StoreProblem};
use crate::failed_attempts::FailedAttempts;
use crate::input_memory::InputMemory;
use crate::keyed_permits::KeyedPermits;
use crate::rate_limit::RateLimits;
use crate::resources::{ResourceMeter, Resources};
use crate::signature::TimedSignatures;
use crate::socket_sessions::SocketSessions;
use crate::work::WorkPermit;
use crate::{
    AllowedHosts, BasePath, OtherHosts, PageSource, PortHosts, ServerConfig, ServerMetrics,
    TrustedProxies,
};

/// Maximum number of open streams and sockets of a user. Each keeps up to a page of events, a
/// megabyte, if its client does not read.
pub(crate) const MAX_STREAMS_PER_USER: usize = 256;

/// Maximum number of large events that are sent to a user's clients at a time.
const MAX_LARGE_EVENTS_PER_USER: usize = 8;

/// Interval at which the credentials of open streams and sockets are checked.
const REVOCATION_INTERVAL: Duration = Duration::from_secs(5);

/// Interval of measurements that clients without a key can request.
const OPEN_MEASUREMENT_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of workspaces that are downloaded concurrently.
const MAX_DOWNLOADS: usize = 8;

/// The same of one user.
const MAX_DOWNLOADS_PER_USER: usize = 2;

/// Maximum number of concurrent requests of a user for work that can be expensive.
const MAX_WORK_PER_USER: usize = 4;

/// Maximum number of conversations of a user that are deleted concurrently.
const MAX_DELETIONS_PER_USER: usize = 4;

pub(crate) struct ServerState {
    pub(crate) conversations: Arc<HostedConversations>,
    pub(crate) profiles: Arc<UserProfiles>,
    pub(crate) authenticator: Authenticator,
    pub(crate) audit: AuditLog,
    pub(crate) signatures: TimedSignatures,
    pub(crate) socket_sessions: Arc<SocketSessions>,
    pub(crate) allowed_hosts: AllowedHosts,
    pub(crate) base_path: BasePath,
    pub(crate) choices: Choices,
    pub(crate) port_hosts: PortHosts,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) rate_limits: Option<RateLimits>,
    pub(crate) failed_attempts: FailedAttempts,
    pub(crate) other_hosts: Option<OtherHosts>,
    pub(crate) git: GitClient,
    pub(crate) client_events: ClientEvents,
    pub(crate) metrics: Arc<dyn ServerMetrics>,
    pub(crate) page_folder: Option<PathBuf>,
    pub(crate) page_sources: Vec<PageSource>,
    pub(crate) started_at: Instant,
    /// Why the store cannot be used. `None` if it can.
    pub(crate) store_check: Cached<Option<StoreProblem>>,
    pub(crate) resource_meter: ResourceMeter,
    pub(crate) resources: Cached<Resources>,
    /// Time of the last request with a key, in seconds since the start.
    last_request_secs: AtomicU64,
    /// Ends all streams and sockets when it is cancelled.
    pub(crate) streams: CancellationToken,
    /// One for each workspace that may be downloaded concurrently, because each occupies a thread.
    pub(crate) downloads: Arc<Semaphore>,
    /// Those of each user.
    pub(crate) downloads_by_user: KeyedPermits<UserId>,
    /// See [`WorkPermit`](crate::work::WorkPermit).
    pub(crate) work_by_user: KeyedPermits<UserId>,
    /// See [`WorkPermit::for_deletion`](crate::work::WorkPermit::for_deletion).
    pub(crate) deletions_by_user: KeyedPermits<UserId>,
    /// Open streams and sockets.
    pub(crate) streams_by_user: KeyedPermits<UserId>,
    /// Large events that are being sent to clients.
    pub(crate) large_events_by_user: KeyedPermits<UserId>,
    pub(crate) input_memory: Arc<InputMemory>,
    /// One for each long body that may be parsed concurrently.
    pub(crate) parsers: Arc<Semaphore>,
    /// Open streams and sockets of each conversation that has some. A blocking mutex, because it is
    /// never held across an await.
    connections: Mutex<BTreeMap<ConversationId, OpenConnections>>,
}

/// Open streams and sockets of a conversation.
#[derive(Default)]
struct OpenConnections {
    count: usize,
    /// Cancelled when a client stops the conversation.
    stopped: CancellationToken,
}

/// Counts a stream as open until it is dropped.
pub(crate) struct ConnectionGuard {
    state: Arc<ServerState>,
    conversation: ConversationId,
    stopped: CancellationToken,
}

impl ConnectionGuard {
    /// Returns once a client has stopped the conversation.
    pub(crate) async fn stopped(&self) {
        self.stopped.cancelled().await;
    }
}

impl ServerState {
    pub(crate) fn new(
        conversations: Arc<HostedConversations>,
        profiles: Arc<UserProfiles>,
        accounts: Arc<dyn AccountStore>,
        audit: Arc<dyn AuditStore>,
        config: ServerConfig,
    ) -> Self {
        let ServerConfig {
            key,
            allowed_hosts,
            base_path,
            choices,
            port_hosts,
            trusted_proxies,
            request_rate,
            other_hosts,
            git,
            metrics,
            page_folder,
            page_sources,
        } = config;
        Self {
            conversations,
            profiles,
            authenticator: Authenticator::new(accounts, &key),
            audit: AuditLog::new(audit),
            signatures: TimedSignatures::new(&key),
            socket_sessions: Arc::default(),
            allowed_hosts,
            base_path,
            choices,
            port_hosts,
            trusted_proxies,
            rate_limits: request_rate.map(RateLimits::new),
            failed_attempts: FailedAttempts::default(),
            other_hosts,
            git,
            client_events: ClientEvents::default(),
            metrics,
            page_folder,
            page_sources,
            started_at: Instant::now(),
            store_check: Cached::new(OPEN_MEASUREMENT_INTERVAL),
            resource_meter: ResourceMeter::new(),
            resources: Cached::new(OPEN_MEASUREMENT_INTERVAL),
            last_request_secs: AtomicU64::new(0),
            streams: CancellationToken::new(),
            downloads: Arc::new(Semaphore::new(MAX_DOWNLOADS)),
            downloads_by_user: KeyedPermits::new(MAX_DOWNLOADS_PER_USER),
            work_by_user: KeyedPermits::new(MAX_WORK_PER_USER),
            deletions_by_user: KeyedPermits::new(MAX_DELETIONS_PER_USER),
            streams_by_user: KeyedPermits::new(MAX_STREAMS_PER_USER),
            large_events_by_user: KeyedPermits::new(MAX_LARGE_EVENTS_PER_USER),
            input_memory: Arc::default(),
            // The other half of the processors serves requests.
            parsers: Arc::new(Semaphore::new(
                available_parallelism().map_or(1, usize::from).div_ceil(2),
            )),
            connections: Mutex::default(),
        }
    }

    /// Returns the permit of a stream or socket. The operator needs none.
    pub(crate) fn permit_stream(
        &self,
        caller: &Caller,
    ) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
        let Some(user) = caller.user.clone() else {
            return Ok(None);
        };
        let permit = self.streams_by_user.try_acquire(user);
        permit.map(Some).ok_or(ApiError::TooManyStreams)
    }

    /// Rejects a caller who may not see a conversation, exactly as if there were none.
    pub(crate) async fn authorize(
        &self,
        caller: &Caller,
        id: &ConversationId,
    ) -> Result<(), ApiError> {
        let is_allowed = match &caller.user {
            None => true,
            Some(user) => {
                self.conversations
                    .conversations()
                    .is_owned_by(id, user)
                    .await?
            }
        };
        if is_allowed {
            Ok(())
        } else {
            Err(ConversationsError::Unknown(id.clone()).into())
        }
    }

    /// Returns access to the files of a running conversation, once its sandbox is connected.
    pub(crate) async fn workspace(&self, id: &ConversationId) -> Result<WorkspaceFiles, ApiError> {
        let conversations = self.conversations.conversations();
        Ok(conversations.connected_workspace(id).await?)
    }

    /// Returns access to the workspace of a running conversation, once its sandbox is connected,
    /// with a permit for work in it. The user's other work does not wait for the sandbox.
    ///
    /// # Errors
    /// See [`workspace`](Self::workspace), or [`ApiError::TooMuchWork`].
    pub(crate) async fn workspace_with_permit(
        &self,
        id: &ConversationId,
        caller: &Caller,
    ) -> Result<(WorkspaceFiles, WorkPermit), ApiError> {
        let workspace = self.workspace(id).await?;
        Ok((workspace, WorkPermit::acquire(self, caller).await?))
    }

    /// Returns once the key or the session of a caller is no longer valid, so that what it opened
    /// ends.
    pub(crate) async fn until_revoked(&self, caller: &Caller) {
        if caller.credential == Credential::Operator {
            return std::future::pending().await;
        }
        loop {
            sleep(REVOCATION_INTERVAL).await;
            match self.authenticator.with_credential(&caller.credential).await {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot check a key"
                ),
            }
        }
    }

    /// Records that a client has sent a request.
    pub(crate) fn record_request(&self) {
        self.last_request_secs
            .store(self.started_at.elapsed().as_secs(), Ordering::Relaxed);
    }

    /// Returns the time since the last request of a client.
    pub(crate) fn idle_time(&self) -> Duration {
        let last = Duration::from_secs(self.last_request_secs.load(Ordering::Relaxed));
        self.started_at.elapsed().saturating_sub(last)
    }

    /// Counts a stream of a conversation.
    pub(crate) fn connect(self: &Arc<Self>, conversation: &ConversationId) -> ConnectionGuard {
        let stopped = self.change_connections(|connections| {
            let open = connections.entry(conversation.clone()).or_default();
            open.count += 1;
            open.stopped.clone()
        });
        ConnectionGuard {
            state: Arc::clone(self),
            conversation: conversation.clone(),
            stopped,
        }
    }

    /// Disconnects the sockets of a conversation that a client has stopped, as V0 does. Those that
    /// connect later stay.
    pub(crate) fn disconnect_sockets(&self, conversation: &ConversationId) {
        self.change_connections(|connections| {
            if let Some(open) = connections.get_mut(conversation) {
                std::mem::take(&mut open.stopped).cancel();
            }
        });
    }

    /// Returns the number of open streams and sockets of a conversation.
    pub(crate) fn connection_count(&self, conversation: &ConversationId) -> usize {
        self.change_connections(|connections| {
            connections.get(conversation).map_or(0, |open| open.count)
        })
    }

    /// Returns the number of all open streams and sockets.
    pub(crate) fn stream_count(&self) -> usize {
        self.change_connections(|connections| connections.values().map(|open| open.count).sum())
    }

    fn change_connections<T>(
        &self,
        change: impl FnOnce(&mut BTreeMap<ConversationId, OpenConnections>) -> T,
    ) -> T {
        change(
            &mut self
                .connections
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.state.change_connections(|connections| {
            if let Some(open) = connections.get_mut(&self.conversation) {
                open.count -= 1;
                if open.count == 0 {
                    connections.remove(&self.conversation);
                }
            }
        });
    }
}

//! Conversations of a server: a message opens the stored conversation that it is for, and idle conversations are closed.

mod event_stream;
mod factory;
mod idle;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use engine::conversation::State;
use futures_util::stream::{self, StreamExt as _};
use protocol::action::MessageAction;
use protocol::{AgentState, ConversationId, EventId};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::{
    CloseReason, ConversationFilter, ConversationStatus, Conversations, ConversationsError, DeleteMode,
    HostError, InitialTask, ResumeRequest, UserDecision,
};

pub use event_stream::EventStream;
pub use factory::{ComposedConversation, ConversationFactory, ConversationRequest};

/// Time for an agent to stop before its conversation is closed without waiting for it.
const STOP_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Number of conversations that are resumed or closed concurrently.
const CONCURRENT_CHANGES: usize = 8;

/// Settings of [`HostedConversations`].
#[derive(Debug, Clone)]
pub struct HostingOptions {
    /// Maximum number of conversations that run at once.
    pub max_running: usize,
    /// A conversation that is at rest for this time is closed.
    pub close_delay: Duration,
}

/// The conversations of a server, each of which runs only while it is used.
pub struct HostedConversations {
    conversations: Conversations,
    factory: Arc<dyn ConversationFactory>,
    options: HostingOptions,
    /// One lock per conversation that is being opened or closed. A blocking mutex, because it is never held across an await.
    changing: Mutex<BTreeMap<ConversationId, Weak<tokio::sync::Mutex<()>>>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl HostedConversations {
    /// Creates the hosted conversations of a store. None runs before it is created, messaged or started.
    pub fn new(
        conversations: Conversations,
        factory: Arc<dyn ConversationFactory>,
        options: HostingOptions,
    ) -> Arc<Self> {
        Arc::new(Self {
            conversations,
            factory,
            options,
            changing: Mutex::default(),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        })
    }

    /// Returns the conversations, to read, list and export them.
    pub fn conversations(&self) -> &Conversations {
        &self.conversations
    }

    /// Starts a new conversation. Its sandbox is created in the background.
    ///
    /// # Errors
    /// [`ConversationsError::TooManyRunning`], [`ConversationsError::Host`], or an error of the store.
    pub async fn create(
        self: &Arc<Self>,
        request: ConversationRequest,
    ) -> Result<ConversationId, ConversationsError> {
        let this = Arc::clone(self);
        let creating = async move {
            this.make_room().await?;
            let id = Conversations::new_id();
            let mut claim = this.conversations.create(id.clone()).await?;
            let new = this.factory.compose_new(&mut claim, request).await?;
            let has_message = matches!(new.task, InitialTask::Message(_));
            this.conversations.start(claim, new).await?;
            this.close_when_idle(&id).await?;
            // So that whoever learns the id finds the conversation in the store.
            let is_stored = |state: &State| {
                state.started.is_some() && (!has_message || state.last_user_message.is_some())
            };
            this.conversations.wait_for(&id, is_stored).await;
            Ok(id)
        };
        self.complete(creating).await
    }

    /// Runs a stored conversation. An agent that was at work continues, one that was stopped waits for a message. Does nothing
    /// if the conversation runs already.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`], [`ConversationsError::Locked`], [`ConversationsError::TooManyRunning`],
    /// [`ConversationsError::Host`], or an error of the store.
    pub async fn start(self: &Arc<Self>, id: &ConversationId) -> Result<(), ConversationsError> {
        self.open(id, ResumeRequest { is_held: true, ..ResumeRequest::default() }).await.map(drop)
    }

    /// Sends a message as the user. Runs the conversation if it is not running.
    ///
    /// # Errors
    /// See [`start`](Self::start); [`ConversationsError::Conversation`] if the conversation is busy.
    pub async fn send_message(
        self: &Arc<Self>,
        id: &ConversationId,
        message: MessageAction,
    ) -> Result<(), ConversationsError> {
        let request = ResumeRequest { message: Some(message.clone()), ..ResumeRequest::default() };
        match self.open(id, request).await? {
            Opened::Now => Ok(()),
            Opened::Before => self.conversations.send_message(id, message),
        }
    }

    /// Changes the state of the agent as the user. Runs the conversation if it is not running. States that a user cannot
    /// request have no effect.
    ///
    /// # Errors
    /// See [`start`](Self::start); [`ConversationsError::NothingToDecide`].
    pub async fn change_agent_state(
        self: &Arc<Self>,
        id: &ConversationId,
        state: AgentState,
    ) -> Result<(), ConversationsError> {
        match state {
            // A conversation that does not run has nothing to stop.
            AgentState::Stopped | AgentState::Paused if !self.conversations.is_running(id) => Ok(()),
            AgentState::Stopped => self.conversations.stop(id),
            AgentState::Paused => self.conversations.pause(id),
            AgentState::Running => match self.open(id, ResumeRequest::default()).await? {
                Opened::Now => Ok(()),
                Opened::Before => self.conversations.continue_agent(id),
            },
            AgentState::UserConfirmed => self.confirm(id, UserDecision::Approve).await,
            AgentState::UserRejected => self.confirm(id, UserDecision::Reject(String::new())).await,
            _ => Ok(()),
        }
    }

    /// Decides on the action that awaits confirmation. Runs the conversation if it is not running.
    ///
    /// # Errors
    /// See [`start`](Self::start); [`ConversationsError::NothingToDecide`].
    pub async fn confirm(
        self: &Arc<Self>,
        id: &ConversationId,
        decision: UserDecision,
    ) -> Result<(), ConversationsError> {
        let request = ResumeRequest { decision: Some(decision.clone()), ..ResumeRequest::default() };
        match self.open(id, request).await? {
            Opened::Now => Ok(()),
            Opened::Before => self.conversations.confirm(id, None, decision),
        }
    }

    /// Stops the agent and closes the conversation. Succeeds if it is not running.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`], or an error of the store or of the conversation's task.
    pub async fn stop(self: &Arc<Self>, id: &ConversationId) -> Result<(), ConversationsError> {
        let (this, id) = (Arc::clone(self), id.clone());
        let stopping = async move {
            let lock = this.change_lock(&id);
            let _changing = lock.lock().await;
            this.stop_now(&id).await
        };
        self.complete(stopping).await
    }

    /// Stops a conversation whose change lock is held.
    async fn stop_now(&self, id: &ConversationId) -> Result<(), ConversationsError> {
        if !self.conversations.is_running(id) {
            return self.conversations.event_count(id).await.map(drop);
        }
        self.conversations.stop(id)?;
        let stopped = self.conversations.wait_for(id, |state| !state.is_working());
        if timeout(STOP_GRACE_PERIOD, stopped).await.is_err() {
            tracing::warn!(conversation = %id, "the agent does not stop: closing its conversation");
        }
        self.conversations.close(id, CloseReason::Interrupted).await.map(drop)
    }

    /// Stops a conversation, and deletes it with its sandbox and its own workspace.
    ///
    /// # Errors
    /// See [`Conversations::delete`].
    pub async fn delete(self: &Arc<Self>, id: &ConversationId) -> Result<(), ConversationsError> {
        let (this, id) = (Arc::clone(self), id.clone());
        let deleting = async move {
            // Held to the end, so that a concurrent start finds no conversation.
            let lock = this.change_lock(&id);
            let _changing = lock.lock().await;
            this.stop_now(&id).await?;
            let find_provider = |runtime: &str| this.factory.provider(runtime);
            let mode = DeleteMode::KeepOnFailure;
            this.conversations.delete(&id, mode, &find_provider, &mut |_| {}).await
        };
        self.complete(deleting).await
    }

    /// Sets the title of a conversation.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`], [`ConversationsError::Locked`], or an error of the store.
    pub async fn set_title(&self, id: &ConversationId, title: &str) -> Result<(), ConversationsError> {
        let lock = self.change_lock(id);
        let _changing = lock.lock().await;
        if self.conversations.is_running(id) {
            self.conversations.set_title(id, title)
        } else {
            self.conversations.set_stored_title(id, title).await
        }
    }

    /// Runs all conversations whose process ended while their agent worked. Returns those that cannot be resumed.
    ///
    /// # Errors
    /// [`ConversationsError::Store`].
    pub async fn resume_interrupted(
        self: &Arc<Self>,
    ) -> Result<Vec<(ConversationId, ConversationsError)>, ConversationsError> {
        let statuses = vec![ConversationStatus::Interrupted];
        let filter = ConversationFilter { statuses, ..ConversationFilter::default() };
        let interrupted = self.conversations.list(&filter).await?;
        let ids = interrupted.into_iter().filter_map(|entry| Some(entry.summary?.id));
        let mut failed = Vec::new();
        for id in ids {
            if let Err(error) = self.start(&id).await {
                failed.push((id, error));
            }
        }
        Ok(failed)
    }

    /// Closes all conversations and keeps their sandboxes, so that [`resume_interrupted`](Self::resume_interrupted) continues
    /// them. No conversation can be opened afterwards.
    pub async fn shut_down(&self) {
        self.shutdown.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        let closing = self.conversations.running().into_iter().map(|id| async move {
            if let Err(error) = self.conversations.close(&id, CloseReason::Shutdown).await {
                tracing::warn!(conversation = %id, %error, "cannot close a conversation");
            }
        });
        stream::iter(closing).buffer_unordered(CONCURRENT_CHANGES).collect::<()>().await;
    }

    /// Runs a stored conversation with a request, unless it runs already.
    async fn open(
        self: &Arc<Self>,
        id: &ConversationId,
        request: ResumeRequest,
    ) -> Result<Opened, ConversationsError> {
        if self.conversations.is_running(id) {
            return Ok(Opened::Before);
        }
        let (this, id) = (Arc::clone(self), id.clone());
        let opening = async move {
            let lock = this.change_lock(&id);
            let _changing = lock.lock().await;
            if this.conversations.is_running(&id) {
                return Ok(Opened::Before);
            }
            this.make_room().await?;
            let mut stored = this.conversations.open(&id).await?;
            stored.check(&request)?;
            let composed = this.factory.compose_stored(&mut stored).await?;
            let ComposedConversation { parts, confirmation } = composed;
            this.conversations.resume(stored, parts, request, confirmation).await?;
            this.close_when_idle(&id).await?;
            Ok(Opened::Now)
        };
        self.complete(opening).await
    }

    /// Completes a change even if the caller is cancelled, for example because its client disconnects.
    async fn complete<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, ConversationsError>> + Send + 'static,
    ) -> Result<T, ConversationsError> {
        self.tasks.spawn(change).await.map_err(|panic| HostError::Failed(panic.into()))?
    }

    /// Closes the conversation that is at rest for the longest time if the maximum number runs.
    async fn make_room(&self) -> Result<(), ConversationsError> {
        if self.shutdown.is_cancelled() {
            return Err(ConversationsError::ShuttingDown);
        }
        if self.conversations.running().len() < self.options.max_running {
            return Ok(());
        }
        match self.conversations.longest_at_rest() {
            Some(id) => self.conversations.close(&id, CloseReason::AtRest).await.map(drop),
            None => Err(ConversationsError::TooManyRunning(self.options.max_running)),
        }
    }

    /// Returns the lock under which a conversation is opened and closed.
    fn change_lock(&self, id: &ConversationId) -> Arc<tokio::sync::Mutex<()>> {
        let mut changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        changing.retain(|_, lock| lock.strong_count() > 0);
        let lock = changing.get(id).and_then(Weak::upgrade).unwrap_or_default();
        changing.insert(id.clone(), Arc::downgrade(&lock));
        lock
    }

    /// Returns the state of a running conversation. `None` if it does not run in this process.
    pub fn state(&self, id: &ConversationId) -> Option<Arc<State>> {
        self.conversations.state(id)
    }

    /// Streams the events of a conversation from `from` on, while it runs and while it does not.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`] or [`ConversationsError::Store`].
    pub async fn stream(
        self: &Arc<Self>,
        id: &ConversationId,
        from: EventId,
    ) -> Result<EventStream, ConversationsError> {
        self.conversations.event_count(id).await?;
        Ok(EventStream::new(Arc::clone(self), id.clone(), from))
    }
}

/// When a conversation was opened.
enum Opened {
    /// It was running already, and has not received the request.
    Before,
    /// It was opened with the request.
    Now,
}

//! Conversations of a server: a message opens the stored conversation that it is for, and idle
//! conversations are closed.

mod commands;
mod event_stream;
mod factory;
mod idle;
mod interrupted;
mod sandbox;
mod slots;
mod stop_on_drop;
mod turn;
mod user;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use engine::conversation::{ConversationError, SandboxDisposition, State};
use engine::events::StoreError;
use futures_util::stream::{self, StreamExt as _};
use protocol::{CommandRequest, ConversationId, EventId, UserCommand, UserId};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::checks::applied_before;
use crate::conversations::Conversations;
use crate::error::ConversationsError;
use crate::host::HostError;
use crate::library::DeleteMode;
use crate::running::CloseReason;

use slots::{Occupied, Owner, Slot, Slots};

pub use event_stream::EventStream;
pub use factory::{ComposedConversation, ConversationFactory, ConversationRequest};
pub use turn::{Turn, TurnEnd, TurnOutcome, TurnUpdate};
pub use user::{UserConversations, check_right};

/// Time that a user needs to read a question. A decision that names no action and comes earlier is
/// about what was asked before: a second click, another window, a repeated request.
pub const MIN_QUESTION_AGE: Duration = Duration::from_secs(1);

/// Time for an agent to stop before its conversation is closed without waiting for it.
const STOP_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Time for the lock of a closed conversation to be released.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of conversations that are closed concurrently.
const CONCURRENT_CHANGES: usize = 8;

/// Time for which a request waits until fewer conversations run.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval at which a waiting request looks for an idle conversation, to close it.
const QUEUE_INTERVAL: Duration = Duration::from_millis(500);

/// Settings of [`HostedConversations`].
#[derive(Debug, Clone)]
pub struct HostingOptions {
    /// Maximum number of conversations that run at once.
    pub max_running: usize,
    /// Maximum number of conversations of each user that run at once. Does not apply to the
    /// operator.
    pub max_running_per_user: usize,
    /// A conversation that is idle for this time is closed.
    pub close_delay: Duration,
}

/// The conversations of a server, each of which runs only while it is used.
pub struct HostedConversations {
    conversations: Conversations,
    factory: Arc<dyn ConversationFactory>,
    options: HostingOptions,
    /// One for each conversation that may run.
    slots: Arc<Slots>,
    /// Conversations that were closed because their log could not be appended to.
    failed: Mutex<BTreeSet<ConversationId>>,
    /// One lock per conversation that is being changed. A blocking mutex, because it is never held
    /// across an await.
    changing: Mutex<BTreeMap<ConversationId, Weak<tokio::sync::Mutex<()>>>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl HostedConversations {
    /// Creates the hosted conversations of a store. None runs before it is created, or a
    /// command needs it.
    pub fn new(
        conversations: Conversations,
        factory: Arc<dyn ConversationFactory>,
        options: HostingOptions,
    ) -> Arc<Self> {
        let slots = Slots::new(options.max_running, options.max_running_per_user);
        Arc::new(Self {
            conversations,
            factory,
            options,
            slots,
            failed: Mutex::default(),
            changing: Mutex::default(),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        })
    }

    /// Returns the conversations, to read, list and export them.
    pub fn conversations(&self) -> &Conversations {
        &self.conversations
    }

    /// Starts a new conversation, and stores its first message. Its sandbox is created in the
    /// background. Returns the conversation that the user has created under the same id before.
    ///
    /// # Errors
    /// [`ConversationsError::Invalid`], [`ConversationsError::Exists`],
    /// [`ConversationsError::TooManyRunning`], [`ConversationsError::Host`], or an error of the
    /// store.
    pub async fn create(
        self: &Arc<Self>,
        mut request: ConversationRequest,
    ) -> Result<ConversationId, ConversationsError> {
        request.check()?;
        let id = request.id.clone().unwrap_or_else(Conversations::new_id);
        self.change_awaited(&id, |this, id, awaited| async move {
            if request.id.is_some() && this.is_created(&id, &request.owner).await? {
                return Ok(id);
            }
            this.create_as(&id, request, &awaited).await?;
            Ok(id)
        })
        .await
    }

    /// Whether a user has created the conversation `id`, which is being changed, before.
    async fn is_created(
        &self,
        id: &ConversationId,
        user: &Owner,
    ) -> Result<bool, ConversationsError> {
        match self.conversations.owner(id).await {
            Ok(owner) if owner == *user => Ok(true),
            Ok(_) => Err(ConversationsError::Exists(id.clone())),
            Err(ConversationsError::Unknown(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Starts the new conversation `id`, which is being changed.
    async fn create_as(
        self: &Arc<Self>,
        id: &ConversationId,
        request: ConversationRequest,
        awaited: &Awaited,
    ) -> Result<(), ConversationsError> {
        let slot = awaited
            .while_awaited(self.acquire_slot(&request.owner))
            .await?;
        let mut claim = self.conversations.create(id.clone()).await?;
        let owner = request.owner.clone();
        let mut new = self.factory.compose_new(&mut claim, request).await?;
        new.started.owner = owner;
        self.conversations.start(claim, new).await?;
        self.close_when_idle(id, slot).await?;
        // The first message is stored with the start.
        let is_stored = |state: &State| state.started.is_some();
        let stored = self.wait_until_stored(id, is_stored).await;
        if stored.is_err() {
            self.discard(id).await;
        }
        stored
    }

    /// Stops the agent and closes the conversation. If it is not running, removes the sandbox that
    /// an earlier process may have kept for it.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`], [`ConversationsError::Locked`] if another process runs it,
    /// or an error of the store or of the conversation's task.
    pub async fn stop(self: &Arc<Self>, id: &ConversationId) -> Result<(), ConversationsError> {
        self.change(id, move |this, id| async move {
            let was_running = this.conversations.is_running(&id);
            this.stop_agent(&id).await?;
            if was_running || this.factory.disposition() != SandboxDisposition::Remove {
                return Ok(());
            }
            let find_provider = |runtime: &str, host: Option<&str>| this.factory.provider(runtime, host);
            match this.conversations.remove_stored_sandbox(&id, &find_provider).await {
                // The conversation is stopped anyway, and the next sweep tries again.
                Err(error @ (ConversationsError::RemoveSandbox(_) | ConversationsError::Host(_))) => {
                    tracing::warn!(conversation = %id, error = &error as &dyn std::error::Error, "cannot remove a sandbox");
                    Ok(())
                }
                removed => removed,
            }
        })
        .await
    }

    /// Stops a conversation, and deletes it with its sandbox and its own workspace.
    ///
    /// # Errors
    /// See [`Conversations::delete`].
    pub async fn delete(self: &Arc<Self>, id: &ConversationId) -> Result<(), ConversationsError> {
        self.change(id, move |this, id| async move {
            this.stop_agent(&id).await?;
            let find_provider =
                |runtime: &str, host: Option<&str>| this.factory.provider(runtime, host);
            let mode = DeleteMode::KeepOnFailure;
            this.conversations
                .delete(&id, mode, &find_provider, &mut |_| {})
                .await
        })
        .await
    }

    /// Opens no conversation and starts no work any more, and returns once no model and no tool
    /// server is being called.
    pub async fn drain(&self) {
        self.shutdown.cancel();
        self.tasks.close();
        // The running conversations stop first, whatever the changes wait for.
        tokio::join!(self.tasks.wait(), self.conversations.drain());
        // A change may have opened one more.
        self.conversations.drain().await;
    }

    /// Closes all conversations and keeps their sandboxes, so that
    /// [`resume_interrupted`](Self::resume_interrupted) continues them. No conversation can be
    /// opened afterwards. Calls in flight are lost: see [`drain`](Self::drain).
    pub async fn shut_down(&self) {
        self.shutdown.cancel();
        let closing = self
            .conversations
            .running()
            .into_iter()
            .map(|id| async move {
                if let Err(error) = self.conversations.close(&id, CloseReason::Shutdown).await {
                    tracing::warn!(conversation = %id, %error, "cannot close a conversation");
                }
            });
        stream::iter(closing)
            .buffer_unordered(CONCURRENT_CHANGES)
            .collect::<()>()
            .await;
    }

    /// Changes a conversation, one change at a time. Completes the change even if the caller is
    /// cancelled, for example because its client disconnects.
    async fn change<T, F>(
        self: &Arc<Self>,
        id: &ConversationId,
        change: impl FnOnce(Arc<Self>, ConversationId) -> F + Send + 'static,
    ) -> Result<T, ConversationsError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ConversationsError>> + Send + 'static,
    {
        let awaited = Awaited::default();
        self.start_change(id, awaited, |this, id, _| change(this, id))
            .await
    }

    /// Changes a conversation like [`change`](Self::change), but abandons the change if the caller
    /// is cancelled while it waits for other changes or for a slot: what it holds, such as a
    /// message, counts in the limits of its client only as long as the client waits.
    async fn change_awaited<T, F>(
        self: &Arc<Self>,
        id: &ConversationId,
        change: impl FnOnce(Arc<Self>, ConversationId, Awaited) -> F + Send + 'static,
    ) -> Result<T, ConversationsError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ConversationsError>> + Send + 'static,
    {
        let awaited = Awaited::default();
        let _abandon_on_drop = awaited.abandoned.clone().drop_guard();
        self.start_change(id, awaited, change).await
    }

    async fn start_change<T, F>(
        self: &Arc<Self>,
        id: &ConversationId,
        awaited: Awaited,
        change: impl FnOnce(Arc<Self>, ConversationId, Awaited) -> F + Send + 'static,
    ) -> Result<T, ConversationsError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ConversationsError>> + Send + 'static,
    {
        let (this, id) = (Arc::clone(self), id.clone());
        let changing = self.tasks.spawn(async move {
            let lock = this.change_lock(&id);
            let waiting = async { Ok(lock.lock().await) };
            let _changing = awaited.while_awaited(waiting).await?;
            change(Arc::clone(&this), id, awaited).await
        });
        changing
            .await
            .map_err(|panic| HostError::Failed(panic.into()))?
    }

    /// Returns the lock under which a conversation is changed.
    fn change_lock(&self, id: &ConversationId) -> Arc<tokio::sync::Mutex<()>> {
        let mut changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        changing.retain(|_, lock| lock.strong_count() > 0);
        let lock = changing.get(id).and_then(Weak::upgrade).unwrap_or_default();
        changing.insert(id.clone(), Arc::downgrade(&lock));
        lock
    }

    /// Runs a stored conversation that is being changed, so that a command can be applied to it.
    /// Returns the event that the command caused when it was sent before.
    async fn open(
        self: &Arc<Self>,
        id: &ConversationId,
        request: &CommandRequest,
        awaited: &Awaited,
    ) -> Result<Option<EventId>, ConversationsError> {
        let owner = self.conversations.owner(id).await?;
        if request.id.is_some() {
            // One that was applied before needs no slot.
            let state = self.latest_state(id).await?;
            if let Some(event) = applied_before(&state, request) {
                return Ok(Some(event));
            }
        }
        let slot = awaited.while_awaited(self.acquire_slot(&owner)).await?;
        let mut stored = self.conversations.open(id).await?;
        if let Some(event) = applied_before(&stored.state, request) {
            return Ok(Some(event));
        }
        stored.check(&request.command)?;
        commands::check_room(id, &stored.state, &request.command)?;
        let ComposedConversation {
            parts,
            confirmation,
        } = self.factory.compose_stored(&mut stored).await?;
        let is_resumed = stored.is_held() && request.command != UserCommand::AwaitMessage;
        let confirmation = is_resumed.then_some(confirmation);
        self.conversations
            .resume(stored, parts, confirmation)
            .await?;
        self.close_when_idle(id, slot).await?;
        Ok(None)
    }

    /// Keeps a conversation whose log has failed from being resumed.
    fn forget_failure(&self, id: &ConversationId) {
        self.failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(id);
    }

    /// Stops the agent and closes the conversation. The conversation is being changed.
    async fn stop_agent(&self, id: &ConversationId) -> Result<(), ConversationsError> {
        self.forget_failure(id);
        if !self.conversations.is_running(id) {
            return self.check_not_running_elsewhere(id).await;
        }
        self.conversations.submit(id, UserCommand::Stop)?;
        let stopped = self.conversations.wait_for(id, |state| !state.is_working());
        if timeout(STOP_GRACE_PERIOD, stopped).await.is_err() {
            tracing::warn!(conversation = %id, "the agent does not stop: closing its conversation");
        }
        self.close(id, CloseReason::Interrupted).await
    }

    /// Checks that no other process runs a conversation that does not run here.
    async fn check_not_running_elsewhere(
        &self,
        id: &ConversationId,
    ) -> Result<(), ConversationsError> {
        match self.conversations.entry(id).await? {
            None => Err(ConversationsError::Unknown(id.clone())),
            Some(entry) if entry.is_locked => Err(ConversationsError::Locked(id.clone())),
            Some(_) => Ok(()),
        }
    }

    /// Waits until the state shows that an input is stored. If the conversation fails instead,
    /// closes it and returns why.
    async fn wait_until_stored(
        &self,
        id: &ConversationId,
        is_stored: impl Fn(&State) -> bool,
    ) -> Result<(), ConversationsError> {
        let state = self.conversations.wait_for(id, &is_stored).await;
        if state.is_some_and(|state| is_stored(&state)) {
            return Ok(());
        }
        self.close_failed(id).await?;
        Err(ConversationsError::NotRunning(id.clone()))
    }

    /// Deletes a new conversation that could not be stored as a whole. Its client sends the request
    /// again, or gives up.
    async fn discard(&self, id: &ConversationId) {
        self.forget_failure(id);
        let find_provider =
            |runtime: &str, host: Option<&str>| self.factory.provider(runtime, host);
        let mode = DeleteMode::KeepOnFailure;
        match self
            .conversations
            .delete(id, mode, &find_provider, &mut |_| {})
            .await
        {
            Ok(()) | Err(ConversationsError::Unknown(_)) => {}
            Err(error) => {
                tracing::warn!(conversation = %id, error = &error as &dyn std::error::Error, "cannot discard a conversation");
            }
        }
    }

    /// Closes a conversation that is idle or has failed, and returns why it failed. One whose
    /// log could not be appended to is resumed later: see [`resume_failed`](Self::resume_failed).
    async fn close_failed(&self, id: &ConversationId) -> Result<(), ConversationsError> {
        let closed = self.close(id, CloseReason::Idle).await;
        if let Err(ConversationsError::Conversation(ConversationError::Log(
            _,
            StoreError::Full { .. } | StoreError::Storage { .. },
        ))) = &closed
        {
            self.failed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(id.clone());
        }
        closed
    }

    /// Closes a running conversation. Afterwards any host can open it.
    async fn close(
        &self,
        id: &ConversationId,
        reason: CloseReason,
    ) -> Result<(), ConversationsError> {
        let closed = self.conversations.close(id, reason).await.map(drop);
        if timeout(RELEASE_TIMEOUT, self.conversations.wait_until_released(id))
            .await
            .is_err()
        {
            tracing::warn!(conversation = %id, "the lock of a closed conversation is not released yet");
        }
        closed
    }

    /// Returns the right to run a conversation of an owner. If the maximum number runs, closes the
    /// one that has waited longest for its user, and waits in a queue if all are working.
    async fn acquire_slot(self: &Arc<Self>, owner: &Owner) -> Result<Slot, ConversationsError> {
        if self.shutdown.is_cancelled() {
            return Err(ConversationsError::ShuttingDown);
        }
        let occupied = match self.slots.try_acquire(owner) {
            Ok(slot) => return Ok(slot),
            Err(occupied) => occupied,
        };
        let (max, closed) = match occupied {
            Occupied::Server => (self.options.max_running, &None),
            Occupied::User => (self.options.max_running_per_user, owner),
        };
        let too_many = || ConversationsError::TooManyRunning(max);
        // In the queue before another one is closed, because its slot is for the first in the
        // queue.
        let mut waiting = self.slots.enqueue(owner).ok_or_else(too_many)?;
        let deadline = Instant::now() + QUEUE_TIMEOUT;
        while Instant::now() < deadline {
            // Closes another one in each round, because one of them may be idle by now.
            let round = async {
                self.close_longest_idle(closed.as_ref()).await;
                sleep(QUEUE_INTERVAL).await;
            };
            tokio::select! {
                biased;
                slot = &mut waiting => return slot.map_err(|_| ConversationsError::ShuttingDown),
                () = self.shutdown.cancelled() => return Err(ConversationsError::ShuttingDown),
                () = round => {}
            }
        }
        Err(too_many())
    }

    /// Closes the conversation that has waited longest for its user, of one user or of all. Does
    /// nothing if all are working.
    async fn close_longest_idle(self: &Arc<Self>, owner: Option<&UserId>) {
        while let Some(id) = self.conversations.longest_idle(owner) {
            let close = |this: Arc<Self>, id| async move { Ok(this.close_idle(&id).await) };
            if self.change(&id, close).await.unwrap_or(false) {
                return;
            }
        }
    }

    /// Closes a conversation if it is idle or has failed. Returns whether it did. The
    /// conversation is being changed.
    async fn close_idle(&self, id: &ConversationId) -> bool {
        if !self.conversations.is_idle(id) {
            return false;
        }
        if let Err(error) = self.close_failed(id).await {
            tracing::warn!(conversation = %id, error = &error as &dyn std::error::Error, "closed a failed conversation");
        }
        true
    }

    /// Returns the state of a running conversation. `None` if it does not run in this process.
    pub fn state(&self, id: &ConversationId) -> Option<Arc<State>> {
        self.conversations.state(id)
    }

    /// Returns the state of a running conversation with this event, which a stream can have before
    /// it. `None` if it does not run.
    pub async fn state_with(&self, id: &ConversationId, event: EventId) -> Option<Arc<State>> {
        self.conversations
            .wait_for(id, |state| state.next_id > event)
            .await
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

/// Whether the caller of a change still waits for it. By default it always does.
#[derive(Default)]
struct Awaited {
    abandoned: CancellationToken,
}

impl Awaited {
    /// Waits as long as the caller does.
    async fn while_awaited<T>(
        &self,
        waiting: impl Future<Output = Result<T, ConversationsError>>,
    ) -> Result<T, ConversationsError> {
        let waited = self.abandoned.run_until_cancelled(waiting).await;
        waited.unwrap_or(Err(ConversationsError::Abandoned))
    }
}

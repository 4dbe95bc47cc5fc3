//! Handle to a conversation that is open in this process.
//!
//! Sends requests to the conversation's task and shows its state; decides nothing. When the handle
//! is dropped or closed, the task ends. The log stays, and what runs in the sandbox keeps running
//! unless the sandbox is removed.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use protocol::action::MessageAction;
use protocol::record::ConversationStarted;
use protocol::{CommandRequest, ConversationId, EventId};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use super::error::ConversationError;
use super::input::{ConversationStart, InputKind};
use super::live::LiveUpdate;
use super::mailbox::{SandboxDisposition, TaskRequest};
use super::parts::EngineParts;
use super::state::State;
use super::task::Task;
use crate::agent::Agents;
use crate::events::EventLog;
use crate::llm::Llm;
use crate::sandbox::Sandbox;
use crate::title::first_line;

/// Maximum number of queued requests. A user sends few; if the mailbox is full, the sender gets an
/// error.
const MAX_QUEUED_REQUESTS: usize = 64;

/// Maximum number of live notices that a subscriber may lag behind. The observation has the output
/// that it misses.
const MAX_LIVE_LAG: usize = 512;

/// A handle to a conversation that is open in this process.
pub struct Conversation {
    id: ConversationId,
    mailbox: mpsc::Sender<TaskRequest>,
    log: Arc<EventLog>,
    live: broadcast::Sender<LiveUpdate>,
    /// Receiver for the first subscriber. Created with the task, because an action that is attached
    /// to may send output before any client can subscribe.
    first_live: Mutex<Option<broadcast::Receiver<LiveUpdate>>>,
    state: watch::Receiver<Arc<State>>,
    sandbox: watch::Receiver<Option<Arc<dyn Sandbox>>>,
    /// `None` once the conversation is closed.
    task: Mutex<Option<JoinHandle<Result<(), ConversationError>>>>,
}

/// A command that is being applied. Its output is what [`Conversation::apply`] returns.
#[derive(Debug)]
pub struct PendingCommand {
    conversation: ConversationId,
    event: oneshot::Receiver<Option<EventId>>,
}

impl Future for PendingCommand {
    type Output = Result<Option<EventId>, ConversationError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let event = Pin::new(&mut self.event).poll(context);
        event.map_err(|_| ConversationError::Closed(self.conversation.clone()))
    }
}

impl Conversation {
    /// Starts a new conversation without a title and a message, and the creation of its sandbox.
    ///
    /// # Errors
    /// [`ConversationError::Log`] if the log of that id cannot be opened or is not empty.
    pub async fn start(
        parts: EngineParts,
        id: ConversationId,
        started: ConversationStarted,
    ) -> Result<Self, ConversationError> {
        Self::start_with(parts, id, started, None, None).await
    }

    /// Starts a new conversation with the user's first message, and the creation of its sandbox.
    ///
    /// # Errors
    /// [`ConversationError::Log`] if the log of that id cannot be opened or is not empty.
    pub async fn start_with(
        parts: EngineParts,
        id: ConversationId,
        started: ConversationStarted,
        title: Option<&str>,
        message: Option<MessageAction>,
    ) -> Result<Self, ConversationError> {
        let start = ConversationStart {
            started,
            system: parts.agents.own.agent.system(),
            title: title.map(first_line),
            message,
        };
        Self::open(parts, id, InputKind::Start(Box::new(start))).await
    }

    /// Opens a conversation of an earlier process, and resumes its unfinished work.
    ///
    /// # Errors
    /// [`ConversationError::Unknown`] if no conversation has that id, [`ConversationError::Log`] if
    /// its log cannot be read.
    pub async fn recover(
        parts: EngineParts,
        id: ConversationId,
    ) -> Result<Self, ConversationError> {
        let conversation = Self::open(parts, id, InputKind::Recovered).await?;
        if conversation.state().started.is_none() {
            return Err(ConversationError::Unknown(conversation.id));
        }
        Ok(conversation)
    }

    async fn open(
        parts: EngineParts,
        id: ConversationId,
        first: InputKind,
    ) -> Result<Self, ConversationError> {
        let (log, events) = EventLog::open(Arc::clone(&parts.store), id.clone())
            .await
            .map_err(|error| ConversationError::Log(id.clone(), error))?;
        let log = Arc::new(log);
        let mut state = State::fold(events.iter().map(Arc::as_ref));
        state.schedule = parts.new_schedule();
        let (mailbox, requests) = mpsc::channel(MAX_QUEUED_REQUESTS);
        let (live, first_live) = broadcast::channel(MAX_LIVE_LAG);
        let (published_state, state_receiver) = watch::channel(Arc::new(state.clone()));
        let task = Task::new(
            parts,
            id.clone(),
            Arc::clone(&log),
            live.clone(),
            published_state,
            state,
            events,
        );
        let sandbox = task.watch_sandbox();
        let span = tracing::info_span!("conversation", %id);
        let task = tokio::spawn(task.run(requests, first).instrument(span));
        let (first_live, task) = (Mutex::new(Some(first_live)), Mutex::new(Some(task)));
        Ok(Self {
            id,
            mailbox,
            log,
            live,
            first_live,
            state: state_receiver,
            sandbox,
            task,
        })
    }

    /// Returns the conversation's id.
    pub fn id(&self) -> &ConversationId {
        &self.id
    }

    /// Returns the log, which is read by cursor.
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// Subscribes to live notices: the first subscriber from when the conversation was opened,
    /// later ones from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<LiveUpdate> {
        let first = self
            .first_live
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        first.unwrap_or_else(|| self.live.subscribe())
    }

    /// Returns the latest state, whose events are already in the log.
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.borrow())
    }

    /// Returns the sandbox for direct access to its files and programs, while it is connected. The
    /// log does not record such access.
    pub fn sandbox(&self) -> Option<Arc<dyn Sandbox>> {
        self.sandbox.borrow().clone()
    }

    /// Whether the task has ended. Without a call of [`close`](Self::close), it ends if the log
    /// cannot be appended to.
    pub fn is_closed(&self) -> bool {
        self.mailbox.is_closed()
    }

    /// Waits for a state that matches. Returns the last state if the conversation ends first.
    pub async fn wait_for(&self, mut matches: impl FnMut(&State) -> bool) -> Arc<State> {
        let mut state = self.state.clone();
        let reached = state
            .wait_for(|state| matches(state))
            .await
            .map(|state| Arc::clone(&state));
        reached.unwrap_or_else(|_| self.state())
    }

    /// Applies a command of the user. Returns the event that it caused, once that is stored. If the
    /// command was sent before, returns the event that it caused then. `None` if there was nothing
    /// to do.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub async fn apply(
        &self,
        request: impl Into<CommandRequest>,
    ) -> Result<Option<EventId>, ConversationError> {
        self.submit(request)?.await
    }

    /// Sends a command of the user, which is applied also if the result is dropped.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn submit(
        &self,
        request: impl Into<CommandRequest>,
    ) -> Result<PendingCommand, ConversationError> {
        self.submit_with(request.into(), None)
    }

    /// Sends a [`SetModel`](protocol::UserCommand::SetModel) with agents that have the new model.
    /// They replace the models of the agents so far, which stay what they are otherwise.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn submit_model(
        &self,
        request: CommandRequest,
        agents: Agents,
    ) -> Result<PendingCommand, ConversationError> {
        self.submit_with(request, Some(Box::new(agents)))
    }

    fn submit_with(
        &self,
        request: CommandRequest,
        agents: Option<Box<Agents>>,
    ) -> Result<PendingCommand, ConversationError> {
        let (applied, event) = oneshot::channel();
        self.send(TaskRequest::Apply {
            request: Box::new(request),
            agents,
            applied,
        })?;
        let conversation = self.id.clone();
        Ok(PendingCommand {
            conversation,
            event,
        })
    }

    /// Requests a title for a conversation that starts with a message. A model is called
    /// concurrently with the agents and within the budget. An existing title stays.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn request_title(
        &self,
        llm: Arc<dyn Llm>,
        message: String,
    ) -> Result<(), ConversationError> {
        self.send(TaskRequest::FindTitle { llm, message })
    }

    /// Starts nothing any more, and returns once no model and no tool server is being called, whose
    /// results would be lost. What runs in the sandbox continues there. All that is due is started
    /// when the log is recovered.
    pub async fn drain(&self) {
        let (drained, ended) = oneshot::channel();
        if self
            .mailbox
            .send(TaskRequest::Drain { drained })
            .await
            .is_ok()
        {
            // Fails if the task has ended.
            let _ = ended.await;
        }
    }

    /// Ends the task, and removes, pauses or keeps the sandbox. The log stays.
    ///
    /// # Errors
    /// The reason why the task ended earlier, if it did; [`ConversationError::Closed`] if it was
    /// already closed.
    pub async fn close(&self, sandbox: SandboxDisposition) -> Result<(), ConversationError> {
        let task = self
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let task = task.ok_or_else(|| ConversationError::Closed(self.id.clone()))?;
        // If it cannot be sent, the task has already ended, and its result has the reason.
        let _ = self.mailbox.send(TaskRequest::Close { sandbox }).await;
        task.await
            .unwrap_or_else(|_| Err(ConversationError::Panicked(self.id.clone())))
    }

    fn send(&self, request: TaskRequest) -> Result<(), ConversationError> {
        self.mailbox.try_send(request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ConversationError::Busy(self.id.clone()),
            mpsc::error::TrySendError::Closed(_) => ConversationError::Closed(self.id.clone()),
        })
    }
}

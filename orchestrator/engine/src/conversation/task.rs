//! The task that owns a conversation: it feeds inputs to [`transition`] and performs the effects.
//!
//! One task a conversation; nobody else writes its log. Everything it starts runs in its own set of tasks and ends
//! with it. It ends when it is closed, when the last handle is dropped, or when the log cannot be appended to: what
//! is not in the log has not happened.

use std::sync::Arc;
use std::time::Duration;

use protocol::action::MessageAction;
use protocol::record::{ConversationStarted, SandboxLeased};
use protocol::sandbox_api::ActionRequest;
use protocol::{ActionId, ConversationId, Event, EventId, Observation};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::input::{Begin, Effect, Input, InputKind};
use super::state::State;
use super::transition::transition;
use crate::agent::{Agent, Step};
use crate::clock;
use crate::events::{EventLog, EventStore, StoreError};
use crate::llm::{Llm, LlmError, LlmProgress};
use crate::sandbox::{OutputChunk, Sandbox, SandboxError, SandboxProvider, SandboxSpec, StartProgress};
use crate::view::View;

/// Commands that wait to be heard. A user sends few; a full mailbox is told to the sender.
const MAILBOX: usize = 64;

/// Live notices that a listener may be behind. Output that it misses is in the observation too.
const LIVE: usize = 1024;

/// How often an action that should end is told so, in case the first word was lost with a connection.
const CANCEL_AGAIN: Duration = Duration::from_secs(1);

/// Everything a conversation needs of the world.
#[derive(Clone)]
pub struct Parts {
    /// Where the log is kept.
    pub store: Arc<dyn EventStore>,
    /// The model.
    pub llm: Arc<dyn Llm>,
    /// The agent.
    pub agent: Arc<dyn Agent>,
    /// Where sandboxes come from.
    pub provider: Arc<dyn SandboxProvider>,
    /// What sandbox is wanted.
    pub spec: SandboxSpec,
}

/// What happens between events: shown to who listens now, kept nowhere.
#[derive(Debug, Clone, PartialEq)]
pub enum Live {
    /// Output of the action that is being performed.
    Output {
        /// The action.
        action: EventId,
        /// The bytes, as the terminal gave them.
        bytes: Vec<u8>,
    },
    /// Output that came too fast to be held.
    OutputGap {
        /// The action.
        action: EventId,
        /// How much is missing, in bytes.
        bytes: u64,
    },
    /// The sandbox is being placed.
    Start(StartProgress),
    /// The model is being called.
    Model(LlmProgress),
}

/// Why a conversation cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ConversationError {
    /// Its log cannot be read or appended to.
    #[error("the log of conversation {0}")]
    Log(ConversationId, #[source] StoreError),
    /// There is no such conversation.
    #[error("there is no conversation {0}")]
    Unknown(ConversationId),
    /// A part of it panicked: a defect of ours.
    #[error("a task of conversation {0} panicked")]
    Panicked(ConversationId),
    /// Its task has ended.
    #[error("conversation {0} is closed")]
    Closed(ConversationId),
    /// It has more to hear than it can.
    #[error("conversation {0} is too busy to be told more")]
    Busy(ConversationId),
}

/// A handle to a conversation that is open in this process.
pub struct Conversation {
    id: ConversationId,
    mailbox: mpsc::Sender<Command>,
    log: Arc<EventLog>,
    live: broadcast::Sender<Live>,
    state: watch::Receiver<Arc<State>>,
    task: JoinHandle<Result<(), ConversationError>>,
}

enum Command {
    Tell(InputKind),
    Close { remove_sandbox: bool },
}

impl Conversation {
    /// Begins a new conversation: its sandbox is placed at once.
    ///
    /// # Errors
    /// When the log of that id cannot be opened or is not empty.
    pub async fn begin(
        parts: Parts,
        id: ConversationId,
        started: ConversationStarted,
    ) -> Result<Self, ConversationError> {
        let begin = Begin { started, system: parts.agent.system() };
        Self::open(parts, id, InputKind::Begin(Box::new(begin))).await
    }

    /// Opens a conversation of an earlier process; what it left undone goes on.
    ///
    /// # Errors
    /// When there is none of that id, or its log cannot be read.
    pub async fn recover(parts: Parts, id: ConversationId) -> Result<Self, ConversationError> {
        let conversation = Self::open(parts, id, InputKind::Recovered).await?;
        if conversation.state().started.is_none() {
            return Err(ConversationError::Unknown(conversation.id));
        }
        Ok(conversation)
    }

    async fn open(parts: Parts, id: ConversationId, first: InputKind) -> Result<Self, ConversationError> {
        let (log, events) = EventLog::open(Arc::clone(&parts.store), id.clone())
            .await
            .map_err(|error| ConversationError::Log(id.clone(), error))?;
        let log = Arc::new(log);
        let state = State::fold(events.iter().map(Arc::as_ref));
        let (mailbox, commands) = mpsc::channel(MAILBOX);
        let (live, _) = broadcast::channel(LIVE);
        let (show_state, shown_state) = watch::channel(Arc::new(state.clone()));
        let task = Task {
            parts,
            id: id.clone(),
            log: Arc::clone(&log),
            live: live.clone(),
            show_state,
            state,
            events,
            work: JoinSet::new(),
            step: None,
            slot: Slot::Absent,
            waiting: None,
            performing: None,
        };
        let task = tokio::spawn(task.run(commands, first));
        Ok(Self { id, mailbox, log, live, state: shown_state, task })
    }

    /// The conversation's id.
    pub fn id(&self) -> &ConversationId {
        &self.id
    }

    /// The log, to read it by cursor.
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// What happens between events, from now on.
    pub fn live(&self) -> broadcast::Receiver<Live> {
        self.live.subscribe()
    }

    /// The state now. What it says is in the log already.
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.borrow())
    }

    /// Waits for a state. Returns the last one if the conversation ends before.
    pub async fn wait_for(&self, mut is_it: impl FnMut(&State) -> bool) -> Arc<State> {
        let mut state = self.state.clone();
        let reached = state.wait_for(|state| is_it(state)).await.map(|state| Arc::clone(&state));
        reached.unwrap_or_else(|_| self.state())
    }

    /// Says something as the user.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn say(&self, message: MessageAction) -> Result<(), ConversationError> {
        self.tell(InputKind::UserMessage(message))
    }

    /// Ends what is going on. The action that is being performed is killed; its observation still comes.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn stop(&self) -> Result<(), ConversationError> {
        self.tell(InputKind::UserStop)
    }

    /// Lets the agent go on, perhaps past its limit of steps.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn resume(&self, max_iterations: Option<u32>) -> Result<(), ConversationError> {
        self.tell(InputKind::UserResume { max_iterations })
    }

    /// Ends the task, and its sandbox if asked. What is in the log stays.
    ///
    /// # Errors
    /// Why the task ended before, if it did.
    pub async fn close(self, remove_sandbox: bool) -> Result<(), ConversationError> {
        // If it cannot be sent the task has ended already; its result says why.
        let _ = self.mailbox.send(Command::Close { remove_sandbox }).await;
        match self.task.await {
            Ok(result) => result,
            Err(_) => Err(ConversationError::Panicked(self.id)),
        }
    }

    fn tell(&self, input: InputKind) -> Result<(), ConversationError> {
        self.mailbox.try_send(Command::Tell(input)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ConversationError::Busy(self.id.clone()),
            mpsc::error::TrySendError::Closed(_) => ConversationError::Closed(self.id.clone()),
        })
    }
}

/// The sandbox as the task holds it.
enum Slot {
    Absent,
    /// It is being placed or reached.
    Awaited,
    Held(Arc<dyn Sandbox>),
}

/// What something that the task started ended with.
enum Done {
    Step { seen: EventId, result: Result<Box<Step>, LlmError> },
    Sandbox(Result<Box<dyn Sandbox>, SandboxError>),
    Action { action: EventId, result: Result<Observation, SandboxError> },
}

/// An action that is to be performed, and the word that it should end.
struct Performance {
    action: EventId,
    request: ActionRequest,
    cancel: CancellationToken,
}

struct Task {
    parts: Parts,
    id: ConversationId,
    log: Arc<EventLog>,
    live: broadcast::Sender<Live>,
    show_state: watch::Sender<Arc<State>>,
    state: State,
    events: Vec<Arc<Event>>,
    work: JoinSet<Done>,
    /// The step that is being taken, by what it has seen. Another step's result is of no use.
    step: Option<(EventId, AbortHandle)>,
    slot: Slot,
    /// The action that waits for the sandbox.
    waiting: Option<Performance>,
    /// The action that is being performed or waits.
    performing: Option<(EventId, CancellationToken)>,
}

impl Task {
    async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        first: InputKind,
    ) -> Result<(), ConversationError> {
        self.take(first).await?;
        loop {
            let command = tokio::select! {
                biased;
                command = commands.recv() => command,
                Some(done) = self.work.join_next() => {
                    match done {
                        Ok(done) => self.hear(done).await?,
                        Err(error) if error.is_cancelled() => {}
                        Err(_) => return Err(ConversationError::Panicked(self.id)),
                    }
                    continue;
                }
            };
            match command {
                Some(Command::Tell(input)) => self.take(input).await?,
                Some(Command::Close { remove_sandbox }) => return self.close(remove_sandbox).await,
                None => return Ok(()),
            }
        }
    }

    async fn close(mut self, remove_sandbox: bool) -> Result<(), ConversationError> {
        let lease = self.state.lease.clone().filter(|_| remove_sandbox);
        // First, so that nothing is performed in what is being removed.
        self.work.shutdown().await;
        if let Some(lease) = lease {
            match self.parts.provider.destroy(&lease.sandbox_id).await {
                Ok(()) => self.record(InputKind::SandboxRemoved).await?,
                Err(error) => tracing::warn!(sandbox = %lease.sandbox_id, %error, "removing the sandbox"),
            }
        }
        Ok(())
    }

    async fn hear(&mut self, done: Done) -> Result<(), ConversationError> {
        match done {
            Done::Step { seen, result } => {
                if self.step.take_if(|(current, _)| *current == seen).is_some() {
                    self.take(InputKind::StepDone { seen, result }).await?;
                }
                Ok(())
            }
            Done::Sandbox(Ok(sandbox)) => {
                let sandbox: Arc<dyn Sandbox> = Arc::from(sandbox);
                self.slot = Slot::Held(Arc::clone(&sandbox));
                // The lease is in the log before anything is performed under it.
                self.take(InputKind::SandboxReady(sandbox.lease().clone())).await?;
                if let Some(waiting) = self.waiting.take() {
                    self.perform(sandbox, waiting);
                }
                Ok(())
            }
            Done::Sandbox(Err(error)) => self.lose_sandbox(&error).await,
            Done::Action { action, result } => {
                self.performing = None;
                match result {
                    Ok(observation) => self.end_action(action, observation).await,
                    Err(error @ SandboxError::Lost { .. }) => self.lose_sandbox(&error).await,
                    Err(error) => {
                        let observation = Observation::error(error.to_string(), "ACTION$FAILED");
                        self.end_action(action, observation).await
                    }
                }
            }
        }
    }

    async fn end_action(
        &mut self,
        action: EventId,
        observation: Observation,
    ) -> Result<(), ConversationError> {
        self.take(InputKind::ActionDone { action, observation: Box::new(observation) }).await
    }

    async fn lose_sandbox(&mut self, error: &SandboxError) -> Result<(), ConversationError> {
        self.slot = Slot::Absent;
        self.waiting = None;
        self.performing = None;
        match error {
            SandboxError::Lost { detail } => {
                self.take(InputKind::SandboxLost { detail: detail.clone() }).await
            }
            other => self.take(InputKind::SandboxFailed { reason: describe(other) }).await,
        }
    }

    /// Decides on an input and performs what was decided.
    async fn take(&mut self, input: InputKind) -> Result<(), ConversationError> {
        for effect in self.decide(input).await? {
            self.perform_effect(effect);
        }
        Ok(())
    }

    /// Decides on an input and keeps only its events: the conversation is being closed.
    async fn record(&mut self, input: InputKind) -> Result<(), ConversationError> {
        self.decide(input).await.map(drop)
    }

    /// The effects of an input, its events already appended and shown.
    async fn decide(&mut self, input: InputKind) -> Result<Vec<Effect>, ConversationError> {
        let state = std::mem::take(&mut self.state);
        let (state, mut effects) = transition(state, Input { at: clock::now(), kind: input });
        self.state = state;
        if let Some(Effect::Append(_)) = effects.first() {
            let Effect::Append(events) = effects.remove(0) else { return Ok(effects) };
            let appended = self.log.append(&events).await;
            appended.map_err(|error| ConversationError::Log(self.id.clone(), error))?;
            self.events.extend(events.into_iter().map(Arc::new));
        }
        self.show_state.send_replace(Arc::new(self.state.clone()));
        Ok(effects)
    }

    fn perform_effect(&mut self, effect: Effect) {
        match effect {
            // Done by `decide`: it comes first, and nothing may begin before it is durable.
            Effect::Append(_) => {}
            Effect::Step { seen } => self.take_step(seen),
            Effect::AbandonStep => {
                if let Some((_, step)) = self.step.take() {
                    step.abort();
                }
            }
            Effect::Place => self.place(),
            Effect::Attach(lease) => self.attach(*lease),
            Effect::Execute { action, request } => self.execute(action, *request),
            Effect::Forget { action } => {
                self.waiting.take_if(|waiting| waiting.action == action);
                self.performing.take_if(|(current, _)| *current == action);
            }
            Effect::Cancel { action } => {
                if let Some((_, cancel)) = self.performing.as_ref().filter(|(current, _)| *current == action)
                {
                    cancel.cancel();
                }
            }
        }
    }

    fn take_step(&mut self, seen: EventId) {
        let view = View::whole(self.events.clone());
        let Parts { agent, llm, .. } = self.parts.clone();
        let live = self.live.clone();
        let handle = self.work.spawn(async move {
            // Nobody may be listening: that is no failure.
            let on_progress = move |progress| drop(live.send(Live::Model(progress)));
            let result = agent.step(&view, llm.as_ref(), &on_progress).await;
            Done::Step { seen, result: result.map(Box::new) }
        });
        self.step = Some((seen, handle));
    }

    fn place(&mut self) {
        if matches!(self.slot, Slot::Absent) {
            self.slot = Slot::Awaited;
            let Parts { provider, spec, .. } = self.parts.clone();
            let live = self.live.clone();
            self.work.spawn(async move {
                let on_progress = move |progress| drop(live.send(Live::Start(progress)));
                Done::Sandbox(provider.create(&spec, &on_progress).await)
            });
        }
    }

    fn attach(&mut self, lease: SandboxLeased) {
        if matches!(self.slot, Slot::Absent) {
            self.slot = Slot::Awaited;
            let provider = Arc::clone(&self.parts.provider);
            self.work.spawn(async move { Done::Sandbox(provider.attach(&lease).await) });
        }
    }

    fn execute(&mut self, action: EventId, request: ActionRequest) {
        let cancel = CancellationToken::new();
        self.performing = Some((action, cancel.clone()));
        let performance = Performance { action, request, cancel };
        match &self.slot {
            Slot::Held(sandbox) => self.perform(Arc::clone(sandbox), performance),
            Slot::Absent | Slot::Awaited => self.waiting = Some(performance),
        }
    }

    fn perform(&mut self, sandbox: Arc<dyn Sandbox>, performance: Performance) {
        let Performance { action, request, cancel } = performance;
        let id = ActionId::of(&self.id, action);
        let live = self.live.clone();
        self.work.spawn(async move {
            let on_output = move |chunk: OutputChunk<'_>| {
                drop(live.send(match chunk {
                    OutputChunk::Bytes { bytes, .. } => Live::Output { action, bytes: bytes.to_vec() },
                    OutputChunk::Gap { from, to } => {
                        Live::OutputGap { action, bytes: to.saturating_sub(from) }
                    }
                }));
            };
            let result = tokio::select! {
                result = sandbox.execute(&id, &request, &on_output) => result,
                never = cancel_when_told(sandbox.as_ref(), &id, &cancel) => match never {},
            };
            Done::Action { action, result }
        });
    }
}

/// Waits for the word, then says it until it is heard: this future is dropped when the action has ended.
async fn cancel_when_told(
    sandbox: &dyn Sandbox,
    id: &ActionId,
    cancel: &CancellationToken,
) -> std::convert::Infallible {
    cancel.cancelled().await;
    loop {
        if let Err(error) = sandbox.cancel(id).await {
            tracing::warn!(action = %id, %error, "cancelling an action");
        }
        tokio::time::sleep(CANCEL_AGAIN).await;
    }
}

/// An error with its causes, and the end of the sandbox's logs where there are some.
fn describe(error: &SandboxError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    if let SandboxError::Start { logs, .. } = error
        && !logs.trim().is_empty()
    {
        text.push_str(&format!("\nthe sandbox wrote:\n{}", logs.trim_end()));
    }
    text
}

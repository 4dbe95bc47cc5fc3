//! A conversation that is open in this process, as the rest of the program holds it.
//!
//! Says what the user says and shows what happens; decides nothing. The conversation ends when the handle is dropped or
//! closed: what is in the log stays, and what runs in the sandbox runs on unless the sandbox is removed.

use std::sync::{Arc, Mutex, PoisonError};

use protocol::action::MessageAction;
use protocol::record::ConversationStarted;
use protocol::{ConversationId, EventId};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use super::input::{Begin, InputKind, Terms};
use super::state::{AgentId, State};
use super::stuck::Recovery;
use super::task::Task;
use crate::agent::{Team, TeamMember};
use crate::events::{EventLog, EventStore, StoreError};
use crate::llm::{Llm, LlmProgress};
use crate::memory::Memory;
use crate::sandbox::{SandboxProvider, SandboxSpec, StartProgress};
use crate::security::SecurityAnalyzer;
use crate::title::first_line;

/// Commands that wait to be heard. A user sends few; a full mailbox is told to the sender.
const MAILBOX: usize = 64;

/// Live notices that a listener may be behind. Output that it misses is in the observation too.
const LIVE: usize = 512;

/// Everything a conversation needs of the world.
#[derive(Clone)]
pub struct Parts {
    /// Where the log is kept.
    pub store: Arc<dyn EventStore>,
    /// Right to append to the log. Dropped when the conversation's task has ended, which may be after its handles.
    pub write_lock: Arc<dyn Send + Sync>,
    /// The conversation's own agent.
    pub own: TeamMember,
    /// Whom tasks can be handed on to.
    pub team: Arc<Team>,
    /// Where sandboxes come from.
    pub provider: Arc<dyn SandboxProvider>,
    /// What sandbox is wanted.
    pub spec: SandboxSpec,
    /// Who judges actions; nobody: their risk is what the agent says.
    pub analyzer: Option<Arc<dyn SecurityAnalyzer>>,
    /// What the agent is told beside what the user says: the user's own files, to which the workspace's are added; nothing:
    /// it is told nothing.
    pub memory: Option<Memory>,
}

impl Parts {
    /// Ends the tool servers of all agents, with all that came of them.
    pub async fn shut_down_tool_servers(&self) {
        let members = std::iter::once(&self.own).chain(self.team.values());
        futures_util::future::join_all(members.map(|member| member.tool_servers.shut_down())).await;
    }
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
    /// A model is being called.
    Model {
        /// By which agent.
        agent: AgentId,
        /// What happens.
        progress: LlmProgress,
    },
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
    /// Receives from the start, for the first listener: what is attached to may send output before anyone can listen.
    first_live: Mutex<Option<broadcast::Receiver<Live>>>,
    state: watch::Receiver<Arc<State>>,
    /// `None` once the conversation is closed.
    task: Mutex<Option<JoinHandle<Result<(), ConversationError>>>>,
}

/// What the handle tells the task.
pub(super) enum Command {
    Input(InputKind),
    FindTitle { llm: Arc<dyn Llm>, message: String },
    Close { sandbox: Afterwards },
}

/// What becomes of a conversation's sandbox when the conversation is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// It is removed.
    Remove,
    /// It is kept, frozen where the runtime can do that, and resumed with the conversation.
    Pause,
    /// It is kept as it is.
    Keep,
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
        let begin = Begin { started, system: parts.own.agent.system() };
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
        let (live, first_live) = broadcast::channel(LIVE);
        let (show_state, shown_state) = watch::channel(Arc::new(state.clone()));
        let task = Task::new(parts, id.clone(), Arc::clone(&log), live.clone(), show_state, state, events);
        let span = tracing::info_span!("conversation", %id);
        let task = tokio::spawn(task.run(commands, first).instrument(span));
        let (first_live, task) = (Mutex::new(Some(first_live)), Mutex::new(Some(task)));
        Ok(Self { id, mailbox, log, live, first_live, state: shown_state, task })
    }

    /// The conversation's id.
    pub fn id(&self) -> &ConversationId {
        &self.id
    }

    /// The log, to read it by cursor.
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// What happens between events: for the first listener since the conversation was opened, for others from now on.
    pub fn live(&self) -> broadcast::Receiver<Live> {
        let first = self.first_live.lock().unwrap_or_else(PoisonError::into_inner).take();
        first.unwrap_or_else(|| self.live.subscribe())
    }

    /// The state now. What it says is in the log already.
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.borrow())
    }

    /// Whether its task has ended: by itself, because the log could not be appended to.
    pub fn is_closed(&self) -> bool {
        self.mailbox.is_closed()
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
        self.send_input(InputKind::UserMessage(message))
    }

    /// Ends what is going on. The action that is being performed is killed; its observation still comes.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn stop(&self) -> Result<(), ConversationError> {
        self.send_input(InputKind::UserStop)
    }

    /// Holds the agent. The action that is being performed goes on to its end.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn pause(&self) -> Result<(), ConversationError> {
        self.send_input(InputKind::UserPause)
    }

    /// Lets the agent go on, perhaps on other terms.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn resume(&self, terms: Terms) -> Result<(), ConversationError> {
        self.send_input(InputKind::UserResume(terms))
    }

    /// Lets an agent go on that was stopped in a loop, or ends it.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn recover_from_loop(&self, recovery: Recovery) -> Result<(), ConversationError> {
        self.send_input(InputKind::UserRecover(recovery))
    }

    /// Lets the action pass that waits for it. Where one is named, no other.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn confirm(&self, action: Option<EventId>) -> Result<(), ConversationError> {
        self.send_input(InputKind::UserConfirm { action, and_similar: false })
    }

    /// Does the same for the rest of the conversation: actions like this one are not asked about again. What is alike is
    /// [`security::approval`](crate::security::approval)'s to say.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn confirm_similar(&self, action: EventId) -> Result<(), ConversationError> {
        self.send_input(InputKind::UserConfirm { action: Some(action), and_similar: true })
    }

    /// Does not let the action pass that waits, as above. With a reason the agent goes on, without one it waits for the user.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn reject(
        &self,
        action: Option<EventId>,
        reason: impl Into<String>,
    ) -> Result<(), ConversationError> {
        self.send_input(InputKind::UserReject { action, reason: reason.into() })
    }

    /// Has a model find a title for a conversation that begins with a message, beside the agents' work and within the
    /// budget. The first title stays.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn entitle(&self, llm: Arc<dyn Llm>, message: String) -> Result<(), ConversationError> {
        self.send(Command::FindTitle { llm, message })
    }

    /// Gives the conversation a title, cut to one short line. A title that it has stays.
    ///
    /// # Errors
    /// [`ConversationError::Busy`] or [`ConversationError::Closed`].
    pub fn set_title(&self, title: &str) -> Result<(), ConversationError> {
        self.send_input(InputKind::UserTitle(first_line(title)))
    }

    /// Ends the task, and does with its sandbox what is asked. What is in the log stays.
    ///
    /// # Errors
    /// Why the task ended before, if it did; [`ConversationError::Closed`] if it was closed before.
    pub async fn close(&self, sandbox: Afterwards) -> Result<(), ConversationError> {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        let task = task.ok_or_else(|| ConversationError::Closed(self.id.clone()))?;
        // If it cannot be sent the task has ended already; its result says why.
        let _ = self.mailbox.send(Command::Close { sandbox }).await;
        task.await.unwrap_or_else(|_| Err(ConversationError::Panicked(self.id.clone())))
    }

    fn send_input(&self, input: InputKind) -> Result<(), ConversationError> {
        self.send(Command::Input(input))
    }

    fn send(&self, command: Command) -> Result<(), ConversationError> {
        self.mailbox.try_send(command).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ConversationError::Busy(self.id.clone()),
            mpsc::error::TrySendError::Closed(_) => ConversationError::Closed(self.id.clone()),
        })
    }
}

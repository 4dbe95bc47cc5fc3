//! What a conversation can be told, and what it asks for in turn. Both closed: a new one is a design change.

use std::time::Duration;

use protocol::action::{CallToolMcpAction, EditAction, MessageAction, SystemAction};
use protocol::record::{ConversationStarted, ModelRetried, SandboxLeased};
use protocol::risk::ConfirmationPolicy;
use protocol::sandbox_api::ActionRequest;
use protocol::{Event, EventBody, EventId, EventSource, Observation, Timestamp};

use super::state::{AgentId, ModelCallId};
use super::stuck::Recovery;
use crate::agent::{AgentStep, ModelCall};
use crate::draft_editor::DraftResult;
use crate::llm::LlmError;

/// Something happened, at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// The time that the events get which come of it.
    pub at: Timestamp,
    /// What happened.
    pub kind: InputKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum InputKind {
    /// A new conversation is asked for.
    Begin(Box<Begin>),
    /// The log of an earlier process was folded; what it left undone goes on.
    Recovered,
    /// The user says something.
    UserMessage(MessageAction),
    /// The user ends what is going on.
    UserStop,
    /// The user holds the agent: what runs goes on to its end, and nothing is begun after it.
    UserPause,
    /// The user lets the agent go on, perhaps on other terms.
    UserResume(Terms),
    /// The user lets an agent go on that went in circles; V0's options.
    UserRecover(Recovery),
    /// The user lets the action pass that waits for it.
    UserConfirm {
        /// Which one is meant: of several the first waits for the word. Nothing: whichever waits.
        action: Option<EventId>,
        /// Whether those like it pass for the rest of the conversation too.
        and_similar: bool,
    },
    /// The user does not let the action pass.
    UserReject {
        /// Which one is meant, as above.
        action: Option<EventId>,
        /// What the agent is told, and goes on with; empty: it waits for the user.
        reason: String,
    },
    /// The model's call of the step that is being taken failed and is made again.
    CallRetried {
        /// Whose step.
        agent: AgentId,
        /// Which try comes, and why.
        retry: ModelRetried,
        /// The provider asked for it.
        is_rate_limited: bool,
    },
    /// Before its step an agent is to be told something, or the step waited too long; it is still to be taken, if it may.
    StepTold {
        /// Whose step.
        agent: AgentId,
        /// What, in order.
        news: Vec<News>,
    },
    /// An agent cannot take its step: its sandbox lacks what it does not work without.
    StepRefused {
        /// Whose step.
        agent: AgentId,
        /// Why, for people.
        reason: String,
    },
    /// An agent took its step.
    StepDone {
        /// Whose step.
        agent: AgentId,
        /// The first event that the agent did not see.
        seen: EventId,
        /// What it decided.
        result: Result<Box<AgentStep>, LlmError>,
    },
    /// An action ended.
    ActionDone {
        /// The action.
        action: EventId,
        /// What came of it.
        observation: Box<Observation>,
    },
    /// The draft of an edit was written out, or it came to nothing.
    EditDrafted {
        /// The action.
        action: EventId,
        /// What came of it.
        drafted: DraftResult,
    },
    /// The sandbox answers: a new one, or the leased one again.
    SandboxReady(SandboxLeased),
    /// No sandbox could be placed, or the leased one cannot be reached now.
    SandboxFailed {
        /// Why, for people.
        reason: String,
    },
    /// The leased sandbox is gone, and what ran in it.
    SandboxLost {
        /// What was found.
        detail: String,
    },
    /// The leased sandbox was removed on purpose.
    SandboxRemoved,
    /// The maximum cost of a call to a model is known.
    CostEstimated {
        /// The call.
        call: ModelCallId,
        /// In US dollars.
        max_cost: f64,
    },
    /// A model is to find a title for the conversation, unless it has one.
    TitleRequested {
        /// The message that the conversation starts with.
        message: String,
        /// Maximum cost of the call, in US dollars.
        max_cost: f64,
    },
    /// The search for a title has ended.
    TitleFound {
        /// One short line.
        title: String,
        /// The model's call. `None` if the model failed.
        call: Option<ModelCall>,
    },
    /// The user names the conversation. A title that it has stays.
    UserTitle(String),
}

/// What the user changes in letting the agent go on; what is absent stays.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Terms {
    /// The new limit of steps.
    pub max_iterations: Option<u32>,
    /// The new limit of what the model's calls may cost, in US dollars.
    pub max_budget: Option<f64>,
    /// What the agent may do unasked.
    pub confirmation: Option<ConfirmationPolicy>,
}

/// Something that the agent is told beside what the user says.
#[derive(Debug, Clone, PartialEq)]
pub struct News {
    /// Who it is from.
    pub source: EventSource,
    /// What it says.
    pub body: EventBody,
    /// Whether it is what came of the news before it.
    pub is_outcome: bool,
}

/// What a conversation begins with.
#[derive(Debug, Clone, PartialEq)]
pub struct Begin {
    /// What it was asked to be.
    pub started: ConversationStarted,
    /// The agent's prompt and tools.
    pub system: SystemAction,
}

/// Something is to be done. The conversation's task does them in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Append to the log, then show to the readers. Always first, and durable before anything after it begins.
    Append(Vec<Event>),
    /// Let an agent take a step on the log up to `seen`.
    Step {
        /// Which.
        agent: AgentId,
        /// The first event that the agent does not see.
        seen: EventId,
    },
    /// The step that an agent is taking is of no more use.
    AbandonStep {
        /// Which.
        agent: AgentId,
    },
    /// Create a sandbox.
    Create,
    /// Attach to the leased sandbox.
    Attach(Box<SandboxLeased>),
    /// Perform an action in the sandbox, or attach to it if the sandbox knows it. If the sandbox is lost, no result is
    /// reported but [`InputKind::SandboxLost`].
    Execute {
        /// The action.
        action: EventId,
        /// What the sandbox is asked.
        request: Box<ActionRequest>,
        /// Time after which it is cancelled as if the user had stopped it. `None` if its time is not limited.
        time_left: Option<Duration>,
    },
    /// Have a model write out the draft of an edit. The result is [`InputKind::EditDrafted`], or the sandbox's loss as above.
    WriteDraft {
        /// The action.
        action: EventId,
        /// The draft.
        draft: Box<EditAction>,
        /// What the sandbox is asked to read the file.
        request: Box<ActionRequest>,
    },
    /// Call a tool of a tool server. The server's answer completes the action, whatever it is.
    CallTool {
        /// The action.
        action: EventId,
        /// What is asked.
        call: Box<CallToolMcpAction>,
    },
    /// Cancel an action in flight. Its observation still arrives.
    Cancel {
        /// The action.
        action: EventId,
    },
    /// Report the maximum cost of a call as [`InputKind::CostEstimated`], before any other input.
    EstimateCost(ModelCallId),
    /// Ask a model for a title for the conversation that starts with a message.
    FindTitle {
        /// The message.
        message: String,
    },
    /// Abandon the search for a title.
    AbandonTitle,
}

//! Inputs of the transition, and the effects that it returns. Both enums are closed: a new variant
//! is a design change.

use std::time::Duration;

use protocol::action::{CallToolMcpAction, EditAction, MessageAction, SystemAction};
use protocol::record::{ConversationStarted, ModelRetried, SandboxLeased};
use protocol::sandbox_api::ActionRequest;
use protocol::{
    CommandRequest, Event, EventBody, EventId, EventSource, Observation, Timestamp, UserCommand,
};

use super::state::{AgentId, ModelCallId};
use crate::agent::{AgentStep, ModelCall};
use crate::draft_editor::DraftResult;
use crate::llm::LlmError;

/// An input, with the time at which it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// Timestamp of the events that it causes.
    pub at: Timestamp,
    /// The input itself.
    pub kind: InputKind,
}

/// Kind of an input.
#[derive(Debug, Clone, PartialEq)]
pub enum InputKind {
    /// A new conversation starts.
    Start(Box<ConversationStart>),
    /// The log of an earlier process was folded. Its unfinished work is resumed.
    Recovered,
    /// A command of the user.
    User(Box<CommandRequest>),
    /// The model call of a step in flight failed and is retried.
    CallRetried {
        /// The agent.
        agent: AgentId,
        /// The next attempt, and the reason.
        retry: ModelRetried,
    },
    /// A step did not run because the log lacks notices for its agent. It is due again once they
    /// are appended.
    StepDeferred {
        /// The agent.
        agent: AgentId,
        /// The notices, in order.
        notices: Vec<Notice>,
    },
    /// An agent cannot step: its sandbox lacks a program that it requires.
    StepRefused {
        /// The agent.
        agent: AgentId,
        /// Reason, for people.
        reason: String,
    },
    /// An agent took its step.
    StepDone {
        /// The agent.
        agent: AgentId,
        /// The first event that the agent did not see.
        seen: EventId,
        /// Decision of the agent.
        result: Result<Box<AgentStep>, LlmError>,
    },
    /// An action completed.
    ActionDone {
        /// The action.
        action: EventId,
        /// Its result.
        observation: Box<Observation>,
    },
    /// A model has written out the draft of an edit, or failed to.
    DraftDone {
        /// The action.
        action: EventId,
        /// The edit, or the reason of the failure.
        result: DraftResult,
    },
    /// A new sandbox is ready, or the leased one is connected again.
    SandboxReady(SandboxLeased),
    /// No sandbox could be created, or the leased one cannot be reached now.
    SandboxFailed {
        /// Reason, for people.
        reason: String,
    },
    /// The leased sandbox is gone, with all that ran in it.
    SandboxLost {
        /// How the loss was detected.
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
    /// A title is requested. An existing title stays.
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
}

impl From<UserCommand> for InputKind {
    fn from(command: UserCommand) -> Self {
        Self::User(Box::new(command.into()))
    }
}

/// An event that the agent sees in addition to the user's messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// Source of the event.
    pub source: EventSource,
    /// Body of the event.
    pub body: EventBody,
    /// Whether it is the result of the notice before it.
    pub is_result: bool,
}

/// A conversation to start.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationStart {
    /// Its settings.
    pub started: ConversationStarted,
    /// The agent's prompt and tools.
    pub system: SystemAction,
    /// The title that the user gave it.
    pub title: Option<String>,
    /// The user's first message. Stored together with the start, so that no crash separates them.
    pub message: Option<MessageAction>,
}

/// Work for the conversation's task, which performs effects in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Append events to the log, then publish them. Always the first effect, and durable before the
    /// next one starts.
    Append(Vec<Event>),
    /// Report that the user's command is applied.
    ReportApplied {
        /// The event that it caused, now or when it was sent before. `None` if there was nothing to
        /// do.
        event: Option<EventId>,
    },
    /// Replace the models of all agents, if the user's command came with others. A step in flight
    /// keeps its model.
    ReplaceModels,
    /// Let an agent take a step on the log up to `seen`.
    Step {
        /// The agent.
        agent: AgentId,
        /// The first event that the agent does not see.
        seen: EventId,
    },
    /// Abandon an agent's step in flight.
    AbandonStep {
        /// The agent.
        agent: AgentId,
    },
    /// Create a sandbox.
    Create,
    /// Attach to the leased sandbox.
    Attach(Box<SandboxLeased>),
    /// Perform an action in the sandbox, or attach to it if the sandbox knows it. If the sandbox is
    /// lost, no result is reported but [`InputKind::SandboxLost`].
    Execute {
        /// The action.
        action: EventId,
        /// Request to the sandbox.
        request: Box<ActionRequest>,
        /// Time after which it is cancelled as if the user had stopped it. `None` if its time is
        /// not limited.
        time_left: Option<Duration>,
    },
    /// Have a model write out the draft of an edit. The result is [`InputKind::DraftDone`], or the
    /// sandbox's loss as above.
    WriteDraft {
        /// The action.
        action: EventId,
        /// The draft.
        draft: Box<EditAction>,
        /// Request to the sandbox that reads the file.
        request: Box<ActionRequest>,
    },
    /// Call a tool of a tool server. Any response of the server completes the action.
    CallTool {
        /// The action.
        action: EventId,
        /// The call.
        call: Box<CallToolMcpAction>,
    },
    /// Cancel an action in flight. Its observation still arrives.
    Cancel {
        /// The action.
        action: EventId,
    },
    /// Report the maximum cost of a call as [`InputKind::CostEstimated`], before any other input.
    EstimateCost(ModelCallId),
    /// Have a model generate a title for the conversation that starts with a message.
    FindTitle {
        /// The message.
        message: String,
    },
    /// Abandon the search for a title.
    AbandonTitle,
}

impl Effect {
    /// Whether it starts work that is not in flight yet.
    pub(super) fn starts_work(&self) -> bool {
        match self {
            Self::Step { .. }
            | Self::Create
            | Self::Attach(_)
            | Self::Execute { .. }
            | Self::WriteDraft { .. }
            | Self::CallTool { .. }
            | Self::FindTitle { .. } => true,
            Self::Append(_)
            | Self::ReportApplied { .. }
            | Self::ReplaceModels
            | Self::AbandonStep { .. }
            | Self::Cancel { .. }
            | Self::EstimateCost(_)
            | Self::AbandonTitle => false,
        }
    }
}

//! State of one agent: the fold of its own events.

use protocol::action::{CallToolMcpAction, TrackedTask};
use protocol::record::EditDrafted;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::tool_call::ToolCallMetadata;
use protocol::{
    Action, Event, EventBody, EventId, EventSource, Observation, ObservationKind, Record,
    SessionName,
};

use crate::agent::tools::DELEGATE;
use crate::conversation::setup::SetupStep;
use crate::conversation::stuck::StuckDetector;
use crate::llm::AssistantMessage;

/// State of one agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentRun {
    /// Its action without a terminal event, at most one. Delegated tasks are in
    /// [`State::children`](super::State).
    pub pending: Option<PendingAction>,
    /// Detects loops.
    pub stuck: StuckDetector,
    /// Its task list.
    pub tasks: Vec<TrackedTask>,
    /// Whether a condensation was requested and has not arrived.
    pub is_condensation_requested: bool,
    /// Number of its steps since the last condensation.
    pub(in crate::conversation) uncondensed_steps: u32,
    /// Whether the next call of the same response delegates another task, to be performed
    /// concurrently.
    pub(super) is_delegating: bool,
    /// The shell that its commands run in.
    pub(in crate::conversation) session: SessionName,
}

/// An action without a terminal event.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingAction {
    /// The action.
    pub action: EventId,
    /// Request to the sandbox or to a tool server.
    pub request: PendingRequest,
    /// The model's tool call.
    pub tool_call_metadata: Option<ToolCallMetadata>,
    /// Set-up step of the workspace. `None` if it is an action of the agent.
    pub setup: Option<SetupStep>,
    /// Time at which it is cancelled, in seconds since the epoch. `None` if its time is not
    /// limited.
    pub cancelled_at: Option<f64>,
    /// Whether it awaits the user's confirmation.
    pub awaits_confirmation: bool,
    /// Whether the user stopped it. It is cancelled, and its terminal event still arrives.
    pub is_stopped: bool,
    /// Reason that the security analyzer gave for the risk. Empty if there is none, or if no
    /// confirmation is required.
    pub risk_reason: String,
}

/// Request of a pending action.
#[derive(Debug, Clone, PartialEq)]
pub enum PendingRequest {
    /// To the sandbox. Can be repeated under the same id.
    Sandbox(ActionRequest),
    /// To a tool server. Cannot be repeated.
    Tool(CallToolMcpAction),
}

impl PendingAction {
    pub(super) fn new(event: &Event, request: PendingRequest) -> Self {
        Self {
            action: event.id,
            request,
            tool_call_metadata: event.tool_call_metadata.clone(),
            setup: None,
            cancelled_at: None,
            awaits_confirmation: false,
            is_stopped: false,
            risk_reason: String::new(),
        }
    }

    /// Converts the request to an action.
    pub fn to_action(&self) -> Action {
        match &self.request {
            PendingRequest::Sandbox(request) => request.action.clone().into(),
            PendingRequest::Tool(call) => call.clone().into(),
        }
    }

    /// Whether it is the draft of an edit that a model has not written out yet.
    pub fn is_draft(&self) -> bool {
        matches!(&self.request, PendingRequest::Sandbox(ActionRequest { action: SandboxAction::Edit(edit), .. }) if edit.is_draft())
    }

    /// Whether the sandbox performs it.
    pub fn is_for_sandbox(&self) -> bool {
        matches!(self.request, PendingRequest::Sandbox(_))
    }
}

impl AgentRun {
    /// Applies an event of this agent.
    pub(super) fn apply(&mut self, event: &Event) {
        self.stuck.apply(event);
        match &event.body {
            EventBody::Action(action) => self.apply_action(event, action),
            EventBody::Observation(Observation {
                kind: ObservationKind::TaskTracking(tracking),
                ..
            }) => {
                self.tasks.clone_from(&tracking.task_list);
            }
            EventBody::Record(Record::EditDrafted(drafted)) => self.replace_draft(drafted),
            EventBody::Observation(_) | EventBody::Record(_) => {}
        }
        match (event.source, event.cause, &event.body) {
            // A tool call, not its outcome.
            (EventSource::Agent, None, EventBody::Action(Action::Condensation(_))) => {
                self.uncondensed_steps = 0;
            }
            (EventSource::Agent, None, _) => {
                self.uncondensed_steps = self.uncondensed_steps.saturating_add(1);
                self.is_delegating = event
                    .tool_call_metadata
                    .as_ref()
                    .is_some_and(continues_delegating);
            }
            // The model receives the message once all of its calls have an outcome.
            (EventSource::User, _, EventBody::Action(Action::Message(_))) => {
                self.is_delegating = false;
            }
            _ => {}
        }
    }

    /// Replaces the draft in the request with the edit.
    fn replace_draft(&mut self, drafted: &EditDrafted) {
        let pending = self.pending.as_mut().filter(|pending| pending.is_draft());
        if let (
            Some(PendingAction {
                request: PendingRequest::Sandbox(request),
                ..
            }),
            Some(edit),
        ) = (pending, &drafted.edit)
        {
            request.action = SandboxAction::Edit(edit.clone());
        }
    }

    fn apply_action(&mut self, event: &Event, action: &Action) {
        match (event.source, action) {
            (_, Action::Condensation(_)) => self.is_condensation_requested = false,
            (_, Action::CondensationRequest(_)) => self.is_condensation_requested = true,
            (EventSource::Agent, action) => {
                let request = match (SandboxAction::try_from(action.clone()), action) {
                    (Ok(action), _) => {
                        let mut request = ActionRequest::new(action, event.timeout);
                        request.session = self.session.clone();
                        PendingRequest::Sandbox(request)
                    }
                    (Err(_), Action::CallToolMcp(call)) => PendingRequest::Tool(call.clone()),
                    (Err(_), _) => return,
                };
                self.pending = Some(PendingAction::new(event, request));
            }
            _ => {}
        }
    }
}

/// Whether the next call of the same response delegates a task.
fn continues_delegating(metadata: &ToolCallMetadata) -> bool {
    if metadata.total_calls_in_response < 2 {
        return false;
    }
    let calls = AssistantMessage::from(&metadata.model_response).tool_calls;
    let mut after = calls
        .iter()
        .skip_while(|call| call.id != metadata.tool_call_id);
    after
        .find(|call| call.id != metadata.tool_call_id)
        .is_some_and(|call| call.name == DELEGATE)
}

//! What of a log is one agent's: the fold of the events that are its own.

use protocol::action::{CallToolMcpAction, TrackedTask};
use protocol::record::EditDrafted;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::tool_call::ToolCallMetadata;
use protocol::{
    Action, Event, EventBody, EventId, EventSource, Observation, ObservationKind, Record, SessionName,
};

use crate::agent::tools::DELEGATE;
use crate::conversation::setup::SetupStep;
use crate::conversation::stuck::StuckDetector;
use crate::llm::AssistantMessage;

/// One agent at work.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    /// Its one action that has no ending yet. Handed-on tasks are not here: they are [`State::children`](super::State).
    pub pending: Option<Pending>,
    /// Whether it goes in circles.
    pub stuck: StuckDetector,
    /// Its list of tasks.
    pub tasks: Vec<TrackedTask>,
    /// A condensation was asked for and has not come since.
    pub is_condensation_requested: bool,
    /// Whether the response whose calls it makes goes on with another task to hand on: both are worked on at once.
    pub(super) is_delegating: bool,
    /// The shell that its commands run in.
    pub(in crate::conversation) session: SessionName,
}

/// An action without an ending.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// The action.
    pub action: EventId,
    /// What is asked, and of whom.
    pub request: Request,
    /// The model's call that it answers.
    pub tool_call_metadata: Option<ToolCallMetadata>,
    /// What of the workspace's set-up it is; nothing: the agent's own.
    pub setup: Option<SetupStep>,
    /// When it is cancelled, in seconds since the epoch.
    pub cancelled_at: Option<f64>,
    /// Whether it waits for the user's word.
    pub is_asked: bool,
    /// Whether the user stopped it. It is cancelled wherever it is performed, and its terminal event still comes.
    pub is_stopped: bool,
    /// Why a security analyzer gave it its risk; empty if none did, or if the user is not asked.
    pub risk_reason: String,
}

/// What an action without an ending asks.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// The sandbox, which can be asked again under the same id.
    Sandbox(ActionRequest),
    /// A tool server, which cannot.
    Tool(CallToolMcpAction),
}

impl Pending {
    /// What is asked, as an action.
    pub fn asked(&self) -> Action {
        match &self.request {
            Request::Sandbox(request) => request.action.clone().into(),
            Request::Tool(call) => call.clone().into(),
        }
    }

    /// Whether it is the draft of an edit, which is still to be written out.
    pub fn is_draft(&self) -> bool {
        matches!(&self.request, Request::Sandbox(ActionRequest { action: SandboxAction::Edit(edit), .. }) if edit.is_draft())
    }

    /// Whether it is the sandbox's.
    pub fn is_for_sandbox(&self) -> bool {
        matches!(self.request, Request::Sandbox(_))
    }
}

impl Run {
    /// Takes one more event of this agent's.
    pub(super) fn apply(&mut self, event: &Event) {
        self.stuck.apply(event);
        match &event.body {
            EventBody::Action(action) => self.apply_action(event, action),
            EventBody::Observation(Observation { kind: ObservationKind::TaskTracking(tracking), .. }) => {
                self.tasks.clone_from(&tracking.task_list);
            }
            EventBody::Record(Record::EditDrafted(drafted)) => self.replace_draft(drafted),
            EventBody::Observation(_) | EventBody::Record(_) => {}
        }
        match (event.source, event.cause, &event.body) {
            // A call, not what came of one.
            (EventSource::Agent, None, _) => {
                self.is_delegating = event.tool_call_metadata.as_ref().is_some_and(continues_delegating);
            }
            // The model hears it when everything that it asked for has its outcome.
            (EventSource::User, _, EventBody::Action(Action::Message(_))) => self.is_delegating = false,
            _ => {}
        }
    }

    /// From here on it is the edit that is asked for.
    fn replace_draft(&mut self, drafted: &EditDrafted) {
        let pending = self.pending.as_mut().filter(|pending| pending.is_draft());
        if let (Some(Pending { request: Request::Sandbox(request), .. }), Some(edit)) =
            (pending, &drafted.edit)
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
                        Request::Sandbox(request)
                    }
                    (Err(_), Action::CallToolMcp(call)) => Request::Tool(call.clone()),
                    (Err(_), _) => return,
                };
                self.pending = Some(Pending {
                    action: event.id,
                    request,
                    tool_call_metadata: event.tool_call_metadata.clone(),
                    setup: None,
                    cancelled_at: None,
                    is_asked: false,
                    is_stopped: false,
                    risk_reason: String::new(),
                });
            }
            _ => {}
        }
    }
}

/// Whether the call after this one, in the same response, hands on a task.
fn continues_delegating(metadata: &ToolCallMetadata) -> bool {
    if metadata.total_calls_in_response < 2 {
        return false;
    }
    let calls = AssistantMessage::from(&metadata.model_response).tool_calls();
    let mut after = calls.iter().skip_while(|call| call.id != metadata.tool_call_id);
    after.find(|call| call.id != metadata.tool_call_id).is_some_and(|call| call.name == DELEGATE)
}

//! What comes of an agent's step, and of the action that it decided on.

use protocol::action::CondensationRequestAction;
use protocol::observation::ThinkObservation;
use protocol::record::ModelRetried;
use protocol::sandbox_api::SandboxAction;
use protocol::{Action, AgentState, EventBody, EventId, EventSource, Observation, Record};

use super::delegation::Ending;
use super::{AgentId, Turn};
use crate::agent::{AgentStep, update_task_list};
use crate::conversation::input::Notice;
use crate::conversation::terminal::not_performed;
use crate::llm::{LlmError, LlmErrorKind};
use crate::security;

impl Turn {
    pub(super) fn append_notices(&mut self, agent: AgentId, notices: Vec<Notice>) {
        let mut before = None;
        for Notice { source, body, is_result } in notices {
            let mut event = self.event(agent, source, body);
            event.cause = before.filter(|_| is_result);
            before = Some(self.push(event));
        }
    }

    pub(super) fn call_retried(&mut self, agent: AgentId, retry: ModelRetried, is_rate_limited: bool) {
        let reason = retry.reason.clone();
        self.append(agent, EventSource::Environment, Record::from(retry));
        if is_rate_limited && self.state.agent_state == AgentState::Running {
            self.change_state(AgentState::RateLimited, &reason);
        }
    }

    /// An agent decided. Whatever it is gets its ending here, waits for the user, or is performed.
    pub(super) fn act(&mut self, agent: AgentId, mut step: AgentStep, seen: EventId) {
        if self.state.agent_state == AgentState::RateLimited {
            self.change_state(AgentState::Running, "");
        }
        let waits = self.is_asked_about(&step.body);
        if waits && let EventBody::Action(action) = &mut step.body {
            action.await_confirmation();
        }
        let id = self.append_step(agent, &step);
        if waits {
            return self.change_state(AgentState::AwaitingUserConfirmation, &step.risk_reason);
        }
        let EventBody::Action(action) = step.body else { return };
        match action {
            Action::Finish(finish) => {
                self.rest(agent, AgentState::Finished, seen, Ending::Finished(finish.into()));
            }
            Action::Reject(reject) => {
                self.rest(agent, AgentState::Rejected, seen, Ending::Refused(reject.into()));
            }
            // Nobody answers an agent that was handed its task: what it says is what came of it.
            Action::Message(message) if message.wait_for_response => {
                let ending = Ending::Finished(message.content.into());
                self.rest(agent, AgentState::AwaitingUserInput, seen, ending);
            }
            Action::Message(_) | Action::Condensation(_) | Action::CondensationRequest(_) => {}
            Action::Think(_) => {
                let noted = Observation::new("The thought is noted.", ThinkObservation {});
                self.append_outcome(agent, id, step.tool_call_metadata, noted);
            }
            Action::TaskTracking(tracking) => {
                let tasks = self.state.run(agent).map(|run| run.tasks.as_slice()).unwrap_or_default();
                let tracked = update_task_list(&tracking, tasks);
                self.append_outcome(agent, id, step.tool_call_metadata, tracked);
            }
            Action::Delegate(delegate) => self.delegate(id, &delegate, step.briefing),
            // It is performed.
            Action::CallToolMcp(_) => {}
            action if SandboxAction::try_from(action.clone()).is_ok() => {}
            other => {
                let text = format!("nothing here performs the action `{}`", other.kind());
                self.append_outcome(agent, id, step.tool_call_metadata, not_performed(&text));
            }
        }
    }

    /// Whether the user decides on it: it is performed outside of the conversation, its risk asks for that, and no earlier
    /// approval covers it.
    fn is_asked_about(&self, body: &EventBody) -> bool {
        let EventBody::Action(action) = body else { return false };
        let is_performed =
            matches!(action, Action::CallToolMcp(_)) || SandboxAction::try_from(action.clone()).is_ok();
        let is_approved = || self.state.approvals.iter().any(|approval| security::covers(approval, action));
        is_performed && security::needs_confirmation(self.state.confirmation, action) && !is_approved()
    }

    /// An agent has no more to do; the conversation's own unless the user said something that it has not seen.
    fn rest(&mut self, agent: AgentId, state: AgentState, seen: EventId, ending: Ending) {
        match agent {
            Some(child) => self.end_child(child, &ending),
            None if self.state.last_user_message.is_some_and(|message| message >= seen) => {}
            None => self.change_state(state, ""),
        }
    }

    /// What does not fit is made shorter. Each condensation is shorter than the one before, and where none comes of the
    /// request, the error stands.
    pub(super) fn fail_step(&mut self, agent: AgentId, error: &LlmError) {
        let may_shorten =
            self.state.started.as_ref().is_some_and(|started| !started.history_truncation_disabled);
        let is_requested = self.state.run(agent).is_some_and(|run| run.is_condensation_requested);
        if error.kind == LlmErrorKind::ContextWindowExceeded && may_shorten && !is_requested {
            self.append(agent, EventSource::Agent, Action::from(CondensationRequestAction {}));
        } else {
            self.fail(agent, &error.to_string());
        }
    }

    fn append_step(&mut self, agent: AgentId, step: &AgentStep) -> EventId {
        let mut event = self.event(agent, EventSource::Agent, step.body.clone());
        event.timeout = step.timeout;
        event.tool_call_metadata.clone_from(&step.tool_call_metadata);
        event.llm_metrics = self.metrics_with(step.call.as_ref());
        self.push(event)
    }
}

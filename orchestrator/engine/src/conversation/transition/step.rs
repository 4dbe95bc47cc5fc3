//! Results of agents' steps.

use protocol::action::CondensationRequestAction;
use protocol::observation::ThinkObservation;
use protocol::record::ModelRetried;
use protocol::sandbox_api::SandboxAction;
use protocol::{Action, AgentState, EventBody, EventId, EventSource, Observation, Record};

use super::delegation::TaskOutcome;
use super::{AgentId, Transition};
use crate::agent::{AgentStep, update_task_list};
use crate::conversation::input::Notice;
use crate::conversation::terminal::not_performed;
use crate::llm::{LlmError, LlmErrorKind};
use crate::security;

/// Number of an agent's steps after which an unexplained refusal is taken for a history that is too
/// long.
pub(in crate::conversation) const LONG_HISTORY_STEPS: u32 = 50;

impl Transition {
    pub(super) fn append_notices(&mut self, agent: AgentId, notices: Vec<Notice>) {
        let mut previous = None;
        for Notice {
            source,
            body,
            is_result,
        } in notices
        {
            let mut event = self.event(agent, source, body);
            event.cause = previous.filter(|_| is_result);
            previous = Some(self.push(event));
        }
    }

    /// Records a retry. As in V0, the agent stays running meanwhile.
    pub(super) fn on_call_retried(&mut self, agent: AgentId, retry: ModelRetried) {
        self.append(agent, EventSource::Environment, Record::from(retry));
    }

    /// Applies an agent's decision. Its action completes here, awaits confirmation, or is
    /// scheduled.
    pub(super) fn on_step_done(&mut self, agent: AgentId, mut step: AgentStep, seen: EventId) {
        // In logs of earlier versions.
        if self.state.agent_state == AgentState::RateLimited {
            self.change_state(AgentState::Running, "");
        }
        let needs_confirmation = self.needs_confirmation(&step.body);
        if needs_confirmation && let EventBody::Action(action) = &mut step.body {
            action.await_confirmation();
        }
        let id = self.append_step(agent, &step, seen);
        if needs_confirmation {
            return self.change_state(AgentState::AwaitingUserConfirmation, &step.risk_reason);
        }
        let EventBody::Action(action) = step.body else {
            return;
        };
        match action {
            Action::Finish(finish) => {
                let outcome = TaskOutcome::Finished(finish.into());
                self.finish(agent, AgentState::Finished, seen, &outcome);
            }
            Action::Reject(reject) => {
                let outcome = TaskOutcome::Refused(reject.into());
                self.finish(agent, AgentState::Rejected, seen, &outcome);
            }
            // The agent of a delegated task has no user: its question is its outcome.
            Action::Message(message) if message.wait_for_response => {
                let outcome = TaskOutcome::Finished(message.content.into());
                self.finish(agent, AgentState::AwaitingUserInput, seen, &outcome);
                self.answer_unattended();
            }
            Action::Message(_) | Action::Condensation(_) | Action::CondensationRequest(_) => {}
            Action::Think(_) => {
                let observation = Observation::new("The thought is noted.", ThinkObservation {});
                self.append_outcome(agent, id, step.tool_call_metadata, observation);
            }
            Action::TaskTracking(tracking) => {
                let tasks = self
                    .state
                    .run(agent)
                    .map(|run| run.tasks.as_slice())
                    .unwrap_or_default();
                let observation = update_task_list(&tracking, tasks);
                self.append_outcome(agent, id, step.tool_call_metadata, observation);
            }
            Action::Delegate(delegate) => self.delegate(id, &delegate, step.briefing),
            // Scheduled.
            Action::CallToolMcp(_) => {}
            action if SandboxAction::try_from(action.clone()).is_ok() => {}
            other => {
                let text = format!("no component performs the action `{}`", other.kind());
                self.append_outcome(agent, id, step.tool_call_metadata, not_performed(&text));
            }
        }
    }

    /// Whether the user has to confirm an action: a sandbox or a tool server performs it, the
    /// policy requires confirmation, and no earlier approval covers it.
    fn needs_confirmation(&self, body: &EventBody) -> bool {
        let EventBody::Action(action) = body else {
            return false;
        };
        let is_performed = matches!(action, Action::CallToolMcp(_))
            || SandboxAction::try_from(action.clone()).is_ok();
        let is_known = match action {
            Action::CallToolMcp(call) => self.state.schedule.approved_tools.contains(&call.name),
            _ => true,
        };
        let is_approved = || {
            is_known
                && self
                    .state
                    .approvals
                    .iter()
                    .any(|approval| security::covers(approval, action))
        };
        is_performed
            && security::needs_confirmation(self.state.confirmation, action)
            && !is_approved()
    }

    /// Ends an agent's work. The conversation's own agent continues if the user sent a message that
    /// it has not seen.
    fn finish(&mut self, agent: AgentId, state: AgentState, seen: EventId, outcome: &TaskOutcome) {
        match agent {
            Some(child) => self.end_child(child, outcome),
            None if self
                .state
                .last_user_message
                .is_some_and(|message| message >= seen) => {}
            None => self.change_state(state, ""),
        }
    }

    /// Fails a step, or requests a condensation if its context window is exceeded. Some providers
    /// do not say so: an unexplained refusal of a long history is taken for it. Ends, because each
    /// condensation is shorter than the one before, and because a second request without a
    /// condensation fails.
    pub(super) fn on_step_failed(&mut self, agent: AgentId, error: &LlmError) {
        let may_condense = self
            .state
            .started
            .as_ref()
            .is_some_and(|started| !started.history_truncation_disabled);
        let run = self.state.run(agent);
        let is_requested = run.is_some_and(|run| run.is_condensation_requested);
        let is_too_long = match error.kind {
            LlmErrorKind::ContextWindowExceeded => true,
            LlmErrorKind::BadRequest => {
                run.is_some_and(|run| run.uncondensed_steps >= LONG_HISTORY_STEPS)
            }
            _ => false,
        };
        if is_too_long && may_condense && !is_requested {
            self.append(
                agent,
                EventSource::Agent,
                Action::from(CondensationRequestAction {}),
            );
        } else {
            self.fail(agent, &error.to_string());
        }
    }

    fn append_step(&mut self, agent: AgentId, step: &AgentStep, seen: EventId) -> EventId {
        let mut event = self.event(agent, EventSource::Agent, step.body.clone());
        event.events_seen = step.call.is_some().then_some(seen);
        event.timeout = step.timeout;
        event
            .tool_call_metadata
            .clone_from(&step.tool_call_metadata);
        event.llm_metrics = self.metrics_with(step.call.as_ref());
        self.push(event)
    }
}

//! Changes of the sandbox, the set-up of its workspace, and results of actions.

use std::collections::BTreeSet;

use protocol::observation::SuccessObservation;
use protocol::record::{EditDrafted, SandboxLeased, SandboxReleased};
use protocol::{
    Action, AgentState, Event, EventBody, EventId, EventSource, Observation, ObservationKind,
    Record,
};

use super::{AgentId, Transition};
use crate::conversation::setup::{self, SetupStep, SetupStepResult};
use crate::conversation::state::{PendingAction, PendingRequest, SandboxConnection};
use crate::conversation::terminal::{STOPPED, interrupted, not_performed};
use crate::draft_editor::DraftResult;

/// Maximum number of sandboxes in a row that may be lost during set-up. Bounds a set-up script that
/// kills its sandbox.
const MAX_SETUP_LOSSES: u32 = 2;

impl Transition {
    pub(super) fn on_sandbox_ready(&mut self, lease: SandboxLeased) {
        if self.state.lease.as_ref() != Some(&lease) {
            let before = self.state.latest_lease.clone();
            let notified = self.state.notified_of_replacement.clone();
            self.append(None, EventSource::Environment, Record::from(lease.clone()));
            if let Some(before) = before {
                if before.boot_id != lease.boot_id {
                    self.report_replacement(&notified);
                }
                if before.working_dir != lease.working_dir {
                    self.report_move(&before.working_dir, &lease.working_dir);
                }
            }
        }
        self.state.schedule.sandbox = SandboxConnection::Connected;
    }

    /// Reports to the agents that have stepped, and are not notified yet, that their sandbox is
    /// gone. The log has the notice, so that it is not repeated after a crash.
    pub(super) fn report_replacement(&mut self, notified: &BTreeSet<AgentId>) {
        for agent in self.state.agents_with_steps().collect::<Vec<_>>() {
            if !notified.contains(&agent) {
                self.append(agent, EventSource::Environment, replacement_notice());
            }
        }
    }

    /// Reports to the agents that have stepped that the workspace has another path, as in the
    /// sandbox of another runtime.
    fn report_move(&mut self, before: &str, now: &str) {
        for agent in self.state.agents_with_steps().collect::<Vec<_>>() {
            let text = format!("The workspace is now at {now}, no longer at {before}.");
            let notice = Observation::new(text, SuccessObservation {});
            self.append(agent, EventSource::Environment, notice);
        }
    }

    /// Whether the next set-up step of the workspace can start, or its end can be recorded.
    pub(super) fn is_setup_due(&self) -> bool {
        self.state.agent_state == AgentState::Loading
            && self.is_connected()
            && self.state.own.pending.is_none()
    }

    /// Starts the next set-up step of the workspace. If there is none, the agent can work.
    pub(super) fn set_up(&mut self) {
        if let Some(step) = self.state.setup_step() {
            return self.start_setup_step(step);
        }
        let next = match self.state.last_user_message {
            Some(_) => self.working_state(),
            None => AgentState::AwaitingUserInput,
        };
        self.change_state(next, "");
        self.answer_unattended();
    }

    fn start_setup_step(&mut self, step: SetupStep) {
        let setup = self
            .state
            .started
            .as_ref()
            .and_then(|started| started.setup.clone());
        let (Some(setup), Some(lease)) = (setup, &self.state.lease) else {
            return;
        };
        let action = step.action(&setup, &lease.working_dir);
        let mut event = self.event(None, EventSource::Environment, Action::from(action));
        event.timeout = Some(setup::STEP_TIMEOUT);
        self.push(event);
    }

    pub(super) fn on_action_done(&mut self, agent: AgentId, observation: Observation) {
        let completed = self.state.pending_action(agent).cloned();
        self.end_pending(agent, observation.clone());
        if self.state.agent_state != AgentState::Loading {
            return;
        }
        if let Some(PendingAction {
            setup: Some(step),
            request: PendingRequest::Sandbox(request),
            is_stopped: false,
            ..
        }) = completed
        {
            match SetupStep::result(&observation) {
                SetupStepResult::Done => {}
                SetupStepResult::Failed if !step.is_required() => {}
                SetupStepResult::Failed | SetupStepResult::Interrupted => {
                    self.change_state(
                        AgentState::Error,
                        &setup::describe_failure(&request, &observation),
                    );
                }
            }
        }
    }

    /// Records the cost of a draft. Its edit is performed in its place, unless there is none or the
    /// user has stopped it.
    pub(super) fn on_draft_done(&mut self, agent: AgentId, action: EventId, result: DraftResult) {
        let DraftResult { call, edit } = result;
        let pending = self.state.pending_action(agent);
        let is_stopped = pending.is_some_and(|pending| pending.is_stopped);
        let (edit, refusal) = match edit {
            Ok(_) if is_stopped => (None, Some(STOPPED.into())),
            Ok(edit) => (Some(*edit), None),
            Err(reason) => (None, Some(reason)),
        };
        if edit.is_some() || call.is_some() {
            let mut event = self.event(
                agent,
                EventSource::Environment,
                Record::from(EditDrafted { edit }),
            );
            event.llm_metrics = self.metrics_with(call.as_ref());
            self.push(event);
        }
        match refusal {
            Some(reason) => self.end_pending(agent, not_performed(&reason)),
            // The work in flight was the draft. The edit starts under the same id.
            None => _ = self.state.schedule.actions.remove(&action),
        }
    }

    /// Actions that may run in a leased sandbox stay pending. If there is no lease, they end. No
    /// agent steps without its sandbox.
    pub(super) fn on_sandbox_failed(&mut self, reason: &str) {
        self.disconnect();
        let waiting = self.agents_with_pending(|pending| {
            pending.is_for_sandbox() && self.state.is_performing(pending)
        });
        if self.state.lease.is_none() {
            for agent in &waiting {
                self.end_pending(*agent, not_performed(reason));
            }
        }
        match self.state.agent_state {
            AgentState::Loading => self.change_state(AgentState::Error, reason),
            AgentState::Running
            | AgentState::RateLimited
            | AgentState::AwaitingUserConfirmation => {
                if !waiting.is_empty() || !self.state.schedule.steps.is_empty() {
                    self.change_state(AgentState::Error, reason);
                }
            }
            // The agent is held, and the sandbox of its action cannot be reached.
            _ => {
                for agent in waiting {
                    self.end_pending(agent, interrupted(reason));
                }
            }
        }
    }

    pub(super) fn on_sandbox_lost(&mut self, detail: &str) {
        // No action was started in a sandbox that was lost during its creation.
        if self.state.lease.is_none() {
            return self.on_sandbox_failed(detail);
        }
        self.release();
        self.end_sandbox_actions(detail);
        if self.state.agent_state != AgentState::Loading {
            return;
        }
        if self.state.setup_losses >= MAX_SETUP_LOSSES {
            let reason = format!("the sandbox was lost while its workspace was set up: {detail}");
            self.change_state(AgentState::Error, &reason);
        }
    }

    pub(super) fn on_sandbox_removed(&mut self) {
        self.release();
        self.end_sandbox_actions("its sandbox was removed");
    }

    /// Ends all actions of the sandbox, and holds the agents until the next sandbox is set up.
    fn end_sandbox_actions(&mut self, detail: &str) {
        for agent in self.agents_with_pending(PendingAction::is_for_sandbox) {
            let pending = self.state.pending_action(agent);
            let is_started =
                !pending.is_some_and(|pending| pending.awaits_confirmation || pending.is_draft());
            let observation = if is_started {
                interrupted(detail)
            } else {
                not_performed(detail)
            };
            self.end_pending(agent, observation);
        }
        if self.state.agent_state == AgentState::AwaitingUserConfirmation
            && self.state.awaiting_confirmation().is_none()
        {
            self.change_state(AgentState::Running, "");
        }
        // The agents step again when the next sandbox is set up.
        if self.state.setup_step().is_some() {
            self.abandon_steps();
        }
    }

    fn release(&mut self) {
        self.disconnect();
        if let Some(lease) = self.state.lease.clone() {
            let released = SandboxReleased {
                sandbox_id: lease.sandbox_id,
            };
            self.append(None, EventSource::Environment, Record::from(released));
        }
    }
}

/// Notice for agents whose sandbox was replaced. Not an error: V0's page would show it in red.
fn replacement_notice() -> Observation {
    let text = "The sandbox was replaced by a new one: the previous shell, processes, Python variables and browser pages are \
                gone, and so may be files, also of the workspace.";
    Observation::new(text, SuccessObservation {})
}

/// Whether an event is the notice that the sandbox is not the one that the agent used before.
pub fn is_replacement_notice(event: &Event) -> bool {
    let is_success = matches!(
        event.body,
        EventBody::Observation(Observation {
            kind: ObservationKind::Success(_),
            ..
        })
    );
    is_success && event.source == EventSource::Environment && event.cause.is_none()
}

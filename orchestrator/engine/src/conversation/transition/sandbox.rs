//! What becomes of the sandbox, and of what was being done in it.

use protocol::record::{EditDrafted, SandboxLeased, SandboxReleased};
use protocol::{Action, AgentState, EventId, EventSource, Observation, Record};

use super::{AgentId, SANDBOX_REPLACED, Turn};
use crate::conversation::setup::{self, Outcome, SetupStep};
use crate::conversation::state::{Pending, Request, SandboxConnection};
use crate::conversation::terminal::{STOPPED, interrupted, not_performed};
use crate::draft_editor::DraftResult;

/// How often in a row a sandbox may be lost in the middle of its set-up: what a set-up script kills is not placed for ever.
const MAX_SETUP_LOSSES: u32 = 2;

impl Turn {
    pub(super) fn sandbox_ready(&mut self, lease: SandboxLeased) {
        if self.state.lease.as_ref() != Some(&lease) {
            let is_another = self.state.latest_boot.as_ref().is_some_and(|latest| *latest != lease.boot_id);
            let told = is_another.then(|| replaced(&lease));
            self.append(None, EventSource::Environment, Record::from(lease));
            self.notify_agents(told);
        }
        self.state.schedule.sandbox = SandboxConnection::Connected;
    }

    /// Tells every agent what it may have wrong now. In the log, so that it stands where it was told, and once.
    fn notify_agents(&mut self, told: Option<Observation>) {
        let Some(told) = told else { return };
        for agent in self.state.agents_with_steps().collect::<Vec<_>>() {
            self.append(agent, EventSource::Environment, told.clone());
        }
    }

    /// Whether the workspace waits for its next set-up step, and the sandbox for work.
    pub(super) fn is_setup_due(&self) -> bool {
        self.state.agent_state == AgentState::Loading
            && self.is_connected()
            && self.state.own.pending.is_none()
    }

    /// Takes the next step of the workspace's set-up, or lets the agent work.
    pub(super) fn set_up(&mut self) {
        if let Some(step) = self.state.setup_step() {
            return self.begin_setup_step(step);
        }
        let next = match self.state.last_user_message {
            Some(_) => self.working_state(),
            None => AgentState::AwaitingUserInput,
        };
        self.change_state(next, "");
    }

    fn begin_setup_step(&mut self, step: SetupStep) {
        let setup = self.state.started.as_ref().and_then(|started| started.setup.clone());
        let (Some(setup), Some(lease)) = (setup, &self.state.lease) else { return };
        let action = step.action(&setup, &lease.working_dir);
        let mut event = self.event(None, EventSource::Environment, Action::from(action));
        event.timeout = Some(setup::STEP_TIMEOUT);
        self.push(event);
    }

    pub(super) fn action_done(&mut self, agent: AgentId, observation: Observation) {
        let ended = self.state.run(agent).and_then(|run| run.pending.clone());
        self.end_pending(agent, observation.clone());
        if self.state.agent_state != AgentState::Loading {
            return;
        }
        if let Some(Pending {
            setup: Some(step),
            request: Request::Sandbox(request),
            is_stopped: false,
            ..
        }) = ended
        {
            match SetupStep::outcome(&observation) {
                Outcome::Done => {}
                Outcome::Failed if !step.is_required() => {}
                Outcome::Failed | Outcome::Cut => {
                    self.change_state(AgentState::Error, &setup::failure(&request, &observation));
                }
            }
        }
    }

    /// A draft was written out, or not; what that cost is kept either way. The edit takes the draft's place, and is
    /// performed unless the user has stopped it.
    pub(super) fn edit_drafted(&mut self, agent: AgentId, action: EventId, drafted: DraftResult) {
        let DraftResult { call, edit } = drafted;
        let pending = self.state.run(agent).and_then(|run| run.pending.as_ref());
        let is_stopped = pending.is_some_and(|pending| pending.is_stopped);
        let (edit, refused) = match edit {
            Ok(_) if is_stopped => (None, Some(STOPPED.into())),
            Ok(edit) => (Some(*edit), None),
            Err(why) => (None, Some(why)),
        };
        if edit.is_some() || call.is_some() {
            let mut event = self.event(agent, EventSource::Environment, Record::from(EditDrafted { edit }));
            event.llm_metrics = self.metrics_with(call.as_ref());
            self.push(event);
        }
        match refused {
            Some(why) => self.end_pending(agent, not_performed(&why)),
            // What was in flight was the draft. The edit is started under the same id.
            None => _ = self.state.schedule.actions.remove(&action),
        }
    }

    /// An action that waits for a leased sandbox keeps waiting: it may run there. One that no sandbox has seen ends. No agent
    /// steps without its sandbox.
    pub(super) fn sandbox_failed(&mut self, reason: &str) {
        self.disconnect();
        let waiting =
            self.agents_with_pending(|pending| pending.is_for_sandbox() && self.state.is_performing(pending));
        if self.state.lease.is_none() {
            for agent in &waiting {
                self.end_pending(*agent, not_performed(reason));
            }
        }
        match self.state.agent_state {
            AgentState::Loading => self.change_state(AgentState::Error, reason),
            AgentState::Running | AgentState::RateLimited | AgentState::AwaitingUserConfirmation => {
                if !waiting.is_empty() || !self.state.schedule.steps.is_empty() {
                    self.change_state(AgentState::Error, reason);
                }
            }
            // Held or stopped, and the sandbox that the action ran in cannot be reached.
            _ => {
                for agent in waiting {
                    self.end_pending(agent, interrupted(reason));
                }
            }
        }
    }

    pub(super) fn sandbox_lost(&mut self, detail: &str) {
        // Nothing was done in one that was lost while it was placed.
        if self.state.lease.is_none() {
            return self.sandbox_failed(detail);
        }
        self.release();
        self.end_lost(detail);
        if self.state.agent_state != AgentState::Loading {
            return;
        }
        if self.state.setup_losses >= MAX_SETUP_LOSSES {
            let reason = format!("the sandbox was lost while its workspace was set up: {detail}");
            self.change_state(AgentState::Error, &reason);
        }
    }

    pub(super) fn sandbox_removed(&mut self) {
        self.release();
        self.end_lost("its sandbox was removed");
    }

    /// Ends what was in a sandbox, or would have been, and holds the agents until the next one is ready for them.
    fn end_lost(&mut self, detail: &str) {
        for agent in self.agents_with_pending(Pending::is_for_sandbox) {
            let pending = self.state.run(agent).and_then(|run| run.pending.as_ref());
            let is_begun = !pending.is_some_and(|pending| pending.is_asked || pending.is_draft());
            let ending = if is_begun { interrupted(detail) } else { not_performed(detail) };
            self.end_pending(agent, ending);
        }
        if self.state.agent_state == AgentState::AwaitingUserConfirmation && self.state.asked().is_none() {
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
            let released = SandboxReleased { sandbox_id: lease.sandbox_id };
            self.append(None, EventSource::Environment, Record::from(released));
        }
    }
}

/// What an agent has to know of a sandbox that stands in the place of another one.
fn replaced(lease: &SandboxLeased) -> Observation {
    let text = format!(
        "The sandbox was replaced by a new one: the shell, processes, Python variables and browser pages of before are \
         gone, and so may be files outside of {}.",
        lease.working_dir
    );
    Observation::error(text, SANDBOX_REPLACED)
}

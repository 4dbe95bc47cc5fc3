//! Starts work that is due and that its sandbox and the budget allow, and abandons work that is no
//! longer due.

use std::time::Duration;

use protocol::sandbox_api::SandboxAction;
use protocol::{AgentState, EventId};

use super::Transition;
use crate::clock;
use crate::conversation::input::Effect;
use crate::conversation::limits::Admission;
use crate::conversation::state::{
    AgentId, ModelCallId, PendingAction, PendingRequest, SandboxConnection,
};

impl Transition {
    /// Brings the schedule in line with the state. Returns the effects that do so, in order.
    pub(super) fn reconcile(&mut self) -> Vec<Effect> {
        self.drop_obsolete();
        self.schedule_actions();
        let mut effects = std::mem::take(&mut self.abandoned);
        effects.extend(self.connect());
        effects.extend(self.start_actions());
        effects.extend(
            std::mem::take(&mut self.cancelled)
                .into_iter()
                .map(|action| Effect::Cancel { action }),
        );
        effects.extend(self.start_steps());
        effects.extend(self.start_title_search());
        // One at a time: each estimate can make the others unnecessary.
        effects.extend(self.estimated.pop_first().map(Effect::EstimateCost));
        effects
    }

    /// Removes an agent's step from the schedule because its result has arrived. Returns whether
    /// the step was in flight: the result of an abandoned one is ignored.
    pub(super) fn finish_step(&mut self, agent: AgentId) -> bool {
        let is_started = self.state.schedule.is_step_started(agent);
        if is_started {
            self.state.schedule.steps.remove(&agent);
        }
        is_started
    }

    /// Abandons the steps of all agents.
    pub(super) fn abandon_steps(&mut self) {
        let steps = std::mem::take(&mut self.state.schedule.steps);
        let started = steps.into_iter().filter(|(_, work)| work.is_started);
        self.abandoned
            .extend(started.map(|(agent, _)| Effect::AbandonStep { agent }));
    }

    /// Cancels an action if it is in flight.
    pub(super) fn cancel(&mut self, action: EventId) {
        if self.state.schedule.is_action_started(action) {
            self.cancelled.push(action);
        }
    }

    /// Drops the connection, and with it all actions in the sandbox.
    pub(super) fn disconnect(&mut self) {
        let mut actions = std::mem::take(&mut self.state.schedule.actions);
        actions.retain(|action, _| {
            self.state
                .find_pending(*action)
                .is_some_and(|(_, pending)| !pending.is_for_sandbox())
        });
        self.state.schedule.actions = actions;
        self.state.schedule.sandbox = SandboxConnection::Absent;
    }

    pub(super) fn is_connected(&self) -> bool {
        self.state.schedule.sandbox == SandboxConnection::Connected
    }

    fn drop_obsolete(&mut self) {
        let mut schedule = std::mem::take(&mut self.state.schedule);
        for (agent, work) in schedule
            .steps
            .extract_if(.., |agent, _| !self.state.is_stepping(*agent))
        {
            self.abandoned
                .extend(work.is_started.then_some(Effect::AbandonStep { agent }));
        }
        schedule.actions.retain(|action, work| {
            self.state
                .find_pending(*action)
                .is_some_and(|(_, pending)| work.is_started || self.state.is_performing(pending))
        });
        self.state.schedule = schedule;
        if self.state.title.is_some() || self.state.is_title_too_expensive() {
            let search = self.state.schedule.title.take();
            let is_started = search.is_some_and(|search| search.work.is_started);
            self.abandoned
                .extend(is_started.then_some(Effect::AbandonTitle));
        }
    }

    fn schedule_actions(&mut self) {
        let due = self
            .state
            .pending()
            .filter(|(_, pending)| self.state.is_performing(pending));
        for action in due.map(|(_, pending)| pending.action).collect::<Vec<_>>() {
            self.state.schedule.actions.entry(action).or_default();
        }
    }

    /// Connects to a sandbox once work needs one.
    fn connect(&mut self) -> Option<Effect> {
        let is_needed = self.needs_sandbox();
        self.state.schedule.is_sandbox_requested = false;
        if self.state.schedule.sandbox != SandboxConnection::Absent || !is_needed {
            return None;
        }
        self.state.schedule.sandbox = SandboxConnection::Connecting;
        Some(match &self.state.lease {
            Some(lease) => Effect::Attach(Box::new(lease.clone())),
            None => Effect::Create,
        })
    }

    fn needs_sandbox(&self) -> bool {
        self.state.agent_state == AgentState::Loading
            || self.state.schedule.is_sandbox_requested
            || self
                .state
                .schedule
                .steps
                .values()
                .any(|work| !work.is_started)
            || self.waiting_actions().any(PendingAction::is_for_sandbox)
    }

    fn waiting_actions(&self) -> impl Iterator<Item = &PendingAction> {
        let pending = self.state.pending().map(|(_, pending)| pending);
        pending.filter(|pending| {
            let work = self.state.schedule.actions.get(&pending.action);
            work.is_some_and(|work| !work.is_started)
        })
    }

    fn start_actions(&mut self) -> Vec<Effect> {
        let waiting: Vec<PendingAction> = self.waiting_actions().cloned().collect();
        let mut effects = Vec::new();
        for pending in waiting {
            let action = pending.action;
            let has_sandbox = self.is_connected() || !pending.is_for_sandbox();
            if has_sandbox && (!pending.is_draft() || self.is_admitted(ModelCallId::Draft(action)))
            {
                self.state
                    .schedule
                    .actions
                    .entry(action)
                    .or_default()
                    .is_started = true;
                // The sandbox may have started it already: for an earlier process, or over a
                // connection that was lost.
                self.cancelled.extend(pending.is_stopped.then_some(action));
                effects.push(self.start_action(&pending));
            }
        }
        effects
    }

    fn start_action(&self, pending: &PendingAction) -> Effect {
        let action = pending.action;
        match &pending.request {
            PendingRequest::Tool(call) => Effect::CallTool {
                action,
                call: Box::new(call.clone()),
            },
            PendingRequest::Sandbox(request) => {
                let request = Box::new(request.clone());
                if let SandboxAction::Edit(draft) = &request.action
                    && draft.is_draft()
                {
                    return Effect::WriteDraft {
                        action,
                        draft: Box::new(draft.clone()),
                        request,
                    };
                }
                let now = clock::epoch_seconds(&self.at);
                // A negative difference is no duration: the deadline has passed.
                let remaining = |at| Duration::try_from_secs_f64(at - now).unwrap_or_default();
                Effect::Execute {
                    action,
                    request,
                    time_left: pending.cancelled_at.map(remaining),
                }
            }
        }
    }

    fn start_steps(&mut self) -> Vec<Effect> {
        let (seen, is_connected) = (self.state.next_id, self.is_connected());
        let waiting = self
            .state
            .schedule
            .steps
            .iter()
            .filter(|(_, work)| is_connected && !work.is_started);
        let mut effects = Vec::new();
        for agent in waiting.map(|(agent, _)| *agent).collect::<Vec<_>>() {
            if self.start_call(ModelCallId::Step(agent)) {
                effects.push(Effect::Step { agent, seen });
            }
        }
        effects
    }

    fn start_title_search(&mut self) -> Option<Effect> {
        let search = self
            .state
            .schedule
            .title
            .as_ref()
            .filter(|search| !search.work.is_started)?;
        let message = search.message.clone();
        self.start_call(ModelCallId::Title)
            .then_some(Effect::FindTitle { message })
    }

    /// Marks a call as started if the budget allows it now. Returns whether it does.
    fn start_call(&mut self, call: ModelCallId) -> bool {
        let is_admitted = self.is_admitted(call);
        if let Some(work) = self.state.schedule.work_mut(call).filter(|_| is_admitted) {
            work.is_started = true;
        }
        is_admitted
    }

    fn is_admitted(&mut self, call: ModelCallId) -> bool {
        let admission = self.state.admission(call);
        let is_admitted = admission == Admission::Start;
        if let Admission::Estimate(calls) = admission {
            self.estimated.extend(calls);
        }
        is_admitted
    }
}

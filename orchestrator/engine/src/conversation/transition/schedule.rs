//! Starts work that is due, and abandons work that no longer is.

use std::time::Duration;

use protocol::{AgentState, EventId};

use super::Turn;
use crate::clock;
use crate::conversation::input::Effect;
use crate::conversation::state::{AgentId, Pending, Request, SandboxConnection, WorkStatus};

impl Turn {
    /// Brings the schedule in line with the state. Returns the effects that do so, in order.
    pub(super) fn reconcile(&mut self) -> Vec<Effect> {
        self.drop_obsolete();
        self.schedule_actions();
        let mut effects = std::mem::take(&mut self.abandoned);
        effects.extend(self.connect());
        effects.extend(self.start_actions());
        effects
            .extend(std::mem::take(&mut self.cancelled).into_iter().map(|action| Effect::Cancel { action }));
        effects.extend(self.start_steps());
        effects
    }

    /// Removes an agent's step from the schedule because its result has arrived. Returns whether the step was in flight:
    /// the result of an abandoned one is ignored.
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
        let started = steps.into_iter().filter(|(_, status)| *status == WorkStatus::Started);
        self.abandoned.extend(started.map(|(agent, _)| Effect::AbandonStep { agent }));
    }

    /// Cancels an action that is in flight or waits for its sandbox.
    pub(super) fn cancel(&mut self, action: EventId) {
        if self.state.schedule.is_action_started(action) {
            self.cancelled.push(action);
        } else {
            self.state.schedule.actions.insert(action, WorkStatus::Cancelled);
        }
    }

    /// The connection was lost, and with it all actions that were in flight in the sandbox.
    pub(super) fn disconnect(&mut self) {
        let is_for_sandbox = |action: EventId| {
            let pending = self.state.pending().find(|(_, pending)| pending.action == action);
            pending.is_none_or(|(_, pending)| pending.is_for_sandbox())
        };
        let mut actions = self.state.schedule.actions.clone();
        actions.retain(|action, _| !is_for_sandbox(*action));
        self.state.schedule.actions = actions;
        self.state.schedule.sandbox = SandboxConnection::Absent;
    }

    pub(super) fn is_connected(&self) -> bool {
        self.state.schedule.sandbox == SandboxConnection::Connected
    }

    fn drop_obsolete(&mut self) {
        let mut schedule = std::mem::take(&mut self.state.schedule);
        for (agent, status) in schedule.steps.extract_if(.., |agent, _| !self.state.is_stepping(*agent)) {
            if status == WorkStatus::Started {
                self.abandoned.push(Effect::AbandonStep { agent });
            }
        }
        schedule.actions.retain(|action, status| {
            let pending = self.state.pending().find(|(_, pending)| pending.action == *action);
            pending.is_some_and(|(_, pending)| {
                *status == WorkStatus::Started || self.state.is_performing(pending)
            })
        });
        self.state.schedule = schedule;
    }

    fn schedule_actions(&mut self) {
        let due = self.state.pending().filter(|(_, pending)| self.state.is_performing(pending));
        for action in due.map(|(_, pending)| pending.action).collect::<Vec<_>>() {
            self.state.schedule.actions.entry(action).or_insert(WorkStatus::Waiting);
        }
    }

    /// Connects to a sandbox as soon as something needs one.
    fn connect(&mut self) -> Option<Effect> {
        let schedule = &self.state.schedule;
        if schedule.sandbox != SandboxConnection::Absent || !self.needs_sandbox() {
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
            || self.state.schedule.steps.values().any(|status| *status == WorkStatus::Waiting)
            || self.waiting_actions().any(|(pending, _)| pending.is_for_sandbox())
    }

    /// Actions that are not started yet, each with whether it is to be cancelled then.
    fn waiting_actions(&self) -> impl Iterator<Item = (&Pending, bool)> {
        self.state.pending().filter_map(|(_, pending)| {
            match self.state.schedule.actions.get(&pending.action)? {
                WorkStatus::Waiting => Some((pending, false)),
                WorkStatus::Cancelled => Some((pending, true)),
                WorkStatus::Started => None,
            }
        })
    }

    fn start_actions(&mut self) -> Vec<Effect> {
        let (mut effects, mut cancelled) = (Vec::new(), Vec::new());
        for (pending, is_cancelled) in self.waiting_actions() {
            if self.is_connected() || !pending.is_for_sandbox() {
                effects.push((pending.action, self.start(pending)));
                cancelled.extend(is_cancelled.then_some(pending.action));
            }
        }
        self.cancelled.extend(cancelled);
        let started = effects.iter().map(|(action, _)| (*action, WorkStatus::Started));
        self.state.schedule.actions.extend(started);
        effects.into_iter().map(|(_, effect)| effect).collect()
    }

    fn start(&self, pending: &Pending) -> Effect {
        let action = pending.action;
        match &pending.request {
            Request::Tool(call) => Effect::CallTool { action, call: Box::new(call.clone()) },
            Request::Sandbox(request) => {
                let now = clock::epoch_seconds(&self.at);
                // A difference that is no duration is negative: the time has passed.
                let remaining = |at| Duration::try_from_secs_f64(at - now).unwrap_or_default();
                let time_left = pending.cancelled_at.map(remaining);
                Effect::Execute { action, request: Box::new(request.clone()), time_left }
            }
        }
    }

    fn start_steps(&mut self) -> Vec<Effect> {
        let (is_connected, seen) = (self.is_connected(), self.state.next_id);
        let waiting =
            self.state.schedule.steps.iter_mut().filter(|(_, status)| **status == WorkStatus::Waiting);
        waiting
            .filter(|_| is_connected)
            .map(|(agent, status)| {
                *status = WorkStatus::Started;
                Effect::Step { agent: *agent, seen }
            })
            .collect()
    }
}

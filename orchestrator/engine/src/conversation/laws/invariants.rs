//! Invariants that hold in a world after every input.

use std::collections::{BTreeMap, BTreeSet};

use protocol::sandbox_api::SandboxAction;
use protocol::{Action, AgentState, EventBody, EventId, EventSource, Record};

use super::decision::PRICE;
use super::world::{Sandbox, World};
use crate::conversation::{SandboxConnection, Schedule};
use crate::security;

impl World {
    /// Panics if the state, the log or the schedule contradict each other or the work in flight.
    pub(super) fn check(&self) {
        let due = self
            .state
            .agents()
            .map(|(agent, _)| agent)
            .filter(|agent| self.state.is_stepping(*agent));
        let schedule = &self.state.schedule;
        assert!(
            schedule
                .steps
                .keys()
                .copied()
                .eq(due.collect::<BTreeSet<_>>()),
            "steps that are due are scheduled"
        );
        let steps = schedule
            .steps
            .iter()
            .filter(|(_, work)| work.is_started)
            .map(|(agent, _)| agent);
        assert!(
            steps.eq(self.stepping.keys()),
            "the schedule knows the steps in flight"
        );
        let connection = match self.sandbox {
            Sandbox::Absent => SandboxConnection::Absent,
            Sandbox::Connecting(_) => SandboxConnection::Connecting,
            Sandbox::Connected => SandboxConnection::Connected,
        };
        assert_eq!(
            schedule.sandbox, connection,
            "the schedule knows the connection"
        );
        let pending: BTreeSet<EventId> = self
            .state
            .pending()
            .map(|(_, pending)| pending.action)
            .collect();
        let in_flight: BTreeSet<EventId> = self.executing.keys().copied().collect();
        assert!(
            in_flight.is_subset(&pending),
            "no completed action is in flight"
        );
        for (_, pending) in self
            .state
            .pending()
            .filter(|(_, pending)| self.state.is_performing(pending))
        {
            assert!(
                schedule.actions.contains_key(&pending.action),
                "no pending action is forgotten"
            );
        }
        let actions = schedule
            .actions
            .iter()
            .filter(|(_, work)| work.is_started)
            .map(|(id, _)| id);
        assert!(
            actions.eq(in_flight.iter()),
            "the schedule knows the actions in flight"
        );
        for (_, pending) in self
            .state
            .pending()
            .filter(|(_, pending)| pending.is_stopped)
        {
            let is_cancelled = self.cancelled.contains(&pending.action);
            assert!(
                is_cancelled || !in_flight.contains(&pending.action),
                "a stopped action is cancelled"
            );
        }
        let is_title_started = schedule
            .title
            .as_ref()
            .is_some_and(|search| search.work.is_started);
        assert_eq!(
            is_title_started, self.is_finding_title,
            "the schedule knows the search for a title"
        );
        assert!(
            self.state.iterations <= self.state.max_iterations,
            "the limit holds"
        );
        if self.cost_requests.is_empty() {
            self.check_waiting();
        }
        let awaits = self.state.agent_state == AgentState::AwaitingUserConfirmation;
        assert!(
            !awaits || self.state.awaiting_confirmation().is_some(),
            "an action awaits the confirmation"
        );
        if self.state.agent_state == AgentState::Loading {
            let is_connecting = matches!(self.sandbox, Sandbox::Connecting(_));
            assert!(is_connecting || !self.executing.is_empty(), "loading ends");
        }
        let mut terminal_events: BTreeMap<u64, u32> = BTreeMap::new();
        for event in &self.log {
            if let (Some(cause), EventBody::Observation(_)) = (event.cause, &event.body) {
                *terminal_events.entry(cause.0).or_default() += 1;
            }
        }
        for event in &self.log {
            let (EventSource::Agent | EventSource::Environment, EventBody::Action(action)) =
                (event.source, &event.body)
            else {
                continue;
            };
            let is_open = match action {
                Action::Delegate(_) => self.state.children.contains_key(&event.id),
                Action::CallToolMcp(_) => pending.contains(&event.id),
                action if SandboxAction::try_from(action.clone()).is_ok() => {
                    pending.contains(&event.id)
                }
                _ => continue,
            };
            let found = terminal_events.get(&event.id.0).copied().unwrap_or(0);
            assert_eq!(
                found,
                u32::from(!is_open),
                "action {} has exactly one terminal event",
                event.id
            );
        }
        assert!(
            terminal_events.values().all(|count| *count == 1),
            "no terminal event is duplicated"
        );
        self.check_children();
    }

    /// Waiting work waits for the connection to the sandbox, or for calls in flight that take the
    /// rest of the budget.
    fn check_waiting(&self) {
        let Schedule {
            sandbox,
            steps,
            actions,
            ..
        } = &self.state.schedule;
        let is_draft = |action: &EventId| self.drafts().any(|draft| draft == *action);
        let drafts = actions
            .iter()
            .filter(|(action, _)| is_draft(action))
            .map(|(_, work)| work);
        let calls: Vec<_> = steps.values().chain(drafts).collect();
        let in_flight: f64 = calls
            .iter()
            .filter(|work| work.is_started)
            .filter_map(|work| work.max_cost)
            .sum();
        let title = if self.is_finding_title { PRICE } else { 0.0 };
        let spent = self.state.metrics.accumulated_cost + in_flight + title;
        let budget = self.state.max_budget.unwrap_or(f64::MAX);
        let is_connecting = *sandbox == SandboxConnection::Connecting;
        for work in calls.iter().filter(|work| !work.is_started) {
            let waits_for_calls = in_flight > 0.0
                && work
                    .max_cost
                    .is_some_and(|cost| cost > 0.0 && spent + cost > budget);
            assert!(
                is_connecting || waits_for_calls,
                "{work:?} waits for nothing"
            );
        }
        let mut others = actions
            .iter()
            .filter(|(action, work)| !work.is_started && !is_draft(action));
        assert!(
            is_connecting || others.next().is_none(),
            "an action waits only for the connection"
        );
    }

    /// Events belong to agents that have not ended, and the state has exactly those agents.
    fn check_children(&self) {
        let mut open = BTreeSet::new();
        for event in &self.log {
            assert!(
                event.delegation.is_none_or(|id| open.contains(&id)),
                "{event:?} belongs to an agent that has ended"
            );
            if matches!(
                (event.source, &event.body),
                (EventSource::Agent, EventBody::Action(Action::Delegate(_)))
            ) {
                open.insert(event.id);
            }
            if let Some(cause) = event.cause {
                open.remove(&cause);
            }
        }
        assert!(
            open.iter().eq(self.state.children.keys()),
            "the state has the agents that have not ended"
        );
        assert!(
            self.state.children.len() <= 8,
            "concurrent tasks are limited"
        );
        assert!(
            self.state.children.values().all(|child| child.depth <= 3),
            "the delegation depth is limited"
        );
        let shells: BTreeSet<_> = self
            .state
            .agents()
            .map(|(_, run)| run.session.as_str())
            .collect();
        assert_eq!(
            shells.len(),
            self.state.children.len() + 1,
            "no two agents share a shell"
        );
    }

    /// No action starts that requires confirmation and is neither confirmed nor approved.
    pub(super) fn check_confirmed(&self, action: EventId) {
        let event = &self.log[usize::try_from(action.0).unwrap()];
        let (EventSource::Agent, EventBody::Action(action)) = (event.source, &event.body) else {
            return;
        };
        let is_confirmed = self.log.iter().skip(event.id.0 as usize).any(|event| {
            matches!(&event.body, EventBody::Action(Action::ChangeAgentState(changed))
                if changed.agent_state == AgentState::UserConfirmed)
        });
        let is_required = self
            .state
            .confirmation
            .requires_confirmation(action.security_risk());
        let is_approved = self.log.iter().take(event.id.0 as usize).any(|event| {
            matches!(&event.body, EventBody::Record(Record::ApprovalGranted(approval)) if security::covers(approval, action))
        });
        assert!(
            !is_required || is_confirmed || is_approved,
            "no action starts before it is confirmed"
        );
    }
}

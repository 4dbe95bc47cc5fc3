//! Decides what a conversation does next. Pure: live runs, recovery, replay and simulation share
//! it.
//!
//! Two laws keep it small. An agent's step is due exactly when [`State::is_stepping`], and a
//! pending action is due when [`State::is_performing`]: not in `error`, so that leaving `error`
//! performs it again under the same id, and not before the user confirmed it. An input therefore
//! only changes the state. Then [`Transition::settle`] schedules the steps that are due, and
//! [`Transition::reconcile`] starts and abandons work.
//!
//! `states.md` lists every path from state to state. A test compares it with this module.

mod delegation;
mod sandbox;
mod schedule;
pub(super) mod step;
mod user;

use std::collections::BTreeSet;

use protocol::action::ChangeAgentStateAction;
use protocol::metrics::Metrics;
use protocol::observation::AgentStateChangedObservation;
use protocol::record::{ConversationTitled, LimitReached};
use protocol::tool_call::ToolCallMetadata;
use protocol::{
    Action, AgentState, Event, EventBody, EventId, EventSource, Observation, Record, Timestamp,
};

use super::input::{ConversationStart, Effect, Input, InputKind};
use super::limits::{BUDGET_REACHED, LimitExceeded};
use super::state::{AgentId, ModelCallId, PendingAction, ScheduledWork, State, TitleSearch};
use super::terminal::{STOPPED, interrupted, not_performed};
use crate::agent::ModelCall;
use crate::clock;
use delegation::TaskOutcome;

pub use sandbox::is_replacement_notice;

/// Applies an input. Returns the new state, and the effects in order.
pub fn transition(state: State, input: Input) -> (State, Vec<Effect>) {
    let mut transition = Transition::new(state, input.at);
    let mut effects = Vec::new();
    if transition.state.started.is_some() || matches!(input.kind, InputKind::Start(_)) {
        transition.apply_input(input.kind);
        transition.settle();
        effects.extend(transition.replaces_models.then_some(Effect::ReplaceModels));
        effects.extend(transition.applied.take());
        effects.extend(transition.reconcile());
    }
    if !transition.events.is_empty() {
        effects.insert(0, Effect::Append(transition.events));
    }
    (transition.state, effects)
}

/// A transition in progress. Events are applied to the state as they are appended.
struct Transition {
    state: State,
    at: Timestamp,
    events: Vec<Event>,
    /// Whether the user has chosen another model.
    replaces_models: bool,
    /// Report about the user's command.
    applied: Option<Effect>,
    /// Effects that abandon work.
    abandoned: Vec<Effect>,
    /// Actions in flight that are to be cancelled.
    cancelled: Vec<EventId>,
    /// Calls whose maximum cost is to be estimated.
    estimated: BTreeSet<ModelCallId>,
}

impl Transition {
    fn new(state: State, at: Timestamp) -> Self {
        Self {
            state,
            at,
            events: Vec::new(),
            replaces_models: false,
            applied: None,
            abandoned: Vec::new(),
            cancelled: Vec::new(),
            estimated: BTreeSet::new(),
        }
    }

    fn apply_input(&mut self, input: InputKind) {
        match input {
            InputKind::Start(start) => self.start(*start),
            InputKind::Recovered => self.recover(),
            InputKind::User(request) => self.on_command(*request),
            InputKind::CallRetried { agent, retry } => {
                if self.state.schedule.is_step_started(agent) {
                    self.on_call_retried(agent, retry);
                }
            }
            InputKind::StepDeferred { agent, notices } => {
                if self.finish_step(agent) {
                    self.append_notices(agent, notices);
                }
            }
            InputKind::StepRefused { agent, reason } => {
                if self.finish_step(agent) {
                    self.fail(agent, &reason);
                }
            }
            InputKind::StepDone {
                agent,
                seen,
                result,
            } => {
                if self.finish_step(agent) {
                    match result {
                        Ok(step) => self.on_step_done(agent, *step, seen),
                        Err(error) => self.on_step_failed(agent, &error),
                    }
                }
            }
            InputKind::ActionDone {
                action,
                observation,
            } => {
                if let Some((agent, _)) = self.state.find_pending(action) {
                    self.on_action_done(agent, *observation);
                }
            }
            InputKind::DraftDone { action, result } => {
                if let Some((agent, _)) = self.state.find_pending(action) {
                    self.on_draft_done(agent, action, result);
                }
            }
            InputKind::SandboxReady(lease) => self.on_sandbox_ready(lease),
            InputKind::SandboxFailed { reason } => self.on_sandbox_failed(&reason),
            InputKind::SandboxLost { detail } => self.on_sandbox_lost(&detail),
            InputKind::SandboxRemoved => self.on_sandbox_removed(),
            InputKind::CostEstimated { call, max_cost } => {
                if let Some(work) = self.state.schedule.work_mut(call) {
                    work.max_cost = Some(max_cost);
                }
            }
            InputKind::TitleRequested { message, max_cost } => {
                self.request_title(message, max_cost);
            }
            InputKind::TitleFound { title, call } => {
                self.state.schedule.title = None;
                // The user may have set one meanwhile.
                if self.state.title.is_none() {
                    self.set_title(title, call.as_ref());
                }
            }
        }
    }

    fn start(&mut self, start: ConversationStart) {
        if self.state.started.is_none() {
            self.append(None, EventSource::Environment, Record::from(start.started));
            self.append(None, EventSource::Agent, Action::from(start.system));
            self.change_state(AgentState::Loading, "");
            if let Some(title) = start.title {
                self.set_title(title, None);
            }
            if let Some(message) = start.message {
                self.on_user_message(message);
            }
        }
    }

    fn request_title(&mut self, message: String, max_cost: f64) {
        if self.state.title.is_none() && self.state.schedule.title.is_none() {
            let work = ScheduledWork {
                max_cost: Some(max_cost),
                ..ScheduledWork::default()
            };
            self.state.schedule.title = Some(TitleSearch { message, work });
        }
    }

    fn set_title(&mut self, title: String, call: Option<&ModelCall>) {
        let title = Record::from(ConversationTitled { title });
        let mut event = self.event(None, EventSource::Environment, title);
        event.llm_metrics = self.metrics_with(call);
        self.push(event);
    }

    /// Resumes the work of an earlier process.
    fn recover(&mut self) {
        // The result of an earlier call to a tool server cannot be read.
        for agent in self.agents_with_pending(|pending| {
            !pending.awaits_confirmation && !pending.is_for_sandbox()
        }) {
            self.end_pending(
                agent,
                interrupted("the program ended during the tool server's call"),
            );
        }
        // The log of a fork or of V0 can end between a delegation and its briefing.
        let unbriefed = self
            .state
            .children
            .iter()
            .filter(|(_, child)| !child.is_briefed);
        for child in unbriefed.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_child(
                child,
                &TaskOutcome::Failed("it did not receive its task".into()),
            );
        }
        let has_answered = match self.state.agent_state {
            AgentState::UserConfirmed | AgentState::UserRejected => true,
            AgentState::AwaitingUserConfirmation => self.state.awaiting_confirmation().is_none(),
            _ => false,
        };
        if has_answered {
            self.change_state(self.working_state(), "");
        }
    }

    /// Sends messages of a replayed user, ends abandoned tasks and refused drafts, continues the
    /// set-up, and schedules due steps.
    fn settle(&mut self) {
        if self.state.is_budget_reached() {
            // Steps that wait for calls in flight are scheduled again below, where the budget holds
            // them. Steps that cost nothing stay, with their estimate: estimating them again would
            // not end.
            let mut steps = std::mem::take(&mut self.state.schedule.steps);
            steps.retain(|agent, work| work.is_started || self.state.waits_for_children(*agent));
            self.state.schedule.steps = steps;
        }
        loop {
            if let Some(message) = self.due_message() {
                self.on_user_message(message);
            } else if let Some(child) = self.abandoned_child() {
                self.end_child(child, &TaskOutcome::Stopped);
            } else if let Some((agent, reason)) = self.refused_draft() {
                self.end_pending(agent, not_performed(reason));
            } else if self.is_setup_due() {
                self.set_up();
            } else if let Some(agent) = self.agent_with_due_step() {
                if !self.hold_step(agent) {
                    self.state
                        .schedule
                        .steps
                        .insert(agent, ScheduledWork::default());
                }
            } else {
                return;
            }
        }
    }

    /// Agent of a draft that is not written out, with the reason: the user stopped it, or the
    /// budget is reached. The agent receives the reason. If the budget is reached, its next step is
    /// held.
    fn refused_draft(&self) -> Option<(AgentId, &'static str)> {
        let mut drafts = self.state.pending().filter(|(_, pending)| {
            pending.is_draft()
                && self.state.is_performing(pending)
                && !self.state.schedule.is_action_started(pending.action)
        });
        drafts.find_map(|(agent, pending)| {
            if pending.is_stopped {
                Some((agent, STOPPED))
            } else {
                self.state
                    .is_budget_reached()
                    .then_some((agent, BUDGET_REACHED))
            }
        })
    }

    fn agent_with_due_step(&self) -> Option<AgentId> {
        let mut agents = self.state.agents().map(|(agent, _)| agent);
        agents.find(|agent| {
            self.state.is_stepping(*agent) && !self.state.schedule.steps.contains_key(agent)
        })
    }

    /// Holds an agent's step if the workspace is not set up, or if a loop or a limit ends it.
    /// Returns whether it did.
    fn hold_step(&mut self, agent: AgentId) -> bool {
        if self.state.setup_step().is_some() {
            self.change_state(AgentState::Loading, "");
            return true;
        }
        // The calls of one response were decided together.
        if self.state.waits_for_children(agent) {
            return false;
        }
        // The steps of other agents count as soon as they are due.
        let due = self
            .state
            .schedule
            .steps
            .keys()
            .filter(|agent| !self.state.waits_for_children(**agent));
        let limit = self.state.limit_exceeded(due.count());
        if let Some(stuck) = self.state.detected_loop(agent) {
            let observation = stuck.to_observation();
            let reason = observation.content.clone();
            self.append(agent, EventSource::Environment, observation);
            self.fail(agent, &reason);
        } else if let Some(exceeded) = limit {
            if agent.is_none() {
                let LimitExceeded { limit, at } = exceeded;
                self.append(
                    agent,
                    EventSource::Environment,
                    Record::from(LimitReached { limit, at }),
                );
            }
            self.fail(agent, &exceeded.reason(agent));
        } else {
            return false;
        }
        true
    }

    /// Fails an agent. The user can resume the conversation's own; any other one ends.
    fn fail(&mut self, agent: AgentId, reason: &str) {
        match agent {
            None => self.change_state(AgentState::Error, reason),
            Some(child) => self.end_child(child, &TaskOutcome::Failed(reason.to_owned())),
        }
    }

    /// Returns the state in which agents step.
    fn working_state(&self) -> AgentState {
        match self.state.awaiting_confirmation() {
            Some(_) => AgentState::AwaitingUserConfirmation,
            None => AgentState::Running,
        }
    }

    /// Agents whose pending action matches.
    fn agents_with_pending(&self, matches: impl Fn(&PendingAction) -> bool) -> Vec<AgentId> {
        let pending = self.state.pending().filter(|(_, pending)| matches(pending));
        pending.map(|(agent, _)| agent).collect()
    }

    fn end_pending(&mut self, agent: AgentId, observation: Observation) {
        if let Some(pending) = self.state.pending_action(agent).cloned() {
            self.append_outcome(
                agent,
                pending.action,
                pending.tool_call_metadata,
                observation,
            );
        }
    }

    fn append_outcome(
        &mut self,
        agent: AgentId,
        cause: EventId,
        tool_call_metadata: Option<ToolCallMetadata>,
        observation: Observation,
    ) {
        // As in V0, the source is that of the action.
        let is_setup = self
            .state
            .pending_action(agent)
            .is_some_and(|pending| pending.setup.is_some());
        let source = if is_setup {
            EventSource::Environment
        } else {
            EventSource::Agent
        };
        let mut event = self.event(agent, source, observation);
        event.cause = Some(cause);
        event.tool_call_metadata = tool_call_metadata;
        self.push(event);
    }

    /// Returns the totals including a call. `None` if there was no call.
    fn metrics_with(&self, call: Option<&ModelCall>) -> Option<Metrics> {
        let mut metrics = self.state.metrics.totals();
        call?.record_in(&mut metrics, clock::epoch_seconds(&self.at));
        Some(metrics)
    }

    fn change_state_for_user(&mut self, agent_state: AgentState, thought: &str) {
        let action = ChangeAgentStateAction {
            agent_state,
            thought: thought.to_owned(),
        };
        self.append(None, EventSource::User, Action::from(action));
        self.change_state(agent_state, "");
    }

    fn change_state(&mut self, agent_state: AgentState, reason: &str) {
        let changed = AgentStateChangedObservation {
            agent_state,
            reason: reason.to_owned(),
        };
        self.append(
            None,
            EventSource::Environment,
            Observation::without_content(changed),
        );
    }

    fn append(
        &mut self,
        agent: AgentId,
        source: EventSource,
        body: impl Into<EventBody>,
    ) -> EventId {
        let event = self.event(agent, source, body);
        self.push(event)
    }

    fn event(&self, agent: AgentId, source: EventSource, body: impl Into<EventBody>) -> Event {
        let mut event = Event::new(self.state.next_id, self.at.clone(), source, body);
        event.delegation = agent;
        event
    }

    fn push(&mut self, event: Event) -> EventId {
        let id = event.id;
        // A step that is not started yet will see this event, which can increase its cost.
        let call = ModelCallId::Step(event.delegation);
        if let Some(work) = self
            .state
            .schedule
            .work_mut(call)
            .filter(|work| !work.is_started)
        {
            work.max_cost = None;
        }
        if let Some(user) = &mut self.state.schedule.replayed_user {
            user.count(&event);
        }
        if is_work(&event) && self.state.schedule.continue_requests.is_some() {
            self.state.schedule.continue_requests = Some(0);
        }
        self.state.apply(&event);
        self.events.push(event);
        id
    }
}

/// Whether an agent acts, and does not only send a message.
fn is_work(event: &Event) -> bool {
    event.source == EventSource::Agent
        && matches!(&event.body, EventBody::Action(action)
            if !matches!(action, Action::Message(_) | Action::System(_)))
}

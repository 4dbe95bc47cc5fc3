//! The state of a conversation: the fold of its log, and nothing else.

mod child;
mod run;
mod schedule;

use std::collections::BTreeMap;

use protocol::action::MessageAction;
use protocol::metrics::Metrics;
use protocol::observation::AgentStateChangedObservation;
use protocol::record::{ApprovalGranted, ConversationStarted, Limit, SandboxLeased};
use protocol::risk::ConfirmationPolicy;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{
    Action, AgentState, BootId, Event, EventBody, EventId, EventSource, Observation, ObservationKind, Record,
};

use super::setup::{self, Outcome, Repository, SetupStep};
use super::stuck::Stuck;
use super::terminal::INTERRUPTED;
use crate::clock;

pub use child::{AgentId, Child};
pub use run::{Pending, Request, Run};
pub use schedule::{ModelCallId, SandboxConnection, Schedule, TitleSearch, Work};

/// What the log says, and the work that this process does on it. The same log always folds to the same state.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Where the log ends.
    pub next_id: EventId,
    /// What the conversation was asked to be; nothing before it begins.
    pub started: Option<ConversationStarted>,
    /// What it is about, in one line, if a title was found.
    pub title: Option<String>,
    /// What the agent does.
    pub agent_state: AgentState,
    /// Steps taken.
    pub iterations: u32,
    /// Steps that may be taken.
    pub max_iterations: u32,
    /// What the model's calls may cost, in US dollars: no step begins beyond it.
    pub max_budget: Option<f64>,
    /// What the agent may do unasked.
    pub confirmation: ConfirmationPolicy,
    /// What the user approved for the rest of the conversation.
    pub approvals: Vec<ApprovalGranted>,
    /// The limit that stopped the agent, until it goes on.
    pub limit_reached: Option<Limit>,
    /// What the model's calls have cost, without the calls.
    pub metrics: Metrics,
    /// The sandbox.
    pub lease: Option<SandboxLeased>,
    /// The life of the latest sandbox's server, also when it is over.
    pub latest_boot: Option<BootId>,
    /// Steps of the workspace's set-up that this sandbox has behind it.
    pub setup_done: usize,
    /// How often in a row a sandbox was lost in the middle of its set-up.
    pub setup_losses: u32,
    /// The user's latest message.
    pub last_user_message: Option<EventId>,
    /// What it says.
    pub last_message: Option<Box<MessageAction>>,
    /// The conversation's own agent.
    pub own: Run,
    /// Those that a task was handed on to and that have not ended, by the action that did.
    pub children: BTreeMap<EventId, Child>,
    /// Work in flight, and work that waits to be started.
    pub schedule: Schedule,
}

impl Default for State {
    fn default() -> Self {
        Self {
            next_id: EventId::FIRST,
            started: None,
            title: None,
            agent_state: AgentState::Loading,
            iterations: 0,
            max_iterations: 0,
            max_budget: None,
            confirmation: ConfirmationPolicy::Never,
            approvals: Vec::new(),
            limit_reached: None,
            metrics: Metrics::default(),
            lease: None,
            latest_boot: None,
            setup_done: 0,
            setup_losses: 0,
            last_user_message: None,
            last_message: None,
            own: Run::default(),
            children: BTreeMap::new(),
            schedule: Schedule::default(),
        }
    }
}

impl State {
    /// The state after a whole log.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut state = Self::default();
        events.into_iter().for_each(|event| state.apply(event));
        state
    }

    /// The state after one more event.
    pub fn apply(&mut self, event: &Event) {
        self.next_id = event.id.next();
        if let Some(metrics) = &event.llm_metrics {
            // A condensation is paid for, and a title, but the agent has not stepped.
            let is_step =
                !matches!(event.body, EventBody::Action(Action::Condensation(_)) | EventBody::Record(_));
            self.iterations += u32::from(is_step);
            self.metrics = metrics.totals();
            if let Some(child) = event.delegation.and_then(|id| self.children.get_mut(&id)) {
                child.count(metrics, is_step);
            }
        }
        if let Some(run) = self.run_mut(event.delegation) {
            run.apply(event);
        }
        match &event.body {
            EventBody::Action(action) => self.apply_action(event, action),
            EventBody::Observation(observation) => {
                if let Some(action) = event.cause {
                    self.end_action(action, event.delegation, observation);
                }
                if let ObservationKind::AgentStateChanged(changed) = &observation.kind {
                    self.enter(event.id, changed);
                }
            }
            EventBody::Record(record) => self.apply_record(record),
        }
    }

    /// An agent's own part; nothing when it has ended.
    pub fn run(&self, agent: AgentId) -> Option<&Run> {
        match agent {
            None => Some(&self.own),
            Some(id) => self.children.get(&id).map(|child| &child.run),
        }
    }

    fn run_mut(&mut self, agent: AgentId) -> Option<&mut Run> {
        match agent {
            None => Some(&mut self.own),
            Some(id) => self.children.get_mut(&id).map(|child| &mut child.run),
        }
    }

    /// All agents that have not ended: those that a task was handed on to, then the conversation's own.
    pub fn agents(&self) -> impl Iterator<Item = (AgentId, &Run)> {
        let children = self.children.iter().map(|(id, child)| (Some(*id), &child.run));
        children.chain([(None, &self.own)])
    }

    /// All actions that have no ending yet, with the agent that each is of.
    pub fn pending(&self) -> impl Iterator<Item = (AgentId, &Pending)> {
        self.agents().filter_map(|(agent, run)| Some((agent, run.pending.as_ref()?)))
    }

    /// The first of the actions that wait for the user's word.
    pub fn asked(&self) -> Option<(AgentId, &Pending)> {
        self.pending().filter(|(_, pending)| pending.is_asked).min_by_key(|(_, pending)| pending.action)
    }

    /// Whether an action has no ending yet.
    pub fn is_underway(&self) -> bool {
        self.pending().next().is_some()
    }

    /// Those that have taken a step, and know of the sandbox what it showed them.
    pub(super) fn agents_with_steps(&self) -> impl Iterator<Item = AgentId> {
        let children = self.children.iter().filter(|(_, child)| child.iterations > 0);
        let own = (self.iterations > 0).then_some(None);
        children.map(|(id, _)| Some(*id)).chain(own)
    }

    /// Returns what the events determine: the state without what this process has started or is about to start.
    pub fn without_schedule(&self) -> Self {
        Self { schedule: Schedule::default(), ..self.clone() }
    }

    /// Whether something goes on: a step is being taken, or an action is being performed.
    pub fn is_working(&self) -> bool {
        self.agents().any(|(agent, _)| self.is_stepping(agent))
            || self.pending().any(|(_, pending)| self.is_performing(pending))
    }

    /// Whether agents take steps where nothing keeps them waiting. While the user is asked about one, the others do.
    fn lets_agents_step(&self) -> bool {
        matches!(
            self.agent_state,
            AgentState::Running | AgentState::RateLimited | AgentState::AwaitingUserConfirmation
        )
    }

    /// Whether an agent is taking a step: neither an action nor a task that it handed on keeps it waiting.
    pub fn is_stepping(&self, agent: AgentId) -> bool {
        self.lets_agents_step()
            && self.run(agent).is_some_and(|run| {
                run.pending.is_none() && (run.is_delegating || !self.waits_for_children(agent))
            })
    }

    /// Whether a task that an agent handed on is being worked on.
    pub(super) fn waits_for_children(&self, agent: AgentId) -> bool {
        self.children.values().any(|child| child.parent == agent)
    }

    /// Whether an action that has no ending yet is being performed: it waits neither for the user's word nor for a sandbox
    /// that could not be reached.
    pub fn is_performing(&self, pending: &Pending) -> bool {
        !pending.is_asked && self.agent_state != AgentState::Error
    }

    /// The repository that was cloned into the workspace.
    pub(super) fn repository(&self) -> Option<Repository> {
        let setup = self.started.as_ref()?.setup.as_ref()?;
        setup::repository(setup, &self.lease.as_ref()?.working_dir)
    }

    /// The loop that an agent is in, unless loops are let be.
    pub(super) fn detected_loop(&self, agent: AgentId) -> Option<Stuck> {
        let lets_be = self.started.as_ref().is_some_and(|started| started.stuck_detection_disabled);
        self.run(agent)?.stuck.found().filter(|_| !lets_be)
    }

    /// The next step of the workspace's set-up in this sandbox; nothing: the agent can work in it. One that is not there
    /// yet has all of it ahead.
    pub fn setup_step(&self) -> Option<SetupStep> {
        let setup = self.started.as_ref()?.setup.as_ref()?;
        SetupStep::all_of(setup).get(self.setup_done).copied()
    }

    /// Counts a step of the set-up as done, unless it is repeated: because the user stopped it, because the agent cannot
    /// work without it, or because its sandbox was lost.
    fn end_setup_step(&mut self, pending: &Pending, observation: &Observation) {
        let Some(step) = pending.setup else { return };
        let is_done = match SetupStep::outcome(observation) {
            Outcome::Done => true,
            Outcome::Failed => !step.is_required() && !pending.is_stopped,
            Outcome::Cut => false,
        };
        if is_done {
            self.setup_done += 1;
            self.setup_losses = 0;
        } else if matches!(&observation.kind, ObservationKind::Error(error) if error.error_id == INTERRUPTED)
        {
            self.setup_losses += 1;
        }
    }

    /// An action, or a task that was handed on, has come to its end.
    fn end_action(&mut self, action: EventId, agent: AgentId, observation: &Observation) {
        self.children.remove(&action);
        let Some(run) = self.run_mut(agent) else { return };
        if let Some(pending) = run.pending.take_if(|pending| pending.action == action) {
            self.end_setup_step(&pending, observation);
        }
    }

    /// `id` is the word's own: what waits for the user is told right before it.
    fn enter(&mut self, id: EventId, changed: &AgentStateChangedObservation) {
        self.agent_state = changed.agent_state;
        match changed.agent_state {
            AgentState::Loading => self.setup_losses = 0,
            AgentState::AwaitingUserConfirmation => {
                let told = self.runs_mut().filter_map(|run| run.pending.as_mut());
                for pending in told.filter(|pending| pending.action.next() == id) {
                    pending.is_asked = true;
                    pending.risk_reason.clone_from(&changed.reason);
                }
            }
            AgentState::UserConfirmed => {
                let asked = self.runs_mut().filter_map(|run| run.pending.as_mut());
                let first = asked.filter(|pending| pending.is_asked).min_by_key(|pending| pending.action);
                if let Some(first) = first {
                    first.is_asked = false;
                }
            }
            AgentState::Stopped => {
                let pending = self.runs_mut().filter_map(|run| run.pending.as_mut());
                pending.for_each(|pending| pending.is_stopped = true);
            }
            _ => {}
        }
    }

    fn runs_mut(&mut self) -> impl Iterator<Item = &mut Run> {
        self.children.values_mut().map(|child| &mut child.run).chain([&mut self.own])
    }

    fn apply_action(&mut self, event: &Event, action: &Action) {
        match (event.source, action) {
            (EventSource::User, Action::Message(message)) => {
                // Of another agent's it is the task.
                if let Some(id) = event.delegation {
                    self.children.entry(id).and_modify(|child| child.is_briefed = true);
                    return;
                }
                self.last_user_message = Some(event.id);
                self.last_message = Some(Box::new(message.clone()));
            }
            (EventSource::Agent, Action::Delegate(delegate)) => {
                let child = Child::new(event, delegate, &self.children);
                self.children.insert(event.id, child);
            }
            (EventSource::Environment, Action::Run(run)) => {
                // At its time it is cancelled. The answer may not come later than a little after that in any case.
                let answered_after = event.timeout.map(|seconds| seconds + setup::CANCEL_GRACE_PERIOD);
                self.own.pending = self.setup_step().map(|step| Pending {
                    action: event.id,
                    request: Request::Sandbox(ActionRequest::new(
                        SandboxAction::Run(run.clone()),
                        answered_after,
                    )),
                    tool_call_metadata: None,
                    setup: Some(step),
                    cancelled_at: event
                        .timeout
                        .map(|seconds| clock::epoch_seconds(&event.timestamp) + seconds),
                    is_asked: false,
                    is_stopped: false,
                    risk_reason: String::new(),
                });
            }
            _ => {}
        }
    }

    fn apply_record(&mut self, record: &Record) {
        match record {
            Record::ConversationStarted(started) => {
                self.max_iterations = started.max_iterations;
                self.max_budget = started.max_budget;
                self.confirmation = started.confirmation;
                self.metrics.max_budget_per_task = started.max_budget;
                self.started = Some(started.clone());
            }
            Record::SandboxLeased(lease) => {
                self.lease = Some(lease.clone());
                self.latest_boot = Some(lease.boot_id.clone());
                self.setup_done = 0;
            }
            Record::SandboxReleased(_) => {
                self.lease = None;
                self.setup_done = 0;
            }
            Record::LimitReached(reached) => self.limit_reached = Some(reached.limit),
            Record::LimitExtended(extended) => {
                self.limit_reached = None;
                match extended.limit {
                    Limit::Iterations => self.max_iterations = whole(extended.to),
                    Limit::Budget => {
                        self.max_budget = Some(extended.to);
                        self.metrics.max_budget_per_task = self.max_budget;
                    }
                }
            }
            Record::ConfirmationChanged(changed) => self.confirmation = changed.policy,
            Record::ApprovalGranted(approval) => self.approvals.push(approval.clone()),
            Record::ConversationTitled(titled) => self.title = Some(titled.title.clone()),
            // What is edited is its agent's.
            Record::ModelRetried(_) | Record::EditDrafted(_) => {}
        }
    }
}

/// A number of steps; a log may hold anything.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn whole(number: f64) -> u32 {
    number as u32
}

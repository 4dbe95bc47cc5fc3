//! The state of a conversation: the fold of its log, with the schedule of this process.

mod child;
mod commands;
mod run;
mod schedule;

use std::collections::{BTreeMap, BTreeSet};

use protocol::action::MessageAction;
use protocol::metrics::Metrics;
use protocol::observation::AgentStateChangedObservation;
use protocol::record::{ApprovalGranted, ConversationStarted, Limit, ModelSource, SandboxLeased};
use protocol::risk::ConfirmationPolicy;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{
    Action, AgentState, Event, EventBody, EventId, EventSource, Observation, ObservationKind,
    Record,
};

use super::setup::{self, Repository, SetupStep, SetupStepResult};
use super::stuck::AgentLoop;
use super::terminal::INTERRUPTED;
use super::transition::is_replacement_notice;
use crate::clock;

pub use child::{AgentId, ChildAgent};
pub use commands::AppliedCommands;
pub use run::{AgentRun, PendingAction, PendingRequest};
pub use schedule::{ModelCallId, SandboxConnection, Schedule, ScheduledWork, TitleSearch};

/// State of a conversation. The same log always folds to the same state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Id of the next event.
    pub next_id: EventId,
    /// Settings of the conversation. `None` before it is started.
    pub started: Option<ConversationStarted>,
    /// Title in one line. `None` if there is none yet.
    pub title: Option<String>,
    /// State of the conversation's own agent.
    pub agent_state: AgentState,
    /// Steps taken by all agents.
    pub iterations: u32,
    /// Maximum number of steps.
    pub max_iterations: u32,
    /// Maximum cost of all model calls, in US dollars. No step starts once it is reached.
    pub max_budget: Option<f64>,
    /// Which actions require the user's confirmation.
    pub confirmation: ConfirmationPolicy,
    /// Approvals of similar actions for the rest of the conversation.
    pub approvals: Vec<ApprovalGranted>,
    /// Limit that stopped the agent. `None` once it is extended.
    pub limit_reached: Option<Limit>,
    /// Total cost and tokens of the model calls, without the single calls.
    pub metrics: Metrics,
    /// Lease of the sandbox. `None` if there is no sandbox.
    pub lease: Option<SandboxLeased>,
    /// Lease of the latest sandbox, which may be gone.
    pub latest_lease: Option<SandboxLeased>,
    /// Agents that know that their sandbox was replaced, or will be.
    pub notified_of_replacement: BTreeSet<AgentId>,
    /// Number of set-up steps of the workspace that this sandbox has completed.
    pub setup_done: usize,
    /// Number of sandboxes in a row that were lost during their set-up.
    pub setup_losses: u32,
    /// Length of all messages of the user, in bytes.
    pub user_bytes: u64,
    /// The user's latest message.
    pub last_user_message: Option<EventId>,
    /// Content of that message.
    pub last_message: Option<Box<MessageAction>>,
    /// The latest commands of the user.
    pub commands: AppliedCommands,
    /// The conversation's own agent.
    pub own: AgentRun,
    /// Agents of delegated tasks that have not ended, by the action that delegated the task.
    pub children: BTreeMap<EventId, ChildAgent>,
    /// Work in flight, and work that waits to be started.
    pub schedule: Schedule,
}

impl State {
    /// Folds a whole log.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut state = Self::default();
        events.into_iter().for_each(|event| state.apply(event));
        state
    }

    /// Applies the next event of the log.
    pub fn apply(&mut self, event: &Event) {
        self.next_id = event.id.next();
        if let Some(command) = &event.command {
            self.commands.add(command.clone(), event.id);
        }
        if is_replacement_notice(event) {
            self.notified_of_replacement.insert(event.delegation);
        }
        if let Some(metrics) = &event.llm_metrics {
            // Condensations and titles have a cost, but are no steps.
            let is_step = !matches!(
                event.body,
                EventBody::Action(Action::Condensation(_)) | EventBody::Record(_)
            );
            self.iterations += u32::from(is_step);
            self.metrics = metrics.totals();
            if let Some(child) = event.delegation.and_then(|id| self.children.get_mut(&id)) {
                child.count_call(metrics, is_step);
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

    /// State of one agent. `None` if it has ended.
    pub fn run(&self, agent: AgentId) -> Option<&AgentRun> {
        match agent {
            None => Some(&self.own),
            Some(id) => self.children.get(&id).map(|child| &child.run),
        }
    }

    fn run_mut(&mut self, agent: AgentId) -> Option<&mut AgentRun> {
        match agent {
            None => Some(&mut self.own),
            Some(id) => self.children.get_mut(&id).map(|child| &mut child.run),
        }
    }

    /// All agents that have not ended, the conversation's own last.
    pub fn agents(&self) -> impl Iterator<Item = (AgentId, &AgentRun)> {
        let children = self
            .children
            .iter()
            .map(|(id, child)| (Some(*id), &child.run));
        children.chain([(None, &self.own)])
    }

    /// All actions without a terminal event, each with its agent.
    pub fn pending(&self) -> impl Iterator<Item = (AgentId, &PendingAction)> {
        self.agents()
            .filter_map(|(agent, run)| Some((agent, run.pending.as_ref()?)))
    }

    /// The pending action of an agent.
    pub(super) fn pending_action(&self, agent: AgentId) -> Option<&PendingAction> {
        self.run(agent)?.pending.as_ref()
    }

    /// An action without a terminal event, with its agent. `None` if the action has one.
    pub(super) fn find_pending(&self, action: EventId) -> Option<(AgentId, &PendingAction)> {
        self.pending().find(|(_, pending)| pending.action == action)
    }

    /// The first of the actions that await the user's confirmation, with its agent.
    pub fn awaiting_confirmation(&self) -> Option<(AgentId, &PendingAction)> {
        self.pending()
            .filter(|(_, pending)| pending.awaits_confirmation)
            .min_by_key(|(_, pending)| pending.action)
    }

    /// Whether any action has no terminal event yet.
    pub fn has_pending_actions(&self) -> bool {
        self.pending().next().is_some()
    }

    /// Agents that have taken a step, and so may rely on what they saw in the sandbox.
    pub(super) fn agents_with_steps(&self) -> impl Iterator<Item = AgentId> {
        let children = self
            .children
            .iter()
            .filter(|(_, child)| child.iterations > 0);
        let own = (self.iterations > 0).then_some(None);
        children.map(|(id, _)| Some(*id)).chain(own)
    }

    /// Returns what the events determine: the state without what this process has started or is
    /// about to start.
    pub fn without_schedule(&self) -> Self {
        Self {
            schedule: Schedule::default(),
            ..self.clone()
        }
    }

    /// Whether any step or action is due or in flight.
    pub fn is_working(&self) -> bool {
        self.agents().any(|(agent, _)| self.is_stepping(agent))
            || self
                .pending()
                .any(|(_, pending)| self.is_performing(pending))
    }

    /// Whether agents that wait for nothing may step. While one awaits confirmation, the others
    /// continue.
    fn allows_steps(&self) -> bool {
        matches!(
            self.agent_state,
            AgentState::Running | AgentState::RateLimited | AgentState::AwaitingUserConfirmation
        )
    }

    /// Whether an agent's step is due or in flight: the agent waits neither for an action nor for a
    /// delegated task.
    pub fn is_stepping(&self, agent: AgentId) -> bool {
        self.allows_steps()
            && self.run(agent).is_some_and(|run| {
                run.pending.is_none() && (run.is_delegating || !self.waits_for_children(agent))
            })
    }

    /// Whether a task that the agent delegated has not ended.
    pub(super) fn waits_for_children(&self, agent: AgentId) -> bool {
        self.children.values().any(|child| child.parent == agent)
    }

    /// Whether a pending action is due or in flight: it awaits no confirmation, and its sandbox is
    /// not unreachable.
    pub fn is_performing(&self, pending: &PendingAction) -> bool {
        !pending.awaits_confirmation && self.agent_state != AgentState::Error
    }

    /// The folder that the set-up clones the repository of the workspace to. `None` if it clones
    /// none, or there is no sandbox.
    pub fn repository_folder(&self) -> Option<String> {
        self.repository()
            .map(|repository| repository.folder)
            .filter(|folder| !folder.is_empty())
    }

    /// The folder that the knowledge of the repository's organization is cloned to. `None` if there
    /// is none, or no sandbox.
    pub fn organization_folder(&self) -> Option<String> {
        self.repository()
            .map(|repository| repository.knowledge_folder)
            .filter(|folder| !folder.is_empty())
    }

    /// The repository of the workspace. `None` if the set-up clones none.
    pub(super) fn repository(&self) -> Option<Repository> {
        let setup = self.started.as_ref()?.setup.as_ref()?;
        setup::repository(setup, &self.lease.as_ref()?.working_dir)
    }

    /// The loop that an agent is in. `None` if loop detection is disabled.
    pub(super) fn detected_loop(&self, agent: AgentId) -> Option<AgentLoop> {
        let is_disabled = self
            .started
            .as_ref()
            .is_some_and(|started| started.stuck_detection_disabled);
        self.run(agent)?
            .stuck
            .detected_loop()
            .filter(|_| !is_disabled)
    }

    /// The next set-up step of the workspace. `None` if the set-up is complete. A sandbox that does
    /// not exist yet starts with the first step.
    pub fn setup_step(&self) -> Option<SetupStep> {
        let setup = self.started.as_ref()?.setup.as_ref()?;
        SetupStep::all_for(setup).get(self.setup_done).copied()
    }

    /// Counts a set-up step as done, unless it is repeated: if the user stopped it, if it failed
    /// and is required, or if its sandbox was lost.
    fn end_setup_step(&mut self, pending: &PendingAction, observation: &Observation) {
        let Some(step) = pending.setup else { return };
        let is_done = match SetupStep::result(observation) {
            SetupStepResult::Done => true,
            SetupStepResult::Failed => !step.is_required() && !pending.is_stopped,
            SetupStepResult::Interrupted => false,
        };
        if is_done {
            self.setup_done += 1;
            self.setup_losses = 0;
        } else if matches!(&observation.kind, ObservationKind::Error(error) if error.error_id == INTERRUPTED)
        {
            self.setup_losses += 1;
        }
    }

    /// Completes an action or a delegated task.
    fn end_action(&mut self, action: EventId, agent: AgentId, observation: &Observation) {
        self.children.remove(&action);
        let Some(run) = self.run_mut(agent) else {
            return;
        };
        if let Some(pending) = run.pending.take_if(|pending| pending.action == action) {
            self.end_setup_step(&pending, observation);
        }
    }

    /// `id` is the event of the change. An action that awaits confirmation is the event right
    /// before it.
    fn enter(&mut self, id: EventId, changed: &AgentStateChangedObservation) {
        self.agent_state = changed.agent_state;
        match changed.agent_state {
            AgentState::Loading => self.setup_losses = 0,
            AgentState::AwaitingUserConfirmation => {
                let actions = self.runs_mut().filter_map(|run| run.pending.as_mut());
                for pending in actions.filter(|pending| pending.action.next() == id) {
                    pending.awaits_confirmation = true;
                    pending.risk_reason.clone_from(&changed.reason);
                }
            }
            AgentState::UserConfirmed => {
                let actions = self.runs_mut().filter_map(|run| run.pending.as_mut());
                let first = actions
                    .filter(|pending| pending.awaits_confirmation)
                    .min_by_key(|pending| pending.action);
                if let Some(first) = first {
                    first.awaits_confirmation = false;
                }
            }
            AgentState::Stopped => {
                let pending = self.runs_mut().filter_map(|run| run.pending.as_mut());
                pending.for_each(|pending| pending.is_stopped = true);
            }
            _ => {}
        }
    }

    fn runs_mut(&mut self) -> impl Iterator<Item = &mut AgentRun> {
        self.children
            .values_mut()
            .map(|child| &mut child.run)
            .chain([&mut self.own])
    }

    fn apply_action(&mut self, event: &Event, action: &Action) {
        match (event.source, action) {
            (EventSource::User, Action::Message(message)) => {
                // The user message of another agent is its task.
                if let Some(id) = event.delegation {
                    self.children
                        .entry(id)
                        .and_modify(|child| child.is_briefed = true);
                    return;
                }
                self.user_bytes += message.length();
                self.last_user_message = Some(event.id);
                self.last_message = Some(Box::new(message.clone()));
            }
            (EventSource::Agent, Action::Delegate(delegate)) => {
                let child = ChildAgent::new(event, delegate, &self.children);
                self.children.insert(event.id, child);
            }
            (EventSource::Environment, Action::Run(run)) => {
                // It is cancelled at its timeout. The sandbox must respond within the grace period
                // after that.
                let request_timeout = event
                    .timeout
                    .map(|seconds| seconds + setup::CANCEL_GRACE_PERIOD);
                let request = ActionRequest::new(SandboxAction::Run(run.clone()), request_timeout);
                let started_at = clock::epoch_seconds(&event.timestamp);
                self.own.pending = self.setup_step().map(|step| PendingAction {
                    setup: Some(step),
                    cancelled_at: event.timeout.map(|seconds| started_at + seconds),
                    ..PendingAction::new(event, PendingRequest::Sandbox(request))
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
                self.latest_lease = Some(lease.clone());
                self.notified_of_replacement.clear();
                self.setup_done = 0;
            }
            Record::SandboxReleased(_) => {
                self.lease = None;
                self.notified_of_replacement.clear();
                self.setup_done = 0;
            }
            Record::LimitReached(reached) => self.limit_reached = Some(reached.limit),
            Record::LimitExtended(extended) => {
                self.limit_reached = None;
                match extended.limit {
                    Limit::Iterations => self.max_iterations = to_step_count(extended.to),
                    Limit::Budget => {
                        self.max_budget = Some(extended.to);
                        self.metrics.max_budget_per_task = self.max_budget;
                    }
                }
            }
            Record::ConfirmationChanged(changed) => self.confirmation = changed.policy,
            Record::ModelChanged(changed) => {
                if let Some(started) = &mut self.started {
                    started.model.clone_from(&changed.model);
                    started.model_source = Some(ModelSource::Conversation);
                }
            }
            Record::ApprovalGranted(approval) => self.approvals.push(approval.clone()),
            Record::ConversationTitled(titled) => self.title = Some(titled.title.clone()),
            // The agent's state has the edit, and feedback is for people.
            Record::ModelRetried(_) | Record::EditDrafted(_) | Record::FeedbackGiven(_) => {}
        }
    }
}

/// Converts to a number of steps. A log may hold any number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
fn to_step_count(number: f64) -> u32 {
    number as u32
}

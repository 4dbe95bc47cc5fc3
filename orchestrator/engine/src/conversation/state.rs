//! The state of a conversation: the fold of its log, and nothing else.

use protocol::action::{CallToolMcpAction, MessageAction, TrackedTask};
use protocol::metrics::Metrics;
use protocol::record::{ConversationStarted, Limit, SandboxLeased};
use protocol::risk::ConfirmationPolicy;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::tool_call::ToolCallMetadata;
use protocol::{Action, AgentState, Body, Event, EventId, EventSource, Observation, ObservationKind, Record};

use super::setup::{self, Outcome, SetupStep};
use super::step::Repository;
use super::stuck::{Stuck, StuckDetector};
use super::transition::INTERRUPTED;
use crate::clock;

/// What the log says. The same log always folds to the same state.
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
    /// The limit that stopped the agent, until it goes on.
    pub limit_reached: Option<Limit>,
    /// What the model's calls have cost.
    pub metrics: Metrics,
    /// The one action that has no ending yet.
    pub pending: Option<Pending>,
    /// The sandbox.
    pub lease: Option<SandboxLeased>,
    /// Steps of the workspace's set-up that this sandbox has behind it.
    pub setup_done: usize,
    /// How often in a row a sandbox was lost in the middle of its set-up.
    pub setup_losses: u32,
    /// The user's latest message.
    pub last_user_message: Option<EventId>,
    /// What it says.
    pub last_message: Option<Box<MessageAction>>,
    /// Whether the agent goes in circles.
    pub stuck: StuckDetector,
    /// The agent's list of tasks.
    pub tasks: Vec<TrackedTask>,
    /// A condensation was asked for and has not come since.
    pub is_condensation_requested: bool,
}

/// An action without an ending.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// The action.
    pub action: EventId,
    /// What is asked, and of whom.
    pub request: Request,
    /// The model's call that it answers.
    pub tool_call_metadata: Option<ToolCallMetadata>,
    /// What of the workspace's set-up it is; nothing: the agent's own.
    pub setup: Option<SetupStep>,
    /// When it is cancelled, in seconds since the epoch.
    pub cancelled_at: Option<f64>,
}

/// What an action without an ending asks.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// The sandbox, which can be asked again under the same id.
    Sandbox(ActionRequest),
    /// A tool server, which cannot.
    Tool(CallToolMcpAction),
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
            limit_reached: None,
            metrics: Metrics::default(),
            pending: None,
            lease: None,
            setup_done: 0,
            setup_losses: 0,
            last_user_message: None,
            last_message: None,
            stuck: StuckDetector::default(),
            tasks: Vec::new(),
            is_condensation_requested: false,
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
        self.stuck.apply(event);
        if let Some(metrics) = &event.llm_metrics {
            self.metrics.clone_from(metrics);
            // It is paid for, but the agent has not stepped.
            let is_aside = matches!(event.body, Body::Action(Action::Condensation(_)) | Body::Record(_));
            self.iterations += u32::from(!is_aside);
        }
        match &event.body {
            Body::Action(action) => self.apply_action(event, action),
            Body::Observation(observation) => {
                if let Some(pending) = self.pending.take_if(|pending| event.cause == Some(pending.action)) {
                    self.end_setup_step(pending.setup, observation);
                }
                if let ObservationKind::TaskTracking(tracking) = &observation.kind {
                    self.tasks.clone_from(&tracking.task_list);
                }
                if let ObservationKind::AgentStateChanged(changed) = &observation.kind {
                    self.agent_state = changed.agent_state;
                    if changed.agent_state == AgentState::Loading {
                        self.setup_losses = 0;
                    }
                }
            }
            Body::Record(record) => self.apply_record(record),
        }
    }

    /// Whether the action that has no ending yet is the sandbox's.
    pub(super) fn is_for_sandbox(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| matches!(pending.request, Request::Sandbox(_)))
    }

    /// Whether the agent is taking a step: it runs, and no action keeps it waiting.
    pub fn is_stepping(&self) -> bool {
        matches!(self.agent_state, AgentState::Running | AgentState::RateLimited) && self.pending.is_none()
    }

    /// Whether the action that has no ending yet is being performed: it waits neither for the user's word nor for a
    /// sandbox that could not be reached.
    pub fn is_performing(&self) -> bool {
        self.pending.is_some()
            && !matches!(self.agent_state, AgentState::Error | AgentState::AwaitingUserConfirmation)
    }

    /// The repository that was cloned into the workspace.
    pub(super) fn repository(&self) -> Option<Repository> {
        let setup = self.started.as_ref()?.setup.as_ref()?;
        setup::repository(setup, &self.lease.as_ref()?.working_dir)
    }

    /// The loop that the agent is in, unless loops are let be.
    pub(super) fn loop_to_end(&self) -> Option<Stuck> {
        let lets_be = self.started.as_ref().is_some_and(|started| started.lets_loops_be);
        self.stuck.found().filter(|_| !lets_be)
    }

    /// The limit that is reached, and what at.
    pub(super) fn limit(&self) -> Option<(Limit, f64)> {
        let cost = self.metrics.accumulated_cost;
        if self.iterations >= self.max_iterations {
            Some((Limit::Iterations, f64::from(self.iterations)))
        } else if self.max_budget.is_some_and(|most| cost >= most) {
            Some((Limit::Budget, cost))
        } else {
            None
        }
    }

    /// The next step of the workspace's set-up in this sandbox; nothing: the agent can work in it. One that is not there
    /// yet has all of it ahead.
    pub fn setup_step(&self) -> Option<SetupStep> {
        let setup = self.started.as_ref()?.setup.as_ref()?;
        SetupStep::all_of(setup).get(self.setup_done).copied()
    }

    /// A step that the user stopped is taken again from its beginning, and so is one that the agent cannot do without.
    fn end_setup_step(&mut self, step: Option<SetupStep>, observation: &Observation) {
        let Some(step) = step else { return };
        let is_behind = match SetupStep::outcome(observation) {
            Outcome::Done => true,
            Outcome::Failed => !step.is_required() && self.agent_state == AgentState::Loading,
            Outcome::Cut => false,
        };
        if is_behind {
            self.setup_done += 1;
            self.setup_losses = 0;
        } else if matches!(&observation.kind, ObservationKind::Error(error) if error.error_id == INTERRUPTED)
        {
            self.setup_losses += 1;
        }
    }

    fn apply_action(&mut self, event: &Event, action: &Action) {
        match (event.source, action) {
            (_, Action::Condensation(_)) => self.is_condensation_requested = false,
            (_, Action::CondensationRequest(_)) => self.is_condensation_requested = true,
            (EventSource::User, Action::Message(message)) => {
                self.last_user_message = Some(event.id);
                self.last_message = Some(Box::new(message.clone()));
            }
            (EventSource::Agent, action) => {
                let request = match (SandboxAction::try_from(action.clone()), action) {
                    (Ok(action), _) => Request::Sandbox(ActionRequest::new(action, event.timeout)),
                    (Err(_), Action::CallToolMcp(call)) => Request::Tool(call.clone()),
                    (Err(_), _) => return,
                };
                self.pending = Some(Pending {
                    action: event.id,
                    request,
                    tool_call_metadata: event.tool_call_metadata.clone(),
                    setup: None,
                    cancelled_at: None,
                });
            }
            (EventSource::Environment, Action::Run(run)) => {
                // At its time it is cancelled. The answer may not come later than a little after that in any case.
                let answered_after = event.timeout.map(|seconds| seconds + setup::CANCEL_TIME);
                self.pending = self.setup_step().map(|step| Pending {
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
            Record::ConversationTitled(titled) => self.title = Some(titled.title.clone()),
            Record::ModelRetried(_) => {}
        }
    }
}

/// A number of steps; a log may hold anything.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn whole(number: f64) -> u32 {
    number as u32
}

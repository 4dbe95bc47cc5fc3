//! Model of a conversation's task: it applies inputs, performs the effects and keeps the log and
//! the work in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::action::{EditAction, EditCommand, RecallAction, RecallType};
use protocol::observation::{CommandMetadata, RunObservation, ThinkObservation};
use protocol::record::{ConversationStarted, ModelRetried, SandboxLeased, WorkspaceSetup};
use protocol::risk::ConfirmationPolicy;
use protocol::{
    Action, AgentState, CommandRequest, Event, EventId, EventSource, Observation, ObservationKind,
    UserCommand,
};

use super::decision::{Decision, PRICE, call, delegate_step, delegate_tasks, step, system};
use crate::agent::AgentStep;
use crate::conversation::terminal::interrupted;
use crate::conversation::{
    AgentId, ConversationStart, Effect, Input, InputKind, ModelCallId, Notice, State, transition,
};
use crate::draft_editor::DraftResult;
use crate::llm::LlmError;
use crate::testing::timestamp;
use crate::view::View;

/// Initial budget of a conversation, in US dollars.
const BUDGET: f64 = 2.5;

/// The model that a conversation starts with.
const MODEL: &str = "scripted";

/// Maximum number of cost estimates in a row. More than the pairs of nine agents.
const MAX_ESTIMATES: usize = 100;

/// What happens next in a world. An occurrence that needs work in flight has no effect if there is
/// none.
#[derive(Debug, Clone)]
pub(in crate::conversation) enum Occurrence {
    Message,
    Stop,
    Pause,
    Resume(bool),
    /// The user opens the conversation again.
    Reopen,
    Confirm,
    Approve,
    /// The client sends a command again that caused an event: the latest one, or one before it.
    Repeat(usize),
    TitleRequested,
    TitleFound,
    UserTitle,
    UserModel(&'static str),
    Reject(&'static str),
    CallRetried,
    StepDeferred,
    StepRefused,
    StepDone(Decision),
    StaleStepDone,
    ActionDone,
    ActionFailed,
    ActionInterrupted,
    DuplicateActionDone,
    DuplicateDraftDone,
    SandboxReady,
    SandboxFailed,
    SandboxLost,
    Crash,
}

/// A conversation and its work in flight.
#[derive(Default)]
pub(in crate::conversation) struct World {
    pub(in crate::conversation) state: State,
    pub(in crate::conversation) log: Vec<Event>,
    /// Steps in flight.
    pub(super) stepping: BTreeMap<AgentId, EventId>,
    pub(super) sandbox: Sandbox,
    /// Actions in flight, and whether each is performed in the sandbox.
    pub(super) executing: BTreeMap<EventId, bool>,
    /// Actions in flight that were cancelled.
    pub(super) cancelled: BTreeSet<EventId>,
    /// The model that answers.
    model: String,
    pub(super) is_finding_title: bool,
    /// Calls whose maximum cost is to be reported.
    pub(super) cost_requests: Vec<ModelCallId>,
    /// Number of cost estimates since the last other input.
    estimate_count: usize,
    /// Number of inputs. Selects one of several candidates, such as the step that ends next.
    input_count: usize,
    last_completed: Option<EventId>,
    /// Number of boots of sandboxes.
    boot_count: u32,
    /// The user's commands that caused events.
    commands: Vec<(CommandRequest, EventId)>,
    /// The latest report about a command.
    applied: Option<Option<EventId>>,
}

#[derive(Default, PartialEq)]
pub(super) enum Sandbox {
    #[default]
    Absent,
    Connecting(Option<Box<SandboxLeased>>),
    Connected,
}

impl World {
    /// A world in which a new conversation has started.
    pub(in crate::conversation) fn start(
        setup: Option<WorkspaceSetup>,
        confirmation: ConfirmationPolicy,
    ) -> Self {
        let mut world = Self {
            model: MODEL.to_owned(),
            ..Self::default()
        };
        world.apply_input(InputKind::Start(Box::new(ConversationStart {
            started: ConversationStarted {
                agent: "CodeActAgent".into(),
                model: MODEL.to_owned(),
                max_iterations: 6,
                max_budget: Some(BUDGET),
                confirmation,
                runtime: "scripted".into(),
                setup,
                ..Default::default()
            },
            system: system(),
            title: None,
            message: None,
        })));
        world
    }

    /// A world without work in flight, whose log was forked from that of another world.
    pub(super) fn with_log(log: Vec<Event>) -> Self {
        let state = State::fold(&log);
        Self {
            model: recorded_model(&state),
            state,
            log,
            ..Self::default()
        }
    }

    pub(super) fn apply_input(&mut self, kind: InputKind) {
        self.input_count += 1;
        let is_estimate = matches!(kind, InputKind::CostEstimated { .. });
        self.estimate_count = if is_estimate {
            self.estimate_count + 1
        } else {
            0
        };
        assert!(
            self.estimate_count <= MAX_ESTIMATES,
            "cost estimates in a row are limited"
        );
        let before = self.state.clone();
        let (state, effects) = transition(
            std::mem::take(&mut self.state),
            Input {
                at: timestamp(),
                kind,
            },
        );
        for (index, effect) in effects.iter().enumerate() {
            assert_eq!(
                matches!(effect, Effect::Append(_)),
                index == 0 && state.without_schedule() != before.without_schedule(),
                "append comes first, once"
            );
        }
        let (cost, budget) = (
            before.metrics.accumulated_cost,
            before.max_budget.unwrap_or(f64::MAX),
        );
        let is_paid_for = state.metrics.accumulated_cost == cost || cost < budget;
        assert!(is_paid_for, "at most one call exceeds the budget");
        self.state = state;
        for effect in effects {
            self.perform(effect);
        }
        while let Some(call) = self.cost_requests.pop() {
            self.apply_input(InputKind::CostEstimated {
                call,
                max_cost: self.max_cost(call),
            });
        }
        assert_eq!(
            self.model,
            recorded_model(&self.state),
            "the model of the log answers"
        );
        self.check();
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Append(events) => {
                for event in &events {
                    assert_eq!(event.id.0, self.log.len() as u64, "ids have no gaps");
                    self.log.push(event.clone());
                }
            }
            Effect::ReportApplied { event } => {
                assert_eq!(self.applied.replace(event), None, "it is reported once");
            }
            Effect::ReplaceModels => self.model = recorded_model(&self.state),
            Effect::Step { agent, seen } => {
                assert_eq!(seen, self.state.next_id);
                assert_eq!(
                    self.state.setup_step(),
                    None,
                    "no agent steps before the set-up"
                );
                assert_eq!(
                    self.stepping.insert(agent, seen),
                    None,
                    "an agent takes one step at a time"
                );
                assert!(
                    self.sandbox == Sandbox::Connected,
                    "no agent steps without its sandbox"
                );
            }
            Effect::AbandonStep { agent } => {
                assert!(
                    self.stepping.remove(&agent).is_some(),
                    "only a step in flight is abandoned"
                );
            }
            Effect::Create => {
                assert!(
                    self.sandbox == Sandbox::Absent && self.state.lease.is_none(),
                    "no second sandbox"
                );
                self.sandbox = Sandbox::Connecting(None);
            }
            Effect::Attach(lease) => {
                assert!(
                    self.sandbox == Sandbox::Absent,
                    "a sandbox is attached to once"
                );
                self.sandbox = Sandbox::Connecting(Some(lease));
            }
            Effect::Execute { action, .. } => {
                assert!(
                    self.sandbox == Sandbox::Connected,
                    "no action is performed without a sandbox"
                );
                self.start_action(action, true);
            }
            Effect::WriteDraft { action, .. } => {
                assert!(
                    self.sandbox == Sandbox::Connected,
                    "no draft is written out without a sandbox"
                );
                assert_ne!(
                    self.state.agent_state,
                    AgentState::Stopped,
                    "no draft is written out after a stop"
                );
                self.start_action(action, true);
            }
            Effect::CallTool { action, .. } => self.start_action(action, false),
            Effect::EstimateCost(call) => self.cost_requests.push(call),
            Effect::FindTitle { .. } => {
                assert!(
                    !self.is_finding_title && self.state.title.is_none(),
                    "one title is searched for once"
                );
                self.is_finding_title = true;
            }
            Effect::AbandonTitle => {
                assert!(
                    std::mem::take(&mut self.is_finding_title),
                    "only a search in flight is abandoned"
                );
            }
            Effect::Cancel { action } => {
                assert!(
                    self.executing.contains_key(&action),
                    "only actions in flight are cancelled"
                );
                self.cancelled.insert(action);
                if self.state.find_pending(action).is_none() {
                    self.executing.remove(&action);
                }
            }
        }
    }

    /// Applies a command with an id of its own.
    pub(super) fn command(&mut self, command: UserCommand) {
        let request = CommandRequest {
            id: Some(format!("command-{}", self.input_count).parse().unwrap()),
            command,
        };
        let before = self.log.len();
        if let Some(event) = self.apply_request(&request) {
            assert!(event.0 >= before as u64, "a command causes a new event");
            self.commands.push((request, event));
        } else {
            let mut appended = self.log[before..].iter();
            assert!(
                appended.all(|event| event.source != EventSource::User),
                "what a command causes is reported"
            );
        }
    }

    fn repeat(&mut self, back: usize) {
        let Some((request, event)) = self.commands.iter().rev().nth(back).cloned() else {
            return;
        };
        let before = self.log.len();
        assert_eq!(self.apply_request(&request), Some(event));
        assert_eq!(self.log.len(), before, "a command is applied once");
    }

    /// Returns the event that a command caused.
    fn apply_request(&mut self, request: &CommandRequest) -> Option<EventId> {
        self.apply_input(InputKind::User(Box::new(request.clone())));
        let event = self.applied.take().expect("every command is reported");
        if let Some(event) = event {
            let index = usize::try_from(event.0).unwrap();
            assert_eq!(self.log[index].command, request.id);
        }
        event
    }

    fn start_action(&mut self, action: EventId, is_for_sandbox: bool) {
        self.check_confirmed(action);
        self.cancelled.remove(&action);
        assert_eq!(
            self.executing.insert(action, is_for_sandbox),
            None,
            "an action is started once"
        );
    }

    /// Whether any agent takes a step.
    pub(super) fn is_stepping(&self) -> bool {
        !self.stepping.is_empty()
    }

    /// The first action that is in flight or waits for the sandbox.
    pub(super) fn executing(&self) -> Option<EventId> {
        self.state.schedule.actions.keys().next().copied()
    }

    /// Removes one of the steps in flight. Returns its agent and the first event that the agent
    /// does not see.
    fn remove_step(&mut self) -> Option<(AgentId, EventId)> {
        let agents: Vec<_> = self.stepping.keys().collect();
        let agent = **agents.get(self.input_count.checked_rem(agents.len())?)?;
        self.stepping.remove_entry(&agent)
    }

    pub(in crate::conversation) fn apply(&mut self, occurrence: &Occurrence) {
        match occurrence {
            Occurrence::Message => self.command(UserCommand::message("do it")),
            Occurrence::Stop => self.command(UserCommand::Stop),
            Occurrence::Pause => self.command(UserCommand::Pause),
            Occurrence::Reopen => self.command(UserCommand::AwaitMessage),
            Occurrence::Resume(extend) => self.command(UserCommand::Resume {
                more_iterations: extend.then_some(12),
                more_budget: extend.then_some(BUDGET),
            }),
            Occurrence::Confirm => self.command(UserCommand::confirm(None)),
            Occurrence::Approve => self.command(UserCommand::Confirm {
                action: None,
                and_similar: true,
            }),
            Occurrence::Repeat(back) => self.repeat(*back),
            Occurrence::TitleRequested => {
                self.apply_input(InputKind::TitleRequested {
                    message: "do it".into(),
                    max_cost: PRICE,
                });
            }
            Occurrence::TitleFound => {
                if std::mem::take(&mut self.is_finding_title) {
                    self.apply_input(InputKind::TitleFound {
                        title: "work".into(),
                        call: call(),
                    });
                }
            }
            Occurrence::UserModel(model) => self.command(UserCommand::SetModel {
                model: (*model).to_owned(),
            }),
            Occurrence::UserTitle => self.command(UserCommand::SetTitle {
                title: "mine".into(),
            }),
            Occurrence::Reject(reason) => self.command(UserCommand::Reject {
                action: None,
                reason: (*reason).to_owned(),
            }),
            Occurrence::StepDeferred => {
                if let Some((agent, _)) = self.remove_step() {
                    let recalled = Observation::new("", ThinkObservation {});
                    let notices = [
                        (
                            EventSource::User,
                            Action::from(RecallAction {
                                recall_type: RecallType::Knowledge,
                                query: "do it".into(),
                                thought: String::new(),
                            })
                            .into(),
                            false,
                        ),
                        (EventSource::Agent, recalled.into(), true),
                    ];
                    let notices = notices.map(|(source, body, is_result)| Notice {
                        source,
                        body,
                        is_result,
                    });
                    self.apply_input(InputKind::StepDeferred {
                        agent,
                        notices: notices.into(),
                    });
                }
            }
            Occurrence::StepRefused => {
                if let Some((agent, _)) = self.remove_step() {
                    self.apply_input(InputKind::StepRefused {
                        agent,
                        reason: "no Chromium was found".into(),
                    });
                }
            }
            Occurrence::CallRetried => {
                let retry = ModelRetried {
                    attempt: 2,
                    attempts: 3,
                    after: 1.0,
                    reason: "too many calls".into(),
                };
                let agent = self.stepping.keys().next().copied().flatten();
                self.apply_input(InputKind::CallRetried { agent, retry });
            }
            Occurrence::StepDone(decision) => {
                if let Some((agent, seen)) = self.remove_step() {
                    self.report_step(agent, seen, *decision);
                }
            }
            Occurrence::StaleStepDone => {
                // The task drops results of abandoned steps. The transition ignores them too.
                for agent in [None, Some(EventId(1))] {
                    if !self.state.is_stepping(agent) {
                        let result = step(Decision::Run);
                        self.apply_input(InputKind::StepDone {
                            agent,
                            seen: EventId(0),
                            result,
                        });
                    }
                }
            }
            Occurrence::ActionDone => self.complete_action(ran(0)),
            Occurrence::ActionFailed => self.complete_action(ran(1)),
            Occurrence::ActionInterrupted => {
                self.complete_action(interrupted("its result cannot be read"));
            }
            Occurrence::DuplicateActionDone => {
                if let Some(action) = self.last_completed {
                    self.apply_input(action_done(action, ran(0)));
                }
            }
            Occurrence::DuplicateDraftDone => {
                if let Some(action) = self.last_completed {
                    self.apply_input(draft_done(action, true));
                }
            }
            Occurrence::SandboxReady => {
                if let Sandbox::Connecting(lease) = &self.sandbox {
                    // A new sandbox has a new boot id.
                    self.boot_count += u32::from(lease.is_none());
                    self.sandbox = Sandbox::Connected;
                    self.apply_input(InputKind::SandboxReady(self.lease()));
                }
            }
            Occurrence::SandboxFailed => {
                if let Sandbox::Connecting(_) = self.sandbox {
                    self.lose_sandbox();
                    self.apply_input(InputKind::SandboxFailed {
                        reason: "no engine".into(),
                    });
                }
            }
            Occurrence::SandboxLost => {
                if self.sandbox == Sandbox::Connected
                    || matches!(self.sandbox, Sandbox::Connecting(Some(_)))
                {
                    self.lose_sandbox();
                    self.apply_input(InputKind::SandboxLost {
                        detail: "power cut".into(),
                    });
                }
            }
            Occurrence::Crash => self.crash(),
        }
    }

    /// Calls to tool servers continue.
    fn lose_sandbox(&mut self) {
        self.sandbox = Sandbox::Absent;
        self.executing.retain(|_, is_for_sandbox| !*is_for_sandbox);
    }

    pub(super) fn remove_sandbox(&mut self) {
        self.lose_sandbox();
        self.apply_input(InputKind::SandboxRemoved);
    }

    fn complete_action(&mut self, observation: Observation) {
        let in_flight: Vec<EventId> = self.executing.keys().copied().collect();
        if let Some(number) = self.input_count.checked_rem(in_flight.len()) {
            let action = in_flight[number];
            self.executing.remove(&action);
            if self.drafts().any(|draft| draft == action) {
                let is_written = matches!(observation.kind, ObservationKind::Run(_));
                return self.apply_input(draft_done(action, is_written));
            }
            self.last_completed = Some(action);
            self.apply_input(action_done(action, observation));
        }
    }

    /// The pending drafts of edits.
    pub(super) fn drafts(&self) -> impl Iterator<Item = EventId> {
        self.state
            .pending()
            .filter(|(_, pending)| pending.is_draft())
            .map(|(_, pending)| pending.action)
    }

    fn crash(&mut self) {
        assert_eq!(
            State::fold(&self.log),
            self.state.without_schedule(),
            "the state is the fold of the log"
        );
        self.state = self.state.without_schedule();
        self.stepping.clear();
        self.executing.clear();
        self.is_finding_title = false;
        self.sandbox = Sandbox::Absent;
        self.apply_input(InputKind::Recovered);
    }

    pub(super) fn lease(&self) -> SandboxLeased {
        SandboxLeased {
            runtime: "scripted".into(),
            sandbox_id: "s".parse().unwrap(),
            boot_id: format!("boot-{}", self.boot_count).parse().unwrap(),
            working_dir: "/workspace".into(),
        }
    }

    /// Completes the step in flight of one agent.
    pub(super) fn finish_step(&mut self, agent: AgentId, decision: Decision) {
        let seen = self.stepping.remove(&agent).unwrap();
        self.report_step(agent, seen, decision);
    }

    fn report_step(&mut self, agent: AgentId, seen: EventId, decision: Decision) {
        let result = self.decide(agent, decision);
        self.apply_input(InputKind::StepDone {
            agent,
            seen,
            result,
        });
    }

    fn view(&self, agent: AgentId) -> View {
        let mut view = View::for_agent(agent);
        view.update(&self.log.iter().cloned().map(Arc::new).collect::<Vec<_>>());
        view
    }

    fn max_cost(&self, call: ModelCallId) -> f64 {
        match call {
            ModelCallId::Step(agent) if self.view(agent).pending_call().is_some() => 0.0,
            ModelCallId::Step(_) | ModelCallId::Draft(_) => PRICE,
            ModelCallId::Title => panic!("the request for a title has its cost"),
        }
    }

    /// The result of an agent's step. The calls of one response are made one after another, before
    /// any other decision.
    fn decide(&self, agent: AgentId, decision: Decision) -> Result<Box<AgentStep>, LlmError> {
        if let Some((_, metadata)) = self.view(agent).pending_call() {
            return Ok(Box::new(delegate_step(metadata, None)));
        }
        match decision {
            Decision::Delegate(count) => Ok(Box::new(delegate_tasks(
                &format!("r{}", self.log.len()),
                count,
            ))),
            decision => step(decision),
        }
    }

    /// Sends a message and completes all work, from any state, until the agent finishes.
    pub(super) fn reach_rest(&mut self) {
        self.apply(&Occurrence::Message);
        self.apply(&Occurrence::Resume(true));
        for _ in 0..100 {
            let has_finished = self.state.agent_state == AgentState::Finished;
            if has_finished && !self.state.has_pending_actions() && self.state.children.is_empty() {
                return;
            }
            if self.state.agent_state == AgentState::Error {
                self.apply(&Occurrence::Resume(true));
            }
            self.apply(&Occurrence::Confirm);
            self.apply(&Occurrence::SandboxReady);
            self.apply(&Occurrence::ActionDone);
            self.apply(&Occurrence::StepDone(Decision::Finish));
        }
        panic!("no way out of {:?}", self.state);
    }
}

fn recorded_model(state: &State) -> String {
    let started = state.started.as_ref();
    started.map_or_else(String::new, |started| started.model.clone())
}

fn ran(exit_code: i64) -> Observation {
    let metadata = CommandMetadata {
        exit_code,
        ..Default::default()
    };
    Observation::new(
        "out",
        RunObservation {
            metadata,
            ..Default::default()
        },
    )
}

/// The result of a draft: an edit, or none.
fn draft_done(action: EventId, is_written: bool) -> InputKind {
    let edit = match is_written {
        true => Ok(Box::new(EditAction::new("/a", EditCommand::Create))),
        false => Err("it has no block".to_owned()),
    };
    InputKind::DraftDone {
        action,
        result: DraftResult { call: call(), edit },
    }
}

fn action_done(action: EventId, observation: Observation) -> InputKind {
    InputKind::ActionDone {
        action,
        observation: Box::new(observation),
    }
}

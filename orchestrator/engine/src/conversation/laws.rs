//! Laws of [`transition`], tried on random histories: messages, stops, answers late and doubled, sandboxes lost,
//! workspaces that are set up, crashes between any two effects.

use std::collections::BTreeMap;

use proptest::prelude::*;
use protocol::action::{
    CallToolMcpAction, CondensationAction, CondensationRequestAction, FinishAction, MessageAction,
    RecallAction, RecallType, RejectAction, RunAction, SystemAction, ThinkAction,
};
use protocol::observation::{CommandMetadata, RunObservation, ThinkObservation};
use protocol::record::{ConversationStarted, ModelRetried, SandboxLeased, WorkspaceSetup};
use protocol::risk::{ConfirmationPolicy, SecurityRisk};
use protocol::sandbox_api::SandboxAction;
use protocol::{
    Action, AgentState, Body, Event, EventId, EventSource, Observation, ObservationKind, Timestamp,
};

use super::transition::interrupted;
use super::{Begin, Effect, Input, InputKind, News, Request, SetupStep, State, Terms, fork, transition};
use crate::agent::Step;
use crate::llm::{LlmError, LlmErrorKind};
use crate::testing::timestamp;

/// What every call costs, and what all may, in dollars.
const PRICE: f64 = 0.5;
const BUDGET: f64 = 2.5;

/// What the world does next. What needs something to be going on is passed over when nothing is.
#[derive(Debug, Clone)]
pub(super) enum Happening {
    Message,
    Stop,
    Pause,
    Resume(bool),
    Confirm,
    Reject(&'static str),
    CallIsRetried(bool),
    AgentIsTold,
    StepEnds(Decision),
    StaleStepEnds,
    ActionEnds,
    ActionFails,
    ActionIsCut,
    DoubledActionEnds,
    SandboxComes,
    SandboxFails,
    SandboxIsLost,
    Crash,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Decision {
    Run,
    RunRisky,
    CallTool,
    Think,
    Ask,
    Finish,
    Reject,
    Browse,
    Misuse,
    Condense,
    AskToCondense,
    Fail,
    Overflow,
}

fn happening() -> impl Strategy<Value = Happening> {
    let decision = prop_oneof![
        6 => Just(Decision::Run),
        2 => Just(Decision::RunRisky),
        2 => Just(Decision::CallTool),
        1 => Just(Decision::Think),
        1 => Just(Decision::Ask),
        1 => Just(Decision::Finish),
        1 => Just(Decision::Reject),
        1 => Just(Decision::Browse),
        1 => Just(Decision::Misuse),
        1 => Just(Decision::Condense),
        1 => Just(Decision::AskToCondense),
        1 => Just(Decision::Fail),
        1 => Just(Decision::Overflow),
    ];
    prop_oneof![
        2 => Just(Happening::Message),
        1 => Just(Happening::Stop),
        1 => Just(Happening::Pause),
        1 => any::<bool>().prop_map(Happening::Resume),
        2 => Just(Happening::Confirm),
        1 => prop_oneof![Just(""), Just("use rg")].prop_map(Happening::Reject),
        1 => any::<bool>().prop_map(Happening::CallIsRetried),
        1 => Just(Happening::AgentIsTold),
        8 => decision.prop_map(Happening::StepEnds),
        1 => Just(Happening::StaleStepEnds),
        6 => Just(Happening::ActionEnds),
        2 => Just(Happening::ActionFails),
        1 => Just(Happening::ActionIsCut),
        1 => Just(Happening::DoubledActionEnds),
        4 => Just(Happening::SandboxComes),
        1 => Just(Happening::SandboxFails),
        1 => Just(Happening::SandboxIsLost),
        1 => Just(Happening::Crash),
    ]
}

/// The world as the conversation's task keeps it: what is going on, and what was promised.
#[derive(Default)]
pub(super) struct World {
    pub(super) state: State,
    pub(super) log: Vec<Event>,
    stepping: Option<EventId>,
    sandbox: Sandbox,
    /// One that is held was to be attached to.
    is_ready_again: bool,
    /// The action that is performed, or waits for the sandbox.
    executing: Option<EventId>,
    last_ended: Option<EventId>,
    lives: u32,
}

#[derive(Default, PartialEq)]
enum Sandbox {
    #[default]
    Absent,
    Awaited(Option<Box<SandboxLeased>>),
    Held,
}

impl World {
    pub(super) fn begun(setup: Option<WorkspaceSetup>, confirmation: ConfirmationPolicy) -> Self {
        let mut world = Self::default();
        world.tell(InputKind::Begin(Box::new(Begin {
            started: ConversationStarted {
                agent: "CodeActAgent".into(),
                model: "scripted".into(),
                max_iterations: 6,
                max_budget: Some(BUDGET),
                confirmation,
                runtime: "scripted".into(),
                setup,
                ..Default::default()
            },
            system: SystemAction {
                content: "prompt".into(),
                tools: None,
                openhands_version: None,
                agent_class: None,
            },
        })));
        world
    }

    fn tell(&mut self, kind: InputKind) {
        let before = self.state.clone();
        let (state, effects) = transition(std::mem::take(&mut self.state), Input { at: timestamp(), kind });
        for (index, effect) in effects.iter().enumerate() {
            assert_eq!(
                matches!(effect, Effect::Append(_)),
                index == 0 && state != before,
                "append comes first, once"
            );
        }
        self.state = state;
        for effect in effects {
            self.perform(effect);
        }
        self.check();
        if std::mem::take(&mut self.is_ready_again) {
            self.tell(InputKind::SandboxReady(self.lease()));
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Append(events) => {
                for event in &events {
                    assert_eq!(event.id.0, self.log.len() as u64, "ids have no gaps");
                    self.log.push(event.clone());
                }
            }
            Effect::Step { seen } => {
                assert_eq!(self.stepping, None, "one step at a time");
                assert_eq!(seen, self.state.next_id);
                assert_eq!(self.state.setup_step(), None, "the agent works where everything is ready");
                self.stepping = Some(seen);
            }
            Effect::AbandonStep => {
                assert!(self.stepping.take().is_some(), "only a step that is taken is abandoned");
            }
            Effect::Place if self.sandbox == Sandbox::Absent => {
                assert_eq!(self.state.lease, None, "no second sandbox");
                self.sandbox = Sandbox::Awaited(None);
            }
            Effect::Attach(lease) if self.sandbox == Sandbox::Absent => {
                self.sandbox = Sandbox::Awaited(Some(lease));
            }
            Effect::Attach(_) if self.sandbox == Sandbox::Held => self.is_ready_again = true,
            Effect::Place | Effect::Attach(_) => {}
            Effect::Execute { action, .. } => {
                assert_eq!(self.executing, None, "one action at a time");
                self.check_confirmed(action);
                self.executing = Some(action);
            }
            Effect::CallTool { action, .. } => {
                assert_eq!(self.executing, None, "one action at a time");
                self.check_confirmed(action);
                self.executing = Some(action);
            }
            Effect::Forget { action } => {
                assert!(self.sandbox != Sandbox::Held, "only what waits is forgotten");
                self.executing.take_if(|current| *current == action);
            }
            Effect::Cancel { action } => {
                assert_eq!(self.executing, Some(action), "only what is performed is cancelled");
            }
        }
    }

    pub(super) fn happen(&mut self, happening: &Happening) {
        match happening {
            Happening::Message => self.tell(InputKind::UserMessage(MessageAction {
                content: "do it".into(),
                ..Default::default()
            })),
            Happening::Stop => self.tell(InputKind::UserStop),
            Happening::Pause => self.tell(InputKind::UserPause),
            Happening::Resume(extend) => {
                let max_iterations = extend.then(|| self.state.iterations + 6);
                let max_budget = extend.then(|| self.state.metrics.accumulated_cost + BUDGET);
                self.tell(InputKind::UserResume(Terms { max_iterations, max_budget, confirmation: None }));
            }
            Happening::Confirm => self.tell(InputKind::UserConfirm),
            Happening::Reject(reason) => {
                self.tell(InputKind::UserReject { reason: (*reason).to_owned() });
            }
            Happening::AgentIsTold => {
                if self.stepping.take().is_some() {
                    let recalled = Observation::new("", ThinkObservation {});
                    let news = [
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
                    let news = news.map(|(source, body, is_outcome)| News { source, body, is_outcome });
                    self.tell(InputKind::StepTold { news: news.into() });
                }
            }
            Happening::CallIsRetried(is_rate_limited) => {
                let retry =
                    ModelRetried { attempt: 2, attempts: 3, after: 1.0, reason: "too many calls".into() };
                let is_rate_limited = *is_rate_limited;
                self.tell(InputKind::CallRetried { retry, is_rate_limited });
            }
            Happening::StepEnds(decision) => {
                if let Some(seen) = self.stepping.take() {
                    self.tell(InputKind::StepDone { seen, result: decide(*decision) });
                }
            }
            Happening::StaleStepEnds => {
                // The task drops what an abandoned step decided; the law is that nothing goes wrong when the agent
                // does not run.
                if !self.state.is_stepping() {
                    self.tell(InputKind::StepDone { seen: EventId(0), result: decide(Decision::Run) });
                }
            }
            Happening::ActionEnds => self.end_action(ran(0)),
            Happening::ActionFails => self.end_action(ran(1)),
            Happening::ActionIsCut => self.end_action(interrupted("its answer cannot be read")),
            Happening::DoubledActionEnds => {
                if let Some(action) = self.last_ended {
                    self.tell(done(action, ran(0)));
                }
            }
            Happening::SandboxComes => {
                if let Sandbox::Awaited(lease) = &mut self.sandbox {
                    let lease = lease.take().map_or_else(|| self.lives.wrapping_add(1), |_| self.lives);
                    self.lives = lease;
                    self.sandbox = Sandbox::Held;
                    self.tell(InputKind::SandboxReady(self.lease()));
                }
            }
            Happening::SandboxFails => {
                if let Sandbox::Awaited(_) = self.sandbox {
                    self.lose_sandbox();
                    self.tell(InputKind::SandboxFailed { reason: "no engine".into() });
                }
            }
            Happening::SandboxIsLost => {
                if self.sandbox == Sandbox::Held || matches!(self.sandbox, Sandbox::Awaited(Some(_))) {
                    self.lose_sandbox();
                    self.tell(InputKind::SandboxLost { detail: "power cut".into() });
                }
            }
            Happening::Crash => self.crash(),
        }
    }

    /// What a tool server is asked goes on.
    fn lose_sandbox(&mut self) {
        self.sandbox = Sandbox::Absent;
        if !self.asks_tool() {
            self.executing = None;
        }
    }

    fn asks_tool(&self) -> bool {
        self.state.pending.as_ref().is_some_and(|pending| matches!(pending.request, Request::Tool(_)))
    }

    fn end_action(&mut self, observation: Observation) {
        if (self.sandbox == Sandbox::Held || self.asks_tool())
            && let Some(action) = self.executing.take()
        {
            self.last_ended = Some(action);
            self.tell(done(action, observation));
        }
    }

    fn crash(&mut self) {
        assert_eq!(State::fold(&self.log), self.state, "the state is the fold of the log");
        self.stepping = None;
        self.executing = None;
        self.sandbox = Sandbox::Absent;
        self.tell(InputKind::Recovered);
    }

    fn lease(&self) -> SandboxLeased {
        SandboxLeased {
            runtime: "scripted".into(),
            sandbox_id: "s".parse().unwrap(),
            boot_id: format!("boot-{}", self.lives).parse().unwrap(),
            working_dir: "/workspace".into(),
        }
    }

    fn check(&self) {
        assert_eq!(
            self.stepping.is_some(),
            self.state.is_stepping(),
            "a step is taken exactly when it is due"
        );
        if let Some(pending) = &self.state.pending {
            let is_performed = self.executing == Some(pending.action);
            assert_eq!(is_performed, self.state.is_performing(), "no pending action is forgotten");
        } else {
            assert_eq!(self.executing, None, "nothing is performed that has ended");
        }
        assert!(self.state.iterations <= self.state.max_iterations, "the limit holds");
        let cost = self.state.metrics.accumulated_cost;
        let most = self.state.max_budget.unwrap_or(f64::MAX);
        assert!(cost < most + PRICE, "the budget is passed by at most one call");
        let awaits = self.state.agent_state == AgentState::AwaitingUserConfirmation;
        assert!(!awaits || self.state.pending.is_some(), "what waits for the user is there");
        if self.state.agent_state == AgentState::Loading {
            let waits = self.sandbox != Sandbox::Held || self.is_ready_again;
            assert!(waits || self.executing.is_some(), "what is loading comes to an end");
        }
        let mut endings: BTreeMap<u64, u32> = BTreeMap::new();
        for event in &self.log {
            if let (Some(cause), Body::Observation(_)) = (event.cause, &event.body) {
                *endings.entry(cause.0).or_default() += 1;
            }
        }
        let pending = self.state.pending.as_ref().map(|pending| pending.action);
        let sent = self.log.iter().filter(|event| {
            let Body::Action(action) = &event.body else { return false };
            matches!(action, Action::CallToolMcp(_)) || SandboxAction::try_from(action.clone()).is_ok()
        });
        for event in sent {
            let expected = u32::from(pending != Some(event.id));
            let found = endings.get(&event.id.0).copied().unwrap_or(0);
            assert_eq!(found, expected, "action {} has exactly one ending", event.id);
        }
        assert!(endings.values().all(|count| *count == 1), "no ending is doubled");
    }

    /// Nothing runs that the user would have been asked about, and was not.
    fn check_confirmed(&self, action: EventId) {
        let event = &self.log[usize::try_from(action.0).unwrap()];
        let (EventSource::Agent, Body::Action(asked)) = (event.source, &event.body) else { return };
        let is_confirmed = self.log.iter().skip(event.id.0 as usize).any(|event| {
            matches!(&event.body, Body::Action(Action::ChangeAgentState(changed))
                if changed.agent_state == AgentState::UserConfirmed)
        });
        let asks = self.state.confirmation.asks(asked.security_risk());
        assert!(!asks || is_confirmed, "nothing is performed before it is confirmed");
    }

    /// From wherever it is: let everything that is going on end well, and ask for work.
    fn reach_rest(&mut self) {
        self.happen(&Happening::Message);
        self.happen(&Happening::Resume(true));
        for _ in 0..100 {
            let is_at_rest = self.state.agent_state == AgentState::Finished && self.state.pending.is_none();
            if is_at_rest {
                return;
            }
            if self.state.agent_state == AgentState::Error {
                self.happen(&Happening::Resume(true));
            }
            self.happen(&Happening::Confirm);
            self.happen(&Happening::SandboxComes);
            self.happen(&Happening::ActionEnds);
            self.happen(&Happening::StepEnds(Decision::Finish));
        }
        panic!("no way out of {:?}", self.state);
    }
}

fn decide(decision: Decision) -> Result<Box<Step>, LlmError> {
    let body: Body = match decision {
        Decision::Run => Action::from(RunAction {
            command: "ls".into(),
            security_risk: SecurityRisk::Low,
            ..Default::default()
        })
        .into(),
        Decision::RunRisky => Action::from(RunAction {
            command: "rm -rf build".into(),
            security_risk: SecurityRisk::High,
            ..Default::default()
        })
        .into(),
        Decision::CallTool => {
            Action::from(CallToolMcpAction { name: "look_up".into(), ..Default::default() }).into()
        }
        Decision::Think => Action::from(ThinkAction { thought: "hm".into() }).into(),
        Decision::Ask => {
            Action::from(MessageAction { content: "?".into(), wait_for_response: true, ..Default::default() })
                .into()
        }
        Decision::Finish => Action::from(FinishAction::default()).into(),
        Decision::Reject => Action::from(RejectAction::default()).into(),
        Decision::Browse => Action::from(protocol::action::BrowseAction::default()).into(),
        Decision::Misuse => Observation::error("there is no tool fly", "").into(),
        Decision::Condense => Action::from(CondensationAction::default()).into(),
        Decision::AskToCondense => Action::from(CondensationRequestAction {}).into(),
        Decision::Fail => return Err(failure(LlmErrorKind::Authentication)),
        Decision::Overflow => return Err(failure(LlmErrorKind::ContextWindowExceeded)),
    };
    let call = Some(crate::agent::ModelCall {
        usage: protocol::metrics::TokenUsage { prompt_tokens: 1, ..Default::default() },
        cost: Some(PRICE),
        latency: std::time::Duration::from_secs(1),
    });
    Ok(Box::new(Step { body, timeout: None, tool_call_metadata: None, call }))
}

fn failure(kind: LlmErrorKind) -> LlmError {
    LlmError { kind, detail: "no".into(), retry_after: None }
}

fn ran(exit_code: i32) -> Observation {
    let metadata = CommandMetadata { exit_code, ..Default::default() };
    Observation::new("out", RunObservation { metadata, ..Default::default() })
}

fn done(action: EventId, observation: Observation) -> InputKind {
    InputKind::ActionDone { action, observation: Box::new(observation) }
}

fn setup() -> impl Strategy<Value = Option<WorkspaceSetup>> {
    prop_oneof![
        Just(None),
        Just(Some(repository())),
        Just(Some(WorkspaceSetup::EmptyRepository)),
        Just(Some(WorkspaceSetup::Folder)),
    ]
}

fn confirmation() -> impl Strategy<Value = ConfirmationPolicy> {
    prop_oneof![
        Just(ConfirmationPolicy::Never),
        Just(ConfirmationPolicy::Risky { from: SecurityRisk::Medium }),
        Just(ConfirmationPolicy::Always),
    ]
}

fn repository() -> WorkspaceSetup {
    WorkspaceSetup::Repository { url: "/origin".into(), branch: None }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..Default::default() })]

    #[test]
    fn a_fork_is_at_rest_and_goes_on_like_any_conversation(
        setup in setup(),
        confirmation in confirmation(),
        history in prop::collection::vec(happening(), 0..60),
        last in any::<prop::sample::Index>(),
    ) {
        let mut world = World::begun(setup, confirmation);
        history.iter().for_each(|happening| world.happen(happening));
        let last = EventId(last.index(world.log.len()) as u64);
        let log = fork(&world.log, &"other".parse().unwrap(), last, &timestamp()).unwrap();
        let state = State::fold(&log);
        prop_assert!(!state.is_performing() && state.lease.is_none() && !state.is_stepping());
        let mut forked = World { state, log, ..World::default() };
        forked.happen(&Happening::Crash);
        forked.reach_rest();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..Default::default() })]

    #[test]
    fn no_history_breaks_a_law_and_every_state_has_a_way_out(
        setup in setup(),
        confirmation in confirmation(),
        history in prop::collection::vec(happening(), 0..60),
    ) {
        let mut world = World::begun(setup, confirmation);
        for happening in &history {
            let cost = world.state.metrics.accumulated_cost;
            world.happen(happening);
            prop_assert!(world.state.metrics.accumulated_cost >= cost, "costs never fall");
        }
        world.reach_rest();
    }
}

/// What a world is taken through, and the step of the set-up that is ahead of it then.
fn after(happenings: &[Happening]) -> (World, Option<SetupStep>) {
    let mut world = World::begun(Some(repository()), ConfirmationPolicy::Never);
    happenings.iter().for_each(|happening| world.happen(happening));
    let step = world.state.setup_step();
    (world, step)
}

use Happening::{
    ActionEnds, ActionFails, Crash, Message, Resume, SandboxComes, SandboxFails, SandboxIsLost, StepEnds,
    Stop,
};

#[test]
fn a_workspace_is_set_up_step_by_step_before_the_agent_begins() {
    let (mut world, step) = after(&[Message, SandboxComes]);
    assert_eq!((step, world.stepping), (Some(SetupStep::Clone), None));
    world.happen(&ActionEnds);
    assert_eq!(world.state.setup_step(), Some(SetupStep::RunScript));
    // A script that fails is told, and holds up nothing.
    world.happen(&ActionFails);
    assert_eq!(world.state.setup_step(), Some(SetupStep::InstallHook));
    assert_eq!(world.state.agent_state, AgentState::Loading);
    world.happen(&ActionEnds);
    assert_eq!((world.state.setup_step(), world.state.agent_state), (None, AgentState::Running));
    assert!(world.stepping.is_some());
}

#[test]
fn a_clone_that_fails_ends_in_error_and_is_tried_again_when_the_user_says_so() {
    let (mut world, step) = after(&[Message, SandboxComes, ActionFails]);
    assert_eq!((step, world.state.agent_state), (Some(SetupStep::Clone), AgentState::Error));
    let reason = match &world.log.last().unwrap().body {
        Body::Observation(Observation { kind: ObservationKind::AgentStateChanged(changed), .. }) => {
            &changed.reason
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(reason, "Cloning /origin failed with exit code 1: out");
    world.happen(&Resume(false));
    assert!(world.executing.is_some(), "it is cloned again");
}

#[test]
fn a_crash_or_a_stop_in_mid_setup_goes_on_with_the_same_step() {
    let (mut world, _) = after(&[Message, SandboxComes, ActionEnds]);
    let action = world.executing;
    world.happen(&Crash);
    assert_eq!(world.executing, action, "the same action is attached to");
    world.happen(&SandboxFails);
    assert_eq!(world.state.agent_state, AgentState::Error);
    for happening in [Message, SandboxComes, Stop] {
        world.happen(&happening);
    }
    assert_eq!((world.executing, world.state.agent_state), (action, AgentState::Stopped));
    world.happen(&ActionFails);
    world.happen(&Message);
    assert!(world.executing.is_some() && world.executing != action);
    assert_eq!(world.state.setup_step(), Some(SetupStep::RunScript), "what was stopped is taken again");
}

#[test]
fn a_new_sandbox_is_set_up_again() {
    let ready = [Message, SandboxComes, ActionEnds, ActionEnds, ActionEnds];
    let (mut world, step) = after(&ready);
    assert_eq!(step, None);
    world.happen(&StepEnds(Decision::Run));
    world.happen(&SandboxIsLost);
    assert_eq!((world.state.agent_state, world.stepping), (AgentState::Loading, None));
    world.happen(&SandboxComes);
    assert_eq!(world.state.setup_step(), Some(SetupStep::Clone));
}

#[test]
fn a_setup_that_loses_its_sandbox_again_and_again_ends_in_error() {
    let (mut world, _) = after(&[Message, SandboxComes, SandboxIsLost]);
    assert_eq!(world.state.agent_state, AgentState::Loading, "once may be chance");
    for happening in [SandboxComes, ActionEnds, SandboxIsLost, SandboxComes, SandboxIsLost] {
        world.happen(&happening);
    }
    assert_eq!(world.state.agent_state, AgentState::Error);
}

#[test]
fn an_agent_that_was_stopped_in_a_loop_goes_on_before_it() {
    for held in [None, Some(Stop)] {
        let mut world = World::begun(None, ConfirmationPolicy::Never);
        [SandboxComes, Message].iter().for_each(|happening| world.happen(happening));
        for _ in 0..4 {
            world.happen(&StepEnds(Decision::Run));
            world.happen(&ActionEnds);
        }
        assert_eq!(world.state.agent_state, AgentState::Error);
        held.iter().for_each(|happening| world.happen(happening));
        world.happen(&Resume(true));
        assert!(world.stepping.is_some(), "after {held:?}");
        let forgets = |event: &Event| matches!(&event.body, Body::Action(Action::Condensation(_)));
        assert_eq!(world.log.iter().filter(|event| forgets(event)).count(), 1);
    }
}

#[test]
fn a_step_has_its_time_from_when_it_was_begun() {
    let (mut world, _) = after(&[Message, SandboxComes]);
    let later = Timestamp::try_from("2026-01-02T03:09:05.678901".to_owned()).unwrap();
    let (_, effects) =
        transition(std::mem::take(&mut world.state), Input { at: later, kind: InputKind::Recovered });
    let time_left = effects.iter().find_map(|effect| match effect {
        Effect::Execute { time_left, .. } => *time_left,
        _ => None,
    });
    assert_eq!(time_left.unwrap().as_secs_f64().round(), 300.0);
}

/// A world in which the agent takes its first step.
fn stepping(keeps_whole_history: bool) -> World {
    let mut world = World::begun(None, ConfirmationPolicy::Never);
    world.state.started.as_mut().unwrap().keeps_whole_history = keeps_whole_history;
    [Message, SandboxComes].iter().for_each(|happening| world.happen(happening));
    assert!(world.stepping.is_some());
    world
}

#[test]
fn what_does_not_fit_is_condensed_as_often_as_that_helps_and_no_more() {
    let mut world = stepping(false);
    for _ in 0..3 {
        world.happen(&StepEnds(Decision::Overflow));
        assert!(matches!(
            world.log.last().unwrap().body,
            Body::Action(protocol::Action::CondensationRequest(_))
        ));
        world.happen(&StepEnds(Decision::Condense));
        assert!(world.stepping.is_some());
    }
    world.happen(&StepEnds(Decision::Overflow));
    world.happen(&Crash);
    assert!(world.stepping.is_some());
    // Nothing was condensed.
    world.happen(&StepEnds(Decision::Overflow));
    assert_eq!(world.state.agent_state, AgentState::Error);

    let mut world = stepping(true);
    world.happen(&StepEnds(Decision::Overflow));
    assert_eq!(world.state.agent_state, AgentState::Error);
}

#[test]
fn a_condensation_is_paid_for_and_is_no_step_of_the_agents() {
    let mut world = stepping(false);
    let before = world.state.metrics.accumulated_cost;
    world.happen(&StepEnds(Decision::Condense));
    assert_eq!((world.state.metrics.accumulated_cost - before, world.state.iterations), (0.5, 0));
    world.happen(&StepEnds(Decision::Run));
    assert_eq!(world.state.iterations, 1);
}

//! The world as the conversation's task keeps it, with what holds in it at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::action::{
    CallToolMcpAction, CondensationAction, CondensationRequestAction, DelegateAction, EditAction,
    EditCommand, FileImplementation, FinishAction, MessageAction, RecallAction, RecallType, RejectAction,
    RunAction, SystemAction, ThinkAction,
};
use protocol::observation::{CommandMetadata, RunObservation, ThinkObservation};
use protocol::record::{ConversationStarted, ModelRetried, SandboxLeased, WorkspaceSetup};
use protocol::risk::{ConfirmationPolicy, SecurityRisk};
use protocol::sandbox_api::SandboxAction;
use protocol::tool_call::ToolCallMetadata;
use protocol::{
    Action, AgentState, Event, EventBody, EventId, EventSource, Observation, ObservationKind, Record,
};
use serde_json::json;

use crate::agent::tools::DELEGATE;
use crate::agent::{AgentStep, ModelCall};
use crate::conversation::terminal::interrupted;
use crate::conversation::{
    AgentId, Begin, Effect, Input, InputKind, ModelCallId, Notice, SandboxConnection, Schedule, State, Terms,
    transition,
};
use crate::draft_editor::DraftResult;
use crate::llm::{LlmError, LlmErrorKind};
use crate::security;
use crate::testing::timestamp;
use crate::view::View;

/// What every call costs, and what all may, in dollars.
const PRICE: f64 = 0.5;
const BUDGET: f64 = 2.5;

/// More than all pairs of nine agents.
const MAX_ESTIMATES: usize = 100;

/// What the world does next. What needs something to be going on is passed over when nothing is.
#[derive(Debug, Clone)]
pub(in crate::conversation) enum Happening {
    Message,
    Stop,
    Pause,
    Resume(bool),
    Confirm,
    Approve,
    TitleIsRequested,
    TitleIsFound,
    UserNamesIt,
    Reject(&'static str),
    CallIsRetried(bool),
    StepIsDeferred,
    StepIsRefused,
    StepEnds(Decision),
    StaleStepEnds,
    ActionEnds,
    ActionFails,
    ActionIsCut,
    DoubledActionEnds,
    DoubledDraftEnds,
    SandboxComes,
    SandboxFails,
    SandboxIsLost,
    Crash,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::conversation) enum Decision {
    Run,
    RunRisky,
    CallTool,
    Draft,
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
    /// As many tasks in one response.
    Delegate(usize),
}

/// What is going on, and what was promised.
#[derive(Default)]
pub(in crate::conversation) struct World {
    pub(in crate::conversation) state: State,
    pub(in crate::conversation) log: Vec<Event>,
    /// Steps in flight.
    stepping: BTreeMap<AgentId, EventId>,
    sandbox: Sandbox,
    /// Actions in flight; of each whether it is the sandbox's.
    executing: BTreeMap<EventId, bool>,
    /// Actions in flight that were cancelled.
    cancelled: BTreeSet<EventId>,
    is_finding_title: bool,
    /// Calls whose maximum cost is to be reported.
    estimated: Vec<ModelCallId>,
    /// Costs reported since anything else happened.
    estimates: usize,
    /// How much has happened: whose turn it is where several could be meant.
    turns: usize,
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
    pub(in crate::conversation) fn begun(
        setup: Option<WorkspaceSetup>,
        confirmation: ConfirmationPolicy,
    ) -> Self {
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
            system: system(),
        })));
        world
    }

    /// A world in which nothing goes on, with a log that began in this one.
    pub(super) fn with_log(log: Vec<Event>) -> Self {
        Self { state: State::fold(&log), log, ..Self::default() }
    }

    pub(super) fn tell(&mut self, kind: InputKind) {
        self.turns += 1;
        let is_estimate = matches!(kind, InputKind::CostEstimated { .. });
        self.estimates = if is_estimate { self.estimates + 1 } else { 0 };
        assert!(self.estimates <= MAX_ESTIMATES, "costs are not measured without end");
        let before = self.state.clone();
        let (state, effects) = transition(std::mem::take(&mut self.state), Input { at: timestamp(), kind });
        for (index, effect) in effects.iter().enumerate() {
            assert_eq!(
                matches!(effect, Effect::Append(_)),
                index == 0 && state.without_schedule() != before.without_schedule(),
                "append comes first, once"
            );
        }
        let (cost, budget) = (before.metrics.accumulated_cost, before.max_budget.unwrap_or(f64::MAX));
        let is_paid_for = state.metrics.accumulated_cost == cost || cost < budget;
        assert!(is_paid_for, "at most one call exceeds the budget");
        self.state = state;
        for effect in effects {
            self.perform(effect);
        }
        while let Some(call) = self.estimated.pop() {
            self.tell(InputKind::CostEstimated { call, max_cost: self.max_cost(call) });
        }
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
            Effect::Step { agent, seen } => {
                assert_eq!(seen, self.state.next_id);
                assert_eq!(self.state.setup_step(), None, "agents work where everything is ready");
                assert_eq!(self.stepping.insert(agent, seen), None, "an agent takes one step at a time");
                assert!(self.sandbox == Sandbox::Held, "no agent steps without its sandbox");
            }
            Effect::AbandonStep { agent } => {
                assert!(self.stepping.remove(&agent).is_some(), "only a step that is taken is abandoned");
            }
            Effect::Create => {
                assert!(self.sandbox == Sandbox::Absent && self.state.lease.is_none(), "no second sandbox");
                self.sandbox = Sandbox::Awaited(None);
            }
            Effect::Attach(lease) => {
                assert!(self.sandbox == Sandbox::Absent, "it is attached to once");
                self.sandbox = Sandbox::Awaited(Some(lease));
            }
            Effect::Execute { action, .. } => {
                assert!(self.sandbox == Sandbox::Held, "nothing is performed without a sandbox");
                self.begin(action, true);
            }
            Effect::WriteDraft { action, .. } => {
                assert!(self.sandbox == Sandbox::Held, "no draft is written out without a sandbox");
                assert_ne!(self.state.agent_state, AgentState::Stopped, "nor once the user has stopped it");
                self.begin(action, true);
            }
            Effect::CallTool { action, .. } => self.begin(action, false),
            Effect::EstimateCost(call) => self.estimated.push(call),
            Effect::FindTitle { .. } => {
                assert!(
                    !self.is_finding_title && self.state.title.is_none(),
                    "one title is searched for once"
                );
                self.is_finding_title = true;
            }
            Effect::AbandonTitle => {
                assert!(std::mem::take(&mut self.is_finding_title), "only a search in flight is abandoned");
            }
            Effect::Cancel { action } => {
                assert!(self.executing.contains_key(&action), "only what is performed is cancelled");
                self.cancelled.insert(action);
                if !self.state.pending().any(|(_, pending)| pending.action == action) {
                    self.executing.remove(&action);
                }
            }
        }
    }

    fn begin(&mut self, action: EventId, is_for_sandbox: bool) {
        self.check_confirmed(action);
        self.cancelled.remove(&action);
        assert_eq!(self.executing.insert(action, is_for_sandbox), None, "an action is started once");
    }

    /// Whether any agent takes a step.
    pub(super) fn is_stepping(&self) -> bool {
        !self.stepping.is_empty()
    }

    /// The first of the actions that are performed, or wait for the sandbox.
    pub(super) fn executing(&self) -> Option<EventId> {
        self.state.schedule.actions.keys().next().copied()
    }

    /// One of those whose step is taken, with the first event that it does not see.
    fn end_step(&mut self) -> Option<(AgentId, EventId)> {
        let begun: Vec<_> = self.stepping.keys().collect();
        let agent = **begun.get(self.turns.checked_rem(begun.len())?)?;
        self.stepping.remove_entry(&agent)
    }

    pub(in crate::conversation) fn happen(&mut self, happening: &Happening) {
        match happening {
            Happening::Message => self.tell(InputKind::UserMessage(MessageAction {
                content: "do it".into(),
                ..Default::default()
            })),
            Happening::Stop => self.tell(InputKind::UserStop),
            Happening::Pause => self.tell(InputKind::UserPause),
            Happening::Resume(extend) => {
                let max_iterations = extend.then(|| self.state.iterations + 12);
                let max_budget = extend.then(|| self.state.metrics.accumulated_cost + BUDGET);
                self.tell(InputKind::UserResume(Terms { max_iterations, max_budget, confirmation: None }));
            }
            Happening::Confirm => self.tell(InputKind::UserConfirm { action: None, and_similar: false }),
            Happening::Approve => self.tell(InputKind::UserConfirm { action: None, and_similar: true }),
            Happening::TitleIsRequested => {
                self.tell(InputKind::TitleRequested { message: "do it".into(), max_cost: PRICE });
            }
            Happening::TitleIsFound => {
                if std::mem::take(&mut self.is_finding_title) {
                    self.tell(InputKind::TitleFound { title: "work".into(), call: call() });
                }
            }
            Happening::UserNamesIt => self.tell(InputKind::UserTitle("mine".into())),
            Happening::Reject(reason) => {
                self.tell(InputKind::UserReject { action: None, reason: (*reason).to_owned() });
            }
            Happening::StepIsDeferred => {
                if let Some((agent, _)) = self.end_step() {
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
                    let notices = notices.map(|(source, body, is_result)| Notice { source, body, is_result });
                    self.tell(InputKind::StepDeferred { agent, notices: notices.into() });
                }
            }
            Happening::StepIsRefused => {
                if let Some((agent, _)) = self.end_step() {
                    self.tell(InputKind::StepRefused { agent, reason: "no Chromium was found".into() });
                }
            }
            Happening::CallIsRetried(is_rate_limited) => {
                let retry =
                    ModelRetried { attempt: 2, attempts: 3, after: 1.0, reason: "too many calls".into() };
                let is_rate_limited = *is_rate_limited;
                let agent = self.stepping.keys().next().copied().flatten();
                self.tell(InputKind::CallRetried { agent, retry, is_rate_limited });
            }
            Happening::StepEnds(decision) => {
                if let Some((agent, seen)) = self.end_step() {
                    self.hear_step(agent, seen, *decision);
                }
            }
            Happening::StaleStepEnds => {
                // The task drops what an abandoned step decided; the law is that nothing goes wrong when the agent
                // does not run.
                for agent in [None, Some(EventId(1))] {
                    if !self.state.is_stepping(agent) {
                        let result = decide(Decision::Run);
                        self.tell(InputKind::StepDone { agent, seen: EventId(0), result });
                    }
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
            Happening::DoubledDraftEnds => {
                if let Some(action) = self.last_ended {
                    self.tell(drafted(action, true));
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
        self.executing.retain(|_, is_for_sandbox| !*is_for_sandbox);
    }

    pub(super) fn remove_sandbox(&mut self) {
        self.lose_sandbox();
        self.tell(InputKind::SandboxRemoved);
    }

    fn end_action(&mut self, observation: Observation) {
        let can_end: Vec<EventId> = self.executing.keys().copied().collect();
        if let Some(number) = self.turns.checked_rem(can_end.len()) {
            let action = can_end[number];
            self.executing.remove(&action);
            if self.drafts().any(|draft| draft == action) {
                let is_written = matches!(observation.kind, ObservationKind::Run(_));
                return self.tell(drafted(action, is_written));
            }
            self.last_ended = Some(action);
            self.tell(done(action, observation));
        }
    }

    /// The actions that a model is to write out.
    fn drafts(&self) -> impl Iterator<Item = EventId> {
        self.state.pending().filter(|(_, pending)| pending.is_draft()).map(|(_, pending)| pending.action)
    }

    fn crash(&mut self) {
        assert_eq!(State::fold(&self.log), self.state.without_schedule(), "the state is the fold of the log");
        self.state = self.state.without_schedule();
        self.stepping.clear();
        self.executing.clear();
        self.is_finding_title = false;
        self.sandbox = Sandbox::Absent;
        self.tell(InputKind::Recovered);
    }

    pub(super) fn lease(&self) -> SandboxLeased {
        SandboxLeased {
            runtime: "scripted".into(),
            sandbox_id: "s".parse().unwrap(),
            boot_id: format!("boot-{}", self.lives).parse().unwrap(),
            working_dir: "/workspace".into(),
        }
    }

    fn check(&self) {
        let due = self.state.agents().map(|(agent, _)| agent).filter(|agent| self.state.is_stepping(*agent));
        let schedule = &self.state.schedule;
        assert!(schedule.steps.keys().copied().eq(due.collect::<BTreeSet<_>>()), "what is due is scheduled");
        let steps = schedule.steps.iter().filter(|(_, work)| work.is_started).map(|(agent, _)| agent);
        assert!(steps.eq(self.stepping.keys()), "the schedule knows the steps in flight");
        let connection = match self.sandbox {
            Sandbox::Absent => SandboxConnection::Absent,
            Sandbox::Awaited(_) => SandboxConnection::Connecting,
            Sandbox::Held => SandboxConnection::Connected,
        };
        assert_eq!(schedule.sandbox, connection, "the schedule knows the connection");
        let pending: BTreeSet<EventId> = self.state.pending().map(|(_, pending)| pending.action).collect();
        let performed: BTreeSet<EventId> = self.executing.keys().copied().collect();
        assert!(performed.is_subset(&pending), "nothing is performed that has ended");
        for (_, pending) in self.state.pending().filter(|(_, pending)| self.state.is_performing(pending)) {
            assert!(schedule.actions.contains_key(&pending.action), "no pending action is forgotten");
        }
        let actions = schedule.actions.iter().filter(|(_, work)| work.is_started).map(|(id, _)| id);
        assert!(actions.eq(performed.iter()), "the schedule knows the actions in flight");
        for (_, pending) in self.state.pending().filter(|(_, pending)| pending.is_stopped) {
            let is_cancelled = self.cancelled.contains(&pending.action);
            assert!(is_cancelled || !performed.contains(&pending.action), "a stopped action is cancelled");
        }
        let is_title_started = schedule.title.as_ref().is_some_and(|search| search.work.is_started);
        assert_eq!(is_title_started, self.is_finding_title, "the schedule knows the search for a title");
        assert!(self.state.iterations <= self.state.max_iterations, "the limit holds");
        if self.estimated.is_empty() {
            self.check_waiting();
        }
        let awaits = self.state.agent_state == AgentState::AwaitingUserConfirmation;
        assert!(!awaits || self.state.asked().is_some(), "what waits for the user is there");
        if self.state.agent_state == AgentState::Loading {
            let waits = matches!(self.sandbox, Sandbox::Awaited(_));
            assert!(waits || !self.executing.is_empty(), "what is loading comes to an end");
        }
        let mut endings: BTreeMap<u64, u32> = BTreeMap::new();
        for event in &self.log {
            if let (Some(cause), EventBody::Observation(_)) = (event.cause, &event.body) {
                *endings.entry(cause.0).or_default() += 1;
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
                action if SandboxAction::try_from(action.clone()).is_ok() => pending.contains(&event.id),
                _ => continue,
            };
            let found = endings.get(&event.id.0).copied().unwrap_or(0);
            assert_eq!(found, u32::from(!is_open), "action {} has exactly one ending", event.id);
        }
        assert!(endings.values().all(|count| *count == 1), "no ending is doubled");
        self.check_children();
    }

    /// Work waits for the connection to the sandbox, or for calls in flight that leave it too little of the budget.
    fn check_waiting(&self) {
        let Schedule { sandbox, steps, actions, .. } = &self.state.schedule;
        let is_draft = |action: &EventId| self.drafts().any(|draft| draft == *action);
        let drafts = actions.iter().filter(|(action, _)| is_draft(action)).map(|(_, work)| work);
        let calls: Vec<_> = steps.values().chain(drafts).collect();
        let in_flight: f64 =
            calls.iter().filter(|work| work.is_started).filter_map(|work| work.max_cost).sum();
        let title = if self.is_finding_title { PRICE } else { 0.0 };
        let spent = self.state.metrics.accumulated_cost + in_flight + title;
        let budget = self.state.max_budget.unwrap_or(f64::MAX);
        let is_connecting = *sandbox == SandboxConnection::Connecting;
        for work in calls.iter().filter(|work| !work.is_started) {
            let waits_for_calls =
                in_flight > 0.0 && work.max_cost.is_some_and(|cost| cost > 0.0 && spent + cost > budget);
            assert!(is_connecting || waits_for_calls, "{work:?} waits for nothing");
        }
        let mut others = actions.iter().filter(|(action, work)| !work.is_started && !is_draft(action));
        assert!(is_connecting || others.next().is_none(), "an action waits only for the connection");
    }

    /// Whose an event is can be told, and nothing is heard of an agent that has ended.
    fn check_children(&self) {
        let mut open = BTreeSet::new();
        for event in &self.log {
            assert!(event.delegation.is_none_or(|id| open.contains(&id)), "{event:?} is of nobody");
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
        assert!(open.iter().eq(self.state.children.keys()), "those that have not ended are at work");
        assert!(self.state.children.len() <= 8, "not too many at once");
        assert!(self.state.children.values().all(|child| child.depth <= 3), "not too deep");
        let shells: BTreeSet<_> = self.state.agents().map(|(_, run)| run.session.as_str()).collect();
        assert_eq!(shells.len(), self.state.children.len() + 1, "each has a shell of its own");
    }

    /// The same as [`Happening::StepEnds`] for one agent, whose step it is.
    pub(super) fn step_ends(&mut self, agent: AgentId, decision: Decision) {
        let seen = self.stepping.remove(&agent).unwrap();
        self.hear_step(agent, seen, decision);
    }

    fn hear_step(&mut self, agent: AgentId, seen: EventId, decision: Decision) {
        let result = self.decide(agent, decision);
        self.tell(InputKind::StepDone { agent, seen, result });
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
            ModelCallId::Title => panic!("the request for a title says its cost"),
        }
    }

    /// What an agent decides; the calls of a response are made one after another, before anything else.
    fn decide(&self, agent: AgentId, decision: Decision) -> Result<Box<AgentStep>, LlmError> {
        if let Some((_, metadata)) = self.view(agent).pending_call() {
            return Ok(Box::new(delegate(metadata, None)));
        }
        let Decision::Delegate(count) = decision else { return decide(decision) };
        let id = format!("r{}", self.log.len());
        let calls: Vec<_> = (0..count)
            .map(|call| json!({"id": format!("{id}-{call}"), "function": {"name": DELEGATE, "arguments": "{}"}}))
            .collect();
        let metadata = ToolCallMetadata {
            function_name: DELEGATE.into(),
            tool_call_id: format!("{id}-0"),
            model_response: (&json!({"id": id, "choices": [{"message": {"tool_calls": calls}}]})).into(),
            total_calls_in_response: count as u64,
        };
        Ok(Box::new(delegate(metadata, call())))
    }

    /// Nothing runs that the user would have been asked about, and was not.
    fn check_confirmed(&self, action: EventId) {
        let event = &self.log[usize::try_from(action.0).unwrap()];
        let (EventSource::Agent, EventBody::Action(asked)) = (event.source, &event.body) else { return };
        let is_confirmed = self.log.iter().skip(event.id.0 as usize).any(|event| {
            matches!(&event.body, EventBody::Action(Action::ChangeAgentState(changed))
                if changed.agent_state == AgentState::UserConfirmed)
        });
        let asks = self.state.confirmation.requires_confirmation(asked.security_risk());
        let is_approved = self.log.iter().take(event.id.0 as usize).any(|event| {
            matches!(&event.body, EventBody::Record(Record::ApprovalGranted(approval)) if security::covers(approval, asked))
        });
        assert!(!asks || is_confirmed || is_approved, "nothing is performed before it is confirmed");
    }

    /// From wherever it is: let everything that is going on end well, and ask for work.
    pub(super) fn reach_rest(&mut self) {
        self.happen(&Happening::Message);
        self.happen(&Happening::Resume(true));
        for _ in 0..100 {
            let has_finished = self.state.agent_state == AgentState::Finished;
            if has_finished && !self.state.is_underway() && self.state.children.is_empty() {
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

/// The part of a state that its log folds to.
fn decide(decision: Decision) -> Result<Box<AgentStep>, LlmError> {
    let body: EventBody = match decision {
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
        Decision::Draft => {
            let impl_source = FileImplementation::LlmBasedEdit;
            Action::from(EditAction { impl_source, ..EditAction::new("/a", EditCommand::Unspecified) }).into()
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
        Decision::Delegate(_) => unreachable!("it has metadata"),
    };
    let risk_reason =
        if matches!(decision, Decision::RunRisky) { "it deletes".into() } else { String::new() };
    Ok(Box::new(AgentStep { call: call(), risk_reason, ..AgentStep::new(body) }))
}

fn call() -> Option<ModelCall> {
    Some(ModelCall {
        usage: protocol::metrics::TokenUsage { prompt_tokens: 1, ..Default::default() },
        cost: Some(PRICE),
        latency: std::time::Duration::from_secs(1),
    })
}

/// One of several calls in a response that hand on a task each.
fn delegate(metadata: ToolCallMetadata, call: Option<ModelCall>) -> AgentStep {
    AgentStep {
        tool_call_metadata: Some(metadata),
        call,
        briefing: Some(system()),
        ..AgentStep::new(Action::from(DelegateAction { agent: "helper".into(), ..Default::default() }))
    }
}

fn system() -> SystemAction {
    SystemAction { content: "prompt".into(), tools: None, openhands_version: None, agent_class: None }
}

fn failure(kind: LlmErrorKind) -> LlmError {
    LlmError { kind, detail: "no".into(), retry_after: None }
}

fn ran(exit_code: i64) -> Observation {
    let metadata = CommandMetadata { exit_code, ..Default::default() };
    Observation::new("out", RunObservation { metadata, ..Default::default() })
}

/// The model answered; it may have been with nothing of use.
fn drafted(action: EventId, is_written: bool) -> InputKind {
    let edit = match is_written {
        true => Ok(Box::new(EditAction::new("/a", EditCommand::Create))),
        false => Err("it has no block".to_owned()),
    };
    InputKind::EditDrafted { action, drafted: DraftResult { call: call(), edit } }
}

fn done(action: EventId, observation: Observation) -> InputKind {
    InputKind::ActionDone { action, observation: Box::new(observation) }
}

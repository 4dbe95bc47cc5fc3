//! What a conversation does next: pure. Live runs, recovery, replay and simulation share it.
//!
//! Two laws keep it small. The agent is taking a step exactly when [`State::is_stepping`], so whoever makes that true
//! asks for the step, but makes a new sandbox ready first, in the state `loading`. And an action that has no ending is
//! being performed exactly when [`State::is_performing`]: not in `error`, so leaving `error` performs it again, under the
//! same id; and not before the user confirmed it.
//!
//! Every way from state to state stands in `states.md`, which a test compares with this file.

use std::time::Duration;

use protocol::action::{ChangeAgentStateAction, CondensationRequestAction};
use protocol::metrics::Metrics;
use protocol::observation::{AgentStateChangedObservation, ThinkObservation, UserRejectedObservation};
use protocol::record::{
    ConfirmationChanged, ConversationTitled, Limit, LimitExtended, LimitReached, ModelRetried, SandboxLeased,
    SandboxReleased,
};
use protocol::sandbox_api::SandboxAction;
use protocol::{Action, AgentState, Body, Event, EventId, EventSource, Observation, Record, Timestamp};

use super::input::{Begin, Effect, Input, InputKind, News, Terms};
use super::setup::{self, Outcome, SetupStep};
use super::state::{Request, State};
use super::stuck::Recovery;
use crate::agent::{ModelCall, Step, track};
use crate::clock;
use crate::llm::{LlmError, LlmErrorKind};
use crate::security;

/// The observation's `error_id` of an action whose sandbox was lost: whether it ran to its end is unknown.
pub const INTERRUPTED: &str = "ACTION$INTERRUPTED";

/// The observation's `error_id` of an action that was never sent to a sandbox.
pub const NOT_PERFORMED: &str = "ACTION$NOT_PERFORMED";

/// How often in a row a sandbox may be lost in the middle of its set-up: what a set-up script kills is not placed for ever.
const MOST_SETUP_LOSSES: u32 = 2;

/// What comes of an input: the new state, and what is to be done, in order.
pub fn transition(state: State, input: Input) -> (State, Vec<Effect>) {
    let mut turn = Turn { state, at: input.at, events: Vec::new(), effects: Vec::new() };
    if turn.state.started.is_some() || matches!(input.kind, InputKind::Begin(_)) {
        turn.take(input.kind);
    }
    turn.end()
}

/// One transition in the making: events are folded as they are made.
struct Turn {
    state: State,
    at: Timestamp,
    events: Vec<Event>,
    effects: Vec<Effect>,
}

impl Turn {
    fn take(&mut self, input: InputKind) {
        match input {
            InputKind::Begin(begin) => self.begin(*begin),
            InputKind::Recovered => self.recover(),
            InputKind::UserMessage(message) => {
                self.append(EventSource::User, Action::from(message));
                self.go_on();
            }
            InputKind::UserStop => self.stop(),
            InputKind::UserPause => self.pause(),
            InputKind::UserResume(terms) => self.resume(terms),
            InputKind::UserRecover(recovery) => drop(self.recover_from_loop(recovery)),
            InputKind::UserConfirm => self.confirm(),
            InputKind::UserReject { reason } => self.reject(&reason),
            InputKind::CallRetried { retry, is_rate_limited } => {
                if self.state.is_stepping() {
                    self.call_retried(retry, is_rate_limited);
                }
            }
            InputKind::StepTold { news } => {
                if self.state.is_stepping() {
                    self.tell(news);
                }
            }
            InputKind::StepDone { seen, result } => {
                if self.state.is_stepping() {
                    match result {
                        Ok(step) => self.act(*step, seen),
                        Err(error) => self.fail_step(&error),
                    }
                }
            }
            InputKind::ActionDone { action, observation } => {
                if self.is_pending(action) {
                    self.action_done(*observation);
                }
            }
            InputKind::SandboxReady(lease) => self.sandbox_ready(lease),
            InputKind::SandboxFailed { reason } => self.sandbox_failed(&reason),
            InputKind::SandboxLost { detail } => self.sandbox_lost(&detail),
            InputKind::SandboxRemoved => self.sandbox_removed(),
            InputKind::Titled { title, call } => {
                if self.state.title.is_none() {
                    let mut event =
                        self.event(EventSource::Environment, Record::from(ConversationTitled { title }));
                    event.llm_metrics = self.metrics_with(call.as_ref());
                    self.push(event);
                }
            }
        }
    }

    fn begin(&mut self, begin: Begin) {
        if self.state.started.is_none() {
            self.append(EventSource::Environment, Record::from(begin.started));
            self.append(EventSource::Agent, Action::from(begin.system));
            self.change_state(AgentState::Loading, "");
            self.effects.push(Effect::Place);
        }
    }

    /// Takes up what the earlier process was doing. A sandbox is sought only if something waits for one.
    fn recover(&mut self) {
        let has_answered = match self.state.agent_state {
            AgentState::UserConfirmed | AgentState::UserRejected => true,
            AgentState::AwaitingUserConfirmation => self.state.pending.is_none(),
            _ => false,
        };
        // A log may end in the middle of what belongs together: a fork, or one of V0's.
        if has_answered {
            self.change_state(AgentState::Running, "");
        }
        match self.state.agent_state {
            AgentState::Loading if self.state.pending.is_none() => self.reach_sandbox(),
            AgentState::Error => {}
            // Nobody can ask a tool server what became of a call.
            _ if self.state.is_performing() && !self.state.is_for_sandbox() => {
                self.end_pending(interrupted("the program ended while the tool server was asked"));
                self.step_if_due();
            }
            AgentState::Stopped => self.stop_recovered(),
            _ if self.state.is_performing() => self.perform_pending(),
            _ => self.step_if_due(),
        }
    }

    /// The earlier process may have died before its cancel was heard.
    fn stop_recovered(&mut self) {
        if let Some(action) = self.state.pending.as_ref().map(|pending| pending.action) {
            self.perform_pending();
            self.effects.push(Effect::Cancel { action });
        }
    }

    /// The user wants the agent to work; it may be at it already.
    fn go_on(&mut self) {
        match self.state.agent_state {
            AgentState::Loading | AgentState::Running | AgentState::RateLimited => {}
            before => {
                if before == AgentState::AwaitingUserConfirmation {
                    self.end_pending(rejected(
                        "The user did not confirm the action, but said something else.",
                    ));
                }
                let has_setup_ahead = self.state.setup_step().is_some();
                let next = if has_setup_ahead { AgentState::Loading } else { AgentState::Running };
                self.change_state(next, "");
                match (&self.state.pending, before) {
                    (Some(_), AgentState::Error) => self.perform_pending(),
                    // It is being performed; what follows, follows its end.
                    (Some(_), _) => {}
                    (None, _) if has_setup_ahead => self.reach_sandbox(),
                    (None, _) => self.step_if_due(),
                }
            }
        }
    }

    fn resume(&mut self, terms: Terms) {
        self.agree_on(terms);
        if self.recover_from_loop(Recovery::BeforeLoop) {
            return;
        }
        match self.state.agent_state {
            // What the start was held or failed by is over; nothing else has happened yet.
            AgentState::Error | AgentState::Stopped | AgentState::Paused
                if self.state.last_user_message.is_none() && self.state.pending.is_none() =>
            {
                self.change_state(AgentState::Loading, "");
                self.reach_sandbox();
            }
            AgentState::Finished
            | AgentState::Rejected
            | AgentState::AwaitingUserInput
            | AgentState::AwaitingUserConfirmation => {}
            _ => self.go_on(),
        }
    }

    fn agree_on(&mut self, terms: Terms) {
        let steps = terms.max_iterations.filter(|to| *to != self.state.max_iterations).map(f64::from);
        let budget = terms.max_budget.filter(|to| Some(*to) != self.state.max_budget);
        for (limit, to) in [(Limit::Iterations, steps), (Limit::Budget, budget)] {
            if let Some(to) = to {
                self.append(EventSource::User, Record::from(LimitExtended { limit, to }));
            }
        }
        if let Some(policy) = terms.confirmation.filter(|policy| *policy != self.state.confirmation) {
            self.append(EventSource::User, Record::from(ConfirmationChanged { policy }));
        }
    }

    fn tell(&mut self, news: Vec<News>) {
        let mut before = None;
        for News { source, body, is_outcome } in news {
            let mut event = self.event(source, body);
            event.cause = before.filter(|_| is_outcome);
            before = Some(self.push(event));
        }
        self.step_if_due();
    }

    /// Leaves the loop that the agent was stopped in, if it was. Whether it was.
    fn recover_from_loop(&mut self, recovery: Recovery) -> bool {
        let (Some(stuck), Some(last)) = (self.state.loop_to_end(), self.state.next_id.previous()) else {
            return false;
        };
        let rests =
            matches!(self.state.agent_state, AgentState::Error | AgentState::Stopped | AgentState::Paused);
        if !rests || self.state.pending.is_some() {
            return false;
        }
        let message = self.state.last_message.clone();
        for (source, action) in stuck.recover(recovery, last, message.as_deref()) {
            self.append(source, action);
        }
        match recovery {
            Recovery::Stop => self.stop(),
            Recovery::BeforeLoop | Recovery::LastUserMessage => self.go_on(),
        }
        true
    }

    fn pause(&mut self) {
        if !matches!(
            self.state.agent_state,
            AgentState::Loading | AgentState::Running | AgentState::RateLimited
        ) {
            return;
        }
        if self.state.is_stepping() {
            self.effects.push(Effect::AbandonStep);
        }
        self.change_state_for_user(AgentState::Paused, "");
    }

    fn confirm(&mut self) {
        if self.state.agent_state == AgentState::AwaitingUserConfirmation {
            self.change_state_for_user(AgentState::UserConfirmed, "");
            self.change_state(AgentState::Running, "");
            self.perform_pending();
        }
    }

    fn reject(&mut self, reason: &str) {
        if self.state.agent_state != AgentState::AwaitingUserConfirmation {
            return;
        }
        self.change_state_for_user(AgentState::UserRejected, reason);
        if reason.trim().is_empty() {
            self.end_pending(rejected("The user rejected the action."));
            self.change_state(AgentState::AwaitingUserInput, "");
        } else {
            self.end_pending(rejected(&format!("The user rejected the action: {reason}")));
            self.change_state(AgentState::Running, "");
            self.step_if_due();
        }
    }

    fn stop(&mut self) {
        if self.state.agent_state == AgentState::Stopped {
            return;
        }
        if self.state.is_stepping() {
            self.effects.push(Effect::AbandonStep);
        }
        if self.state.agent_state == AgentState::AwaitingUserConfirmation {
            self.end_pending(rejected("The user stopped before the action was confirmed."));
        }
        let was_performed = self.state.is_performing();
        self.change_state_for_user(AgentState::Stopped, "");
        let Some(action) = self.state.pending.as_ref().map(|pending| pending.action) else { return };
        match (&self.state.lease, was_performed) {
            _ if !self.state.is_for_sandbox() => self.effects.push(Effect::Cancel { action }),
            (Some(_), true) => self.effects.push(Effect::Cancel { action }),
            (Some(_), false) => self.end_pending(interrupted("its sandbox could not be reached")),
            (None, _) => {
                self.end_pending(not_performed("the user stopped before it was begun"));
                self.effects.push(Effect::Forget { action });
            }
        }
    }

    fn call_retried(&mut self, retry: ModelRetried, is_rate_limited: bool) {
        let reason = retry.reason.clone();
        self.append(EventSource::Environment, Record::from(retry));
        if is_rate_limited && self.state.agent_state == AgentState::Running {
            self.change_state(AgentState::RateLimited, &reason);
        }
    }

    /// The agent decided. Whatever it is gets its ending here, waits for the user, or is sent to the sandbox.
    fn act(&mut self, mut step: Step, seen: EventId) {
        if self.state.agent_state == AgentState::RateLimited {
            self.change_state(AgentState::Running, "");
        }
        let waits = self.is_asked_about(&step.body);
        if waits && let Body::Action(action) = &mut step.body {
            action.await_confirmation();
        }
        let id = self.append_step(&step);
        if waits {
            return self.change_state(AgentState::AwaitingUserConfirmation, "");
        }
        let Body::Action(action) = step.body else { return self.step_if_due() };
        match action {
            Action::Finish(_) => self.rest(AgentState::Finished, seen),
            Action::Reject(_) => self.rest(AgentState::Rejected, seen),
            Action::Message(message) if message.wait_for_response => {
                self.rest(AgentState::AwaitingUserInput, seen);
            }
            Action::Message(_) | Action::Condensation(_) | Action::CondensationRequest(_) => {
                self.step_if_due();
            }
            Action::Think(_) => {
                let noted = Observation::new("The thought is noted.", ThinkObservation {});
                self.append_outcome(id, step.tool_call_metadata, noted);
                self.step_if_due();
            }
            Action::TaskTracking(tracking) => {
                let tracked = track(&tracking, &self.state.tasks);
                self.append_outcome(id, step.tool_call_metadata, tracked);
                self.step_if_due();
            }
            _ if self.is_pending(id) => self.perform_pending(),
            other => {
                let text = format!("nothing here performs the action `{}`", other.kind());
                self.append_outcome(id, step.tool_call_metadata, not_performed(&text));
                self.step_if_due();
            }
        }
    }

    /// Whether the user decides on it: it is performed outside of the conversation, and its risk asks for that.
    fn is_asked_about(&self, body: &Body) -> bool {
        let Body::Action(action) = body else { return false };
        let is_performed =
            matches!(action, Action::CallToolMcp(_)) || SandboxAction::try_from(action.clone()).is_ok();
        is_performed && security::asks(self.state.confirmation, action)
    }

    /// The agent has no more to do, unless the user said something that it has not seen.
    fn rest(&mut self, state: AgentState, seen: EventId) {
        if self.state.last_user_message.is_some_and(|message| message >= seen) {
            self.step_if_due();
        } else {
            self.change_state(state, "");
        }
    }

    /// What does not fit is made shorter. Each condensation is shorter than the one before, and where none comes of the
    /// request, the error stands.
    fn fail_step(&mut self, error: &LlmError) {
        let may_shorten = self.state.started.as_ref().is_some_and(|started| !started.keeps_whole_history);
        if error.kind == LlmErrorKind::ContextWindowExceeded
            && may_shorten
            && !self.state.is_condensation_requested
        {
            self.append(EventSource::Agent, Action::from(CondensationRequestAction {}));
            return self.step_if_due();
        }
        self.change_state(AgentState::Error, &error.to_string());
    }

    fn sandbox_ready(&mut self, lease: SandboxLeased) {
        if self.state.lease.as_ref() != Some(&lease) {
            self.append(EventSource::Environment, Record::from(lease));
        }
        if self.state.agent_state == AgentState::Loading && self.state.pending.is_none() {
            self.make_ready();
        }
    }

    /// Takes the next step of the workspace's set-up, or lets the agent work.
    fn make_ready(&mut self) {
        if let Some(step) = self.state.setup_step() {
            return self.begin_setup_step(step);
        }
        let next = match self.state.last_user_message {
            Some(_) => AgentState::Running,
            None => AgentState::AwaitingUserInput,
        };
        self.change_state(next, "");
        self.step_if_due();
    }

    fn begin_setup_step(&mut self, step: SetupStep) {
        let setup = self.state.started.as_ref().and_then(|started| started.setup.clone());
        let (Some(setup), Some(lease)) = (setup, &self.state.lease) else { return };
        let action = step.action(&setup, &lease.working_dir);
        let mut event = self.event(EventSource::Environment, Action::from(action));
        event.timeout = Some(setup::STEP_TIME);
        self.push(event);
        self.perform_pending();
    }

    fn action_done(&mut self, observation: Observation) {
        let ended = self.state.pending.clone();
        self.end_pending(observation.clone());
        match ended.and_then(|pending| Some((pending.setup?, pending.request))) {
            None => self.step_if_due(),
            // The user has stopped it.
            Some(_) if self.state.agent_state != AgentState::Loading => {}
            Some((step, request)) => match SetupStep::outcome(&observation) {
                Outcome::Done => self.make_ready(),
                Outcome::Failed if !step.is_required() => self.make_ready(),
                Outcome::Failed | Outcome::Cut => {
                    self.change_state(AgentState::Error, &setup::failure(&request, &observation));
                }
            },
        }
    }

    /// An action that waits for a leased sandbox keeps waiting: it may run there. One that no sandbox has seen ends.
    fn sandbox_failed(&mut self, reason: &str) {
        let waits = self.state.is_performing() && self.state.is_for_sandbox();
        if waits && self.state.lease.is_none() {
            self.end_pending(not_performed(reason));
        }
        match self.state.agent_state {
            AgentState::Loading => self.change_state(AgentState::Error, reason),
            AgentState::Running if waits => self.change_state(AgentState::Error, reason),
            // Held or stopped, and the sandbox that the action ran in cannot be reached.
            _ if self.state.is_performing() && self.state.is_for_sandbox() => {
                self.end_pending(interrupted(reason));
            }
            _ => {}
        }
    }

    fn sandbox_lost(&mut self, detail: &str) {
        let was_stepping = self.state.is_stepping();
        let was_pending = self.state.is_for_sandbox();
        let was_leased = self.state.lease.is_some();
        self.release();
        self.end_lost(detail);
        match self.state.agent_state {
            AgentState::Loading if !was_leased => self.change_state(AgentState::Error, detail),
            AgentState::Loading if self.state.setup_losses >= MOST_SETUP_LOSSES => {
                let reason = format!("the sandbox was lost while its workspace was set up: {detail}");
                self.change_state(AgentState::Error, &reason);
            }
            AgentState::Loading => self.effects.push(Effect::Place),
            // The next one has to be made ready before the agent goes on.
            _ if was_stepping && self.state.setup_step().is_some() => {
                self.effects.push(Effect::AbandonStep);
                self.step_if_due();
            }
            _ if was_pending => self.step_if_due(),
            _ => {}
        }
    }

    fn sandbox_removed(&mut self) {
        self.release();
        self.end_lost("its sandbox was removed");
        self.step_if_due();
    }

    /// Ends the action that was in a sandbox, or would have been.
    fn end_lost(&mut self, detail: &str) {
        if !self.state.is_for_sandbox() {
            return;
        }
        if self.state.agent_state == AgentState::AwaitingUserConfirmation {
            self.end_pending(not_performed(detail));
            self.change_state(AgentState::Running, "");
        } else {
            self.end_pending(interrupted(detail));
        }
    }

    fn release(&mut self) {
        if let Some(lease) = self.state.lease.clone() {
            let released = SandboxReleased { sandbox_id: lease.sandbox_id };
            self.append(EventSource::Environment, Record::from(released));
        }
    }

    fn step_if_due(&mut self) {
        if !self.state.is_stepping() {
            return;
        }
        if self.state.setup_step().is_some() {
            self.change_state(AgentState::Loading, "");
            self.reach_sandbox();
        } else if let Some(stuck) = self.state.loop_to_end() {
            let detected = stuck.detected();
            let reason = detected.content.clone();
            self.append(EventSource::Environment, detected);
            self.change_state(AgentState::Error, &reason);
        } else if let Some((limit, at)) = self.state.limit() {
            self.append(EventSource::Environment, Record::from(LimitReached { limit, at }));
            let reason = match limit {
                Limit::Iterations => format!("the agent has taken all of its {at} steps"),
                Limit::Budget => format!("the calls to the model have cost ${at:.4}, which is all they may"),
            };
            self.change_state(AgentState::Error, &reason);
        } else {
            self.effects.push(Effect::Step { seen: self.state.next_id });
        }
    }

    fn perform_pending(&mut self) {
        let Some(pending) = self.state.pending.clone() else { return };
        let request = match pending.request {
            Request::Sandbox(request) => request,
            Request::Tool(call) => {
                let call = Box::new(call);
                return self.effects.push(Effect::CallTool { action: pending.action, call });
            }
        };
        self.reach_sandbox();
        let now = clock::epoch_seconds(&self.at);
        let time_left = pending.cancelled_at.map(|at| {
            // What is not a time has passed.
            Duration::try_from_secs_f64(at - now).unwrap_or_default()
        });
        self.effects.push(Effect::Execute { action: pending.action, request: Box::new(request), time_left });
    }

    fn reach_sandbox(&mut self) {
        self.effects.push(match &self.state.lease {
            Some(lease) => Effect::Attach(Box::new(lease.clone())),
            None => Effect::Place,
        });
    }

    fn is_pending(&self, action: EventId) -> bool {
        self.state.pending.as_ref().is_some_and(|pending| pending.action == action)
    }

    fn end_pending(&mut self, observation: Observation) {
        if let Some(pending) = self.state.pending.clone() {
            self.append_outcome(pending.action, pending.tool_call_metadata, observation);
        }
    }

    fn append_outcome(
        &mut self,
        cause: EventId,
        tool_call_metadata: Option<protocol::tool_call::ToolCallMetadata>,
        observation: Observation,
    ) {
        let mut event = self.event(EventSource::Agent, observation);
        event.cause = Some(cause);
        event.tool_call_metadata = tool_call_metadata;
        self.push(event);
    }

    fn append_step(&mut self, step: &Step) -> EventId {
        let mut event = self.event(EventSource::Agent, step.body.clone());
        event.timeout = step.timeout;
        event.tool_call_metadata.clone_from(&step.tool_call_metadata);
        event.llm_metrics = self.metrics_with(step.call.as_ref());
        self.push(event)
    }

    /// The totals with one more call.
    fn metrics_with(&self, call: Option<&ModelCall>) -> Option<Metrics> {
        let mut metrics = self.state.metrics.totals();
        call?.record_in(&mut metrics, clock::epoch_seconds(&self.at));
        Some(metrics)
    }

    fn change_state_for_user(&mut self, agent_state: AgentState, thought: &str) {
        let asked = ChangeAgentStateAction { agent_state, thought: thought.to_owned() };
        self.append(EventSource::User, Action::from(asked));
        self.change_state(agent_state, "");
    }

    fn change_state(&mut self, agent_state: AgentState, reason: &str) {
        let changed = AgentStateChangedObservation { agent_state, reason: reason.to_owned() };
        self.append(EventSource::Environment, Observation::silent(changed));
    }

    fn append(&mut self, source: EventSource, body: impl Into<Body>) -> EventId {
        let event = self.event(source, body);
        self.push(event)
    }

    fn event(&self, source: EventSource, body: impl Into<Body>) -> Event {
        Event::new(self.state.next_id, self.at.clone(), source, body)
    }

    fn push(&mut self, event: Event) -> EventId {
        let id = event.id;
        self.state.apply(&event);
        self.events.push(event);
        id
    }

    fn end(self) -> (State, Vec<Effect>) {
        let mut effects = self.effects;
        if !self.events.is_empty() {
            effects.insert(0, Effect::Append(self.events));
        }
        (self.state, effects)
    }
}

/// The ending of an action of which nobody knows how it ended.
pub(super) fn interrupted(detail: &str) -> Observation {
    let text = format!(
        "The action was interrupted: {detail}. Whether it ran to its end is unknown. If the sandbox was lost, \
         processes and shell settings of before are gone, and the next action gets a new one."
    );
    Observation::error(text, INTERRUPTED)
}

/// The ending of an action that the user did not let pass.
fn rejected(text: &str) -> Observation {
    Observation::new(text, UserRejectedObservation {})
}

fn not_performed(why: &str) -> Observation {
    Observation::error(format!("The action was not performed: {why}."), NOT_PERFORMED)
}

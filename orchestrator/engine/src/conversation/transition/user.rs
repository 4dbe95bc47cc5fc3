//! Inputs of the user.

use protocol::action::MessageAction;
use protocol::command::LoopRecovery;
use protocol::record::{
    ApprovalScope, ConfirmationChanged, Limit, LimitExtended, ModelChanged, ModelSource,
};
use protocol::risk::ConfirmationPolicy;
use protocol::{
    Action, AgentState, CommandRequest, Event, EventId, EventSource, Record, UserCommand,
};

use super::{AgentId, Transition};
use crate::conversation::input::Effect;
use crate::conversation::terminal::{interrupted, not_performed, rejected};
use crate::security::approval;
use crate::title::first_line;

/// Maximum number of requests to continue, in a row, to an agent that only sends messages.
const MAX_CONTINUE_REQUESTS: u32 = 3;

const CONTINUE_REQUEST: &str = "No user is here to answer. Continue with what you think best. If the task is done, \
    or cannot be, call finish.";

impl Transition {
    /// Applies a command, unless it was applied before. Its id is stored on the event that it
    /// causes: the first one of the user, or the first of all if there is none of the user.
    pub(super) fn on_command(&mut self, request: CommandRequest) {
        let CommandRequest { id, command } = request;
        let mut event = id.as_ref().and_then(|id| self.state.commands.event(id));
        if event.is_none() {
            self.apply_command(command);
            let is_users = |event: &Event| event.source == EventSource::User;
            let first = self.events.iter().position(is_users).unwrap_or_default();
            if let Some(caused) = self.events.get_mut(first) {
                event = Some(caused.id);
                if let Some(id) = id {
                    caused.command = Some(id.clone());
                    self.state.commands.add(id, caused.id);
                }
            }
        }
        self.applied = Some(Effect::ReportApplied { event });
    }

    fn apply_command(&mut self, command: UserCommand) {
        match command {
            UserCommand::SendMessage(message) => self.on_user_message(message),
            UserCommand::Stop => self.stop(),
            UserCommand::Pause => self.pause(),
            UserCommand::Resume {
                more_iterations,
                more_budget,
            } => {
                self.extend_limits(more_iterations, more_budget);
                self.resume();
            }
            UserCommand::AwaitMessage => self.await_message(),
            UserCommand::RecoverFromLoop { recovery } => drop(self.recover_from_loop(recovery)),
            UserCommand::Confirm {
                action,
                and_similar,
            } => self.confirm(action, and_similar),
            UserCommand::Reject { action, reason } => self.reject(action, &reason),
            UserCommand::SetConfirmation { policy } => self.set_confirmation(policy),
            UserCommand::SetModel { model } => self.set_model(model),
            UserCommand::SetTitle { title } => self.set_title(first_line(&title), None),
            UserCommand::GiveFeedback(feedback) => {
                self.append(None, EventSource::User, Record::from(feedback));
            }
        }
    }

    pub(super) fn on_user_message(&mut self, message: MessageAction) {
        let content = message.content.clone();
        if self.state.lease.is_none() && self.state.latest_lease.is_some() {
            // The agent answers the message, not the notice.
            self.report_replacement(&self.state.notified_of_replacement.clone());
        }
        self.append(None, EventSource::User, Action::from(message));
        // As in V0: a user who answers wants the agent to continue.
        self.extend_limits(None, None);
        // Agents of delegated tasks receive the message only this way.
        self.reject_unconfirmed(&format!(
            "The user did not confirm the action, but said: {content}"
        ));
        self.resume_work();
    }

    /// Answers an agent that waits for a message, if it runs without a user: with the next message
    /// of a replayed user, or a request to continue.
    pub(super) fn answer_unattended(&mut self) {
        if self.state.agent_state != AgentState::AwaitingUserInput {
            return;
        }
        let answer = self.due_message().or_else(|| {
            let requests = self.state.schedule.continue_requests.as_mut();
            let requests = requests.filter(|sent| **sent < MAX_CONTINUE_REQUESTS)?;
            *requests += 1;
            Some(MessageAction {
                content: CONTINUE_REQUEST.to_owned(),
                ..MessageAction::default()
            })
        });
        if let Some(answer) = answer {
            self.on_user_message(answer);
        }
    }

    /// Returns the next message of a replayed user if it is due.
    pub(super) fn due_message(&mut self) -> Option<MessageAction> {
        let is_held = matches!(
            self.state.agent_state,
            AgentState::Stopped | AgentState::Paused
        );
        if is_held || self.state.has_pending_actions() {
            return None;
        }
        self.state.schedule.replayed_user.as_mut()?.take_due()
    }

    fn reject_unconfirmed(&mut self, text: &str) {
        for agent in self.agents_with_pending(|pending| pending.awaits_confirmation) {
            self.end_pending(agent, rejected(text));
        }
    }

    /// Lets the agent work, unless it works already.
    fn resume_work(&mut self) {
        match self.state.agent_state {
            AgentState::Loading | AgentState::Running | AgentState::RateLimited => {}
            _ if self.state.setup_step().is_some() => self.change_state(AgentState::Loading, ""),
            _ => self.change_state(self.working_state(), ""),
        }
    }

    fn resume(&mut self) {
        if self.recover_from_loop(LoopRecovery::BeforeLoop) {
            return;
        }
        match self.state.agent_state {
            // The conversation was held, or failed, before its first message.
            AgentState::Error | AgentState::Stopped | AgentState::Paused
                if self.state.last_user_message.is_none() && !self.state.has_pending_actions() =>
            {
                self.change_state(AgentState::Loading, "");
            }
            AgentState::Finished
            | AgentState::Rejected
            | AgentState::AwaitingUserInput
            | AgentState::AwaitingUserConfirmation => {}
            _ => self.resume_work(),
        }
    }

    /// Lets an agent that was stopped wait for a message, unless its action is still being
    /// cancelled. As in V0, its sandbox is started meanwhile: the user may upload files first.
    fn await_message(&mut self) {
        let is_idle = matches!(
            self.state.agent_state,
            AgentState::AwaitingUserInput
                | AgentState::Error
                | AgentState::Finished
                | AgentState::Paused
                | AgentState::Rejected
                | AgentState::Stopped
        );
        if !is_idle || self.state.has_pending_actions() {
            return;
        }
        self.state.schedule.is_sandbox_requested = true;
        if self.state.agent_state == AgentState::Stopped {
            self.change_state(AgentState::AwaitingUserInput, "");
        }
    }

    /// Grants more steps and a higher budget. The initial number of steps is granted again if it
    /// was reached. A budget that is spent is not: it limits what a user can make the operator pay.
    fn extend_limits(&mut self, more_iterations: Option<u32>, more_budget: Option<f64>) {
        let initial = self
            .state
            .started
            .as_ref()
            .filter(|_| self.state.limit_reached == Some(Limit::Iterations));
        let steps = more_iterations
            .or(initial.map(|started| started.max_iterations.max(1)))
            .map(|more| self.state.iterations.saturating_add(more))
            .filter(|to| *to != self.state.max_iterations)
            .map(f64::from);
        let budget = more_budget
            .map(|more| self.state.metrics.accumulated_cost + more)
            .filter(|to| Some(*to) != self.state.max_budget);
        for (limit, to) in [(Limit::Iterations, steps), (Limit::Budget, budget)] {
            if let Some(to) = to {
                self.append(
                    None,
                    EventSource::User,
                    Record::from(LimitExtended { limit, to }),
                );
            }
        }
    }

    fn set_confirmation(&mut self, policy: ConfirmationPolicy) {
        if policy != self.state.confirmation {
            self.append(
                None,
                EventSource::User,
                Record::from(ConfirmationChanged { policy }),
            );
        }
    }

    fn set_model(&mut self, model: String) {
        // Another one may answer, because the settings have changed.
        self.replaces_models = true;
        let is_recorded = self.state.started.as_ref().is_some_and(|started| {
            started.model == model && started.model_source == Some(ModelSource::Conversation)
        });
        if !is_recorded {
            self.append(
                None,
                EventSource::User,
                Record::from(ModelChanged { model }),
            );
        }
    }

    /// Leaves the loop that the agent was stopped in. Returns whether there was one.
    fn recover_from_loop(&mut self, recovery: LoopRecovery) -> bool {
        let (Some(stuck), Some(last)) = (
            self.state.detected_loop(None),
            self.state.next_id.previous(),
        ) else {
            return false;
        };
        let rests = matches!(
            self.state.agent_state,
            AgentState::Error | AgentState::Stopped | AgentState::Paused
        );
        if !rests || self.state.has_pending_actions() || !self.state.children.is_empty() {
            return false;
        }
        let message = self.state.last_message.clone();
        for (source, action) in stuck.recover(recovery, last, message.as_deref()) {
            self.append(None, source, action);
        }
        match recovery {
            LoopRecovery::Stop => self.stop(),
            LoopRecovery::BeforeLoop | LoopRecovery::LastUserMessage => self.resume_work(),
        }
        true
    }

    fn pause(&mut self) {
        let is_working = match self.state.agent_state {
            AgentState::Loading | AgentState::Running | AgentState::RateLimited => true,
            // Other agents may work.
            AgentState::AwaitingUserConfirmation => self.state.is_working(),
            _ => false,
        };
        if is_working {
            self.change_state_for_user(AgentState::Paused, "");
        }
    }

    /// Agent whose action awaits confirmation. `None` if that is not the named action.
    fn agent_awaiting_confirmation(&self, action: Option<EventId>) -> Option<AgentId> {
        let is_awaiting = self.state.agent_state == AgentState::AwaitingUserConfirmation;
        let (agent, pending) = self.state.awaiting_confirmation().filter(|_| is_awaiting)?;
        action
            .is_none_or(|action| action == pending.action)
            .then_some(agent)
    }

    fn confirm(&mut self, action: Option<EventId>, and_similar: bool) {
        if let Some(agent) = self.agent_awaiting_confirmation(action) {
            let pending = self.state.pending_action(agent);
            if let Some(approval) = pending
                .filter(|_| and_similar)
                .and_then(|pending| approval(&pending.to_action()))
            {
                if let ApprovalScope::McpTool { name } = &approval.scope {
                    self.state.schedule.approved_tools.insert(name.clone());
                }
                self.append(None, EventSource::User, Record::from(approval));
            }
            self.change_state_for_user(AgentState::UserConfirmed, "");
            self.change_state(self.working_state(), "");
        }
    }

    fn reject(&mut self, action: Option<EventId>, reason: &str) {
        let Some(agent) = self.agent_awaiting_confirmation(action) else {
            return;
        };
        self.change_state_for_user(AgentState::UserRejected, reason);
        if reason.trim().is_empty() {
            self.end_pending(agent, rejected("The user rejected the action."));
            self.change_state(AgentState::AwaitingUserInput, "");
        } else {
            self.end_pending(
                agent,
                rejected(&format!("The user rejected the action: {reason}")),
            );
            self.change_state(self.working_state(), "");
        }
    }

    fn stop(&mut self) {
        if self.state.agent_state == AgentState::Stopped {
            return;
        }
        self.reject_unconfirmed("The user stopped before the action was confirmed.");
        self.change_state_for_user(AgentState::Stopped, "");
        for agent in self.agents_with_pending(|_| true) {
            self.stop_pending(agent);
        }
    }

    /// Cancels a pending action that is in flight, whose terminal event still arrives. Ends any
    /// other.
    fn stop_pending(&mut self, agent: AgentId) {
        let Some(pending) = self.state.pending_action(agent) else {
            return;
        };
        let action = pending.action;
        if !pending.is_for_sandbox() {
            self.cancel(action);
        } else if self.state.lease.is_none() {
            self.end_pending(
                agent,
                not_performed("the user stopped before it was started"),
            );
        } else if self.state.schedule.actions.contains_key(&action) {
            self.cancel(action);
        } else {
            self.end_pending(agent, interrupted("its sandbox could not be reached"));
        }
    }
}

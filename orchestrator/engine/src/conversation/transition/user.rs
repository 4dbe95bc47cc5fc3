//! Inputs of the user.

use protocol::action::MessageAction;
use protocol::record::{ApprovalScope, ConfirmationChanged, Limit, LimitExtended};
use protocol::{Action, AgentState, EventId, EventSource, Record};

use super::{AgentId, Transition};
use crate::conversation::input::ResumeOptions;
use crate::conversation::stuck::LoopRecovery;
use crate::conversation::terminal::{interrupted, not_performed, rejected};
use crate::security::approval;

impl Transition {
    pub(super) fn on_user_message(&mut self, message: MessageAction) {
        let content = message.content.clone();
        if self.state.lease.is_none() && self.state.latest_lease.is_some() {
            // The agent answers the message, not the notice.
            self.report_replacement(&self.state.notified_of_replacement.clone());
        }
        self.append(None, EventSource::User, Action::from(message));
        if self.state.limit_reached == Some(Limit::Iterations) {
            // As in V0: a user who answers wants the agent to continue.
            let more = self
                .state
                .started
                .as_ref()
                .map_or(self.state.max_iterations, |started| started.max_iterations);
            let to = f64::from(self.state.max_iterations.saturating_add(more.max(1)));
            let limit = Limit::Iterations;
            self.append(
                None,
                EventSource::User,
                Record::from(LimitExtended { limit, to }),
            );
        }
        // Agents of delegated tasks receive the message only this way.
        self.reject_unconfirmed(&format!(
            "The user did not confirm the action, but said: {content}"
        ));
        self.resume_work();
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

    pub(super) fn resume(&mut self, terms: ResumeOptions) {
        self.apply_terms(terms);
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
    pub(super) fn await_message(&mut self) {
        self.state.schedule.is_sandbox_requested = true;
        if self.state.agent_state == AgentState::Stopped && !self.state.has_pending_actions() {
            self.change_state(AgentState::AwaitingUserInput, "");
        }
    }

    fn apply_terms(&mut self, terms: ResumeOptions) {
        let steps = terms
            .max_iterations
            .filter(|to| *to != self.state.max_iterations)
            .map(f64::from);
        let budget = terms
            .max_budget
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
        if let Some(policy) = terms
            .confirmation
            .filter(|policy| *policy != self.state.confirmation)
        {
            self.append(
                None,
                EventSource::User,
                Record::from(ConfirmationChanged { policy }),
            );
        }
    }

    /// Leaves the loop that the agent was stopped in. Returns whether there was one.
    pub(super) fn recover_from_loop(&mut self, recovery: LoopRecovery) -> bool {
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

    pub(super) fn pause(&mut self) {
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

    pub(super) fn confirm(&mut self, action: Option<EventId>, and_similar: bool) {
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

    pub(super) fn reject(&mut self, action: Option<EventId>, reason: &str) {
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

    pub(super) fn stop(&mut self) {
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

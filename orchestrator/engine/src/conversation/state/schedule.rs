//! ScheduledWork that is in flight in this process, or waits to be started.
//!
//! No part of the log: [`State::fold`](super::State::fold) leaves it empty, so that a new process
//! starts all work again.

use std::collections::{BTreeMap, BTreeSet};

use protocol::EventId;

use super::AgentId;
use crate::replayed_user::ReplayedUser;

/// Steps and actions that are due, and the connection that they need.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schedule {
    /// Connection to the sandbox.
    pub sandbox: SandboxConnection,
    /// Whether a client uses the sandbox before there is work for it: its files and ports.
    pub is_sandbox_requested: bool,
    /// Steps that are due, by agent.
    pub steps: BTreeMap<AgentId, ScheduledWork>,
    /// Actions that are due, by the event of the action.
    pub actions: BTreeMap<EventId, ScheduledWork>,
    /// Search for a title. `None` if none was requested, or if it has ended.
    pub title: Option<TitleSearch>,
    /// Number of requests to continue since the agent's last action other than a message. `None` if
    /// a user answers the agent's questions.
    pub continue_requests: Option<u32>,
    /// Sends the messages of a saved conversation. `None` if none is replayed.
    pub replayed_user: Option<ReplayedUser>,
    /// Tools of tool servers of which the user has approved every call. In another process, the
    /// name may belong to another server.
    pub approved_tools: BTreeSet<String>,
}

/// Connection of this process to the conversation's sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxConnection {
    /// Not connected, and not connecting.
    #[default]
    Absent,
    /// A sandbox is being created, or the leased one attached to.
    Connecting,
    /// The sandbox is connected.
    Connected,
}

/// A step, an action or a title search that is due.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ScheduledWork {
    /// Whether it is in flight.
    pub is_started: bool,
    /// Maximum cost of its call to a model, in US dollars. `None` if it is not estimated yet, or if
    /// no model is called.
    pub max_cost: Option<f64>,
}

/// Search for the title of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct TitleSearch {
    /// The user's message that the title is found for.
    pub message: String,
    /// Whether it is in flight, and its maximum cost.
    pub work: ScheduledWork,
}

/// A call to a model, by the work that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelCallId {
    /// An agent's step.
    Step(AgentId),
    /// An action: the draft of an edit.
    Draft(EventId),
    /// The search for a title.
    Title,
}

impl Schedule {
    /// Whether an agent's step is in flight.
    pub fn is_step_started(&self, agent: AgentId) -> bool {
        self.steps.get(&agent).is_some_and(|work| work.is_started)
    }

    /// Whether an action is in flight.
    pub fn is_action_started(&self, action: EventId) -> bool {
        self.actions
            .get(&action)
            .is_some_and(|work| work.is_started)
    }

    /// The work that makes a call. `None` if it is not due.
    pub(in crate::conversation) fn work(&self, call: ModelCallId) -> Option<&ScheduledWork> {
        match call {
            ModelCallId::Step(agent) => self.steps.get(&agent),
            ModelCallId::Draft(action) => self.actions.get(&action),
            ModelCallId::Title => self.title.as_ref().map(|search| &search.work),
        }
    }

    pub(in crate::conversation) fn work_mut(
        &mut self,
        call: ModelCallId,
    ) -> Option<&mut ScheduledWork> {
        match call {
            ModelCallId::Step(agent) => self.steps.get_mut(&agent),
            ModelCallId::Draft(action) => self.actions.get_mut(&action),
            ModelCallId::Title => self.title.as_mut().map(|search| &mut search.work),
        }
    }
}

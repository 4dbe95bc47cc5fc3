//! Work that is in flight in this process, or waits to be started.
//!
//! No part of the log: [`State::fold`](super::State::fold) leaves it empty, so that a new process starts all work again.

use std::collections::BTreeMap;

use protocol::EventId;

use super::AgentId;

/// Steps and actions that are due, and the connection that they need.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schedule {
    /// Connection to the sandbox.
    pub sandbox: SandboxConnection,
    /// Steps that are due, by agent.
    pub steps: BTreeMap<AgentId, WorkStatus>,
    /// Actions that are due, by the event of the action.
    pub actions: BTreeMap<EventId, WorkStatus>,
}

/// Connection of this process to the conversation's sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxConnection {
    /// Not connected, and not connecting.
    #[default]
    Absent,
    /// A sandbox is being created, or the leased one attached to.
    Connecting,
    /// The sandbox answers.
    Connected,
}

/// Status of a step or an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkStatus {
    /// Not started yet.
    Waiting,
    /// Not started by this process. It is cancelled as soon as it is, because an earlier process may have started it.
    Cancelled,
    /// In flight.
    Started,
}

impl Schedule {
    /// Whether an agent's step is in flight.
    pub fn is_step_started(&self, agent: AgentId) -> bool {
        self.steps.get(&agent) == Some(&WorkStatus::Started)
    }

    /// Whether an action is in flight.
    pub fn is_action_started(&self, action: EventId) -> bool {
        self.actions.get(&action) == Some(&WorkStatus::Started)
    }
}

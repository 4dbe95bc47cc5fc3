//! Notices of what happens between events. They are sent to current subscribers and never stored.

use protocol::EventId;

use super::state::AgentId;
use crate::llm::LlmProgress;
use crate::sandbox::StartProgress;

/// A notice of what happens between events.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveUpdate {
    /// Output of an action in flight.
    Output {
        /// The action.
        action: EventId,
        /// The number of bytes of the action's output that precede these.
        offset: u64,
        /// The bytes, as the terminal wrote them.
        bytes: Vec<u8>,
    },
    /// Output that exceeded the buffer and was dropped.
    OutputGap {
        /// The action.
        action: EventId,
        /// The offset of the first dropped byte.
        from: u64,
        /// The offset of the first byte after the gap.
        to: u64,
    },
    /// Progress of the sandbox's creation.
    Start(StartProgress),
    /// Something that the agent works without, such as a malformed file with knowledge.
    Problem(String),
    /// Progress of a call to a model.
    Model {
        /// The agent that makes the call.
        agent: AgentId,
        /// Progress of the call.
        progress: LlmProgress,
    },
}

//! Requests from a conversation's handle to its task.

use std::sync::Arc;

use protocol::{CommandRequest, EventId};
use tokio::sync::oneshot;

use crate::agent::Agents;
use crate::llm::Llm;

/// A request in the conversation's mailbox.
pub(super) enum TaskRequest {
    /// A command of the user. The event that it causes is sent once it is stored. `agents` have
    /// the model that it chooses.
    Apply {
        request: Box<CommandRequest>,
        agents: Option<Box<Agents>>,
        applied: oneshot::Sender<Option<EventId>>,
    },
    FindTitle {
        llm: Arc<dyn Llm>,
        message: String,
    },
    /// Nothing is started any more. `drained` is sent once no model and no tool server is being
    /// called.
    Drain {
        drained: oneshot::Sender<()>,
    },
    Close {
        sandbox: SandboxDisposition,
    },
}

/// What happens to a conversation's sandbox when the conversation is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxDisposition {
    /// It is removed.
    Remove,
    /// It is kept until the conversation is resumed. It is paused if the runtime supports that.
    Pause,
    /// It is kept, and keeps running.
    Keep,
}

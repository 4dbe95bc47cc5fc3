//! A conversation: one event log, and one task that owns it.
//!
//! [`State`] is the fold of the log with the schedule of this process. [`transition`] decides
//! purely, and the task behind [`Conversation`] performs its effects.

mod error;
mod fork;
mod handle;
mod import;
mod input;
#[cfg(test)]
mod laws;
mod limits;
mod live;
mod mailbox;
mod parts;
mod read_state;
mod setup;
mod state;
#[cfg(test)]
mod states;
mod step;
mod stuck;
mod task;
mod terminal;
mod transition;

pub use error::ConversationError;
pub use fork::fork;
pub use handle::{Conversation, PendingCommand};
pub use import::{import, renumber};
pub use input::{ConversationStart, Effect, Input, InputKind, Notice};
pub use live::LiveUpdate;
pub use mailbox::SandboxDisposition;
pub use parts::EngineParts;
pub use read_state::read_state;
pub use setup::SetupStep;
pub use state::{
    AgentId, AgentRun, AppliedCommands, ChildAgent, ModelCallId, PendingAction, PendingRequest,
    SandboxConnection, Schedule, ScheduledWork, State, TitleSearch,
};
pub use stuck::{AgentLoop, LoopKind, StuckDetector};
pub use terminal::{INTERRUPTED, NOT_PERFORMED};
pub use transition::{is_replacement_notice, transition};

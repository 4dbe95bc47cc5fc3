//! A conversation: one event log, and one task that owns it.
//!
//! [`State`] is the fold of the log with the schedule of this process. [`transition`] decides purely, and the task behind
//! [`Conversation`] performs its effects.

mod command;
mod error;
mod fork;
mod handle;
mod input;
#[cfg(test)]
mod laws;
mod limits;
mod live;
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

pub use command::Afterwards;
pub use error::ConversationError;
pub use fork::fork;
pub use handle::Conversation;
pub use input::{Begin, Effect, Input, InputKind, Notice, Terms};
pub use live::Live;
pub use parts::Parts;
pub use read_state::read_state;
pub use setup::SetupStep;
pub use state::{
    AgentId, Child, ModelCallId, Pending, Request, Run, SandboxConnection, Schedule, State, TitleSearch, Work,
};
pub use stuck::{Recovery, Stuck, StuckDetector, StuckKind};
pub use terminal::{INTERRUPTED, NOT_PERFORMED};
pub use transition::{SANDBOX_REPLACED, transition};

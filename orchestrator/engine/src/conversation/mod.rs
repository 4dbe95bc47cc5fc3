//! A conversation: one log, one owner, one step after another.
//!
//! [`State`] is the fold of the log, [`transition`] decides purely, and the task behind [`Conversation`] performs
//! what was decided.

mod fork;
mod handle;
mod input;
#[cfg(test)]
mod laws;
mod limits;
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

pub use fork::fork;
pub use handle::{Afterwards, Conversation, ConversationError, Live, Parts};
pub use input::{Begin, Effect, Input, InputKind, News, Terms};
pub use read_state::read_state;
pub use setup::SetupStep;
pub use state::{
    AgentId, Child, ModelCallId, Pending, Request, Run, SandboxConnection, Schedule, State, TitleSearch,
    Work, WorkStatus,
};
pub use stuck::{Recovery, Stuck, StuckDetector, StuckKind};
pub use terminal::{INTERRUPTED, NOT_PERFORMED};
pub use transition::{SANDBOX_REPLACED, transition};

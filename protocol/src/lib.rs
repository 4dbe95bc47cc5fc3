//! The types that cross process boundaries: V0's events, the API of the action server, V0's API for
//! clients of the host server, and V0's runtime API, by which sandboxes are leased.
//!
//! Data types only. No runtime, no HTTP, no clock: the caller supplies times and ids. An event read
//! from V0's JSON serializes to the same JSON, also if an older version of V0 wrote it (see
//! `event::variance`). The exception is `message`, which is derived text.

mod edit_command;
mod kinds;
mod lenient;
mod older_fields;

pub mod action;
pub mod agent_state;
pub mod client_api;
pub mod command;
pub mod event;
pub mod event_query;
pub mod ids;
pub mod metrics;
pub mod observation;
pub mod python_json;
pub mod python_literal;
pub mod record;
pub mod risk;
pub mod runtime_api;
pub mod sandbox_api;
pub mod tool_call;
pub mod untrusted_json;
pub mod update;

pub use action::Action;
pub use agent_state::AgentState;
pub use command::{CommandRequest, UserCommand};
pub use event::{Event, EventBody, EventError, EventSource, Timestamp};
pub use event_query::EventQuery;
pub use ids::{
    ActionId, BootId, CommandId, ConversationId, EventId, IdError, ProcessId, SandboxId,
    SessionName, UserId,
};
pub use observation::{Observation, ObservationKind};
pub use record::Record;
pub use risk::SecurityRisk;
pub use update::ConversationUpdate;

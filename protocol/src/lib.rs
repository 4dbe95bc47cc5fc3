//! The words that cross process borders: V0's events as exact types, and the API of the action server.
//!
//! Values only. No runtime, no HTTP, no clock: times and ids come in from outside. An event read from V0's JSON is
//! written again as the same JSON (`event::variance` says how older dialects are kept), except for `message`, which
//! is derived text.

mod kinds;
mod lenient;
mod older_fields;
mod python_literal;

pub mod action;
pub mod agent_state;
pub mod event;
pub mod ids;
pub mod metrics;
pub mod observation;
pub mod python_json;
pub mod record;
pub mod risk;
pub mod sandbox_api;
pub mod tool_call;

pub use action::Action;
pub use agent_state::AgentState;
pub use event::{Event, EventBody, EventError, EventSource, Timestamp};
pub use ids::{ActionId, BootId, ConversationId, EventId, IdError, ProcessId, SandboxId, SessionName};
pub use observation::{Observation, ObservationKind};
pub use record::Record;
pub use risk::SecurityRisk;

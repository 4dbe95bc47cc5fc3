//! The core of Glovebox: event logs, conversations and agents, and the traits for everything
//! outside.
//!
//! Uses no HTTP, no files, no environment variables and no database. It reaches the outside only
//! through the traits [`events::EventStore`], [`llm::Llm`], [`sandbox::SandboxProvider`],
//! [`sandbox::Sandbox`] and [`tool_servers::ToolServers`].

pub mod agent;
pub mod browsing;
pub mod clock;
pub mod condenser;
pub mod conversation;
pub mod draft_editor;
pub mod errors;
pub mod events;
mod front_matter;
pub mod llm;
pub mod memory;
pub mod replay;
pub mod replayed_user;
pub mod sandbox;
pub mod sandbox_tools;
pub mod secrets;
pub mod security;
#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod title;
pub mod tool_servers;
pub mod truncate;
pub mod utf8;
pub mod view;

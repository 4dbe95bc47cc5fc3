//! The heart: events, conversations and agents; and the traits for everything outside.
//!
//! Knows no HTTP, no files, no environment, no database. What it needs of the world it asks through the seams
//! [`events::EventStore`], [`llm::Llm`], [`sandbox::SandboxProvider`] and [`sandbox::Sandbox`].

pub mod agent;
pub mod clock;
pub mod conversation;
pub mod events;
mod front_matter;
pub mod llm;
pub mod memory;
pub mod sandbox;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod view;

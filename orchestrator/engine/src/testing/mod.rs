//! Fakes of the engine's traits for tests of all crates. They behave like real ones, with scripted
//! content.

mod hanging_llm;
mod memory_store;
mod scripted_sandbox;
mod unused_llm;

pub use hanging_llm::HangingLlm;
pub use memory_store::MemoryStore;
pub use scripted_sandbox::{ScriptedProvider, ScriptedResult, ScriptedSandbox};
pub use unused_llm::UnusedLlm;

use protocol::Timestamp;

/// A fixed time, for events whose time does not matter.
#[expect(clippy::expect_used, reason = "a constant in the right format")]
pub fn timestamp() -> Timestamp {
    Timestamp::try_from("2026-01-02T03:04:05.678901".to_owned()).expect("a timestamp")
}

//! Calls to language models.
//!
//! Two wires of our own behind the engine's [`Llm`](engine::llm::Llm) ([`ProviderLlm`]): OpenAI's chat completions, which
//! everything compatible speaks, and Anthropic's messages. [`ScriptedLlm`] plays answers from a file and calls nobody.
//!
//! The texts of providers' errors are read in `classify` and nowhere else. Keys leave this crate only in the header
//! of a request: never in an error, a log or an event. Configuration comes as data ([`LlmConfig`]); of the
//! environment only the usual proxy variables and the machine's certificates are used, by the HTTP client.

mod anthropic;
mod classify;
mod config;
mod openai;
mod prices;
mod retry;
mod scripted;
mod secrets;
mod wire;

pub use config::{ConfigError, LlmConfig, Timeouts};
pub use retry::RetryPolicy;
pub use scripted::{SCRIPT_EXAMPLE, ScriptError, ScriptedLlm};
pub use wire::ProviderLlm;

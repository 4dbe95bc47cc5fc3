//! Calls to language models.
//!
//! A wire of our own behind the engine's [`Llm`](engine::llm::Llm): OpenAI's chat completions, which everything
//! compatible speaks ([`OpenAiLlm`]). [`ScriptedLlm`] plays answers from a file and calls nobody. [`HttpAnalyzer`] asks a
//! service of the user's for an action's risk: it is here because the HTTP client is.
//!
//! The texts of providers' errors are read in `classify` and nowhere else. Keys leave this crate only in the header
//! of a request: never in an error, a log or an event. Configuration comes as data ([`LlmConfig`]); of the
//! environment only the usual proxy variables and the machine's certificates are used, by the HTTP client.

mod analyzer;
mod classify;
mod config;
mod openai;
mod prices;
mod retry;
mod scripted;
mod secrets;

pub use analyzer::{AnalyzerConfig, HttpAnalyzer};
pub use config::{ConfigError, LlmConfig, Timeouts};
pub use openai::OpenAiLlm;
pub use retry::RetryPolicy;
pub use scripted::{SCRIPT_EXAMPLE, ScriptError, ScriptedLlm};

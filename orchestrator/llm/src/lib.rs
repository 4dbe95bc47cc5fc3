//! Calls to language models.
//!
//! Two wires of our own behind the engine's [`Llm`] ([`ProviderLlm`]): OpenAI's chat completions, which
//! everything compatible speaks, and Anthropic's messages. [`MultimodalRouter`] chooses between two models. [`ScriptedLlm`] plays answers from a file and calls nobody;
//! [`RecordingLlm`] writes calls to files, and [`ReplayLlm`] answers from them. [`HttpAnalyzer`],
//! [`InvariantAnalyzer`] and [`GraySwanAnalyzer`] ask services for an action's risk: they are here because the HTTP client
//! is.
//!
//! The texts of providers' errors are read in `classify` and nowhere else. Keys leave this crate only in the header
//! of a request: never in an error, a log or an event. Configuration comes as data ([`LlmConfig`]); of the
//! environment only the usual proxy variables and the machine's certificates are used, by the HTTP client.

mod analyzer;
mod anthropic;
mod classify;
mod config;
mod error_name;
mod models;
mod openai;
mod prices;
mod reach;
mod recording;
mod retry;
mod router;
mod scripted;
mod secrets;
mod shortened;
mod text_calls;
mod wire;

use std::sync::Arc;

use engine::llm::Llm;

use models::Lack;

pub use analyzer::{AnalyzerConfig, GraySwanAnalyzer, HttpAnalyzer, InvariantAnalyzer};
pub use config::{ConfigError, LlmConfig, Timeouts};
pub use reach::{lacks_key, reach};
pub use recording::{RecordingError, RecordingLlm, RecordingRedaction, ReplayLlm};
pub use retry::RetryPolicy;
pub use router::MultimodalRouter;
pub use scripted::{SCRIPT_EXAMPLE, ScriptError, ScriptedLlm};
pub use wire::ProviderLlm;

/// The model of a configuration: behind its wire, with calls in its text if it makes none by itself, and told no
/// more of a result than it is to be.
///
/// # Errors
/// See [`ConfigError`].
pub fn connect(config: &LlmConfig) -> Result<Arc<dyn Llm>, ConfigError> {
    let lacks = models::known(&config.model);
    tracing::debug!(model = config.model, as_of = models::AS_OF, ?lacks, "what the model is known to lack");
    let is_native = config.native_tool_calling.unwrap_or_else(|| !lacks.contains(&Lack::Calls));
    let inner: Arc<dyn Llm> = if is_native {
        Arc::new(ProviderLlm::new(config)?)
    } else {
        let mut config = config.clone();
        if !config.disable_stop_word && !lacks.contains(&Lack::Stop) {
            config.stop.push(text_calls::STOP.to_owned());
        }
        Arc::new(text_calls::TextCallsLlm::new(Arc::new(ProviderLlm::new(&config)?)))
    };
    Ok(match config.max_message_chars {
        Some(most) => Arc::new(shortened::ShortenedLlm { inner, most }),
        None => inner,
    })
}

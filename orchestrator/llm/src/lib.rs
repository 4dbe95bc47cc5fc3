//! Calls to language models.
//!
//! [`ProviderLlm`] implements the engine's [`Llm`] with three wires: OpenAI's chat completions,
//! which all compatible servers speak, OpenAI's Responses API, and Anthropic's messages.
//! [`MultimodalRouter`] chooses between two models. [`ScriptedLlm`] returns responses from a file,
//! without a provider. [`RecordingLlm`] writes calls to files, and [`ReplayLlm`] replays them.
//! [`HttpAnalyzer`], [`InvariantAnalyzer`] and [`GraySwanAnalyzer`] request an action's risk from a
//! service; they are here because they share the HTTP client.
//!
//! Only `classify` reads the texts of providers' errors. Keys leave this crate only in the header
//! of a request, never in an error, a log or an event. Configuration is passed in ([`LlmConfig`]);
//! the HTTP client reads the proxy variables of the environment and the machine's certificates.

mod analyzer;
mod anthropic;
mod arguments;
mod classify;
mod config;
mod connection_guard;
mod connectivity;
mod description;
mod error_name;
mod history;
mod hosts;
mod models;
mod openai;
mod prices;
mod recording;
mod responses;
mod retry;
mod router;
mod scripted;
mod secrets;
#[cfg(feature = "testing")]
pub mod testing;
mod text_calls;
mod truncating;
mod wire;

use std::sync::Arc;

use engine::llm::Llm;

use models::MissingFeature;

pub use analyzer::{AnalyzerConfig, GraySwanAnalyzer, HttpAnalyzer, InvariantAnalyzer};
pub use config::{ConfigError, LlmConfig, Timeouts};
pub use connection_guard::ConnectionGuard;
pub use connectivity::{check_connection, is_key_missing};
pub use description::{ModelDescription, describe};
pub use prices::{is_listed_model, is_price_known};
pub use recording::{RecordingError, RecordingLlm, RecordingRedaction, ReplayLlm};
pub use retry::RetryPolicy;
pub use router::MultimodalRouter;
pub use scripted::{SCRIPT_EXAMPLE, ScriptError, ScriptedLlm};
pub use wire::{ProviderLlm, request_url};

/// Creates the model of a configuration. Emulates tool calls for a model without them, and
/// truncates long results of tools.
///
/// # Errors
/// See [`ConfigError`].
pub fn connect(config: &LlmConfig) -> Result<Arc<dyn Llm>, ConfigError> {
    let missing = models::missing_features(&config.model);
    tracing::debug!(
        model = config.model,
        as_of = models::AS_OF,
        ?missing,
        "looked up the model's missing features"
    );
    let is_native = config
        .native_tool_calling
        .unwrap_or_else(|| !missing.contains(&MissingFeature::Calls));
    let inner: Arc<dyn Llm> = if is_native {
        Arc::new(ProviderLlm::new(config)?)
    } else {
        let mut config = config.clone();
        if !config.disable_stop_word && !missing.contains(&MissingFeature::Stop) {
            config.stop.push(text_calls::CALL_END.to_owned());
        }
        Arc::new(text_calls::TextCallsLlm::new(Arc::new(ProviderLlm::new(
            &config,
        )?)))
    };
    Ok(match config.max_message_chars {
        Some(max_chars) => Arc::new(truncating::TruncatingLlm { inner, max_chars }),
        None => inner,
    })
}

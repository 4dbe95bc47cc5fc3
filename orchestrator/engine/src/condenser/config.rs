//! Which condenser is wanted: plain data, with V0's names and defaults.

use std::sync::Arc;

use serde::Deserialize;

use super::amortized::Amortized;
use super::browser_output_masking::BrowserOutputMasking;
use super::conversation_window::ConversationWindow;
use super::forgetting::Bounds;
use super::llm_attention::LlmAttention;
use super::observation_masking::ObservationMasking;
use super::pipeline::Pipeline;
use super::recent::Recent;
use super::summarizing::Summarizing;
use super::{Condenser, Noop, llm, structured};
use crate::llm::Llm;

/// V0's `[condenser]`. `llm_config` names the model's group; nothing: the agent's model. Lengths of histories are
/// counted in events.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum CondenserConfig {
    /// Everything is shown.
    Noop {},
    /// When a condensation is asked for, the older half is forgotten.
    ConversationWindow {},
    /// Observations before the latest events are masked.
    ObservationMasking {
        /// Events that are never masked, at the end.
        #[serde(default = "hundred")]
        attention_window: usize,
    },
    /// Pages before the latest ones are masked.
    BrowserOutputMasking {
        /// Pages that are not masked.
        #[serde(default = "one")]
        attention_window: usize,
    },
    /// Only the first and the latest events are shown.
    Recent {
        /// Events at the beginning.
        #[serde(default = "one")]
        keep_first: usize,
        /// The most events, those at the beginning included.
        #[serde(default = "hundred")]
        max_events: usize,
    },
    /// A model writes a summary of what is forgotten.
    Llm {
        /// The model's group.
        #[serde(default)]
        llm_config: Option<String>,
        /// Events at the beginning that stay.
        #[serde(default = "one")]
        keep_first: usize,
        /// The most events; beyond them half is forgotten.
        #[serde(default = "hundred")]
        max_size: usize,
        /// How much of an event the model is told, in characters.
        #[serde(default = "ten_thousand")]
        max_event_length: usize,
    },
    /// A model fills in a form on what is forgotten.
    Structured {
        /// The model's group.
        #[serde(default)]
        llm_config: Option<String>,
        /// Events at the beginning that stay.
        #[serde(default = "one")]
        keep_first: usize,
        /// The most events; beyond them half is forgotten.
        #[serde(default = "hundred")]
        max_size: usize,
        /// How much of an event the model is told, in characters.
        #[serde(default = "ten_thousand")]
        max_event_length: usize,
    },
    /// What is too old is forgotten.
    Amortized {
        /// The most events; beyond them half is forgotten.
        #[serde(default = "hundred")]
        max_size: usize,
        /// Events at the beginning that stay.
        #[serde(default = "one")]
        keep_first: usize,
    },
    /// What a model thinks matters least is forgotten.
    LlmAttention {
        /// The model's group.
        #[serde(default)]
        llm_config: Option<String>,
        /// The most events; beyond them half is forgotten.
        #[serde(default = "hundred")]
        max_size: usize,
        /// Events at the beginning that stay.
        #[serde(default = "one")]
        keep_first: usize,
    },
    /// One after another, up to the first that condenses.
    Pipeline {
        /// In their order.
        condensers: Vec<Self>,
    },
}

/// What of a condenser's configuration cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CondenserConfigError {
    /// What stays at the beginning would leave no room for the rest.
    #[error("keep_first ({keep_first}) must be less than half of max_size ({max_size})")]
    NoRoom {
        /// Events at the beginning that stay.
        keep_first: usize,
        /// The most events.
        max_size: usize,
    },
    /// Nothing would be shown.
    #[error("{0} must be 1 or more")]
    Zero(&'static str),
}

impl CondenserConfig {
    /// V0's condenser when none is named: a history that does not fit is halved, old pages are masked, and beyond 240
    /// events a model writes a summary.
    pub fn usual() -> Self {
        let summary =
            Self::Llm { llm_config: None, keep_first: 4, max_size: 240, max_event_length: ten_thousand() };
        let condensers =
            vec![Self::ConversationWindow {}, Self::BrowserOutputMasking { attention_window: 2 }, summary];
        Self::Pipeline { condensers }
    }

    /// Checks what types cannot say.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn check(&self) -> Result<(), CondenserConfigError> {
        match self {
            Self::Noop {} | Self::ConversationWindow {} => Ok(()),
            Self::ObservationMasking { attention_window }
            | Self::BrowserOutputMasking { attention_window } => {
                positive("attention_window", *attention_window)
            }
            Self::Recent { max_events, .. } => positive("max_events", *max_events),
            Self::Llm { keep_first, max_size, max_event_length, .. }
            | Self::Structured { keep_first, max_size, max_event_length, .. } => {
                positive("max_event_length", *max_event_length)?;
                room(*keep_first, *max_size)
            }
            Self::Amortized { keep_first, max_size } | Self::LlmAttention { keep_first, max_size, .. } => {
                room(*keep_first, *max_size)
            }
            Self::Pipeline { condensers } => condensers.iter().try_for_each(Self::check),
        }
    }

    /// The groups of models that are named.
    pub fn llm_configs(&self) -> Vec<&str> {
        match self {
            Self::Llm { llm_config, .. }
            | Self::Structured { llm_config, .. }
            | Self::LlmAttention { llm_config, .. } => llm_config.as_deref().into_iter().collect(),
            Self::Pipeline { condensers } => condensers.iter().flat_map(Self::llm_configs).collect(),
            Self::Noop {}
            | Self::ConversationWindow {}
            | Self::ObservationMasking { .. }
            | Self::BrowserOutputMasking { .. }
            | Self::Recent { .. }
            | Self::Amortized { .. } => Vec::new(),
        }
    }

    /// The condenser. `llm_of` gives the model of a group; without a name, the agent's.
    ///
    /// # Errors
    /// Those of `llm_of`.
    pub fn build<E>(
        &self,
        llm_of: &impl Fn(Option<&str>) -> Result<Arc<dyn Llm>, E>,
    ) -> Result<Arc<dyn Condenser>, E> {
        let summarizing = |llm: &Option<String>, bounds, max_event_length, form| {
            Ok(Summarizing { llm: llm_of(llm.as_deref())?, bounds, max_event_length, form })
        };
        Ok(match self {
            Self::Noop {} => Arc::new(Noop),
            Self::ConversationWindow {} => Arc::new(ConversationWindow),
            Self::ObservationMasking { attention_window } => {
                Arc::new(ObservationMasking { attention_window: *attention_window })
            }
            Self::BrowserOutputMasking { attention_window } => {
                Arc::new(BrowserOutputMasking { attention_window: *attention_window })
            }
            Self::Recent { keep_first, max_events } => {
                Arc::new(Recent { keep_first: *keep_first, max_events: *max_events })
            }
            Self::Llm { llm_config, keep_first, max_size, max_event_length } => Arc::new(summarizing(
                llm_config,
                bounds(*keep_first, *max_size),
                *max_event_length,
                llm::FORM,
            )?),
            Self::Structured { llm_config, keep_first, max_size, max_event_length } => Arc::new(summarizing(
                llm_config,
                bounds(*keep_first, *max_size),
                *max_event_length,
                structured::FORM,
            )?),
            Self::Amortized { max_size, keep_first } => Arc::new(Amortized(bounds(*keep_first, *max_size))),
            Self::LlmAttention { llm_config, max_size, keep_first } => Arc::new(LlmAttention {
                llm: llm_of(llm_config.as_deref())?,
                bounds: bounds(*keep_first, *max_size),
            }),
            Self::Pipeline { condensers } => {
                let built: Result<_, E> =
                    condensers.iter().map(|condenser| condenser.build(llm_of)).collect();
                Arc::new(Pipeline(built?))
            }
        })
    }
}

fn bounds(keep_first: usize, max_size: usize) -> Bounds {
    Bounds { keep_first, max_size }
}

fn positive(key: &'static str, number: usize) -> Result<(), CondenserConfigError> {
    if number == 0 { Err(CondenserConfigError::Zero(key)) } else { Ok(()) }
}

fn room(keep_first: usize, max_size: usize) -> Result<(), CondenserConfigError> {
    if keep_first < max_size / 2 {
        Ok(())
    } else {
        Err(CondenserConfigError::NoRoom { keep_first, max_size })
    }
}

fn one() -> usize {
    1
}

fn hundred() -> usize {
    100
}

fn ten_thousand() -> usize {
    10_000
}

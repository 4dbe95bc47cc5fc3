//! The configuration of condensers, with V0's names and defaults.

use std::sync::Arc;

use serde::Deserialize;

use super::amortized::Amortized;
use super::browser_output_masking::BrowserOutputMasking;
use super::conversation_window::ConversationWindow;
use super::forgetting::HistoryBounds;
use super::llm_attention::LlmAttention;
use super::observation_masking::ObservationMasking;
use super::pipeline::Pipeline;
use super::recent::Recent;
use super::summarizing::Summarizing;
use super::{Condenser, Noop, llm, structured};
use crate::llm::Llm;

/// V0's `[condenser]` section. `llm_config` names a model section; without it the agent's model is
/// used. Lengths of histories are numbers of events.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum CondenserConfig {
    /// Keeps the whole history.
    Noop {},
    /// Forgets the older half if a condensation is requested.
    ConversationWindow {},
    /// Masks observations before the latest events.
    ObservationMasking {
        /// Number of latest events that are never masked.
        #[serde(default = "hundred")]
        attention_window: usize,
    },
    /// Masks all but the latest web pages.
    BrowserOutputMasking {
        /// Number of pages that are not masked.
        #[serde(default = "one")]
        attention_window: usize,
    },
    /// Keeps only the first and the latest events.
    Recent {
        /// Number of first events.
        #[serde(default = "one")]
        keep_first: usize,
        /// Maximum number of events, including the first ones.
        #[serde(default = "hundred")]
        max_events: usize,
    },
    /// Replaces forgotten events with a summary by a model.
    Llm {
        /// The model section.
        #[serde(default)]
        llm_config: Option<String>,
        /// Number of first events that are kept.
        #[serde(default = "one")]
        keep_first: usize,
        /// Maximum number of events. If exceeded, half of them are forgotten.
        #[serde(default = "hundred")]
        max_size: usize,
        /// Maximum length of an event in the request to the model, in characters.
        #[serde(default = "ten_thousand")]
        max_event_length: usize,
    },
    /// Replaces forgotten events with a form that a model fills in.
    Structured {
        /// The model section.
        #[serde(default)]
        llm_config: Option<String>,
        /// Number of first events that are kept.
        #[serde(default = "one")]
        keep_first: usize,
        /// Maximum number of events. If exceeded, half of them are forgotten.
        #[serde(default = "hundred")]
        max_size: usize,
        /// Maximum length of an event in the request to the model, in characters.
        #[serde(default = "ten_thousand")]
        max_event_length: usize,
    },
    /// Forgets old events.
    Amortized {
        /// Maximum number of events. If exceeded, half of them are forgotten.
        #[serde(default = "hundred")]
        max_size: usize,
        /// Number of first events that are kept.
        #[serde(default = "one")]
        keep_first: usize,
    },
    /// Forgets the events that a model ranks lowest.
    LlmAttention {
        /// The model section.
        #[serde(default)]
        llm_config: Option<String>,
        /// Maximum number of events. If exceeded, half of them are forgotten.
        #[serde(default = "hundred")]
        max_size: usize,
        /// Number of first events that are kept.
        #[serde(default = "one")]
        keep_first: usize,
    },
    /// Runs several condensers, up to the first condensation.
    Pipeline {
        /// The condensers, in order.
        condensers: Vec<Self>,
    },
}

/// The error of an invalid condenser configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CondenserConfigError {
    /// The first events would leave no room for later ones.
    #[error("keep_first ({keep_first}) must be less than half of max_size ({max_size})")]
    NoRoom {
        /// Number of first events that are kept.
        keep_first: usize,
        /// Maximum number of events.
        max_size: usize,
    },
    /// The view would be empty.
    #[error("{0} must be 1 or more")]
    Zero(&'static str),
}

impl CondenserConfig {
    /// Returns V0's default: halves a history that exceeds the context window, masks old web pages,
    /// and summarizes more than 240 events.
    pub fn v0_default() -> Self {
        Self::v0_default_with(240)
    }

    /// Returns V0's default, with another number of events that are summarized. Not validated.
    pub fn v0_default_with(max_size: usize) -> Self {
        let summary = Self::Llm {
            llm_config: None,
            keep_first: 4,
            max_size,
            max_event_length: ten_thousand(),
        };
        let condensers = vec![
            Self::ConversationWindow {},
            Self::BrowserOutputMasking {
                attention_window: 2,
            },
            summary,
        ];
        Self::Pipeline { condensers }
    }

    /// Validates the numbers.
    ///
    /// # Errors
    /// The first problem found.
    pub fn check(&self) -> Result<(), CondenserConfigError> {
        match self {
            Self::Noop {} | Self::ConversationWindow {} => Ok(()),
            Self::ObservationMasking { attention_window }
            | Self::BrowserOutputMasking { attention_window } => {
                check_positive("attention_window", *attention_window)
            }
            Self::Recent { max_events, .. } => check_positive("max_events", *max_events),
            Self::Llm {
                keep_first,
                max_size,
                max_event_length,
                ..
            }
            | Self::Structured {
                keep_first,
                max_size,
                max_event_length,
                ..
            } => {
                check_positive("max_event_length", *max_event_length)?;
                check_room(*keep_first, *max_size)
            }
            Self::Amortized {
                keep_first,
                max_size,
            }
            | Self::LlmAttention {
                keep_first,
                max_size,
                ..
            } => check_room(*keep_first, *max_size),
            Self::Pipeline { condensers } => condensers.iter().try_for_each(Self::check),
        }
    }

    /// Returns the names of the model sections in use.
    pub fn llm_configs(&self) -> Vec<&str> {
        match self {
            Self::Llm { llm_config, .. }
            | Self::Structured { llm_config, .. }
            | Self::LlmAttention { llm_config, .. } => llm_config.as_deref().into_iter().collect(),
            Self::Pipeline { condensers } => {
                condensers.iter().flat_map(Self::llm_configs).collect()
            }
            Self::Noop {}
            | Self::ConversationWindow {}
            | Self::ObservationMasking { .. }
            | Self::BrowserOutputMasking { .. }
            | Self::Recent { .. }
            | Self::Amortized { .. } => Vec::new(),
        }
    }

    /// Builds the condenser. `find_llm` returns the model of a section, or the agent's model for
    /// `None`.
    ///
    /// # Errors
    /// The errors of `find_llm`.
    pub fn build<E>(
        &self,
        find_llm: &impl Fn(Option<&str>) -> Result<Arc<dyn Llm>, E>,
    ) -> Result<Arc<dyn Condenser>, E> {
        let summarizing = |llm: &Option<String>, bounds, max_event_length, form| {
            Ok(Summarizing {
                llm: find_llm(llm.as_deref())?,
                bounds,
                max_event_length,
                form,
            })
        };
        Ok(match self {
            Self::Noop {} => Arc::new(Noop),
            Self::ConversationWindow {} => Arc::new(ConversationWindow),
            Self::ObservationMasking { attention_window } => Arc::new(ObservationMasking {
                attention_window: *attention_window,
            }),
            Self::BrowserOutputMasking { attention_window } => Arc::new(BrowserOutputMasking {
                attention_window: *attention_window,
            }),
            Self::Recent {
                keep_first,
                max_events,
            } => Arc::new(Recent {
                keep_first: *keep_first,
                max_events: *max_events,
            }),
            Self::Llm {
                llm_config,
                keep_first,
                max_size,
                max_event_length,
            } => Arc::new(summarizing(
                llm_config,
                bounds(*keep_first, *max_size),
                *max_event_length,
                llm::SUMMARY_FORM,
            )?),
            Self::Structured {
                llm_config,
                keep_first,
                max_size,
                max_event_length,
            } => Arc::new(summarizing(
                llm_config,
                bounds(*keep_first, *max_size),
                *max_event_length,
                structured::SUMMARY_FORM,
            )?),
            Self::Amortized {
                max_size,
                keep_first,
            } => Arc::new(Amortized(bounds(*keep_first, *max_size))),
            Self::LlmAttention {
                llm_config,
                max_size,
                keep_first,
            } => Arc::new(LlmAttention {
                llm: find_llm(llm_config.as_deref())?,
                bounds: bounds(*keep_first, *max_size),
            }),
            Self::Pipeline { condensers } => {
                let built: Result<_, E> = condensers
                    .iter()
                    .map(|condenser| condenser.build(find_llm))
                    .collect();
                Arc::new(Pipeline(built?))
            }
        })
    }
}

fn bounds(keep_first: usize, max_size: usize) -> HistoryBounds {
    HistoryBounds {
        keep_first,
        max_size,
    }
}

fn check_positive(key: &'static str, number: usize) -> Result<(), CondenserConfigError> {
    if number == 0 {
        Err(CondenserConfigError::Zero(key))
    } else {
        Ok(())
    }
}

fn check_room(keep_first: usize, max_size: usize) -> Result<(), CondenserConfigError> {
    if keep_first < max_size / 2 {
        Ok(())
    } else {
        Err(CondenserConfigError::NoRoom {
            keep_first,
            max_size,
        })
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

//! Pages of a conversation's events.

use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// Selects events of a conversation.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default)]
pub struct EventPageQuery {
    /// The first event. Below 0 is 0.
    pub start_id: i64,
    /// The last event. `None` for the end of the log.
    pub end_id: Option<i64>,
    /// Whether the last event comes first.
    #[serde(deserialize_with = "query_bool")]
    pub reverse: bool,
    /// Maximum number of events: 0 to 100.
    pub limit: usize,
    /// Whether hidden events are left out.
    #[serde(deserialize_with = "query_bool")]
    pub exclude_hidden: bool,
    /// Text that the event's JSON contains, in any case.
    pub query: Option<String>,
    /// Types of actions and observations to select, separated by commas. Empty selects all.
    pub include_types: Option<String>,
    /// Types of actions and observations to leave out, separated by commas.
    pub exclude_types: Option<String>,
    /// The source: `agent`, `user` or `environment`.
    pub source: Option<String>,
    /// The earliest time, in ISO 8601.
    pub start_date: Option<String>,
    /// The latest time, in ISO 8601.
    pub end_date: Option<String>,
}

/// Parses a parameter as V0's server does: Python clients send `True`.
fn query_bool<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(D::Error::invalid_value(
            Unexpected::Str(&text),
            &"true or false",
        )),
    }
}

impl Default for EventPageQuery {
    fn default() -> Self {
        Self {
            start_id: 0,
            end_id: None,
            reverse: false,
            limit: 20,
            exclude_hidden: false,
            query: None,
            include_types: None,
            exclude_types: None,
            source: None,
            start_date: None,
            end_date: None,
        }
    }
}

/// Some events of a conversation.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventPage {
    /// The events, in V0's form.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub events: Vec<Box<RawValue>>,
    /// Whether further events are selected.
    pub has_more: bool,
}

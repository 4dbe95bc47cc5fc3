//! Queries about the events of a conversation. The same in process and on the wire.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::event::{Event, EventSource};
use crate::ids::EventId;

/// Selects events of a conversation. All conditions hold for each. The default selects all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct EventQuery {
    /// The first event.
    #[cfg_attr(feature = "openapi", param(value_type = u64))]
    pub from: EventId,
    /// The event after the last one. `None` for the end of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<u64>))]
    pub until: Option<EventId>,
    /// Whether the last event comes first. The next page is then `until` its `next_id`.
    #[serde(rename = "reverse")]
    pub is_reverse: bool,
    /// Maximum number of events of the page.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000, default = 100))]
    pub limit: usize,
    /// Kinds of events to select, separated by commas. Empty selects all.
    #[serde(with = "names", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", param(value_type = String))]
    pub kinds: Vec<String>,
    /// Kinds of events to leave out, separated by commas.
    #[serde(with = "names", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", param(value_type = String))]
    pub excluded_kinds: Vec<String>,
    /// Whether hidden events are left out.
    #[serde(rename = "exclude_hidden")]
    pub excludes_hidden: bool,
    /// Who caused the events. `None` selects all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(inline))]
    pub source: Option<EventSource>,
    /// The earliest time, in seconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest: Option<f64>,
    /// The latest time, in seconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<f64>,
    /// Text that the event's JSON contains, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Default for EventQuery {
    fn default() -> Self {
        Self {
            from: EventId::FIRST,
            until: None,
            is_reverse: false,
            limit: 100,
            kinds: Vec::new(),
            excluded_kinds: Vec::new(),
            excludes_hidden: false,
            source: None,
            earliest: None,
            latest: None,
            text: None,
        }
    }
}

/// Some events of a conversation that a query has selected.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SelectedEventPage {
    /// The events, as JSON.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub events: Vec<Box<RawValue>>,
    /// Where the next page starts. `None` if this is the last one. A page without events that has a
    /// next one was too long to search.
    pub next_id: Option<EventId>,
}

impl SelectedEventPage {
    /// Parses the events.
    ///
    /// # Errors
    /// An event is malformed.
    pub fn parse(&self) -> Result<Vec<Event>, serde_json::Error> {
        let events = self.events.iter();
        events
            .map(|json| serde_json::from_str(json.get()))
            .collect()
    }
}

/// Parses names that are separated by commas, as in the query of a URL.
pub fn parse_names(text: &str) -> Vec<String> {
    let names = text.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

pub(crate) mod names {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::parse_names;

    pub(crate) fn serialize<S: Serializer>(names: &[String], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&names.join(","))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(parse_names(&String::deserialize(from)?))
    }
}

//! Events, the entries of a conversation's log, in V0's JSON format.

mod current_format;
#[cfg(test)]
mod tests;
mod timestamp;
mod variance;

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::action::Action;
use crate::ids::{CommandId, EventId};
use crate::kinds::Fields;
use crate::lenient;
use crate::metrics::Metrics;
use crate::observation::Observation;
use crate::older_fields;
use crate::record::Record;
use crate::tool_call::ToolCallMetadata;
pub use timestamp::Timestamp;
use variance::Variance;

/// The error of a JSON value that is not an event. A retry cannot succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// Neither an action, nor an observation, nor a record.
    #[error("an event has one of the fields `action`, `observation` and `record`")]
    NoKind,
    /// An unknown kind.
    #[error("unknown {key} `{kind}`")]
    UnknownKind {
        /// `action`, `observation` or `record`.
        key: &'static str,
        /// The unknown name.
        kind: String,
    },
    /// A field is missing or has the wrong type.
    #[error("{}{problem}", field_prefix(field))]
    Malformed {
        /// The path of the field, such as `args.command`. If a field is missing, the path of the
        /// object that lacks it; empty for the event itself.
        field: String,
        /// The problem with the field.
        problem: String,
    },
}

/// The originator of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventSource {
    /// The agent, including the results of its actions.
    Agent,
    /// The user.
    User,
    /// Glovebox itself.
    Environment,
}

/// One entry of a conversation's log.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its index in the log.
    pub id: EventId,
    /// When it was appended.
    pub timestamp: Timestamp,
    /// Its originator.
    pub source: EventSource,
    /// The action whose result this is.
    pub cause: Option<EventId>,
    /// The delegate action whose agent this event belongs to. `None` for the conversation's own
    /// agent. Not part of V0.
    pub delegation: Option<EventId>,
    /// The end of the log that the model saw when it wrote the response that starts here. Not part
    /// of V0.
    pub events_seen: Option<EventId>,
    /// The user's command that caused this event. Not part of V0.
    pub command: Option<CommandId>,
    /// The timeout of the action, in seconds.
    pub timeout: Option<f64>,
    /// The tool call that this event belongs to.
    pub tool_call_metadata: Option<ToolCallMetadata>,
    /// The totals after the model call.
    pub llm_metrics: Option<Metrics>,
    /// The action, observation or record.
    pub body: EventBody,
    variance: Variance,
}

/// The body of an event.
#[derive(Debug, Clone, PartialEq)]
pub enum EventBody {
    /// A request of the agent or the user.
    Action(Action),
    /// The result of an action, or an independent fact.
    Observation(Observation),
    /// An event that V0 does not have.
    Record(Record),
}

/// The fields outside the body, under their wire names.
#[derive(Deserialize)]
struct Envelope {
    id: EventId,
    timestamp: Timestamp,
    source: EventSource,
    #[serde(default)]
    cause: Option<EventId>,
    #[serde(default)]
    delegation: Option<EventId>,
    #[serde(default)]
    events_seen: Option<EventId>,
    #[serde(default)]
    command: Option<CommandId>,
    #[serde(default)]
    timeout: Option<f64>,
    #[serde(default)]
    tool_call_metadata: Option<ToolCallMetadata>,
    #[serde(default)]
    llm_metrics: Option<Metrics>,
}

impl Event {
    /// Creates an event with only the mandatory fields.
    pub fn new(
        id: EventId,
        timestamp: Timestamp,
        source: EventSource,
        body: impl Into<EventBody>,
    ) -> Self {
        Self {
            id,
            timestamp,
            source,
            cause: None,
            delegation: None,
            events_seen: None,
            command: None,
            timeout: None,
            tool_call_metadata: None,
            llm_metrics: None,
            body: body.into(),
            variance: Variance::default(),
        }
    }

    /// Converts V0's JSON to an event.
    ///
    /// # Errors
    /// Returns an [`EventError`] for the first problem found.
    pub fn from_value(value: &Value) -> Result<Self, EventError> {
        let Value::Object(map) = value else {
            return Err(malformed("", "an event is an object"));
        };
        let body = EventBody::from_map(map)?;
        let envelope: Envelope = lenient::read("", value)?;
        let mut event = Self::assemble(envelope, body);
        let ours = event
            .canonical()
            .map_err(|error| malformed("", &error.to_string()))?;
        event.variance = Variance::between(&ours, map);
        Ok(event)
    }

    /// Deserializes an event. Fast if this version has written it. If the `previous` event of the
    /// log belongs to the same model response, as an action and its observation do, both share the
    /// text of the response.
    ///
    /// # Errors
    /// The text is not JSON, or not an event; see [`EventError`].
    pub fn read_after(previous: Option<&Self>, text: &[u8]) -> Result<Self, serde_json::Error> {
        match current_format::parse(previous, text) {
            Some(event) => Ok(event),
            None => serde_json::from_slice(text),
        }
    }

    fn assemble(envelope: Envelope, body: EventBody) -> Self {
        let Envelope {
            id,
            timestamp,
            source,
            cause,
            delegation,
            events_seen,
            command,
            timeout,
            tool_call_metadata,
            llm_metrics,
        } = envelope;
        let variance = Variance::default();
        Self {
            id,
            timestamp,
            source,
            cause,
            delegation,
            events_seen,
            command,
            timeout,
            tool_call_metadata,
            llm_metrics,
            body,
            variance,
        }
    }

    /// Whether its JSON is that of V0's newest version, which has a `message` in every action and
    /// observation.
    pub fn is_canonical(&self) -> bool {
        self.variance.is_none()
    }

    /// Returns a human-readable line, V0's `message`.
    pub fn message(&self) -> String {
        match &self.body {
            EventBody::Action(action) => action.message(),
            EventBody::Observation(observation) => observation.message(),
            EventBody::Record(record) => record.kind().replace('_', " "),
        }
    }

    /// Returns the event in the format of V0's newest version.
    fn canonical(&self) -> Result<Map<String, Value>, serde_json::Error> {
        match serde_json::to_value(CanonicalEvent(self))? {
            Value::Object(map) => Ok(map),
            other => Map::deserialize(other),
        }
    }
}

impl EventBody {
    /// Returns the wire name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Action(action) => action.kind(),
            Self::Observation(observation) => observation.kind.kind(),
            Self::Record(record) => record.kind(),
        }
    }

    fn from_map(map: &Map<String, Value>) -> Result<Self, EventError> {
        let no_args = Value::Object(Map::new());
        let args = map.get("args").unwrap_or(&no_args);
        let kind = |key| match map.get(key) {
            Some(Value::String(kind)) => Ok(Some(kind.as_str())),
            Some(Value::Null) | None => Ok(None),
            Some(other) => Err(malformed(
                key,
                &format!("invalid type: {other}, expected a string"),
            )),
        };
        if let Some(kind) = kind("action")? {
            Action::from_fields(kind, &older_fields::current_args(args)).map(Self::Action)
        } else if let Some(kind) = kind("observation")? {
            Observation::from_map(map, kind).map(Self::Observation)
        } else if let Some(kind) = kind("record")? {
            Record::from_fields(kind, args).map(Self::Record)
        } else {
            Err(EventError::NoKind)
        }
    }
}

impl From<Action> for EventBody {
    fn from(action: Action) -> Self {
        Self::Action(action)
    }
}

impl From<Observation> for EventBody {
    fn from(observation: Observation) -> Self {
        Self::Observation(observation)
    }
}

impl From<Record> for EventBody {
    fn from(record: Record) -> Self {
        Self::Record(record)
    }
}

/// Serializes an event in the format of V0's newest version, without the differences of its
/// sender's version.
struct CanonicalEvent<'a>(&'a Event);

impl Serialize for CanonicalEvent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(event) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &event.id)?;
        map.serialize_entry("timestamp", event.timestamp.as_str())?;
        map.serialize_entry("source", &event.source)?;
        if let Some(cause) = &event.cause {
            map.serialize_entry("cause", cause)?;
        }
        if let Some(delegation) = &event.delegation {
            map.serialize_entry("delegation", delegation)?;
        }
        if let Some(events_seen) = &event.events_seen {
            map.serialize_entry("events_seen", events_seen)?;
        }
        if let Some(command) = &event.command {
            map.serialize_entry("command", command)?;
        }
        if let Some(timeout) = &event.timeout {
            map.serialize_entry("timeout", timeout)?;
        }
        if let Some(metadata) = &event.tool_call_metadata {
            map.serialize_entry("tool_call_metadata", metadata)?;
        }
        if let Some(metrics) = &event.llm_metrics {
            map.serialize_entry("llm_metrics", metrics)?;
        }
        match &event.body {
            EventBody::Action(action) => {
                map.serialize_entry("action", action.kind())?;
                map.serialize_entry("args", &Fields(action))?;
                map.serialize_entry("message", &action.message())?;
            }
            EventBody::Observation(observation) => observation.write_into(&mut map)?,
            EventBody::Record(record) => {
                map.serialize_entry("record", record.kind())?;
                map.serialize_entry("args", &Fields(record))?;
            }
        }
        map.end()
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.variance.is_none() {
            return CanonicalEvent(self).serialize(serializer);
        }
        let mut map = self.canonical().map_err(serde::ser::Error::custom)?;
        self.variance.restore(&mut map);
        map.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_value(&Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

fn field_prefix(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!("field `{path}`: ")
    }
}

fn malformed(field: &str, problem: &str) -> EventError {
    EventError::Malformed {
        field: field.to_owned(),
        problem: problem.to_owned(),
    }
}

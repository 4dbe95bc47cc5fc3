//! An event: one entry of a conversation's log, in V0's JSON.

#[cfg(test)]
mod tests;
mod timestamp;
mod variance;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::action::Action;
use crate::ids::EventId;
use crate::kinds::Fields;
use crate::lenient;
use crate::metrics::Metrics;
use crate::observation::Observation;
use crate::record::Record;
use crate::tool_call::ToolCallMetadata;
pub use timestamp::Timestamp;
use variance::Variance;

/// Why a JSON value is not an event. None of these is worth a retry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// Neither an action, nor an observation, nor a record.
    #[error("an event has one of the fields `action`, `observation` and `record`")]
    NoKind,
    /// A kind that we do not know.
    #[error("unknown {key} `{kind}`")]
    UnknownKind {
        /// `action`, `observation` or `record`.
        key: &'static str,
        /// The name that was given.
        kind: String,
    },
    /// A field is missing or has the wrong type.
    #[error("field `{field}`: {problem}")]
    Malformed {
        /// The path of the field, as in `args.command`; of the object where a field in it is missing.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// Who an event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventSource {
    /// The agent, and what came of its actions.
    Agent,
    /// The user.
    User,
    /// The system around both.
    Environment,
}

/// One entry of a conversation's log.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its place in the log.
    pub id: EventId,
    /// When it was appended.
    pub timestamp: Timestamp,
    /// Who it comes from.
    pub source: EventSource,
    /// The action that this is the outcome of.
    pub cause: Option<EventId>,
    /// The delegate action whose agent this is of; nothing: the conversation's own. V0 does not have it.
    pub delegation: Option<EventId>,
    /// How long the action may take, in seconds.
    pub timeout: Option<f64>,
    /// The model's call that this belongs to.
    pub tool_call_metadata: Option<ToolCallMetadata>,
    /// The totals after the model's call.
    pub llm_metrics: Option<Metrics>,
    /// What it says.
    pub body: Body,
    variance: Variance,
}

/// What an event says.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// Something is asked for.
    Action(Action),
    /// Something came of it, or happened.
    Observation(Observation),
    /// Something that only we keep.
    Record(Record),
}

/// The fields beside the body, by their names on the wire.
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
    timeout: Option<f64>,
    #[serde(default)]
    tool_call_metadata: Option<ToolCallMetadata>,
    #[serde(default)]
    llm_metrics: Option<Metrics>,
}

impl Event {
    /// An event with nothing but what every event has.
    pub fn new(id: EventId, timestamp: Timestamp, source: EventSource, body: impl Into<Body>) -> Self {
        Self {
            id,
            timestamp,
            source,
            cause: None,
            delegation: None,
            timeout: None,
            tool_call_metadata: None,
            llm_metrics: None,
            body: body.into(),
            variance: Variance::default(),
        }
    }

    /// Reads V0's JSON.
    ///
    /// # Errors
    /// See [`EventError`]; the first thing found wrong.
    pub fn from_value(value: &Value) -> Result<Self, EventError> {
        let Value::Object(map) = value else {
            return Err(malformed("", "an event is an object"));
        };
        let body = Body::from_map(map)?;
        let envelope: Envelope = lenient::read("", value)?;
        let mut event = Self {
            id: envelope.id,
            timestamp: envelope.timestamp,
            source: envelope.source,
            cause: envelope.cause,
            delegation: envelope.delegation,
            timeout: envelope.timeout,
            tool_call_metadata: envelope.tool_call_metadata,
            llm_metrics: envelope.llm_metrics,
            body,
            variance: Variance::default(),
        };
        let ours = event.canonical().map_err(|error| malformed("", &error.to_string()))?;
        event.variance = Variance::between(&ours, map);
        Ok(event)
    }

    /// One line for people, V0's `message`.
    pub fn message(&self) -> String {
        match &self.body {
            Body::Action(action) => action.message(),
            Body::Observation(observation) => observation.message(),
            Body::Record(record) => record.kind().replace('_', " "),
        }
    }

    /// The event as the newest V0 writes it.
    fn canonical(&self) -> Result<Map<String, Value>, serde_json::Error> {
        let mut map = Map::new();
        map.insert("id".into(), self.id.0.into());
        map.insert("timestamp".into(), self.timestamp.as_str().into());
        map.insert("source".into(), serde_json::to_value(self.source)?);
        if let Some(cause) = self.cause {
            map.insert("cause".into(), cause.0.into());
        }
        if let Some(delegation) = self.delegation {
            map.insert("delegation".into(), delegation.0.into());
        }
        if let Some(timeout) = self.timeout {
            map.insert("timeout".into(), timeout.into());
        }
        if let Some(metadata) = &self.tool_call_metadata {
            map.insert("tool_call_metadata".into(), serde_json::to_value(metadata)?);
        }
        if let Some(metrics) = &self.llm_metrics {
            map.insert("llm_metrics".into(), serde_json::to_value(metrics)?);
        }
        match &self.body {
            Body::Action(action) => {
                map.insert("action".into(), action.kind().into());
                map.insert("args".into(), serde_json::to_value(Fields(action))?);
                map.insert("message".into(), action.message().into());
            }
            Body::Observation(observation) => {
                if let Value::Object(fields) = serde_json::to_value(observation)? {
                    map.extend(fields);
                }
            }
            Body::Record(record) => {
                map.insert("record".into(), record.kind().into());
                map.insert("args".into(), serde_json::to_value(Fields(record))?);
            }
        }
        Ok(map)
    }
}

impl Body {
    fn from_map(map: &Map<String, Value>) -> Result<Self, EventError> {
        let no_args = Value::Object(Map::new());
        let args = map.get("args").unwrap_or(&no_args);
        let kind = |key| match map.get(key) {
            Some(Value::String(kind)) => Ok(Some(kind.as_str())),
            Some(Value::Null) | None => Ok(None),
            Some(other) => Err(malformed(key, &format!("invalid type: {other}, expected a string"))),
        };
        if let Some(kind) = kind("action")? {
            Action::from_fields(kind, args).map(Self::Action)
        } else if let Some(kind) = kind("observation")? {
            Observation::from_map(map, kind).map(Self::Observation)
        } else if let Some(kind) = kind("record")? {
            Record::from_fields(kind, args).map(Self::Record)
        } else {
            Err(EventError::NoKind)
        }
    }
}

impl From<Action> for Body {
    fn from(action: Action) -> Self {
        Self::Action(action)
    }
}

impl From<Observation> for Body {
    fn from(observation: Observation) -> Self {
        Self::Observation(observation)
    }
}

impl From<Record> for Body {
    fn from(record: Record) -> Self {
        Self::Record(record)
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = self.canonical().map_err(serde::ser::Error::custom)?;
        self.variance.restore(&mut map);
        map.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_value(&value).map_err(serde::de::Error::custom)
    }
}

fn malformed(field: &str, problem: &str) -> EventError {
    EventError::Malformed { field: field.to_owned(), problem: problem.to_owned() }
}

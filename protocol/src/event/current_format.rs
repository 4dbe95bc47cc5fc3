//! Parses an event that this version has written, in one pass.
//!
//! Most events of a log are in the current format and have no variance. To verify that, the parsed
//! event is serialized again and compared with the text. For any other text, also a damaged one,
//! the result is `None`, and the caller falls back to the slow path.

use std::io::{self, ErrorKind, Write};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{CanonicalEvent, Envelope, Event, EventBody, EventSource, Timestamp};
use crate::action::Action;
use crate::ids::{CommandId, EventId};
use crate::metrics::Metrics;
use crate::observation::{Observation, ObservationKind};
use crate::record::Record;
use crate::tool_call::{ModelResponseText, ToolCallMetadata};

/// Parses `text`. Shares the text of the model's response with the `previous` event if it is the
/// same.
pub(super) fn parse(previous: Option<&Event>, text: &[u8]) -> Option<Event> {
    // One UTF-8 check for all of its strings.
    let text = std::str::from_utf8(text).ok()?;
    let raw: RawEvent<'_> = serde_json::from_str(text).ok()?;
    let event = raw.into_event(previous)?;
    serializes_to(&event, text).then_some(event)
}

/// The fields of an event. Those that depend on the kind are unparsed, because the kind may follow
/// them.
#[derive(Deserialize)]
struct RawEvent<'a> {
    id: EventId,
    timestamp: Timestamp,
    source: EventSource,
    cause: Option<EventId>,
    delegation: Option<EventId>,
    events_seen: Option<EventId>,
    command: Option<CommandId>,
    timeout: Option<f64>,
    #[serde(borrow)]
    tool_call_metadata: Option<RawToolCallMetadata<'a>>,
    llm_metrics: Option<Metrics>,
    action: Option<&'a str>,
    observation: Option<&'a str>,
    record: Option<&'a str>,
    content: Option<String>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(borrow)]
    extras: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawToolCallMetadata<'a> {
    function_name: String,
    tool_call_id: String,
    #[serde(borrow)]
    model_response: &'a RawValue,
    total_calls_in_response: u64,
}

impl RawEvent<'_> {
    fn into_event(self, previous: Option<&Event>) -> Option<Event> {
        let body = if let Some(kind) = self.action {
            EventBody::Action(Action::from_current(kind, self.args?).ok()?)
        } else if let Some(kind) = self.observation {
            let kind = ObservationKind::from_current(kind, self.extras?).ok()?;
            EventBody::Observation(Observation {
                content: self.content?,
                kind,
            })
        } else {
            EventBody::Record(Record::from_current(self.record?, self.args?).ok()?)
        };
        let tool_call_metadata = match self.tool_call_metadata {
            Some(metadata) => Some(metadata.into_metadata(previous)?),
            None => None,
        };
        let Self {
            id,
            timestamp,
            source,
            cause,
            delegation,
            events_seen,
            command,
            timeout,
            llm_metrics,
            ..
        } = self;
        let envelope = Envelope {
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
        };
        Some(Event::assemble(envelope, body))
    }
}

impl RawToolCallMetadata<'_> {
    fn into_metadata(self, previous: Option<&Event>) -> Option<ToolCallMetadata> {
        let Self {
            function_name,
            tool_call_id,
            model_response,
            total_calls_in_response,
        } = self;
        let known =
            previous.and_then(|event| Some(&event.tool_call_metadata.as_ref()?.model_response));
        let model_response = match known.filter(|known| known.as_str() == model_response.get()) {
            Some(known) => known.clone(),
            None => ModelResponseText::new(model_response).ok()?,
        };
        Some(ToolCallMetadata {
            function_name,
            tool_call_id,
            model_response,
            total_calls_in_response,
        })
    }
}

fn serializes_to(event: &Event, text: &str) -> bool {
    let mut expected = ExpectedText(text.as_bytes());
    serde_json::to_writer(&mut expected, &CanonicalEvent(event)).is_ok() && expected.0.is_empty()
}

/// A writer that accepts only this text. Holds what has not been written yet.
struct ExpectedText<'a>(&'a [u8]);

impl Write for ExpectedText<'_> {
    fn write(&mut self, written: &[u8]) -> io::Result<usize> {
        self.0 = self.0.strip_prefix(written).ok_or(ErrorKind::InvalidData)?;
        Ok(written.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

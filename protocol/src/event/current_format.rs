//! The text of an event that this version of ours has written: read into its types in one pass.
//!
//! Most events of a log are such, and nothing has to be noted about how they differ from what we would write. That they are
//! is told by writing them again, into the text that is there. Whatever else the text is, damage too, is nothing here.

use std::io::{self, ErrorKind, Write};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{CanonicalEvent, Envelope, Event, EventBody, EventSource, Timestamp};
use crate::action::Action;
use crate::ids::EventId;
use crate::metrics::Metrics;
use crate::observation::{Observation, ObservationKind};
use crate::record::Record;
use crate::tool_call::{ModelResponseText, ToolCallMetadata};

/// Reads it. The event before it in the log may have the same model's response.
pub(super) fn parse(previous: Option<&Event>, text: &[u8]) -> Option<Event> {
    // Checked once for all of its texts.
    let text = std::str::from_utf8(text).ok()?;
    let raw: RawEvent<'_> = serde_json::from_str(text).ok()?;
    let event = raw.into_event(previous)?;
    serializes_to(&event, text).then_some(event)
}

/// An event's fields; those that belong to its kind as text, because the kind may come later.
#[derive(Deserialize)]
struct RawEvent<'a> {
    id: EventId,
    timestamp: Timestamp,
    source: EventSource,
    cause: Option<EventId>,
    delegation: Option<EventId>,
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
            EventBody::Observation(Observation { content: self.content?, kind })
        } else {
            EventBody::Record(Record::from_current(self.record?, self.args?).ok()?)
        };
        let tool_call_metadata = match self.tool_call_metadata {
            Some(metadata) => Some(metadata.into_metadata(previous)?),
            None => None,
        };
        let Self { id, timestamp, source, cause, delegation, timeout, llm_metrics, .. } = self;
        let envelope =
            Envelope { id, timestamp, source, cause, delegation, timeout, tool_call_metadata, llm_metrics };
        Some(Event::assemble(envelope, body))
    }
}

impl RawToolCallMetadata<'_> {
    fn into_metadata(self, previous: Option<&Event>) -> Option<ToolCallMetadata> {
        let Self { function_name, tool_call_id, model_response, total_calls_in_response } = self;
        let known = previous.and_then(|event| Some(&event.tool_call_metadata.as_ref()?.model_response));
        let model_response = match known.filter(|known| known.as_str() == model_response.get()) {
            Some(known) => known.clone(),
            None => ModelResponseText::new(model_response).ok()?,
        };
        Some(ToolCallMetadata { function_name, tool_call_id, model_response, total_calls_in_response })
    }
}

fn serializes_to(event: &Event, text: &str) -> bool {
    let mut expected = ExpectedText(text.as_bytes());
    serde_json::to_writer(&mut expected, &CanonicalEvent(event)).is_ok() && expected.0.is_empty()
}

/// What is still to be written; anything else fails.
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

//! Redacts all spellings of all secrets in text, JSON and events.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};

use protocol::{Event, EventError, Observation};
use serde_json::Value;

use super::finder::SpellingFinder;
use super::spellings::Spellings;
use super::unwrapped::UnwrappedText;

/// The replacement of a secret, as in V0.
pub const REDACTED: &str = "<secret_hidden>";

/// The model's response in the JSON of an event.
const RESPONSE: &str = "/tool_call_metadata/model_response";

/// Fields of a response that only its provider writes and reads.
const OPAQUE_FIELDS: [&str; 4] = [
    "signature",
    "thought_signature",
    "encrypted_content",
    "encrypted_index",
];

/// Types of the objects of a response whose `data` is such a field too.
const OPAQUE_DATA_TYPES: [&str; 2] = ["redacted_thinking", "reasoning.encrypted"];

/// Fields of a response that the model writes, with names of its choice if they are objects.
const MODEL_FIELDS: [&str; 2] = ["arguments", "input"];

/// Redacts a set of secrets. Cheap to clone. `Debug` omits the values.
#[derive(Clone, Default)]
pub struct Redactor {
    /// `None` if there are no secrets.
    pub(super) known: Option<Arc<SpellingIndex>>,
}

/// A [`Redactor`] while others hold it.
#[derive(Clone)]
pub struct WeakRedactor(Weak<SpellingIndex>);

pub(super) struct SpellingIndex {
    /// Spellings without line breaks.
    whole: SpellingFinder,
    /// Base64, which may be wrapped at any point.
    wrapped: SpellingFinder,
}

impl SpellingIndex {
    /// Returns the ranges of secrets, in order and without overlap.
    fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        self.find_in(bytes, &UnwrappedText::readings(bytes))
    }

    /// Like [`Self::find`], with the start of the first secret that may continue beyond the end of
    /// `bytes`.
    pub(super) fn find_with_pending(&self, bytes: &[u8]) -> (Vec<Range<usize>>, usize) {
        let readings = UnwrappedText::readings(bytes);
        let pending = readings.iter().map(|unwrapped| {
            unwrapped.original_position(self.wrapped.pending_start(&unwrapped.letters))
        });
        let pending = pending.fold(self.whole.pending_start(bytes), usize::min);
        (self.find_in(bytes, &readings), pending)
    }

    fn find_in(&self, bytes: &[u8], readings: &[UnwrappedText<'_>]) -> Vec<Range<usize>> {
        let mut found: Vec<_> = self.whole.find(bytes).collect();
        for unwrapped in readings {
            let to_original = |found: Range<usize>| {
                // Excludes the line ending after the last letter.
                unwrapped.original_position(found.start)
                    ..unwrapped.original_position(found.end.saturating_sub(1)) + 1
            };
            found.extend(self.wrapped.find(&unwrapped.letters).map(to_original));
        }
        found.sort_by_key(|found| found.start);
        found.dedup_by(|next, last| {
            let overlap = next.start < last.end;
            if overlap {
                last.end = last.end.max(next.end);
            }
            overlap
        });
        found
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self
            .known
            .as_ref()
            .map_or(0, |known| known.whole.count() + known.wrapped.count());
        write!(f, "Redactor of {count} spellings")
    }
}

impl Redactor {
    /// `None` if the spellings are too long to search for.
    pub(super) fn from_spellings(spellings: Spellings) -> Option<Self> {
        let Spellings { whole, wrapped } = spellings;
        if whole.is_empty() {
            return Some(Self::default());
        }
        let known = SpellingIndex {
            whole: SpellingFinder::new(whole)?,
            wrapped: SpellingFinder::new(wrapped)?,
        };
        Some(Self {
            known: Some(Arc::new(known)),
        })
    }

    /// Returns the same redactor without holding it.
    pub fn downgrade(&self) -> WeakRedactor {
        WeakRedactor(self.known.as_ref().map_or_else(Weak::new, Arc::downgrade))
    }

    /// Redacts a text.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // Spellings consist of whole characters, so the remaining text is valid UTF-8.
            Cow::Owned(redacted) => Cow::Owned(String::from_utf8_lossy(&redacted).into_owned()),
        }
    }

    /// Redacts bytes.
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let found = self
            .known
            .as_ref()
            .map(|known| known.find(bytes))
            .unwrap_or_default();
        if found.is_empty() {
            Cow::Borrowed(bytes)
        } else {
            Cow::Owned(redact_ranges(bytes, &found))
        }
    }

    /// Redacts the strings and keys of a JSON value.
    pub fn json(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text).into_owned()),
            Value::Array(values) => {
                Value::Array(values.into_iter().map(|value| self.json(value)).collect())
            }
            Value::Object(map) => Value::Object(
                map.into_iter()
                    .map(|(key, value)| (self.text(&key).into_owned(), self.json(value)))
                    .collect(),
            ),
            other => other,
        }
    }

    /// Redacts an event. `None` if it contains no secret.
    ///
    /// # Errors
    /// A secret is a keyword of the log format, so that the redacted JSON is not an event.
    pub fn event(&self, event: &Event) -> Result<Option<Event>, EventError> {
        if self.known.is_none() {
            return Ok(None);
        }
        let malformed = |error: serde_json::Error| EventError::Malformed {
            field: String::new(),
            problem: error.to_string(),
        };
        let value = serde_json::to_value(event).map_err(malformed)?;
        let mut rest = value.clone();
        let response = rest.pointer_mut(RESPONSE).map(Value::take);
        let mut redacted = self.json(rest);
        if let (Some(response), Some(slot)) = (response, redacted.pointer_mut(RESPONSE)) {
            *slot = self.response(response);
        }
        if redacted == value {
            Ok(None)
        } else {
            Event::from_value(&redacted).map(Some)
        }
    }

    /// Redacts a model's response except its signatures. Their letters contain a short secret only
    /// by coincidence, and the provider would reject each request with an altered one.
    fn response(&self, value: Value) -> Value {
        match value {
            Value::Array(values) => values
                .into_iter()
                .map(|value| self.response(value))
                .collect(),
            Value::Object(fields) => {
                let kind = fields.get("type").and_then(Value::as_str);
                let has_opaque_data = kind.is_some_and(|kind| OPAQUE_DATA_TYPES.contains(&kind));
                let redact_field = |(name, value): (String, Value)| {
                    let is_opaque = OPAQUE_FIELDS.contains(&name.as_str())
                        || (has_opaque_data && name == "data");
                    let value = match value {
                        Value::String(text) if is_opaque && is_base64(&text) => text.into(),
                        value if MODEL_FIELDS.contains(&name.as_str()) => self.json(value),
                        value => self.response(value),
                    };
                    (self.text(&name).into_owned(), value)
                };
                fields.into_iter().map(redact_field).collect()
            }
            other => self.json(other),
        }
    }

    /// Redacts an observation.
    ///
    /// # Errors
    /// See [`Self::event`].
    pub fn observation(&self, observation: Observation) -> Result<Observation, serde_json::Error> {
        if self.known.is_none() {
            return Ok(observation);
        }
        let value = serde_json::to_value(&observation)?;
        let redacted = self.json(value.clone());
        if redacted == value {
            Ok(observation)
        } else {
            serde_json::from_value(redacted)
        }
    }
}

impl WeakRedactor {
    /// Returns the redactor. `None` if it is no longer held, or has no secrets.
    pub fn upgrade(&self) -> Option<Redactor> {
        Some(Redactor {
            known: Some(self.0.upgrade()?),
        })
    }
}

fn is_base64(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+/-_=".contains(&byte))
}

/// Replaces the given ranges of `bytes`.
pub(super) fn redact_ranges(bytes: &[u8], found: &[Range<usize>]) -> Vec<u8> {
    let mut redacted = Vec::with_capacity(bytes.len());
    let mut at = 0;
    for found in found {
        redacted.extend_from_slice(bytes.get(at..found.start).unwrap_or_default());
        redacted.extend_from_slice(REDACTED.as_bytes());
        at = found.end;
    }
    redacted.extend_from_slice(bytes.get(at..).unwrap_or_default());
    redacted
}

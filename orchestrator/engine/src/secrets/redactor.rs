//! Takes every spelling of every secret out of text, JSON and events.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use protocol::{Event, EventError, Observation};
use serde_json::Value;

use super::finder::Finder;
use super::spellings::Spellings;
use super::unwrapped::Unwrapped;

/// What stands in a value's place: V0's word.
pub const REDACTED: &str = "<secret_hidden>";

/// Knows the secrets of this program. Cheap to clone. Does not print them.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Nothing: there are no secrets.
    pub(super) known: Option<Arc<Known>>,
}

pub(super) struct Known {
    /// What stands in a text as one piece.
    whole: Finder,
    /// Base64, whose lines may end anywhere.
    wrapped: Finder,
}

impl Known {
    /// Where there are secrets: in order, and apart from each other.
    fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        self.find_in(bytes, &Unwrapped::of(bytes))
    }

    /// The same, and where the first one may begin that has not come to its end.
    pub(super) fn find_begun(&self, bytes: &[u8]) -> (Vec<Range<usize>>, usize) {
        let unwrapped = Unwrapped::of(bytes);
        let wrapped = unwrapped.place(self.wrapped.undecided(&unwrapped.letters));
        (self.find_in(bytes, &unwrapped), self.whole.undecided(bytes).min(wrapped))
    }

    fn find_in(&self, bytes: &[u8], unwrapped: &Unwrapped<'_>) -> Vec<Range<usize>> {
        let place = |found: Range<usize>| {
            // Up to the last letter, not to the line end after it.
            unwrapped.place(found.start)..unwrapped.place(found.end.saturating_sub(1)) + 1
        };
        let mut found: Vec<_> = self.whole.find(bytes).collect();
        found.extend(self.wrapped.find(&unwrapped.letters).map(place));
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
        let count = self.known.as_ref().map_or(0, |known| known.whole.count() + known.wrapped.count());
        write!(f, "Redactor of {count} spellings")
    }
}

impl Redactor {
    /// Nothing when all of them are too much to be looked for.
    pub(super) fn of_spellings(spellings: Spellings) -> Option<Self> {
        let Spellings { whole, wrapped } = spellings;
        if whole.is_empty() {
            return Some(Self::default());
        }
        let known = Known { whole: Finder::of(whole)?, wrapped: Finder::of(wrapped)? };
        Some(Self { known: Some(Arc::new(known)) })
    }

    /// A text without the secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // A spelling is whole characters, so what is left of the text is too.
            Cow::Owned(clean) => Cow::Owned(String::from_utf8_lossy(&clean).into_owned()),
        }
    }

    /// Bytes without the secrets.
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let found = self.known.as_ref().map(|known| known.find(bytes)).unwrap_or_default();
        if found.is_empty() { Cow::Borrowed(bytes) } else { Cow::Owned(hide(bytes, &found)) }
    }

    /// A JSON value without the secrets, in its texts and in its keys.
    pub fn json(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text).into_owned()),
            Value::Array(values) => Value::Array(values.into_iter().map(|value| self.json(value)).collect()),
            Value::Object(map) => Value::Object(
                map.into_iter()
                    .map(|(key, value)| (self.text(&key).into_owned(), self.json(value)))
                    .collect(),
            ),
            other => other,
        }
    }

    /// An event without the secrets; nothing when there is none in it.
    ///
    /// # Errors
    /// When a secret is a word of the log itself, so that without it this is no event any more.
    pub fn event(&self, event: &Event) -> Result<Option<Event>, EventError> {
        if self.known.is_none() {
            return Ok(None);
        }
        let malformed = |error: serde_json::Error| EventError::Malformed {
            field: String::new(),
            problem: error.to_string(),
        };
        let value = serde_json::to_value(event).map_err(malformed)?;
        let clean = self.json(value.clone());
        if clean == value { Ok(None) } else { Event::from_value(&clean).map(Some) }
    }

    /// An observation without the secrets.
    ///
    /// # Errors
    /// As for an event.
    pub fn observation(&self, observation: Observation) -> Result<Observation, serde_json::Error> {
        if self.known.is_none() {
            return Ok(observation);
        }
        let value = serde_json::to_value(&observation)?;
        let clean = self.json(value.clone());
        if clean == value { Ok(observation) } else { serde_json::from_value(clean) }
    }
}

/// What is left of bytes when these parts of them are hidden.
pub(super) fn hide(bytes: &[u8], found: &[Range<usize>]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(bytes.len());
    let mut at = 0;
    for found in found {
        clean.extend_from_slice(bytes.get(at..found.start).unwrap_or_default());
        clean.extend_from_slice(REDACTED.as_bytes());
        at = found.end;
    }
    clean.extend_from_slice(bytes.get(at..).unwrap_or_default());
    clean
}

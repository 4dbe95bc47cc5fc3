//! Takes every spelling of every secret out of text, JSON and events, in one pass.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use protocol::{Event, EventError, Observation};
use serde_json::Value;

/// What stands in a value's place: V0's word.
pub const HIDDEN: &str = "<secret_hidden>";

/// Knows the secrets of this program. Cheap to clone. Does not print them.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Nothing: there are no secrets.
    pub(super) known: Option<Arc<Known>>,
}

pub(super) struct Known {
    pub(super) automaton: AhoCorasick,
    /// In order, to find those that begin in a certain way.
    pub(super) spellings: Vec<Vec<u8>>,
    pub(super) longest: usize,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.known.as_ref().map_or(0, |known| known.spellings.len());
        write!(f, "Redactor of {count} spellings")
    }
}

impl Redactor {
    /// Nothing when all of them are too much for an automaton.
    pub(super) fn of_spellings(mut spellings: Vec<Vec<u8>>) -> Option<Self> {
        spellings.sort();
        spellings.dedup();
        let Some(longest) = spellings.iter().map(Vec::len).max() else { return Some(Self::default()) };
        let automaton =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&spellings).ok()?;
        Some(Self { known: Some(Arc::new(Known { automaton, spellings, longest })) })
    }

    /// A text without the secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.known {
            // A spelling is whole characters, so what is left of the text is too.
            Some(known) if known.automaton.is_match(text) => {
                let mut clean = String::with_capacity(text.len());
                known.automaton.replace_all_with(text, &mut clean, |_, _, clean| {
                    clean.push_str(HIDDEN);
                    true
                });
                Cow::Owned(clean)
            }
            _ => Cow::Borrowed(text),
        }
    }

    /// Bytes without the secrets.
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.known {
            Some(known) if known.automaton.is_match(bytes) => {
                let mut clean = Vec::with_capacity(bytes.len());
                known.automaton.replace_all_with_bytes(bytes, &mut clean, |_, _, clean| {
                    clean.extend_from_slice(HIDDEN.as_bytes());
                    true
                });
                Cow::Owned(clean)
            }
            _ => Cow::Borrowed(bytes),
        }
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

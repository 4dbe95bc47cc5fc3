//! Secrets that are replaced so that they can be put back: in answers of models that are recorded to be replayed.
//!
//! A replayed answer has to lead to the same actions as the recorded one. With one text in the place of every secret, a
//! command that repeats a secret would be another command.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::spellings::Spellings;

/// What a placeholder starts with.
const START: &str = "<secret_hidden:";

/// What stands for [`START`] in a recording where a model wrote it itself: it must not become a secret. No name of a secret is
/// empty, so that it starts no placeholder.
const ESCAPED_START: &str = "<secret_hidden::";

/// Replaces spellings of secrets by placeholders that name them, and back. Cheap to clone. Does not print the secrets.
///
/// A placeholder names the secret and says which of its spellings it stands for. It holds nothing of the value.
#[derive(Clone, Default)]
pub struct Placeholders {
    /// `None` if there are no secrets.
    known: Option<Arc<Known>>,
}

struct Known {
    spellings: Vec<String>,
    placeholders: Vec<String>,
    find_spelling: AhoCorasick,
    find_placeholder: AhoCorasick,
}

impl Placeholders {
    pub(super) fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a SecretString)>) -> Self {
        let (mut spellings, mut placeholders) = (Vec::new(), Vec::new());
        for (name, value) in secrets {
            let mut own = Spellings::default();
            own.add(value.expose_secret());
            let mut known = HashSet::new();
            let own = own.whole.into_iter().filter_map(|spelling| String::from_utf8(spelling).ok());
            for (number, spelling) in own.filter(|spelling| known.insert(spelling.clone())).enumerate() {
                spellings.push(spelling);
                placeholders.push(format!("{START}{name}:{number}>"));
            }
        }
        if spellings.is_empty() {
            return Self::default();
        }
        spellings.push(START.to_owned());
        placeholders.push(ESCAPED_START.to_owned());
        let (Some(find_spelling), Some(find_placeholder)) = (finder(&spellings), finder(&placeholders))
        else {
            return Self::default();
        };
        Self { known: Some(Arc::new(Known { spellings, placeholders, find_spelling, find_placeholder })) }
    }

    /// A JSON value with placeholders in its texts. A spelling that lines are broken in stays: that is for a `Redactor`.
    pub fn replace_secrets(&self, value: Value) -> Value {
        match self.known.as_deref() {
            Some(known) => {
                map_texts(value, &|text| known.find_spelling.replace_all(text, &known.placeholders))
            }
            None => map_texts(value, &|text| text.replace(START, ESCAPED_START)),
        }
    }

    /// A JSON value with the secrets in the place of their placeholders. Those of unknown secrets stay.
    pub fn restore(&self, value: Value) -> Value {
        match self.known.as_deref() {
            Some(known) => {
                map_texts(value, &|text| known.find_placeholder.replace_all(text, &known.spellings))
            }
            None => map_texts(value, &|text| text.replace(ESCAPED_START, START)),
        }
    }
}

impl fmt::Debug for Placeholders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} placeholders", self.known.as_ref().map_or(0, |known| known.placeholders.len()))
    }
}

/// `None` if the texts are too much for an automaton. The small kind: it searches only what models answer.
fn finder(texts: &[String]) -> Option<AhoCorasick> {
    let mut builder = AhoCorasick::builder();
    builder.match_kind(MatchKind::LeftmostLongest).kind(Some(AhoCorasickKind::ContiguousNFA));
    builder.build(texts).ok()
}

fn map_texts(value: Value, map: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(map(&text)),
        Value::Array(values) => values.into_iter().map(|value| map_texts(value, map)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(key, value)| (key, map_texts(value, map))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn placeholder_that_a_model_writes_is_no_secret() {
        let secret = SecretString::from("hunter2hunter2");
        let known = Placeholders::new([("TOKEN", &secret)]);
        let answer = json!("echo '<secret_hidden:TOKEN:0>' <secret_hidden::x hunter2hunter2");
        assert_eq!(known.restore(known.replace_secrets(answer.clone())), answer);
        // Recorded without the secret, replayed with it.
        let literal = json!("<secret_hidden:TOKEN:0>");
        assert_eq!(known.restore(Placeholders::default().replace_secrets(literal.clone())), literal);
    }

    #[test]
    fn hidden_secrets_are_restored_in_each_spelling() {
        let secret = SecretString::from("it's \"a\" pass/word\n");
        let other = SecretString::from("another one");
        let placeholders = Placeholders::new([("TOKEN", &secret), ("OTHER", &other)]);
        let arguments =
            json!({"command": "echo 'it'\\''s \"a\" pass/word\n'; echo it%27s%20%22a%22%20pass%2Fword%0A"});
        let answer = json!({"content": ["it's \"a\" pass/word\n", "another one!"], "arguments": arguments.to_string()});
        let hidden = placeholders.replace_secrets(answer.clone());
        let text = hidden.to_string();
        assert!(text.contains("<secret_hidden:OTHER:") && text.contains("<secret_hidden:TOKEN:"), "{text}");
        assert!(!text.contains("pass") && !text.contains("another"), "{text}");
        assert_eq!(placeholders.restore(hidden.clone()), answer);
        let without = Placeholders::new([("OTHER", &other)]);
        assert_eq!(without.restore(hidden)["content"][1], "another one!");
        assert_eq!(Placeholders::default().replace_secrets(answer.clone()), answer);
    }
}

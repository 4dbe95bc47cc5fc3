//! Reversible replacement of secrets, for recorded responses of models.
//!
//! A replayed response has to lead to the same actions as the recorded one. If one text replaced
//! all secrets, a command that contains a secret would become a different command.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::spellings::Spellings;

/// The start of a placeholder.
const START: &str = "<secret_hidden:";

/// Replaces [`START`] in a recording where the model wrote it itself, because it must not become a
/// secret. Since no secret has an empty name, this starts no placeholder.
const ESCAPED_START: &str = "<secret_hidden::";

/// Replaces secrets with placeholders, and back. Cheap to clone. `Debug` omits the values.
///
/// A placeholder consists of the name of the secret and the number of its spelling. It holds no
/// part of the value.
#[derive(Clone, Default)]
pub struct Placeholders {
    /// `None` if there are no secrets.
    known: Option<Arc<PlaceholderTable>>,
}

struct PlaceholderTable {
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
            let own = own
                .whole
                .into_iter()
                .filter_map(|spelling| String::from_utf8(spelling).ok());
            for (number, spelling) in own
                .filter(|spelling| known.insert(spelling.clone()))
                .enumerate()
            {
                spellings.push(spelling);
                placeholders.push(format!("{START}{name}:{number}>"));
            }
        }
        if spellings.is_empty() {
            return Self::default();
        }
        spellings.push(START.to_owned());
        placeholders.push(ESCAPED_START.to_owned());
        let (Some(find_spelling), Some(find_placeholder)) =
            (finder(&spellings), finder(&placeholders))
        else {
            return Self::default();
        };
        Self {
            known: Some(Arc::new(PlaceholderTable {
                spellings,
                placeholders,
                find_spelling,
                find_placeholder,
            })),
        }
    }

    /// Replaces the secrets in the strings of a JSON value. Does not find wrapped spellings; the
    /// `Redactor` does.
    pub fn replace_secrets(&self, value: Value) -> Value {
        match self.known.as_deref() {
            Some(known) => map_texts(value, &|text| {
                known.find_spelling.replace_all(text, &known.placeholders)
            }),
            None => map_texts(value, &|text| text.replace(START, ESCAPED_START)),
        }
    }

    /// Replaces the placeholders of known secrets in a JSON value with the secrets.
    pub fn restore(&self, value: Value) -> Value {
        match self.known.as_deref() {
            Some(known) => map_texts(value, &|text| {
                known.find_placeholder.replace_all(text, &known.spellings)
            }),
            None => map_texts(value, &|text| text.replace(ESCAPED_START, START)),
        }
    }
}

impl fmt::Debug for Placeholders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} placeholders",
            self.known
                .as_ref()
                .map_or(0, |known| known.placeholders.len())
        )
    }
}

/// Builds a compact automaton, since it searches only responses of models. `None` if the texts are
/// too long for it.
fn finder(texts: &[String]) -> Option<AhoCorasick> {
    let mut builder = AhoCorasick::builder();
    builder
        .match_kind(MatchKind::LeftmostLongest)
        .kind(Some(AhoCorasickKind::ContiguousNFA));
    builder.build(texts).ok()
}

fn map_texts(value: Value, map: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(map(&text)),
        Value::Array(values) => values
            .into_iter()
            .map(|value| map_texts(value, map))
            .collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (key, map_texts(value, map)))
            .collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn placeholder_written_by_a_model_is_not_restored() {
        let secret = SecretString::from("hunter2hunter2");
        let known = Placeholders::new([("TOKEN", &secret)]);
        let answer = json!("echo '<secret_hidden:TOKEN:0>' <secret_hidden::x hunter2hunter2");
        assert_eq!(known.restore(known.replace_secrets(answer.clone())), answer);
        // Recorded without the secret, replayed with it.
        let literal = json!("<secret_hidden:TOKEN:0>");
        assert_eq!(
            known.restore(Placeholders::default().replace_secrets(literal.clone())),
            literal
        );
    }

    #[test]
    fn replaced_secrets_are_restored_in_each_spelling() {
        let secret = SecretString::from("it's \"a\" pass/word\n");
        let other = SecretString::from("another one");
        let placeholders = Placeholders::new([("TOKEN", &secret), ("OTHER", &other)]);
        let arguments = json!({"command": "echo 'it'\\''s \"a\" pass/word\n'; echo it%27s%20%22a%22%20pass%2Fword%0A"});
        let answer = json!({"content": ["it's \"a\" pass/word\n", "another one!"], "arguments": arguments.to_string()});
        let hidden = placeholders.replace_secrets(answer.clone());
        let text = hidden.to_string();
        assert!(
            text.contains("<secret_hidden:OTHER:") && text.contains("<secret_hidden:TOKEN:"),
            "{text}"
        );
        assert!(
            !text.contains("pass") && !text.contains("another"),
            "{text}"
        );
        assert_eq!(placeholders.restore(hidden.clone()), answer);
        let without = Placeholders::new([("OTHER", &other)]);
        assert_eq!(without.restore(hidden)["content"][1], "another one!");
        assert_eq!(
            Placeholders::default().replace_secrets(answer.clone()),
            answer
        );
    }
}

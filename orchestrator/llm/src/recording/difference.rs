//! Describes where two requests differ. Pure.

use serde_json::Value;

/// Maximum length of the shown part of each value, in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// Describes the first difference. `None` if there is none.
pub(super) fn difference(recorded: &Value, now: &Value) -> Option<String> {
    find("the request", recorded, now)
}

fn find(path: &str, recorded: &Value, now: &Value) -> Option<String> {
    match (recorded, now) {
        (Value::Object(was), Value::Object(is)) => was.keys().chain(is.keys()).find_map(|key| {
            let field = |of: &serde_json::Map<_, _>| of.get(key).cloned().unwrap_or_default();
            find(&format!("{path}.{key}"), &field(was), &field(is))
        }),
        (Value::Array(was), Value::Array(is)) => (0..was.len().max(is.len())).find_map(|index| {
            let none = Value::Null;
            let item = |of: &[Value]| of.get(index).cloned().unwrap_or_else(|| none.clone());
            find(&format!("{path}[{index}]"), &item(was), &item(is))
        }),
        (was, is) if was == is => None,
        (Value::String(was), Value::String(is)) => {
            let same = was
                .chars()
                .zip(is.chars())
                .take_while(|(was, is)| was == is)
                .count();
            let rest = |text: &str| excerpt(text.chars().skip(same));
            Some(format!(
                "{path}, character {same}: recorded {:?}, now {:?}",
                rest(was),
                rest(is)
            ))
        }
        (was, is) => {
            let text = |value: &Value| excerpt(value.to_string().chars());
            Some(format!("{path}: recorded {}, now {}", text(was), text(is)))
        }
    }
}

fn excerpt(mut chars: impl Iterator<Item = char>) -> String {
    let mut text: String = chars.by_ref().take(MAX_SHOWN_CHARS).collect();
    if chars.next().is_some() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn first_difference_is_described_with_its_path() {
        let recorded = json!({ "messages": [{ "user": "go to the left" }], "tools": [] });
        for (now, expected) in [
            (
                json!({ "messages": [{ "user": "go to the right" }], "tools": [] }),
                "the request.messages[0].user, character 10: recorded \"left\", now \"right\"",
            ),
            (
                json!({ "messages": [{ "user": "go to the left" }, 7], "tools": [] }),
                "the request.messages[1]: recorded null, now 7",
            ),
            (
                json!({ "messages": [{ "user": "go to the left" }], "tools": [], "zoo": true }),
                "the request.zoo: recorded null, now true",
            ),
        ] {
            assert_eq!(difference(&recorded, &now).as_deref(), Some(expected));
        }
        assert_eq!(difference(&recorded, &recorded), None);
    }

    #[test]
    fn long_values_are_shown_in_part() {
        let text = difference(&json!("x"), &json!("x".repeat(1000))).unwrap();
        assert!(text.len() < 200 && text.ends_with("…\""), "{text}");
    }
}

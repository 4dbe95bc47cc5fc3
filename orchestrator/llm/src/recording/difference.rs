//! Where two requests differ, for people. Pure.

use serde_json::Value;

/// How much of each side is shown, in characters.
const SHOWN: usize = 60;

/// The first difference and its place; nothing when there is none.
pub(super) fn difference(recorded: &Value, now: &Value) -> Option<String> {
    at("the request", recorded, now)
}

fn at(place: &str, recorded: &Value, now: &Value) -> Option<String> {
    match (recorded, now) {
        (Value::Object(was), Value::Object(is)) => was.keys().chain(is.keys()).find_map(|key| {
            let field = |of: &serde_json::Map<_, _>| of.get(key).cloned().unwrap_or_default();
            at(&format!("{place}.{key}"), &field(was), &field(is))
        }),
        (Value::Array(was), Value::Array(is)) => (0..was.len().max(is.len())).find_map(|index| {
            let none = Value::Null;
            let item = |of: &[Value]| of.get(index).cloned().unwrap_or_else(|| none.clone());
            at(&format!("{place}[{index}]"), &item(was), &item(is))
        }),
        (was, is) if was == is => None,
        (Value::String(was), Value::String(is)) => {
            let same = was.chars().zip(is.chars()).take_while(|(was, is)| was == is).count();
            let rest = |text: &str| shown(text.chars().skip(same));
            Some(format!("{place}, character {same}: recorded {:?}, now {:?}", rest(was), rest(is)))
        }
        (was, is) => {
            let text = |value: &Value| shown(value.to_string().chars());
            Some(format!("{place}: recorded {}, now {}", text(was), text(is)))
        }
    }
}

fn shown(mut chars: impl Iterator<Item = char>) -> String {
    let mut text: String = chars.by_ref().take(SHOWN).collect();
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
    fn the_first_difference_is_named_with_its_place() {
        let recorded = json!({ "messages": [{ "user": "go to the left" }], "tools": [] });
        for (now, said) in [
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
            assert_eq!(difference(&recorded, &now).as_deref(), Some(said));
        }
        assert_eq!(difference(&recorded, &recorded), None);
    }

    #[test]
    fn much_is_shown_in_part() {
        let said = difference(&json!("x"), &json!("x".repeat(1000))).unwrap();
        assert!(said.len() < 200 && said.ends_with("…\""), "{said}");
    }
}

//! The arguments of a call, as each provider accepts them.

use protocol::untrusted_json::{self, ValueCounter, count};
use serde_json::{Map, Value};

/// Maximum number of values in the arguments of all calls of a response. They are parsed several
/// times, and again for each later request.
pub(crate) const MAX_ARGUMENT_VALUES: usize = 20_000;

/// Keys of arguments in the bodies of all wires.
const ARGUMENT_KEYS: [&str; 2] = ["arguments", "input"];

/// Whether the calls of a body have at most [`MAX_ARGUMENT_VALUES`] values, also within texts.
pub(crate) fn are_bounded(body: &Value) -> bool {
    count_in_calls(body) <= MAX_ARGUMENT_VALUES
}

fn count_in_calls(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match value {
                Value::String(text) if ARGUMENT_KEYS.contains(&key.as_str()) => {
                    ValueCounter::default().add(text.bytes())
                }
                value if ARGUMENT_KEYS.contains(&key.as_str()) => count(value),
                value => count_in_calls(value),
            })
            .sum(),
        Value::Array(items) => items.iter().map(count_in_calls).sum(),
        _ => 0,
    }
}

/// Parses arguments with at most `left` values, and subtracts their number. Others, and text that
/// is not JSON, stay text.
pub(crate) fn parse_within(text: String, left: &mut usize) -> Value {
    let Some(remaining) = left.checked_sub(ValueCounter::default().add(text.bytes())) else {
        return Value::String(text);
    };
    match untrusted_json::from_str(&text) {
        Ok(value) => {
            *left = remaining;
            value
        }
        Err(_) => Value::String(text),
    }
}

/// Parses arguments. If they are not an object, the result shows the model what it wrote.
pub(crate) fn parse_arguments(arguments: &str) -> Map<String, Value> {
    match untrusted_json::from_str(arguments) {
        Ok(Value::Object(object)) => object,
        Ok(Value::Null) => Map::new(),
        _ if arguments.trim().is_empty() => Map::new(),
        _ => Map::from_iter([("malformed".to_owned(), arguments.into())]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_calls_are_counted_in_objects_and_texts() {
        let items = |count: usize| format!("[{}0]", "0,".repeat(count));
        let half = MAX_ARGUMENT_VALUES / 2;
        let chat = |count| {
            let call = json!({"function": {"name": "run", "arguments": items(count)}});
            json!({"choices": [{"message": {"tool_calls": [call, call]}}]})
        };
        assert!(are_bounded(&chat(half - 1)));
        assert!(!are_bounded(&chat(half)));
        let blocks = |input: &Value| json!({"content": [{"type": "tool_use", "input": input}]});
        assert!(!are_bounded(&blocks(&json!([vec![0; 2 * half]]))));
        assert!(!are_bounded(&blocks(&items(2 * half).into())));
        assert!(are_bounded(&json!({"content": items(2 * half)})));
    }

    #[test]
    fn arguments_beyond_the_limit_stay_text() {
        let mut left = 4;
        assert_eq!(parse_within("[1, 2]".into(), &mut left), json!([1, 2]));
        assert_eq!(parse_within("[,".into(), &mut left), json!("[,"));
        assert_eq!(
            parse_within("[1, 2, 3]".into(), &mut left),
            json!("[1, 2, 3]")
        );
        assert_eq!(
            parse_within("{\"a\": 1}".into(), &mut left),
            json!({"a": 1})
        );
        assert_eq!(left, 1);
    }
}

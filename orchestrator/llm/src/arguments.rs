//! The arguments of a call, as each provider accepts them.

use serde_json::{Map, Value};

/// Parses arguments. If they are not an object, the result shows the model what it wrote.
pub(crate) fn parse_arguments(arguments: &str) -> Map<String, Value> {
    match protocol::untrusted_json::from_str(arguments) {
        Ok(Value::Object(object)) => object,
        Ok(Value::Null) => Map::new(),
        _ if arguments.trim().is_empty() => Map::new(),
        _ => Map::from_iter([("malformed".to_owned(), arguments.into())]),
    }
}

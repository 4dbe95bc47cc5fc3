//! Arguments of a call, with the types that the tool's schema declares.
//!
//! Some models write `2.0` or `"2"` for 2, flags, lists and objects as text, one name instead of a
//! list, and `null` for an omitted argument. A value is converted only if it has one meaning in the
//! declared type. Text arguments are never changed.

use protocol::untrusted_json;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

use super::ToolError;
use crate::llm::ToolCall;

/// Parses the arguments of a call. Empty text and `null` are no arguments.
pub(super) fn parse(call: &ToolCall, schema: &Value) -> Result<Map<String, Value>, ToolError> {
    let tool = || call.name.clone();
    let text = if call.arguments.trim().is_empty() {
        "null"
    } else {
        &call.arguments
    };
    let value = untrusted_json::from_str(text).map_err(|error| ToolError::NotJson {
        tool: tool(),
        problem: error.to_string(),
    })?;
    match convert(value, schema) {
        Value::Object(arguments) => Ok(arguments),
        Value::Null => Ok(Map::new()),
        _ => Err(ToolError::Arguments {
            tool: tool(),
            problem: "write a JSON object".to_owned(),
        }),
    }
}

/// Deserializes the arguments of a call. An argument that is `null` counts as omitted.
pub(super) fn deserialize<T: DeserializeOwned>(
    call: &ToolCall,
    schema: &Value,
) -> Result<T, ToolError> {
    let mut arguments = parse(call, schema)?;
    arguments.retain(|_, argument| !argument.is_null());
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        ToolError::Arguments {
            tool: call.name.clone(),
            problem: error.to_string(),
        }
    })
}

/// Converts arguments to the types that a schema declares.
pub fn convert_arguments(arguments: Map<String, Value>, schema: &Value) -> Map<String, Value> {
    let properties = &schema["properties"];
    let convert_field = |(name, value)| {
        let value = convert(value, &properties[&name]);
        (name, value)
    };
    arguments.into_iter().map(convert_field).collect()
}

/// Converts a value to the declared type. Returns it unchanged if that is not its meaning.
fn convert(value: Value, schema: &Value) -> Value {
    match (schema["type"].as_str(), value) {
        (Some("object"), Value::Object(fields)) => convert_arguments(fields, schema).into(),
        (Some("array"), Value::Array(items)) => items
            .into_iter()
            .map(|item| convert(item, &schema["items"]))
            .collect(),
        (Some("integer"), Value::Number(number)) => to_integer(number).into(),
        (Some("object" | "array" | "integer" | "number" | "boolean"), Value::String(text)) => {
            convert_text(text, schema)
        }
        (_, value) => value,
    }
}

/// Converts a number without a fraction to an integer.
fn to_integer(number: Number) -> Number {
    let whole = number
        .as_f64()
        .filter(|float| number.is_f64() && float.fract() == 0.0);
    whole
        .and_then(|float| format!("{float:.0}").parse::<i64>().ok())
        .map_or(number, Number::from)
}

/// Converts text whose schema does not declare text.
fn convert_text(text: String, schema: &Value) -> Value {
    let parsed = match schema["type"].as_str() {
        // Python's flags are capitalized.
        Some("boolean") => untrusted_json::from_str(&text.to_ascii_lowercase()),
        _ => untrusted_json::from_str::<Value>(&text),
    };
    match parsed
        .ok()
        .filter(|value| !value.is_string())
        .map(|value| convert(value, schema))
    {
        Some(value) if value.is_null() || has_type(&value, schema) => value,
        _ if schema["type"] == "array" && schema["items"]["type"] == "string" => {
            Value::from(vec![text])
        }
        _ => text.into(),
    }
}

fn has_type(value: &Value, schema: &Value) -> bool {
    match (schema["type"].as_str(), value) {
        (Some("array"), Value::Array(items)) => {
            items.iter().all(|item| has_type(item, &schema["items"]))
        }
        (Some("array"), _) => false,
        (Some("object"), value) => value.is_object(),
        (Some("integer"), value) => value.is_i64() || value.is_u64(),
        (Some("number"), value) => value.is_number(),
        (Some("boolean"), value) => value.is_boolean(),
        (Some("string"), value) => value.is_string(),
        _ => true,
    }
}

//! The format of responses and tools in stored events: V0's, which is OpenAI's.
//!
//! A field of an unexpected type counts as missing. Fields that the engine does not know are stored
//! unchanged.

use protocol::action::SystemAction;
use protocol::tool_call::ModelResponseText;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{AssistantMessage, ModelResponse, ProviderFields, Tool, ToolCall};

impl ModelResponse {
    /// Converts a stored `chat.completion`.
    pub fn from_stored(response: Value) -> Self {
        let mut fields = into_object(response);
        let mut choices = into_array(fields.remove("choices")).into_iter();
        let mut choice = into_object(choices.next().unwrap_or_default());
        let other_choices: Vec<Value> = choices.collect();
        if !other_choices.is_empty() {
            fields.insert("choices".into(), other_choices.into());
        }
        Self {
            id: take_text(&mut fields, "id"),
            message: AssistantMessage::from_stored(choice.remove("message").unwrap_or_default()),
            finish_reason: take_text(&mut choice, "finish_reason"),
            choice_fields: ProviderFields(choice),
            provider_fields: ProviderFields(fields),
        }
    }

    /// Converts to a stored `chat.completion`.
    pub fn to_stored(&self) -> Value {
        let mut message = self.message.to_stored();
        for name in ["content", "tool_calls", "function_call"] {
            message.entry(name).or_insert(Value::Null);
        }
        let mut choice = self.choice_fields.0.clone();
        choice.insert("message".into(), message.into());
        choice.entry("index").or_insert_with(|| 0.into());
        insert_text(
            &mut choice,
            "finish_reason",
            &self.finish_reason,
            Value::Null,
        );
        let mut fields = self.provider_fields.0.clone();
        let other_choices = into_array(fields.remove("choices"));
        let choices = std::iter::once(choice.into())
            .chain(other_choices)
            .collect();
        fields.insert("choices".into(), choices);
        fields.insert("object".into(), "chat.completion".into());
        insert_text(&mut fields, "id", &self.id, "");
        fields.into()
    }
}

impl From<&ModelResponseText> for AssistantMessage {
    /// Each step parses all responses of the view, so this skips everything but the message.
    fn from(response: &ModelResponseText) -> Self {
        #[derive(Deserialize)]
        struct Response {
            choices: Vec<Choice>,
        }
        #[derive(Deserialize)]
        struct Choice {
            #[serde(default)]
            message: Value,
        }
        let response = serde_json::from_str::<Response>(response.as_str()).ok();
        let first = response.and_then(|response| response.choices.into_iter().next());
        first
            .map(|choice| Self::from_stored(choice.message))
            .unwrap_or_default()
    }
}

impl AssistantMessage {
    /// Converts the `message` of a stored response.
    pub fn from_stored(message: Value) -> Self {
        let mut fields = into_object(message);
        fields.remove("role");
        let tool_calls = match fields.remove("tool_calls") {
            Some(Value::Array(calls)) if !calls.is_empty() => {
                calls.into_iter().map(ToolCall::from_stored).collect()
            }
            other => {
                fields.extend(other.map(|none| ("tool_calls".to_owned(), none)));
                Vec::new()
            }
        };
        let text = take_text(&mut fields, "content");
        Self {
            text,
            tool_calls,
            provider_fields: ProviderFields(fields),
        }
    }

    /// Converts to the `message` of a stored response.
    pub fn to_stored(&self) -> Map<String, Value> {
        let mut fields = self.provider_fields.0.clone();
        fields.insert("role".into(), "assistant".into());
        if !self.text.is_empty() {
            fields.insert("content".into(), self.text.as_str().into());
        }
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.iter().map(ToolCall::to_stored).collect();
            fields.insert("tool_calls".into(), calls);
        }
        fields
    }
}

impl ToolCall {
    fn from_stored(call: Value) -> Self {
        let mut fields = into_object(call);
        fields.remove("type");
        let mut function = into_object(fields.remove("function").unwrap_or_default());
        let (name, arguments) = (
            take_text(&mut function, "name"),
            take_text(&mut function, "arguments"),
        );
        if !function.is_empty() {
            fields.insert("function".into(), function.into());
        }
        Self {
            id: take_text(&mut fields, "id"),
            name,
            arguments,
            provider_fields: ProviderFields(fields),
        }
    }

    /// Converts to a call of a stored response.
    pub fn to_stored(&self) -> Value {
        let mut fields = self.provider_fields.0.clone();
        let mut function = into_object(fields.remove("function").unwrap_or_default());
        insert_text(&mut function, "name", &self.name, "");
        insert_text(&mut function, "arguments", &self.arguments, "");
        fields.insert("function".into(), function.into());
        fields.insert("type".into(), "function".into());
        insert_text(&mut fields, "id", &self.id, "");
        fields.into()
    }
}

impl Tool {
    /// Converts to a tool of a stored `system` event.
    pub fn to_stored(&self) -> Value {
        json!({
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        })
    }

    /// Returns the tools of a stored `system` event.
    pub fn all_from_stored(system: &SystemAction) -> impl Iterator<Item = Self> {
        system.tools.iter().flatten().filter_map(|tool| {
            let function = tool.get("function")?;
            let text = |name| Some(function.get(name)?.as_str()?.to_owned());
            Some(Self {
                name: text("name")?,
                description: text("description")?,
                parameters: function.get("parameters")?.clone(),
            })
        })
    }
}

fn into_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn into_array(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// Moves a text out of `fields`. An empty one stays, because it is not stored as null.
fn take_text(fields: &mut Map<String, Value>, name: &str) -> String {
    match fields.get_mut(name) {
        Some(Value::String(text)) if !text.is_empty() => {
            let text = std::mem::take(text);
            fields.remove(name);
            text
        }
        _ => String::new(),
    }
}

/// Inserts a text. An empty one is `default`, unless there is a value.
fn insert_text(fields: &mut Map<String, Value>, name: &str, text: &str, default: impl Into<Value>) {
    match text {
        "" => drop(fields.entry(name).or_insert_with(|| default.into())),
        _ => drop(fields.insert(name.to_owned(), text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Value {
        json!({
            "content": "a", "role": "assistant", "function_call": null, "thinking_blocks": [{"signature": "s"}],
            "tool_calls": [
                {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}, "extra": 1},
                {"id": "d", "type": "function", "function": {"name": "g", "arguments": "", "strict": true}},
            ],
        })
    }

    fn response(message: &Value) -> Value {
        json!({
            "id": "r", "object": "chat.completion", "created": 7, "usage": {"prompt_tokens": 1},
            "choices": [{"index": 0, "finish_reason": "tool_calls", "logprobs": null, "message": message}],
        })
    }

    #[test]
    fn stored_response_is_unchanged_when_it_is_converted_back() {
        let mut two_choices = response(&message());
        let second = two_choices["choices"][0].clone();
        two_choices["choices"].as_array_mut().unwrap().push(second);
        let empty =
            json!({"content": "", "role": "assistant", "function_call": null, "tool_calls": null});
        let null = json!({"content": null, "role": "assistant", "function_call": null, "tool_calls": null});
        for stored in [
            response(&message()),
            two_choices,
            response(&empty),
            response(&null),
        ] {
            assert_eq!(
                ModelResponse::from_stored(stored.clone()).to_stored(),
                stored
            );
        }
    }

    #[test]
    fn message_of_a_text_equals_message_of_the_response() {
        let message = message();
        for (stored, is_read) in [
            (response(&message), true),
            (
                json!({"choices": [{"message": message}, {"message": null}]}),
                true,
            ),
            (json!({"choices": [{"index": 0}]}), false),
            (json!({"choices": {"0": {"message": message}}}), false),
            (json!({"choices": []}), false),
            (json!({"choices": [{"message": "text"}]}), false),
            (
                json!({"choices": [{"message": {"content": 1, "tool_calls": 2}}]}),
                false,
            ),
            (json!([]), false),
            (json!("text"), false),
            (json!(null), false),
        ] {
            let read = AssistantMessage::from(&ModelResponseText::from(&stored));
            assert_eq!(
                read.text == "a" && read.tool_calls.len() == 2,
                is_read,
                "{stored}"
            );
            assert_eq!(read, ModelResponse::from_stored(stored).message);
        }
    }
}

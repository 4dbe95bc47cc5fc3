//! The format of scripts.

use engine::llm::{LlmErrorKind, ProviderFields, ToolCall};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error_name::ErrorName;

/// A script with all supported fields, as JSON. Unknown fields are errors.
///
/// | field | meaning |
/// |---|---|
/// | `model` | the name of the model; `scripted` by default |
/// | `responses` | the entries |
/// | `responses[].text` | the text of the response |
/// | `responses[].tool_calls` | the tool calls: `name`, and `arguments` as an object, or as a text that may be malformed |
/// | `responses[].usage` | `prompt_tokens` and `completion_tokens`; estimated by default |
/// | `responses[].error` | an error after all retries instead of a response, such as `rate_limited` |
pub const SCRIPT_EXAMPLE: &str = r#"{
  "model": "scripted-demo",
  "responses": [
    {
      "text": "I look around first.",
      "tool_calls": [{ "name": "execute_bash", "arguments": { "command": "ls" } }],
      "usage": { "prompt_tokens": 1200, "completion_tokens": 30 }
    },
    { "error": "rate_limited" },
    { "tool_calls": [{ "name": "execute_bash", "arguments": "{\"command\": " }] },
    { "text": "Done." }
  ]
}"#;

/// An error of a script. Its source has the line and column.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the script of model responses")]
pub struct ScriptError(#[from] serde_json::Error);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Script {
    #[serde(default = "default_model")]
    pub(super) model: String,
    pub(super) responses: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "EntryFields")]
pub(super) enum Entry {
    Response {
        text: Option<String>,
        calls: Vec<ScriptedCall>,
        usage: Option<ScriptedUsage>,
    },
    Error(LlmErrorKind),
}

/// The fields of an entry. Not an untagged enum, because its errors would not name the field.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryFields {
    text: Option<String>,
    #[serde(default)]
    tool_calls: Vec<ScriptedCall>,
    usage: Option<ScriptedUsage>,
    error: Option<ScriptedError>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedCall {
    pub(super) name: String,
    #[serde(default)]
    arguments: Arguments,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`arguments` must be an object or a text")]
enum Arguments {
    Object(Map<String, Value>),
    Text(String),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedUsage {
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
}

#[derive(Deserialize)]
struct ScriptedError(#[serde(with = "ErrorName")] LlmErrorKind);

impl TryFrom<EntryFields> for Entry {
    type Error = &'static str;

    fn try_from(fields: EntryFields) -> Result<Self, &'static str> {
        let EntryFields {
            text,
            tool_calls: calls,
            usage,
            error,
        } = fields;
        match error {
            None if text.is_none() && calls.is_empty() => {
                Err("a response requires `text`, `tool_calls` or `error`")
            }
            None => Ok(Self::Response { text, calls, usage }),
            Some(ScriptedError(kind)) if text.is_none() && calls.is_empty() && usage.is_none() => {
                Ok(Self::Error(kind))
            }
            Some(_) => Err("a response with `error` cannot have other fields"),
        }
    }
}

impl ScriptedCall {
    /// Converts to a call of response `number`.
    pub(super) fn to_call(&self, number: usize, position: usize) -> ToolCall {
        let arguments = match &self.arguments {
            Arguments::Object(map) => Value::Object(map.clone()).to_string(),
            Arguments::Text(text) => text.clone(),
        };
        ToolCall {
            id: format!("call-{number}-{position}"),
            name: self.name.clone(),
            arguments,
            provider_fields: ProviderFields::default(),
        }
    }
}

impl Default for Arguments {
    fn default() -> Self {
        Self::Object(Map::new())
    }
}

impl ScriptedUsage {
    pub(super) fn total(self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }
}

fn default_model() -> String {
    "scripted".to_owned()
}

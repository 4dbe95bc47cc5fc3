//! The file of a script: what may stand in it, and where it is wrong.

use engine::llm::{LlmErrorKind, ProviderFields, ToolCall};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error_name::ErrorName;

/// A script with everything that may stand in one. It is JSON; fields that it does not know are errors:
///
/// | field | meaning |
/// |---|---|
/// | `model` | the name under which it appears; `scripted` when absent |
/// | `responses` | the entries |
/// | `responses[].text` | what the model says |
/// | `responses[].tool_calls` | what it calls: `name`, and `arguments` as an object, or as text to be malformed |
/// | `responses[].usage` | `prompt_tokens` and `completion_tokens`, if they matter |
/// | `responses[].error` | instead of an answer: a failure after all retries, as in `rate_limited` |
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

/// What of a script cannot be read; says the line and column.
#[derive(Debug, thiserror::Error)]
#[error("reading a script of model responses")]
pub struct ScriptError(#[from] serde_json::Error);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Script {
    #[serde(default = "default_model")]
    pub(super) model: String,
    pub(super) responses: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "Fields")]
pub(super) enum Entry {
    Answer { text: Option<String>, calls: Vec<ScriptedCall>, usage: Option<ScriptedUsage> },
    Error(LlmErrorKind),
}

/// An entry as it is written. One struct and not an untagged enum, whose errors would not name the field.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
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
#[serde(untagged, expecting = "arguments are an object, or a text that stands for one")]
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

impl TryFrom<Fields> for Entry {
    type Error = &'static str;

    fn try_from(fields: Fields) -> Result<Self, &'static str> {
        let Fields { text, tool_calls: calls, usage, error } = fields;
        match error {
            None if text.is_none() && calls.is_empty() => {
                Err("a response has `text`, `tool_calls` or `error`")
            }
            None => Ok(Self::Answer { text, calls, usage }),
            Some(ScriptedError(kind)) if text.is_none() && calls.is_empty() && usage.is_none() => {
                Ok(Self::Error(kind))
            }
            Some(_) => Err("a response with `error` has nothing else"),
        }
    }
}

impl ScriptedCall {
    /// The shape that a call has in an answer.
    pub(super) fn to_call(&self, number: usize, place: usize) -> ToolCall {
        let arguments = match &self.arguments {
            Arguments::Object(map) => Value::Object(map.clone()).to_string(),
            Arguments::Text(text) => text.clone(),
        };
        ToolCall {
            id: format!("call-{number}-{place}"),
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

//! Model providers in this process, for tests. They refuse what real providers refuse, and write
//! what models write.
//!
//! The rules are from the providers' documentation and from reported errors, which the rules name.

mod chat;
mod messages;
mod responses;

use std::fmt;
use std::sync::Arc;

use engine::llm::{AssistantMessage, ToolCall};
use serde_json::{Map, Value};

use chat::{ChatProvider, ChatRules};
use messages::MessagesProvider;
use responses::ResponsesProvider;

/// Returns the status and the body of the response to the body of a request.
type Respond = dyn Fn(&[u8]) -> (u16, Value) + Send + Sync;

/// Answers requests in place of an HTTP server. See
/// [`LlmConfig::in_process`](crate::LlmConfig::in_process).
#[derive(Clone)]
pub struct InProcessProvider(Arc<Respond>);

impl InProcessProvider {
    /// Creates a provider. `respond` returns the status and the body of the response to the body of
    /// a request.
    pub fn new(respond: impl Fn(&[u8]) -> (u16, Value) + Send + Sync + 'static) -> Self {
        Self(Arc::new(respond))
    }

    pub(crate) fn respond(&self, body: &Map<String, Value>) -> reqwest::Response {
        let (status, body) = (self.0)(&serde_json::to_vec(body).unwrap_or_default());
        let mut response = http::Response::new(body.to_string());
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
        response.into()
    }
}

impl fmt::Debug for InProcessProvider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("InProcessProvider")
            .finish_non_exhaustive()
    }
}

/// The data of an image that no provider accepts.
pub const DAMAGED_IMAGE: &str = "iVBORw0DAMAGED";

/// Why a provider refuses a request: the text of its error.
pub type Refusal = String;

/// The provider of one model, which knows what it has written.
#[derive(Debug)]
pub struct StrictProvider {
    model: &'static str,
    api: Api,
}

#[derive(Debug)]
enum Api {
    Chat(ChatProvider),
    Messages(MessagesProvider),
    Responses(ResponsesProvider),
}

impl StrictProvider {
    /// Creates a provider of each kind. The seed determines the oddities of their responses.
    pub fn all(seed: u64) -> Vec<Self> {
        const CHAT: ChatRules = ChatRules {
            has_tools: true,
            has_strict_template: false,
            requires_reasoning: false,
            requires_signature: false,
        };
        let chat = [
            ("openai/gpt-4o", CHAT),
            (
                "mistral-large-4",
                ChatRules {
                    has_strict_template: true,
                    ..CHAT
                },
            ),
            (
                "deepseek/deepseek-v4",
                ChatRules {
                    requires_reasoning: true,
                    ..CHAT
                },
            ),
            (
                "a-thinking-model",
                ChatRules {
                    requires_reasoning: true,
                    ..CHAT
                },
            ),
            (
                "gemini/gemini-3.1-pro",
                ChatRules {
                    requires_signature: true,
                    ..CHAT
                },
            ),
            (
                "gemma-3",
                ChatRules {
                    has_tools: false,
                    has_strict_template: true,
                    ..CHAT
                },
            ),
        ];
        let chat =
            chat.map(|(model, rules)| (model, Api::Chat(ChatProvider::new(model, rules, seed))));
        let messages = Api::Messages(MessagesProvider::new(seed));
        let responses = Api::Responses(ResponsesProvider::new(seed));
        chat.into_iter()
            .chain([
                ("anthropic/claude-fable-5-2", messages),
                ("openai/responses/gpt-6-luna", responses),
            ])
            .map(|(model, api)| Self { model, api })
            .collect()
    }

    /// Returns the name of the model for [`LlmConfig::new`](crate::LlmConfig::new).
    pub fn model(&self) -> &'static str {
        self.model
    }

    /// Returns the number of requests that changed what precedes reasoning of the model.
    pub fn changed_prefixes(&self) -> usize {
        match &self.api {
            Api::Messages(provider) => provider.changed_prefixes,
            Api::Chat(_) | Api::Responses(_) => 0,
        }
    }

    /// Returns how often reasoning or signatures of the model were sent back.
    pub fn returned_reasoning(&self) -> usize {
        match &self.api {
            Api::Chat(provider) => provider.returned,
            Api::Messages(provider) => provider.returned,
            Api::Responses(provider) => provider.returned,
        }
    }

    /// Returns a response with this message of the model, in the format of the provider.
    ///
    /// # Errors
    /// The provider refuses the request.
    pub fn answer(&mut self, body: &Value, message: &AssistantMessage) -> Result<Value, Refusal> {
        refuse(
            body.to_string().contains(DAMAGED_IMAGE),
            "Could not process image",
        )?;
        match &mut self.api {
            Api::Chat(provider) => provider.answer(body, message),
            Api::Messages(provider) => provider.answer(body, message),
            Api::Responses(provider) => provider.answer(body, message),
        }
    }
}

/// Returns a message of a model that writes as models should not: blank texts, and calls with
/// repeated ids, marks of a template in the names of tools, and arguments that are cut or not an
/// object.
pub fn odd_message(random: &mut fastrand::Rng, tool: &str, arguments: &str) -> AssistantMessage {
    let long = "l".repeat(150);
    let ids = [
        "call_1",
        "functions.execute_bash:0",
        &long[..48],
        "abcdefghi",
        "",
    ];
    let names = [
        tool,
        &format!("functions.{tool}"),
        &format!("{tool}<|channel|>commentary"),
        "",
        &long,
    ]
    .map(str::to_owned);
    let arguments = [
        arguments,
        &arguments[..arguments.len() / 2],
        "",
        "null",
        "[1]",
    ];
    let mut call = || ToolCall {
        id: ids[random.usize(..ids.len())].to_owned(),
        name: names[random.usize(..names.len())].clone(),
        arguments: arguments[random.usize(..arguments.len())].to_owned(),
        ..Default::default()
    };
    let tool_calls = vec![call(), call(), call()];
    let count = random.usize(..4);
    AssistantMessage {
        text: ["I work.", "", " "][random.usize(..3)].to_owned(),
        tool_calls: tool_calls.into_iter().take(count).collect(),
        ..Default::default()
    }
}

fn refuse(is_refused: bool, why: &str) -> Result<(), Refusal> {
    if is_refused {
        Err(why.to_owned())
    } else {
        Ok(())
    }
}

/// Whether a content has text, or is a list of parts.
fn has_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.trim().is_empty())
        || value.as_array().is_some_and(|parts| !parts.is_empty())
}

fn is_name(value: &Value) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    value
        .as_str()
        .is_some_and(|name| (1..=64).contains(&name.len()) && name.bytes().all(is_allowed))
}

/// Checks the tools of a request. Their schemas are in the field `schema`.
fn check_tools<'a>(tools: impl Iterator<Item = &'a Value>, schema: &str) -> Result<(), Refusal> {
    for tool in tools {
        refuse(
            !is_name(&tool["name"]),
            "tools[0].name: String should match pattern",
        )?;
        let schema = &tool[schema];
        refuse(
            schema["type"] != "object",
            "schema must be a JSON Schema of 'type: \"object\"'",
        )?;
        let combination = ["oneOf", "anyOf", "allOf", "enum", "not"]
            .into_iter()
            .find(|name| schema.get(name).is_some());
        refuse(
            combination.is_some(),
            "schema must not have oneOf, anyOf, allOf, enum or not at the top level",
        )?;
        check_schema(schema)?;
    }
    Ok(())
}

fn check_schema(schema: &Value) -> Result<(), Refusal> {
    let Some(fields) = schema.as_object() else {
        return Ok(());
    };
    refuse(
        schema["type"] == "array" && !fields.contains_key("items"),
        "array schema missing items",
    )?;
    refuse(
        fields
            .get("required")
            .is_some_and(|required| !required.is_array()),
        "required: not an array",
    )?;
    refuse(
        fields.get("properties").is_some_and(|all| !all.is_object()),
        "properties: not an object",
    )?;
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let is_allowed = |char: char| char.is_ascii_alphanumeric() || "_.-".contains(char);
        refuse(
            !name.chars().all(is_allowed),
            "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'",
        )?;
        check_schema(property)?;
    }
    check_schema(&schema["items"])
}

/// Returns the id of a response. Some servers give all the same.
fn response_id(random: &mut fastrand::Rng) -> String {
    format!(
        "response-{}",
        if random.bool() { 0 } else { random.u64(..) }
    )
}

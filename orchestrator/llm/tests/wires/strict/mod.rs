//! Providers that refuse whatever a real one refuses, and whose models answer anything. A conversation goes on in spite of it.
//!
//! The rules are those of the providers' pages and of reported errors, which the rules name. Each answer is odd at random.

mod chat;
mod messages;
mod responses;

use engine::llm::{ChatMessage, Llm as _, LlmRequest, MessagePart, Tool};
use llm::{LlmConfig, ProviderLlm};
use serde_json::{Map, Value, json};

use crate::scene;
use crate::server::{Reply, Server};
use chat::{ChatProvider, ChatRules};
use messages::MessagesProvider;
use responses::ResponsesProvider;

/// Why a provider refuses a request.
type Refusal = String;

/// Number of conversations of the law, and of calls in each.
const CONVERSATIONS: u64 = 12;
const CALLS: usize = 60;

const CHAT: ChatRules = ChatRules {
    model: "openai/gpt-4o",
    has_strict_template: false,
    requires_reasoning: false,
    requires_signature: false,
};

fn refuse(is_refused: bool, why: &str) -> Result<(), Refusal> {
    if is_refused { Err(why.to_owned()) } else { Ok(()) }
}

fn object(value: &Value) -> Result<&Map<String, Value>, Refusal> {
    value.as_object().ok_or_else(|| "not an object".to_owned())
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.trim().is_empty())
        || value.as_array().is_some_and(|parts| !parts.is_empty())
}

fn is_name(value: &Value) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    value.as_str().is_some_and(|name| (1..=64).contains(&name.len()) && name.bytes().all(is_allowed))
}

/// Checks the tools of a request.
fn tool_refusal<'a>(tools: impl Iterator<Item = &'a Value>, schema: &str) -> Result<(), Refusal> {
    for tool in tools {
        refuse(!is_name(&tool["name"]), "tools[0].name: String should match pattern")?;
        let schema = &tool[schema];
        refuse(schema["type"] != "object", "schema must be a JSON Schema of 'type: \"object\"'")?;
        let combination =
            ["oneOf", "anyOf", "allOf", "enum", "not"].into_iter().find(|name| schema.get(name).is_some());
        refuse(
            combination.is_some(),
            "schema must not have oneOf, anyOf, allOf, enum or not at the top level",
        )?;
        schema_refusal(schema)?;
    }
    Ok(())
}

fn schema_refusal(schema: &Value) -> Result<(), Refusal> {
    let Some(fields) = schema.as_object() else { return Ok(()) };
    refuse(schema["type"] == "array" && !fields.contains_key("items"), "array schema missing items")?;
    refuse(fields.get("required").is_some_and(|required| !required.is_array()), "required: not an array")?;
    refuse(fields.get("properties").is_some_and(|all| !all.is_object()), "properties: not an object")?;
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let is_allowed = |char: char| char.is_ascii_alphanumeric() || "_.-".contains(char);
        refuse(!name.chars().all(is_allowed), "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'")?;
        schema_refusal(property)?;
    }
    schema_refusal(&schema["items"])
}

/// Tools as MCP servers offer them.
fn tools() -> Vec<Tool> {
    let tool = |name: &str, parameters| Tool { name: name.into(), description: "d".into(), parameters };
    vec![
        tool("execute_bash", json!({ "type": "object", "properties": { "command": { "type": "string" } } })),
        tool(
            "any",
            json!({ "oneOf": [{ "properties": { "a": { "type": "array" } } }, { "required": ["b"] }] }),
        ),
        tool("nulls", json!({ "type": "object", "properties": null, "required": null })),
        tool("filter", json!({ "properties": { "$filter": { "type": "string" } }, "required": ["$filter"] })),
    ]
}

fn odd_text(random: &mut fastrand::Rng) -> Value {
    let texts = [json!("I work."), json!(""), json!(" "), Value::Null, json!("Done.")];
    texts[random.usize(..texts.len())].clone()
}

/// Returns the ids, names and arguments of calls.
fn odd_calls(random: &mut fastrand::Rng) -> Vec<(String, String, String)> {
    let long = "l".repeat(150);
    let ids = ["call_1", "call_1", "functions.execute_bash:0", &long[..48], "abcdefghi"];
    let names = ["execute_bash", "functions.execute_bash", "execute_bash<|channel|>commentary", "", &long];
    let arguments = [r#"{"command":"echo hi"}"#, r#"{"command": "echo hi"#, "", "null", "[1]", "{}"];
    let count = random.usize(..4);
    let mut call = || {
        let pick = |from: &[&str], random: &mut fastrand::Rng| from[random.usize(..from.len())].to_owned();
        (pick(&ids, random), pick(&names, random), pick(&arguments, random))
    };
    (0..count).map(|_| call()).collect()
}

/// A provider on loopback, and its model.
async fn connect(
    mut answer: impl FnMut(&Value) -> Result<Value, Refusal> + Send + 'static,
    model: &str,
) -> (Server, ProviderLlm) {
    let server = Server::start_with(move |body| match answer(body) {
        Ok(body) => Reply::json(200, &body),
        Err(message) => {
            let error = json!({ "message": message, "type": "invalid_request_error" });
            Reply::json(400, &json!({ "type": "error", "error": error }))
        }
    })
    .await;
    let config = LlmConfig { model: model.into(), ..scene::config(&server) };
    let llm = ProviderLlm::new(&config).unwrap();
    (server, llm)
}

/// Whatever models answer, however the history is condensed, and whichever model comes next: the next call succeeds.
#[tokio::test]
async fn no_history_is_refused() {
    for seed in 0..CONVERSATIONS {
        let mut models = Vec::new();
        for rules in [
            CHAT,
            ChatRules { model: "mistral-large-4", has_strict_template: true, ..CHAT },
            ChatRules { model: "deepseek/deepseek-v4", requires_reasoning: true, ..CHAT },
            ChatRules { model: "a-thinking-model", requires_reasoning: true, ..CHAT },
            ChatRules { model: "gemini/gemini-3.1-pro", requires_signature: true, ..CHAT },
        ] {
            let mut provider = ChatProvider::new(rules, seed);
            models.push(connect(move |body| provider.answer(body), rules.model).await);
        }
        let mut provider = MessagesProvider::new(seed);
        models.push(connect(move |body| provider.answer(body), "anthropic/claude-fable-5-2").await);
        let mut provider = ResponsesProvider::new(seed);
        models.push(connect(move |body| provider.answer(body), "openai/responses/gpt-6-luna").await);
        converse(&models, seed).await;
    }
}

async fn converse(models: &[(Server, ProviderLlm)], seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let text = |text: &str| MessagePart::Text(text.to_owned());
    let start = vec![ChatMessage::System("be good".into()), ChatMessage::User(vec![text("go")])];
    let mut messages = start.clone();
    let mut current = random.usize(..models.len());
    for number in 0..CALLS {
        if random.u8(..8) == 0 {
            current = random.usize(..models.len());
        }
        let request = LlmRequest { messages: messages.clone(), tools: tools() };
        let (_, llm) = &models[current];
        let completion = llm.complete(&request, &|_| ()).await;
        let completion = completion.unwrap_or_else(|error| {
            panic!("seed {seed}, call {number}, {}: {error}: {messages:#?}", llm.model());
        });
        let calls = completion.response.message.tool_calls.clone();
        messages.push(ChatMessage::Assistant(completion.response.message));
        messages.extend(calls.into_iter().map(|call| ChatMessage::ToolResult {
            call_id: call.id,
            name: call.name,
            parts: vec![text("done"), MessagePart::Image("data:image/png;base64,AA==".into())],
        }));
        match random.u8(..6) {
            0 => messages.push(ChatMessage::User(vec![text("more")])),
            // A condensation: the start stays, and the last messages, which a response and its results begin.
            1 if messages.len() > 12 => {
                let is_response = |message: &ChatMessage| matches!(message, ChatMessage::Assistant(_));
                let kept = messages.len() / 2;
                let first = kept + messages[kept..].iter().position(is_response).unwrap_or_default();
                messages.splice(start.len()..first, [ChatMessage::User(vec![text("a summary")])]);
            }
            // Masked: a result in the middle is replaced.
            2 => {
                let middle = messages.len() / 2;
                if let ChatMessage::ToolResult { parts, .. } = &mut messages[middle] {
                    *parts = vec![text("masked")];
                }
            }
            _ => {}
        }
    }
}

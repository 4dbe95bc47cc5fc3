//! Providers of chat completions.

use std::collections::HashSet;

use engine::llm::{AssistantMessage, ToolCall};
use serde_json::{Map, Value, json};

use super::{Refusal, check_tools, has_text, is_name, refuse, response_id};

/// Fields of a message that every provider knows.
const KNOWN_FIELDS: [&str; 6] = [
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "cache_control",
];

/// What distinguishes the provider of a model.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChatRules {
    /// Whether the model was trained to call tools.
    pub(super) has_tools: bool,
    /// Mistral's template: no user after a result, and ids of nine letters and digits
    /// (LiteLLM#13749).
    pub(super) has_strict_template: bool,
    /// DeepSeek: `The reasoning_content in the thinking mode must be passed back`.
    pub(super) requires_reasoning: bool,
    /// Gemini: calls have the signature that it gave, or the one of none (OpenHands#12141).
    pub(super) requires_signature: bool,
}

#[derive(Debug)]
pub(super) struct ChatProvider {
    model: &'static str,
    rules: ChatRules,
    /// The reasoning and the signatures that it has written.
    issued: HashSet<String>,
    /// Number of messages whose reasoning or signature was sent back.
    pub(super) returned: usize,
    random: fastrand::Rng,
}

impl ChatProvider {
    pub(super) fn new(model: &'static str, rules: ChatRules, seed: u64) -> Self {
        Self {
            model,
            rules,
            issued: HashSet::new(),
            returned: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    pub(super) fn answer(
        &mut self,
        body: &Value,
        message: &AssistantMessage,
    ) -> Result<Value, Refusal> {
        let tools = body["tools"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        refuse(
            !tools.is_empty() && !self.rules.has_tools,
            "the model does not support tools",
        )?; // Ollama
        check_tools(tools.iter().map(|tool| &tool["function"]), "parameters")?;
        let messages = body["messages"].as_array().ok_or("no messages")?;
        self.check_messages(messages)?;
        let is_issued = |value: &Value| {
            value
                .as_str()
                .is_some_and(|text| self.issued.contains(text))
        };
        let signature = |message: &Value| {
            message
                .pointer("/tool_calls/0/extra_content/google/thought_signature")
                .is_some_and(is_issued)
        };
        let has_own =
            |message: &&Value| is_issued(&message["reasoning_content"]) || signature(message);
        self.returned += messages.iter().filter(has_own).count();
        Ok(self.response(message))
    }

    fn check_messages(&self, messages: &[Value]) -> Result<(), Refusal> {
        let mut open: Vec<&str> = Vec::new();
        let mut last = "";
        for (number, message) in messages.iter().enumerate() {
            let role = message["role"].as_str().unwrap_or_default();
            let fields = message.as_object().ok_or("a message is not an object")?;
            match role {
                "system" => refuse(
                    last != "system" && !last.is_empty(),
                    "a system message after others",
                )?,
                "user" => {
                    refuse(last == "user", "roles must alternate")?; // templates of Mistral, Gemma, Devstral
                    refuse(
                        last == "tool" && self.rules.has_strict_template,
                        "Unexpected role 'user' after role 'tool'",
                    )?;
                }
                "assistant" => {
                    refuse(last == "assistant", "roles must alternate")?;
                    open = self.check_assistant(message)?;
                    let unknown = fields
                        .iter()
                        .find(|(name, value)| !self.is_known(name, value));
                    refuse(
                        unknown.is_some(),
                        &format!("messages[{number}]: unknown parameter {unknown:?}"),
                    )?;
                }
                "tool" => {
                    let id = message["tool_call_id"].as_str().unwrap_or_default();
                    let place = open.iter().position(|call| *call == id);
                    open.remove(place.ok_or(
                        "messages with role 'tool' must be a response to a preceding call",
                    )?);
                }
                other => refuse(true, &format!("role {other:?}"))?,
            }
            let is_answered = role == "assistant" || role == "tool" || open.is_empty();
            refuse(!is_answered, "tool_call_ids did not have response messages")?;
            last = role;
        }
        refuse(
            last == "assistant" || !open.is_empty(),
            "the last message must be the user's or a result",
        )
    }

    fn check_assistant<'a>(&self, message: &'a Value) -> Result<Vec<&'a str>, Refusal> {
        let calls = message["tool_calls"].as_array();
        refuse(
            calls.is_none_or(Vec::is_empty) && !has_text(&message["content"]),
            "an empty message",
        )?; // Mistral
        let has_reasoning = message["reasoning_content"].is_string();
        refuse(
            self.rules.requires_reasoning && !has_reasoning,
            "the reasoning_content must be passed back to the API",
        )?;
        let mut ids = Vec::new();
        for (number, call) in calls.into_iter().flatten().enumerate() {
            let id = call["id"].as_str().unwrap_or_default();
            refuse(
                id.is_empty() || id.len() > 40,
                "tool_calls[0].id: string too long",
            )?;
            let is_short = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
            refuse(
                self.rules.has_strict_template && !is_short,
                "Tool call id must be a-z, A-Z, 0-9, with a length of 9",
            )?;
            refuse(ids.contains(&id), "two calls with one id")?;
            refuse(
                !is_name(&call["function"]["name"]),
                "tool_calls[0].function.name: invalid",
            )?;
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            let is_object = matches!(serde_json::from_str(arguments), Ok(Value::Object(_)));
            refuse(!is_object, "arguments are no object")?; // llama.cpp, vLLM: 500
            if self.rules.requires_signature && number == 0 {
                let signature = call["extra_content"]["google"]["thought_signature"]
                    .as_str()
                    .unwrap_or_default();
                let is_known =
                    self.issued.contains(signature) || signature.starts_with("c2tpcF90aG91Z2h0");
                refuse(!is_known, "Function call is missing a thought_signature")?;
            }
            ids.push(id);
        }
        Ok(ids)
    }

    fn is_known(&self, name: &str, value: &Value) -> bool {
        let is_own = || self.issued.contains(value.as_str().unwrap_or_default());
        KNOWN_FIELDS.contains(&name)
            || name == "reasoning_content"
                && (is_own() || self.rules.requires_reasoning && value == " ")
            || name == "annotations" && value.as_array().is_some_and(Vec::is_empty)
    }

    fn response(&mut self, written: &AssistantMessage) -> Value {
        let reasoning = format!("thought {}", self.random.u64(..));
        let mut message = json!({ "role": "assistant", "content": written.text });
        if written.text.is_empty() && self.random.bool() {
            message["content"] = Value::Null;
        }
        if self.rules.has_tools {
            message["tool_calls"] = written
                .tool_calls
                .iter()
                .map(|call| self.call(call, &reasoning))
                .collect();
        } else {
            let calls: String = written.tool_calls.iter().map(call_text).collect();
            message["content"] = format!("{}\n{calls}", written.text).into();
        }
        if self.rules.requires_reasoning || self.random.bool() {
            message["reasoning_content"] = reasoning.as_str().into();
            message["annotations"] = json!([]);
        }
        self.issued.insert(reasoning);
        json!({
            "id": response_id(&mut self.random), "object": "chat.completion", "created": 1, "model": self.model,
            "choices": [{ "index": 0, "finish_reason": "stop", "message": message }],
        })
    }

    fn call(&self, call: &ToolCall, signature: &str) -> Value {
        let function = json!({ "name": call.name, "arguments": call.arguments });
        let mut call = json!({ "id": call.id, "type": "function", "function": function });
        if self.rules.requires_signature {
            call["extra_content"] = json!({ "google": { "thought_signature": signature } });
        }
        call
    }
}

/// Returns a call as a model without tools writes it. Arguments that are not an object are cut.
fn call_text(call: &ToolCall) -> String {
    let arguments = serde_json::from_str::<Map<String, Value>>(&call.arguments);
    let parameter = |(name, value): (&String, &Value)| {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        format!("<parameter={name}>\n{text}\n</parameter>\n")
    };
    let end = if arguments.is_ok() {
        "</function>"
    } else {
        "<parameter="
    };
    let parameters: String = arguments.iter().flatten().map(parameter).collect();
    format!("<function={}>\n{parameters}{end}\n", call.name)
}

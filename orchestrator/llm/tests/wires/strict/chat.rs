//! What providers of chat completions refuse, and odd answers of their models.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Refusal, is_name, is_text, object, refuse, tool_refusal};

/// Fields of a message that every provider knows.
const KNOWN_FIELDS: [&str; 6] = ["role", "content", "name", "tool_calls", "tool_call_id", "cache_control"];

/// What distinguishes the provider of a model.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChatRules {
    pub(super) model: &'static str,
    /// Mistral's template: no user after a result, and ids of nine letters and digits (LiteLLM#13749).
    pub(super) has_strict_template: bool,
    /// DeepSeek: `The reasoning_content in the thinking mode must be passed back`.
    pub(super) requires_reasoning: bool,
    /// Gemini: calls have the signature that it gave, or the one of none (OpenHands#12141).
    pub(super) requires_signature: bool,
}

/// The provider of one model, which knows what it has written.
#[derive(Debug)]
pub(super) struct ChatProvider {
    pub(super) rules: ChatRules,
    issued: HashSet<String>,
    random: fastrand::Rng,
}

impl ChatProvider {
    pub(super) fn new(rules: ChatRules, seed: u64) -> Self {
        Self { rules, issued: HashSet::new(), random: fastrand::Rng::with_seed(seed) }
    }

    /// Answers a request, or says why it is refused.
    pub(super) fn answer(&mut self, body: &Value) -> Result<Value, Refusal> {
        tool_refusal(
            body["tools"].as_array().into_iter().flatten().map(|tool| &tool["function"]),
            "parameters",
        )?;
        self.check_messages(body["messages"].as_array().ok_or("no messages")?)?;
        Ok(self.odd_answer())
    }

    fn check_messages(&self, messages: &[Value]) -> Result<(), Refusal> {
        let mut open: Vec<&str> = Vec::new();
        let mut last = "";
        for (number, message) in messages.iter().enumerate() {
            let role = message["role"].as_str().unwrap_or_default();
            let fields = object(message)?;
            match role {
                "system" => refuse(last != "system" && !last.is_empty(), "a system message after others")?,
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
                    let unknown = fields.iter().find(|(name, value)| !self.is_known(name, value));
                    refuse(unknown.is_some(), &format!("messages[{number}]: unknown parameter {unknown:?}"))?;
                }
                "tool" => {
                    let id = message["tool_call_id"].as_str().unwrap_or_default();
                    let place = open.iter().position(|call| *call == id);
                    open.remove(
                        place.ok_or("messages with role 'tool' must be a response to a preceding call")?,
                    );
                }
                other => refuse(true, &format!("role {other:?}"))?,
            }
            let is_answered = role == "assistant" || role == "tool" || open.is_empty();
            refuse(!is_answered, "tool_call_ids did not have response messages")?;
            last = role;
        }
        refuse(last == "assistant" || !open.is_empty(), "the last message must be the user's or a result")
    }

    fn check_assistant<'a>(&self, message: &'a Value) -> Result<Vec<&'a str>, Refusal> {
        let calls = message["tool_calls"].as_array();
        refuse(calls.is_none_or(Vec::is_empty) && !is_text(&message["content"]), "an empty message")?; // Mistral
        let has_reasoning = message["reasoning_content"].is_string();
        refuse(
            self.rules.requires_reasoning && !has_reasoning,
            "the reasoning_content must be passed back to the API",
        )?;
        let mut ids = Vec::new();
        for (number, call) in calls.into_iter().flatten().enumerate() {
            let id = call["id"].as_str().unwrap_or_default();
            refuse(id.is_empty() || id.len() > 40, "tool_calls[0].id: string too long")?;
            let is_short = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
            refuse(
                self.rules.has_strict_template && !is_short,
                "Tool call id must be a-z, A-Z, 0-9, with a length of 9",
            )?;
            refuse(ids.contains(&id), "two calls with one id")?;
            refuse(!is_name(&call["function"]["name"]), "tool_calls[0].function.name: invalid")?;
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            let is_object = matches!(serde_json::from_str(arguments), Ok(Value::Object(_)));
            refuse(!is_object, "arguments are no object")?; // llama.cpp, vLLM: 500
            if self.rules.requires_signature && number == 0 {
                let signature =
                    call["extra_content"]["google"]["thought_signature"].as_str().unwrap_or_default();
                let is_known = self.issued.contains(signature) || signature.starts_with("c2tpcF90aG91Z2h0");
                refuse(!is_known, "Function call is missing a thought_signature")?;
            }
            ids.push(id);
        }
        Ok(ids)
    }

    fn is_known(&self, name: &str, value: &Value) -> bool {
        let is_own = || self.issued.contains(value.as_str().unwrap_or_default());
        KNOWN_FIELDS.contains(&name)
            || name == "reasoning_content" && (is_own() || self.rules.requires_reasoning && value == " ")
            || name == "annotations" && value.as_array().is_some_and(Vec::is_empty)
    }

    fn odd_answer(&mut self) -> Value {
        let random = &mut self.random;
        let reasoning = format!("thought {}", random.u64(..));
        let mut message = json!({ "role": "assistant", "content": super::odd_text(random) });
        let calls = super::odd_calls(random);
        let calls = calls.into_iter().map(|(id, name, arguments)| {
            let mut call =
                json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
            if self.rules.requires_signature {
                call["extra_content"] = json!({ "google": { "thought_signature": reasoning } });
            }
            call
        });
        message["tool_calls"] = calls.collect();
        if random.bool() || self.rules.requires_reasoning {
            message["reasoning_content"] = reasoning.as_str().into();
            message["annotations"] = json!([]);
        }
        self.issued.insert(reasoning);
        json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": self.rules.model,
            "choices": [{ "index": 0, "finish_reason": "stop", "message": message }],
        })
    }
}

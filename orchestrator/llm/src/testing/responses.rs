//! OpenAI's Responses API, with encrypted reasoning.

use std::collections::HashSet;

use engine::llm::AssistantMessage;
use serde_json::{Value, json};

use super::{Refusal, check_tools, has_text, is_name, refuse, response_id};

/// Fields of a request that are not unknown parameters.
const KNOWN_FIELDS: [&str; 10] = [
    "model",
    "input",
    "instructions",
    "tools",
    "store",
    "include",
    "stream",
    "reasoning",
    "max_output_tokens",
    "text",
];

#[derive(Debug)]
pub(super) struct ResponsesProvider {
    /// The encrypted reasoning that it has written.
    issued: HashSet<String>,
    /// Number of items of reasoning that were sent back.
    pub(super) returned: usize,
    random: fastrand::Rng,
}

impl ResponsesProvider {
    pub(super) fn new(seed: u64) -> Self {
        Self {
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
        check_tools(body["tools"].as_array().into_iter().flatten(), "parameters")?;
        let unknown = body
            .as_object()
            .into_iter()
            .flatten()
            .find(|(name, _)| !KNOWN_FIELDS.contains(&name.as_str()));
        refuse(
            unknown.is_some(),
            &format!("Unknown parameter: {unknown:?}"),
        )?;
        // Our own rules: nothing is stored at the provider, and reasoning can be sent back.
        refuse(body["store"] != false, "the response is stored")?;
        refuse(
            body["include"] != json!(["reasoning.encrypted_content"]),
            "the reasoning is not included",
        )?;
        let items = body["input"].as_array().ok_or("no input")?;
        let mut open: Vec<&str> = Vec::new();
        let mut ids = HashSet::new();
        let mut is_after_reasoning = false;
        for item in items {
            let kind = item["type"].as_str().unwrap_or_default();
            let is_models =
                kind == "function_call" || kind == "message" && item["role"] == "assistant";
            refuse(
                is_after_reasoning && !is_models && kind != "reasoning",
                "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
            )?;
            is_after_reasoning = kind == "reasoning";
            match kind {
                "message" => {
                    refuse(!open.is_empty(), "No tool output found for function call")?;
                    let parts = item["content"].as_array().ok_or("content is no list")?;
                    let part_kind = if is_models { "output_text" } else { "input_" };
                    let is_wrong = |part: &Value| {
                        !part["type"]
                            .as_str()
                            .is_some_and(|kind| kind.starts_with(part_kind))
                    };
                    refuse(
                        parts.is_empty() || parts.iter().any(is_wrong),
                        "Invalid value: content",
                    )?;
                }
                "reasoning" => {
                    let content = item["encrypted_content"].as_str().unwrap_or_default();
                    refuse(!self.issued.contains(content), "invalid_encrypted_content")?;
                    self.returned += 1;
                }
                "function_call" => {
                    let id = item["call_id"].as_str().unwrap_or_default();
                    refuse(
                        item.get("id").is_some(),
                        "function_call was provided without its required 'reasoning' item",
                    )?;
                    refuse(id.is_empty() || id.len() > 64, "call_id: string too long")?;
                    refuse(!ids.insert(id), "Duplicate item")?;
                    refuse(
                        !is_name(&item["name"]),
                        "name: string does not match pattern",
                    )?;
                    let arguments = item["arguments"].as_str().unwrap_or_default();
                    let is_object = matches!(serde_json::from_str(arguments), Ok(Value::Object(_)));
                    refuse(!is_object, "arguments are no object")?;
                    open.push(id);
                }
                "function_call_output" => {
                    let id = item["call_id"].as_str().unwrap_or_default();
                    let place = open.iter().position(|call| *call == id);
                    open.remove(place.ok_or("No tool call found for function call output")?);
                    refuse(!has_text(&item["output"]), "Invalid value: output")?;
                }
                other => refuse(true, &format!("an item of type {other:?}"))?,
            }
        }
        refuse(
            is_after_reasoning || !open.is_empty(),
            "No tool output found for function call",
        )?;
        Ok(self.response(message))
    }

    fn response(&mut self, message: &AssistantMessage) -> Value {
        let random = &mut self.random;
        let mut output = Vec::new();
        for _ in 0..random.usize(..3) {
            let content = format!("reasoning {}", random.u64(..));
            output.push(json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": content, "status": null }));
            self.issued.insert(content);
        }
        if !message.text.is_empty() || random.bool() {
            let content = json!([{ "type": "output_text", "text": message.text, "annotations": [], "logprobs": [] }]);
            output.push(json!({ "type": "message", "id": "msg_1", "role": "assistant", "content": content, "phase": "commentary" }));
        }
        output.extend(message.tool_calls.iter().map(|call| {
            json!({ "type": "function_call", "id": "fc_1", "call_id": call.id, "name": call.name, "arguments": call.arguments, "status": "completed" })
        }));
        json!({
            "id": response_id(random), "object": "response", "status": "completed", "model": "gpt", "output": output,
            "usage": { "input_tokens": 1, "output_tokens": 1 },
        })
    }
}

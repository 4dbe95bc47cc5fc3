//! Reasoning and other fields that only their writer understands: who wrote them, and what the
//! provider has refused.
//!
//! A provider refuses the signatures of another model, and some refuse reasoning whose prefix has
//! changed. Then the messages of that request are sent without it from then on.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use engine::llm::{AssistantMessage, ChatMessage, LlmRequest, ProviderFields, ToolCall};
use serde_json::{Value, json};

use super::fingerprint;
use crate::models::is_of_family;

/// The field of a message with the fingerprint of the model and the address that wrote its other
/// fields. Not sent.
pub(super) const WRITER_FIELD: &str = "written_by";

/// Maximum number of messages whose refused reasoning is remembered.
const MAX_REFUSED: usize = 1 << 14;

/// Models that think, and refuse a message with calls that has no reasoning. Their providers accept
/// a blank.
const REQUIRES_REASONING: [&str; 3] = ["deepseek-v4", "kimi-k2-thinking", "kimi-k3"];

/// The reasoning of messages without any.
const BLANK_REASONING: &str = " ";

/// Models that refuse calls without a signature of theirs, except for this one, in base64.
const REQUIRES_SIGNATURE: [&str; 2] = ["gemini-3", "gemini-4"];
const NO_SIGNATURE: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";

/// Why a provider refuses a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistoryRefusal {
    /// It does not accept the reasoning of a message.
    Reasoning,
    /// A message has no reasoning.
    NoReasoning,
    /// It does not accept an image.
    Image,
}

#[derive(Debug)]
pub(super) struct Reasoning {
    writer: String,
    requires_signature: bool,
    requires_reasoning: AtomicBool,
    /// Fingerprints of the fields that were refused. Never locked across an await.
    refused: Mutex<HashSet<String>>,
}

impl Reasoning {
    pub(super) fn new(model: &str, address: &str) -> Self {
        let is_of = |families: &[&str]| families.iter().any(|family| is_of_family(model, family));
        Self {
            writer: fingerprint(&format!("{model} {address}")),
            requires_signature: is_of(&REQUIRES_SIGNATURE),
            requires_reasoning: AtomicBool::new(is_of(&REQUIRES_REASONING)),
            refused: Mutex::default(),
        }
    }

    /// Names the writer of a new message, if it has fields that others do not understand.
    pub(super) fn sign(&self, message: &mut AssistantMessage) {
        if has_fields(message) {
            message
                .provider_fields
                .0
                .insert(WRITER_FIELD.into(), self.writer.as_str().into());
        }
    }

    /// Returns a message without the fields of another writer and refused ones, and with those that
    /// the provider requires.
    pub(super) fn of_this_model(&self, message: &AssistantMessage) -> AssistantMessage {
        let mut sent = self.own(message);
        if self.is_refused(&sent) {
            remove_fields(&mut sent);
        }
        if self.requires_reasoning.load(Ordering::Relaxed) {
            sent.provider_fields
                .0
                .entry("reasoning_content")
                .or_insert_with(|| BLANK_REASONING.into());
        }
        // The first call of a message stands for all.
        if self.requires_signature
            && let Some(call) = sent.tool_calls.first_mut()
        {
            add_signature(call);
        }
        sent
    }

    /// Returns a message without the fields of another writer. The writer of an older message is
    /// unknown.
    fn own(&self, message: &AssistantMessage) -> AssistantMessage {
        let mut own = message.clone();
        let writer = own.provider_fields.0.remove(WRITER_FIELD);
        own.provider_fields.0.retain(|_, value| !is_void(value));
        if writer.is_some_and(|writer| writer != self.writer) {
            remove_fields(&mut own);
        }
        own
    }

    /// Records that messages of the model need reasoning. Returns whether the next request differs.
    pub(super) fn learn_required(&self) -> bool {
        !self.requires_reasoning.swap(true, Ordering::Relaxed)
    }

    /// Records that reasoning of the request is refused. Returns whether the next request differs.
    pub(super) fn learn_refused(&self, request: &LlmRequest) -> bool {
        let messages = request.messages.iter().filter_map(|message| match message {
            ChatMessage::Assistant(message) => Some(self.own(message)),
            _ => None,
        });
        let fingerprints = messages
            .filter(has_fields)
            .map(|message| fingerprint_of(&message));
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let new: Vec<_> = fingerprints
            .filter(|fingerprint| !refused.contains(fingerprint))
            .collect();
        if new.is_empty() || new.len() > MAX_REFUSED {
            return false;
        }
        if refused.len() + new.len() > MAX_REFUSED {
            refused.clear();
        }
        refused.extend(new);
        tracing::warn!(
            "the provider refuses the reasoning of earlier messages; continuing without it"
        );
        true
    }

    fn is_refused(&self, message: &AssistantMessage) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        !refused.is_empty() && refused.contains(&fingerprint_of(message))
    }
}

fn remove_fields(message: &mut AssistantMessage) {
    message.provider_fields.0.clear();
    message
        .tool_calls
        .iter_mut()
        .for_each(|call| call.provider_fields.0.clear());
}

fn add_signature(call: &mut ToolCall) {
    let google = &call
        .provider_fields
        .0
        .get("extra_content")
        .map(|content| &content["google"]);
    if google.is_none_or(|google| google["thought_signature"].as_str().is_none()) {
        let signature = json!({ "google": { "thought_signature": NO_SIGNATURE } });
        call.provider_fields
            .0
            .insert("extra_content".into(), signature);
    }
}

/// Whether a message has fields other than its text and its calls.
fn has_fields(message: &AssistantMessage) -> bool {
    let is_set = |fields: &ProviderFields| fields.0.values().any(|value| !is_void(value));
    is_set(&message.provider_fields)
        || message
            .tool_calls
            .iter()
            .any(|call| is_set(&call.provider_fields))
}

fn is_void(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

fn fingerprint_of(message: &AssistantMessage) -> String {
    fingerprint(&Value::Object(message.to_stored()).to_string())
}

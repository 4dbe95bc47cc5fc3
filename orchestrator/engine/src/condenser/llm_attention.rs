//! `llm_attention`: forgets the events that a model ranks lowest.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use protocol::{EventId, untrusted_json};
use serde_json::{Value, json};

use super::bounded_request::{complete_about, max_cost};
use super::forgetting::{HistoryBounds, between, condensation};
use super::{Condenser, CondenserOutput};
use crate::agent::ModelCall;
use crate::llm::{
    AssistantMessage, ChatMessage, Llm, LlmError, LlmProgress, LlmRequest, MessagePart, Tool,
};
use crate::view::{Retention, View, ViewEntry};

/// Maximum length of an event in the request, in characters: enough to rank it.
const MAX_EVENT_CHARS: usize = 2_000;

const NAME: &str = "rank_events";

pub(super) struct LlmAttention {
    pub(super) llm: Arc<dyn Llm>,
    pub(super) bounds: HistoryBounds,
}

#[async_trait]
impl Condenser for LlmAttention {
    async fn condense(
        &self,
        view: View,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError> {
        let Some(target) = self.bounds.target(&view) else {
            return Ok(CondenserOutput::View(view));
        };
        let candidates = between(&view, self.bounds.keep_first, 0);
        let room = target.saturating_sub(view.len() - candidates.len());
        if candidates.len() <= room {
            return Ok(CondenserOutput::View(view));
        }
        let request = |events: &str| request(&view, events);
        let completion = complete_about(
            self.llm.as_ref(),
            &candidates,
            MAX_EVENT_CHARS,
            &request,
            on_progress,
        )
        .await?;
        let kept = select_groups(&candidates, &ranking(&completion.response.message), room);
        let forgotten: Vec<_> = candidates
            .into_iter()
            .filter(|entry| !kept.contains(&entry.group))
            .collect();
        Ok(condensation(
            &view,
            &forgotten,
            None,
            Some(ModelCall::from(&completion)),
        ))
    }

    fn max_cost(&self, view_tokens: u64) -> f64 {
        max_cost(self.llm.as_ref(), view_tokens)
    }
}

fn request(view: &View, events: &str) -> LlmRequest {
    let mut pinned = view
        .entries()
        .iter()
        .rev()
        .filter(|entry| entry.retention == Retention::Pinned);
    let task = pinned.next().map(|entry| entry.text()).unwrap_or_default();
    let prompt =
        format!("<task>\n{task}\n</task>\n\n<events>\n{events}\n</events>\n\nRank the events now.");
    let tool = Tool {
        name: NAME.to_owned(),
        description: "Ranks the events by their importance for the agent's next steps.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {"ids": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "The numbers of the events, the most important first.",
            }},
            "required": ["ids"],
        }),
    };
    let instructions = ChatMessage::System(include_str!("llm_attention.md").to_owned());
    LlmRequest {
        messages: vec![
            instructions,
            ChatMessage::User(vec![MessagePart::Text(prompt)]),
        ],
        tools: vec![tool],
    }
}

/// Parses the ids from a tool call, or from a list in the text, in the model's order. Ignores
/// everything else.
fn ranking(message: &AssistantMessage) -> Vec<EventId> {
    let called = message
        .tool_calls
        .iter()
        .find(|call| call.name == NAME)
        .and_then(|call| {
            let arguments: Value = untrusted_json::from_str(&call.arguments).ok()?;
            arguments.get("ids")?.as_array().cloned()
        });
    let written = || {
        let text = &message.text;
        let list = text.get(text.find('[')?..=text.rfind(']')?)?;
        untrusted_json::from_str::<Vec<Value>>(list).ok()
    };
    let ids = called.or_else(written).unwrap_or_default();
    ids.iter()
        .filter_map(|id| {
            id.as_u64()
                .or_else(|| id.as_str()?.parse().ok())
                .map(EventId)
        })
        .collect()
}

/// Selects the groups to keep within `room` events: by rank, then the latest.
fn select_groups(
    candidates: &[&ViewEntry],
    ranking: &[EventId],
    mut room: usize,
) -> HashSet<EventId> {
    let groups: HashMap<EventId, EventId> = candidates
        .iter()
        .map(|entry| (entry.event.id, entry.group))
        .collect();
    let mut lengths: HashMap<EventId, usize> = HashMap::new();
    for entry in candidates {
        *lengths.entry(entry.group).or_default() += 1;
    }
    let ranked = ranking.iter().filter_map(|id| groups.get(id).copied());
    let latest = candidates.iter().rev().map(|entry| entry.group);
    let mut kept = HashSet::new();
    for group in ranked.chain(latest) {
        let length = lengths.get(&group).copied().unwrap_or_default();
        if length <= room && kept.insert(group) {
            room -= length;
        }
    }
    kept
}

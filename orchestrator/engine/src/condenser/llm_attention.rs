//! `llm_attention`: a model ranks the events, and those that matter least are forgotten.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use protocol::EventId;
use serde_json::{Value, json};

use super::asking::{ask, max_cost};
use super::forgetting::{Bounds, between, forget};
use super::{Condenser, CondenserOutput};
use crate::agent::ModelCall;
use crate::llm::{ChatMessage, Llm, LlmError, LlmProgress, LlmRequest, MessagePart, ModelResponse, Tool};
use crate::view::{Shown, Standing, View};

/// How much of an event the model is told, in characters: enough to judge it.
const EVENT_LENGTH: usize = 2_000;

const NAME: &str = "rank_events";

pub(super) struct LlmAttention {
    pub(super) llm: Arc<dyn Llm>,
    pub(super) bounds: Bounds,
}

#[async_trait]
impl Condenser for LlmAttention {
    async fn condense(
        &self,
        view: View,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError> {
        let Some(target) = self.bounds.target(&view) else { return Ok(CondenserOutput::View(view)) };
        let candidates = between(&view, self.bounds.keep_first, 0);
        let room = target.saturating_sub(view.len() - candidates.len());
        if candidates.len() <= room {
            return Ok(CondenserOutput::View(view));
        }
        let request = |events: &str| request(&view, events);
        let completion = ask(self.llm.as_ref(), &candidates, EVENT_LENGTH, &request, on_progress).await?;
        let chosen = choose(&candidates, &ranking(&completion.response), room);
        let forgotten: Vec<_> =
            candidates.into_iter().filter(|shown| !chosen.contains(&shown.group)).collect();
        Ok(forget(&view, &forgotten, None, Some(ModelCall::from(&completion))))
    }

    fn max_cost(&self, view_tokens: u64) -> f64 {
        max_cost(self.llm.as_ref(), view_tokens)
    }
}

fn request(view: &View, events: &str) -> LlmRequest {
    let mut pinned = view.shown().iter().rev().filter(|shown| shown.standing == Standing::Pinned);
    let task = pinned.next().map(|shown| shown.text()).unwrap_or_default();
    let told = format!("<task>\n{task}\n</task>\n\n<events>\n{events}\n</events>\n\nRank the events now.");
    let tool = Tool {
        name: NAME.to_owned(),
        description: "Says which events matter most for the agent's next steps.".to_owned(),
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
        messages: vec![instructions, ChatMessage::User(vec![MessagePart::Text(told)])],
        tools: vec![tool],
    }
}

/// The ids that a model names, in its order: in a call, or as a list in its text. Anything else is passed over.
fn ranking(response: &ModelResponse) -> Vec<EventId> {
    let called = response.tool_calls().into_iter().find(|call| call.name == NAME).and_then(|call| {
        let arguments: Value = serde_json::from_str(&call.arguments).ok()?;
        arguments.get("ids")?.as_array().cloned()
    });
    let written = || {
        let text = response.text();
        let list = text.get(text.find('[')?..=text.rfind(']')?)?;
        serde_json::from_str::<Vec<Value>>(list).ok()
    };
    let ids = called.or_else(written).unwrap_or_default();
    ids.iter().filter_map(|id| id.as_u64().or_else(|| id.as_str()?.parse().ok()).map(EventId)).collect()
}

/// The groups that stay in `room` events: by rank, then the latest.
fn choose(candidates: &[&Shown], ranking: &[EventId], mut room: usize) -> HashSet<EventId> {
    let groups: HashMap<EventId, EventId> =
        candidates.iter().map(|shown| (shown.event.id, shown.group)).collect();
    let mut lengths: HashMap<EventId, usize> = HashMap::new();
    for shown in candidates {
        *lengths.entry(shown.group).or_default() += 1;
    }
    let ranked = ranking.iter().filter_map(|id| groups.get(id).copied());
    let latest = candidates.iter().rev().map(|shown| shown.group);
    let mut chosen = HashSet::new();
    for group in ranked.chain(latest) {
        let length = lengths.get(&group).copied().unwrap_or_default();
        if length <= room && chosen.insert(group) {
            room -= length;
        }
    }
    chosen
}

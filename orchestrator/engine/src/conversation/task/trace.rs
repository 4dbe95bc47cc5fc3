//! Log lines of a conversation: a line for each step, sandbox and change of state at `info`, and
//! one for each event at `debug`.
//!
//! They hold ids, kinds and counts, never contents: those are in the event log.

use std::sync::Arc;

use protocol::{AgentState, Event, EventBody, Record};

use crate::agent::ModelCall;
use crate::conversation::input::InputKind;
use crate::conversation::state::State;

/// What is logged of an input after its events are appended, taken before the input is consumed.
pub(super) struct InputTrace {
    agent_state: AgentState,
    /// The model call of a step. `Some(None)` for a step that needed no call.
    step: Option<Option<ModelCall>>,
}

impl InputTrace {
    pub(super) fn new(state: &State, input: &InputKind) -> Self {
        let step = match input {
            InputKind::StepDone {
                result: Ok(step), ..
            } => Some(step.call.clone()),
            _ => None,
        };
        Self {
            agent_state: state.agent_state,
            step,
        }
    }

    /// Logs the appended events and the change from the earlier state.
    pub(super) fn log(self, events: &[Arc<Event>], state: &State) {
        for event in events {
            tracing::debug!(event = %event.id, kind = event.body.kind(), "appended an event");
            if let EventBody::Record(Record::SandboxLeased(lease)) = &event.body {
                tracing::info!(sandbox = %lease.sandbox_id, "leased a sandbox");
            }
        }
        if let (Some(call), Some(event)) = (self.step, events.first()) {
            let call = call.as_ref();
            tracing::info!(
                event = %event.id,
                kind = event.body.kind(),
                model = call.map(|call| &*call.usage.model),
                tokens_in = call.map(|call| call.usage.prompt_tokens),
                tokens_out = call.map(|call| call.usage.completion_tokens),
                cost = call.and_then(|call| call.cost),
                latency_ms = call.map(|call| call.latency.as_millis()),
                "took a step"
            );
        }
        if state.agent_state != self.agent_state {
            tracing::info!(from = %self.agent_state, to = %state.agent_state, "changed the agent's state");
        }
    }
}

//! A task goes from one agent to another, and what came of it back.

use protocol::action::{DelegateAction, FinishAction, MessageAction, RejectAction, SystemAction};
use protocol::observation::DelegateObservation;
use protocol::{Action, AgentState, EventId, EventSource, Observation};
use serde_json::{Value, json};

use super::Turn;
use crate::conversation::terminal::{interrupted, not_performed};

/// How often a task can be handed on in turn.
const MAX_DEPTH: u32 = 3;

/// Tasks that are worked on at once.
const MAX_CONCURRENT_TASKS: usize = 8;

/// The longest outcome that another agent is told, in bytes: what is longer belongs into a file.
const MAX_OUTCOME_BYTES: usize = 64 << 10;

/// How a task that was handed on comes to its end.
pub(super) enum Ending {
    /// With what the agent says in the end.
    Finished(Said),
    /// The agent refused it.
    Refused(Said),
    /// It cannot be gone on with.
    Failed(String),
    /// Nobody works on it any more.
    Stopped,
}

/// What an agent says in the end, and what it hands back by name.
pub(super) struct Said {
    text: String,
    outputs: serde_json::Map<String, Value>,
}

impl From<String> for Said {
    fn from(text: String) -> Self {
        Self { text, outputs: serde_json::Map::new() }
    }
}

impl From<FinishAction> for Said {
    fn from(finish: FinishAction) -> Self {
        Self { text: finish.final_thought, outputs: finish.outputs }
    }
}

impl From<RejectAction> for Said {
    fn from(reject: RejectAction) -> Self {
        let reason = reject.outputs.get("reason").and_then(Value::as_str);
        Self { text: reason.unwrap_or(&reject.thought).to_owned(), outputs: reject.outputs }
    }
}

impl Turn {
    /// Lets another agent begin. Where it cannot, that is what came of it.
    pub(super) fn delegate(&mut self, id: EventId, action: &DelegateAction, briefing: Option<SystemAction>) {
        let Some(child) = self.state.children.get(&id) else { return };
        let obstacle = if child.depth > MAX_DEPTH {
            Some(format!("a task is handed on at most {MAX_DEPTH} times in turn"))
        } else if self.state.children.len() > MAX_CONCURRENT_TASKS {
            Some(format!("at most {MAX_CONCURRENT_TASKS} tasks are worked on at once"))
        } else {
            None
        };
        match (obstacle, briefing) {
            (Some(obstacle), _) => self.end_child(id, &Ending::Failed(obstacle)),
            (None, None) => self.end_child(id, &Ending::Failed("there is no such agent".into())),
            (None, Some(system)) => {
                self.append(Some(id), EventSource::Agent, Action::from(system));
                let task = MessageAction { content: task(action), ..Default::default() };
                self.append(Some(id), EventSource::User, Action::from(task));
            }
        }
    }

    /// Tells the agent that handed on a task what came of it. What is left of the work ends before.
    pub(super) fn end_child(&mut self, id: EventId, ending: &Ending) {
        let below = self.state.children.iter().filter(|(_, child)| child.parent == Some(id));
        for child in below.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_child(child, &Ending::Stopped);
        }
        let Some(child) = self.state.children.get(&id) else { return };
        if let Some(pending) = &child.run.pending {
            let outcome = match pending.is_asked {
                true => not_performed("its agent has ended"),
                false => interrupted("its agent has ended"),
            };
            if self.state.schedule.is_action_started(pending.action) {
                self.cancelled.push(pending.action);
            }
            self.end_pending(Some(id), outcome);
            if self.state.agent_state == AgentState::AwaitingUserConfirmation && self.state.asked().is_none()
            {
                self.change_state(AgentState::Running, "");
            }
        }
        let Some(child) = self.state.children.get(&id) else { return };
        let told = ending.told(&child.agent, child.iterations, child.metrics.accumulated_cost);
        let (parent, call) = (child.parent, child.tool_call_metadata.clone());
        self.append_outcome(parent, id, call, told);
    }

    /// A task that nobody will go on with: the conversation has come to rest without it.
    pub(super) fn abandoned_child(&self) -> Option<EventId> {
        let mut children = self.state.children.iter();
        let abandoned_child = match self.state.agent_state {
            AgentState::Finished | AgentState::Rejected => children.next(),
            // What is being ended still tells its own ending.
            AgentState::Stopped => children.find(|(id, child)| {
                child.run.pending.is_none() && !self.state.waits_for_children(Some(**id))
            }),
            _ => None,
        };
        abandoned_child.map(|(id, _)| *id)
    }
}

impl Ending {
    fn told(&self, agent: &str, iterations: u32, cost: f64) -> Observation {
        let (outcome, text, outputs) = match self {
            Self::Finished(said) => {
                ("finished", format!("{agent} says:\n{}", said.text), Some(&said.outputs))
            }
            Self::Refused(said) => {
                ("rejected", format!("{agent} refused the task: {}", said.text), Some(&said.outputs))
            }
            Self::Failed(why) => {
                ("error", format!("{agent} did not finish the task: {}.", why.trim_end_matches('.')), None)
            }
            Self::Stopped => ("stopped", format!("{agent} was stopped before it finished the task."), None),
        };
        let mut outputs = outputs.cloned().unwrap_or_default();
        let own = [
            ("outcome", json!(outcome)),
            ("iterations", json!(iterations)),
            ("accumulated_cost", json!(cost)),
        ];
        outputs.extend(own.map(|(name, value)| (name.to_owned(), value)));
        Observation::new(shortened(text), DelegateObservation { outputs })
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_OUTCOME_BYTES {
        text.truncate(text.floor_char_boundary(MAX_OUTCOME_BYTES));
        text.push_str("\n[what follows is left out]");
    }
    text
}

/// What the other agent is asked.
fn task(action: &DelegateAction) -> String {
    match action.inputs.get("task").and_then(Value::as_str) {
        Some(task) => task.to_owned(),
        None => Value::from(action.inputs.clone()).to_string(),
    }
}

//! Delegates tasks to other agents and returns their outcomes.

use protocol::action::{DelegateAction, FinishAction, MessageAction, RejectAction, SystemAction};
use protocol::observation::DelegateObservation;
use protocol::{Action, AgentState, EventId, EventSource, Observation};
use serde_json::{Value, json};

use super::Transition;
use crate::conversation::terminal::{interrupted, not_performed};

/// Maximum delegation depth.
const MAX_DEPTH: u32 = 3;

/// Maximum number of concurrent delegated tasks.
const MAX_CONCURRENT_TASKS: usize = 8;

/// Maximum length of an outcome, in bytes. Longer results belong in a file.
const MAX_OUTCOME_BYTES: usize = 64 << 10;

/// Outcome of a delegated task.
pub(super) enum TaskOutcome {
    /// The agent finished it.
    Finished(AgentReport),
    /// The agent refused it.
    Refused(AgentReport),
    /// The agent cannot continue, for this reason.
    Failed(String),
    /// It was stopped.
    Stopped,
}

/// Final text and outputs of an agent.
pub(super) struct AgentReport {
    text: String,
    outputs: serde_json::Map<String, Value>,
}

impl From<String> for AgentReport {
    fn from(text: String) -> Self {
        Self {
            text,
            outputs: serde_json::Map::new(),
        }
    }
}

impl From<FinishAction> for AgentReport {
    fn from(finish: FinishAction) -> Self {
        Self {
            text: finish.final_thought,
            outputs: finish.outputs,
        }
    }
}

impl From<RejectAction> for AgentReport {
    fn from(reject: RejectAction) -> Self {
        let reason = reject.outputs.get("reason").and_then(Value::as_str);
        Self {
            text: reason.unwrap_or(&reject.thought).to_owned(),
            outputs: reject.outputs,
        }
    }
}

impl Transition {
    /// Starts the agent of a delegated task, or fails the task if it cannot start.
    pub(super) fn delegate(
        &mut self,
        id: EventId,
        action: &DelegateAction,
        briefing: Option<SystemAction>,
    ) {
        let Some(child) = self.state.children.get(&id) else {
            return;
        };
        let obstacle = if child.depth > MAX_DEPTH {
            Some(format!("the maximum delegation depth is {MAX_DEPTH}"))
        } else if self.state.children.len() > MAX_CONCURRENT_TASKS {
            Some(format!(
                "at most {MAX_CONCURRENT_TASKS} delegated tasks can run concurrently"
            ))
        } else {
            None
        };
        match (obstacle, briefing) {
            (Some(obstacle), _) => self.end_child(id, &TaskOutcome::Failed(obstacle)),
            (None, None) => {
                self.end_child(id, &TaskOutcome::Failed("there is no such agent".into()));
            }
            (None, Some(system)) => {
                self.append(Some(id), EventSource::Agent, Action::from(system));
                let task = MessageAction {
                    content: task_text(action),
                    ..Default::default()
                };
                self.append(Some(id), EventSource::User, Action::from(task));
            }
        }
    }

    /// Ends a task, after the tasks that its agent delegated and its pending action. Reports the
    /// outcome to the parent.
    pub(super) fn end_child(&mut self, id: EventId, outcome: &TaskOutcome) {
        let grandchildren = self
            .state
            .children
            .iter()
            .filter(|(_, child)| child.parent == Some(id));
        for child in grandchildren.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_child(child, &TaskOutcome::Stopped);
        }
        let Some(child) = self.state.children.get(&id) else {
            return;
        };
        if let Some(pending) = &child.run.pending {
            let observation = match pending.awaits_confirmation {
                true => not_performed("its agent has ended"),
                false => interrupted("its agent has ended"),
            };
            if self.state.schedule.is_action_started(pending.action) {
                self.cancelled.push(pending.action);
            }
            self.end_pending(Some(id), observation);
            if self.state.agent_state == AgentState::AwaitingUserConfirmation
                && self.state.awaiting_confirmation().is_none()
            {
                self.change_state(AgentState::Running, "");
            }
        }
        let Some(child) = self.state.children.get(&id) else {
            return;
        };
        let observation = outcome.to_observation(
            &child.agent,
            child.iterations,
            child.metrics.accumulated_cost,
        );
        let (parent, call) = (child.parent, child.tool_call_metadata.clone());
        self.append_outcome(parent, id, call, observation);
    }

    /// A task that no agent continues, because the conversation has ended without it.
    pub(super) fn abandoned_child(&self) -> Option<EventId> {
        let mut children = self.state.children.iter();
        let abandoned = match self.state.agent_state {
            AgentState::Finished | AgentState::Rejected => children.next(),
            // A task with work in flight ends once that has ended.
            AgentState::Stopped => children.find(|(id, child)| {
                child.run.pending.is_none() && !self.state.waits_for_children(Some(**id))
            }),
            _ => None,
        };
        abandoned.map(|(id, _)| *id)
    }
}

impl TaskOutcome {
    fn to_observation(&self, agent: &str, iterations: u32, cost: f64) -> Observation {
        let (outcome, text, outputs) = match self {
            Self::Finished(report) => (
                "finished",
                format!("{agent} says:\n{}", report.text),
                Some(&report.outputs),
            ),
            Self::Refused(report) => (
                "rejected",
                format!("{agent} refused the task: {}", report.text),
                Some(&report.outputs),
            ),
            Self::Failed(reason) => (
                "error",
                format!(
                    "{agent} did not finish the task: {}.",
                    reason.trim_end_matches('.')
                ),
                None,
            ),
            Self::Stopped => (
                "stopped",
                format!("{agent} was stopped before it finished the task."),
                None,
            ),
        };
        let mut outputs = outputs.cloned().unwrap_or_default();
        let own = [
            ("outcome", json!(outcome)),
            ("iterations", json!(iterations)),
            ("accumulated_cost", json!(cost)),
        ];
        outputs.extend(own.map(|(name, value)| (name.to_owned(), value)));
        Observation::new(truncate(text), DelegateObservation { outputs })
    }
}

fn truncate(mut text: String) -> String {
    if text.len() > MAX_OUTCOME_BYTES {
        text.truncate(text.floor_char_boundary(MAX_OUTCOME_BYTES));
        text.push_str("\n[truncated]");
    }
    text
}

/// Text of the task for the other agent.
fn task_text(action: &DelegateAction) -> String {
    match action.inputs.get("task").and_then(Value::as_str) {
        Some(task) => task.to_owned(),
        None => Value::from(action.inputs.clone()).to_string(),
    }
}

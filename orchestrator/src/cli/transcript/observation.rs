//! Formats observations.

use engine::conversation::is_replacement_notice;
use protocol::action::TrackedTask;
use protocol::observation::{RecallObservation, RunIpythonObservation};
use protocol::{AgentState, Event, Observation, ObservationKind};
use serde_json::Value;

use super::Transcript;
use super::excerpt::{clean, excerpt};
use super::live_output::LiveOutput;
use crate::cli::palette::TextKind;

impl Transcript {
    pub(super) fn format_observation(
        &mut self,
        event: &Event,
        observation: &Observation,
    ) -> String {
        let live = self
            .live
            .take_if(|live| Some(live.action) == event.cause)
            .and_then(LiveOutput::finish);
        match &observation.kind {
            ObservationKind::AgentStateChanged(changed) => match changed.agent_state {
                AgentState::Error => self.palette.paint(
                    TextKind::Failure,
                    &format!("\nstopped: {}\n", clean(&changed.reason)),
                ),
                _ => String::new(),
            },
            ObservationKind::Think(_) | ObservationKind::Null(_) => String::new(),
            ObservationKind::Recall(recall) => recall_text(recall),
            ObservationKind::Run(run) => {
                let text = live.unwrap_or_else(|| excerpt(&observation.content));
                let note = match run.metadata.exit_code {
                    0 => String::new(),
                    _ if run.is_not_executed() => self.palette.paint(
                        TextKind::Note,
                        "  [not executed: the previous command is still running]\n",
                    ),
                    -1 => self.palette.paint(TextKind::Note, "  [still running]\n"),
                    code => self
                        .palette
                        .paint(TextKind::Failure, &format!("  [exit code {code}]\n")),
                };
                text + &note
            }
            ObservationKind::RunIpython(_) => live.unwrap_or_else(|| {
                excerpt(RunIpythonObservation::without_kernel_info(
                    &observation.content,
                ))
            }),
            ObservationKind::Edit(edit) => match &edit.diff {
                Some(diff) if !diff.is_empty() => excerpt(diff),
                _ => excerpt(&observation.content),
            },
            ObservationKind::TaskTracking(tracking) => {
                let task = |task: &TrackedTask| format!("[{}] {}", task.status, task.title);
                let list: Vec<_> = tracking.task_list.iter().map(task).collect();
                format!("{}{}", self.title("[plan]"), excerpt(&list.join("\n")))
            }
            ObservationKind::Delegate(delegate) => {
                let task = event.cause.map(|id| id.to_string()).unwrap_or_default();
                match delegate.outputs.get("outcome").and_then(Value::as_str) {
                    // Its message was already shown.
                    Some(outcome @ ("finished" | "rejected")) => {
                        format!("\n[task {task}: {outcome}]\n")
                    }
                    _ => format!("\n[task {task}: {}]\n", clean(&observation.content)),
                }
            }
            ObservationKind::Success(_) if is_replacement_notice(event) => {
                format!("[{}]\n", clean(&observation.content))
            }
            ObservationKind::Error(_) => {
                let text = excerpt(&format!("error: {}", observation.content));
                self.palette.paint(TextKind::Failure, &text)
            }
            _ => excerpt(&observation.content),
        }
    }
}

/// Lists the names of the knowledge that was added to the user's message.
fn recall_text(recall: &RecallObservation) -> String {
    let instructions =
        (!recall.repo_instructions.is_empty()).then_some("the workspace's instructions");
    let knowledge = recall
        .microagent_knowledge
        .iter()
        .map(|knowledge| knowledge.name.as_str());
    let names: Vec<_> = instructions.into_iter().chain(knowledge).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("[recalled: {}]\n", clean(&names.join(", ")))
    }
}

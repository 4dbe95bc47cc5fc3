//! Replays the actions of a saved trajectory, which may come from any version of V0.
//!
//! [`Replay`] is an agent that repeats the actions of the trajectory's agent, and then lets a live
//! agent continue. It reads its position from the log, so it continues after a crash. The user's
//! messages are sent by the conversation: [`Trajectory::user`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use protocol::action::{ConfirmationState, FinishAction, MessageAction, SystemAction};
use protocol::observation::RunIpythonObservation;
use protocol::sandbox_api::SandboxAction;
use protocol::tool_call::ToolCallMetadata;
use protocol::{
    Action, AgentState, Event, EventBody, EventId, EventSource, Observation, ObservationKind,
};

use crate::agent::{Agent, AgentStep};
use crate::draft_editor;
use crate::llm::{Llm, LlmError, LlmProgress};
use crate::replayed_user::{ReplayedUser, is_repeatable, is_replayable};
use crate::view::View;

/// The actions and user messages of an earlier conversation, in order.
#[derive(Debug, Clone, Default)]
pub struct Trajectory {
    actions: Vec<ReplayedAction>,
    /// The user's messages, each with the number of preceding actions.
    messages: Vec<(usize, MessageAction)>,
    /// The number of cancelled actions, which are not replayed.
    cancelled: usize,
    /// The number of drafts without a resulting edit, which are not replayed.
    unresolved_drafts: usize,
}

/// An action to replay.
#[derive(Debug, Clone)]
struct ReplayedAction {
    action: Action,
    timeout: Option<f64>,
    tool_call_metadata: Option<ToolCallMetadata>,
    /// Its original result.
    observation: Option<Observation>,
}

/// A replayed action with a different result.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayDifference {
    /// The action, in the new log.
    pub action: EventId,
    /// A one-line description of the action.
    pub message: String,
    /// Its result in the trajectory. `None` if it has no observation there.
    pub before: Option<Observation>,
    /// Its result now. `None` if it has not completed.
    pub after: Option<Observation>,
}

impl Trajectory {
    /// Collects the replayable actions of a trajectory. Excludes actions that the user stopped or
    /// rejected, because no user would stop them now.
    pub fn new(events: &[Event]) -> Self {
        let mut trajectory = Self::default();
        let results = results(events);
        let cancelled = cancelled(events);
        for event in events.iter().filter(|event| event.delegation.is_none()) {
            let EventBody::Action(action) = &event.body else {
                continue;
            };
            match (event.source, action) {
                (EventSource::User, Action::Message(message)) => {
                    trajectory
                        .messages
                        .push((trajectory.actions.len(), message.clone()));
                }
                (EventSource::Agent, _) if cancelled.contains(&event.id) => {
                    trajectory.cancelled += 1;
                }
                (EventSource::Agent, action) if is_repeatable(action) => {
                    let observation = results.get(&event.id).copied();
                    match (
                        action.confirmation_state(),
                        observation.map(|observation| &observation.kind),
                    ) {
                        (ConfirmationState::Rejected, _)
                        | (_, Some(ObservationKind::UserRejected(_))) => {
                            trajectory.cancelled += 1;
                            continue;
                        }
                        // Never performed. V0 logs the action again once the user has decided.
                        (ConfirmationState::AwaitingConfirmation, None) => continue,
                        _ => {}
                    }
                    let Some(action) = resolve_draft(action, observation) else {
                        trajectory.unresolved_drafts += 1;
                        continue;
                    };
                    trajectory.actions.push(ReplayedAction {
                        action,
                        timeout: event.timeout,
                        tool_call_metadata: event.tool_call_metadata.clone(),
                        observation: observation.cloned(),
                    });
                }
                _ => {}
            }
        }
        trajectory
    }

    /// Whether there are no actions to replay.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Returns the number of actions to replay.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Returns the number of actions that the user stopped or rejected, which are not replayed.
    pub fn cancelled(&self) -> usize {
        self.cancelled
    }

    /// Returns the number of drafts without a resulting edit. Only a model could complete them.
    pub fn unresolved_drafts(&self) -> usize {
        self.unresolved_drafts
    }

    /// Returns the user, who sends each message after as many actions as in the trajectory.
    pub fn user(&self) -> ReplayedUser {
        ReplayedUser::new(self.messages.iter().cloned().collect())
    }

    /// Compares the results in `log` with those of the trajectory, as far as the agent sees them.
    pub fn differences(&self, log: &[Event]) -> Vec<ReplayDifference> {
        let results = results(log);
        let replayed = log.iter().filter(|event| is_replayable(event));
        self.actions
            .iter()
            .zip(replayed)
            .filter_map(|(original, event)| {
                let after = results.get(&event.id).map(|result| (*result).clone());
                (comparable(original.observation.as_ref()) != comparable(after.as_ref())).then(
                    || ReplayDifference {
                        action: event.id,
                        message: original.action.message(),
                        before: original.observation.clone(),
                        after,
                    },
                )
            })
            .collect()
    }
}

/// An agent that replays a trajectory, and then lets a live agent continue.
pub struct Replay {
    trajectory: Trajectory,
    live: Arc<dyn Agent>,
    continues_live: bool,
}

impl Replay {
    /// Creates an agent that replays, and then lets `live` continue.
    pub fn new(trajectory: Trajectory, live: Arc<dyn Agent>) -> Self {
        Self {
            trajectory,
            live,
            continues_live: true,
        }
    }

    /// Creates an agent that replays, and then finishes. Uses only the name and prompt of `live`.
    pub fn without_continuation(trajectory: Trajectory, live: Arc<dyn Agent>) -> Self {
        Self {
            trajectory,
            live,
            continues_live: false,
        }
    }
}

#[async_trait]
impl Agent for Replay {
    fn name(&self) -> &str {
        self.live.name()
    }

    fn system(&self) -> SystemAction {
        self.live.system()
    }

    async fn step(
        &self,
        view: &View,
        llm: &dyn Llm,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<AgentStep, LlmError> {
        match self.trajectory.actions.get(view.replayable_count()) {
            Some(done) => Ok(AgentStep {
                timeout: done.timeout,
                tool_call_metadata: done.tool_call_metadata.clone(),
                ..AgentStep::new(done.action.clone())
            }),
            None if self.continues_live => self.live.step(view, llm, on_progress).await,
            None => {
                let final_thought = "The replay is complete.".into();
                Ok(AgentStep::new(Action::from(FinishAction {
                    final_thought,
                    ..Default::default()
                })))
            }
        }
    }
}

/// Returns the action, or the resulting edit of a draft.
fn resolve_draft(action: &Action, observation: Option<&Observation>) -> Option<Action> {
    match (action, observation.map(|observation| &observation.kind)) {
        (Action::Edit(draft), Some(ObservationKind::Edit(edited))) if draft.is_draft() => {
            draft_editor::reconstruct(draft, edited).map(Action::Edit)
        }
        (Action::Edit(draft), _) if draft.is_draft() => None,
        (action, _) => Some(action.clone()),
    }
}

/// Returns the results by action.
fn results(events: &[Event]) -> HashMap<EventId, &Observation> {
    events.iter().filter_map(result_of).collect()
}

/// Returns the actions that were running when the user stopped the agent.
fn cancelled(events: &[Event]) -> HashSet<EventId> {
    let (mut open, mut cancelled) = (HashSet::new(), HashSet::new());
    for event in events {
        match (event.source, &event.body) {
            (EventSource::User, EventBody::Action(Action::ChangeAgentState(changed)))
                if changed.agent_state == AgentState::Stopped =>
            {
                cancelled.extend(open.drain());
            }
            (EventSource::Agent, EventBody::Action(action))
                if SandboxAction::try_from(action.clone()).is_ok() =>
            {
                open.insert(event.id);
            }
            (EventSource::Agent, EventBody::Action(Action::CallToolMcp(_))) => {
                open.insert(event.id);
            }
            _ => {}
        }
        if let Some((action, _)) = result_of(event) {
            open.remove(&action);
        }
    }
    cancelled
}

/// Returns the result that an event holds. V0 separates turns with null observations, which are no
/// results.
fn result_of(event: &Event) -> Option<(EventId, &Observation)> {
    match &event.body {
        EventBody::Observation(observation)
            if !matches!(observation.kind, ObservationKind::Null(_)) =>
        {
            Some((event.cause?, observation))
        }
        _ => None,
    }
}

/// Returns the parts of an observation that are compared: kind, text and exit code, without the
/// state of a kernel.
fn comparable(observation: Option<&Observation>) -> Option<(&'static str, &str, Option<i64>)> {
    let observation = observation?;
    let exit_code = match &observation.kind {
        ObservationKind::Run(run) => Some(run.metadata.exit_code),
        _ => None,
    };
    let content = match &observation.kind {
        ObservationKind::RunIpython(_) => {
            RunIpythonObservation::without_kernel_info(&observation.content)
        }
        _ => &observation.content,
    };
    Some((observation.kind.kind(), content.trim_end(), exit_code))
}

#[cfg(test)]
mod tests {
    use protocol::action::{ChangeAgentStateAction, EditCommand, RunAction};
    use protocol::observation::RunObservation;
    use serde_json::json;

    use super::*;
    use crate::testing::timestamp;

    fn read(events: &[serde_json::Value]) -> Trajectory {
        let read = |(id, event): (usize, &serde_json::Value)| {
            let mut event = event.clone();
            event["id"] = id.into();
            event["timestamp"] = "2024-12-03T12:34:56.789012".into();
            Event::from_value(&event).unwrap()
        };
        Trajectory::new(&events.iter().enumerate().map(read).collect::<Vec<_>>())
    }

    fn done(trajectory: &Trajectory) -> Vec<String> {
        trajectory
            .actions
            .iter()
            .map(|done| done.action.message())
            .collect()
    }

    #[test]
    fn v0_trajectory_is_replayed_with_all_its_actions() {
        let file = "../../protocol/tests/wire/trajectories/basic_gui_mode.json";
        let text =
            std::fs::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let trajectory = Trajectory::new(&serde_json::from_slice::<Vec<Event>>(&text).unwrap());
        let kinds: Vec<_> = trajectory
            .actions
            .iter()
            .map(|done| done.action.kind())
            .collect();
        assert_eq!(kinds, ["run", "edit", "edit", "run", "message"]);
        for done in &trajectory.actions {
            if let Action::Edit(edit) = &done.action {
                let text = edit.file_text.as_deref().unwrap_or_default();
                assert!(
                    edit.command == EditCommand::Create && text.contains("todo"),
                    "{edit:?}"
                );
            }
        }
    }

    #[test]
    fn rejected_actions_are_not_replayed() {
        let run = |command: &str, state: &str| json!({"source": "agent", "action": "run", "args": {"command": command, "is_confirmed": state}});
        let answer = |cause: u32, kind: &str| json!({"source": "agent", "observation": kind, "cause": cause, "content": "", "extras": {}});
        // V0 writes an action again with the user's decision, and completes the first one with a
        // null observation.
        let v0 = [
            run("yes", "awaiting_confirmation"),
            answer(0, "null"),
            run("yes", "confirmed"),
            answer(2, "run"),
            run("no", "awaiting_confirmation"),
            run("no", "rejected"),
            answer(5, "user_rejected"),
        ];
        let trajectory = read(&v0);
        assert_eq!(
            (done(&trajectory), trajectory.cancelled()),
            (vec!["Running command: yes".to_owned()], 1)
        );
        // Ours are written once.
        let ours = [
            run("yes", "awaiting_confirmation"),
            answer(0, "run"),
            run("no", "awaiting_confirmation"),
            answer(2, "user_rejected"),
        ];
        let trajectory = read(&ours);
        assert_eq!(
            (done(&trajectory), trajectory.cancelled()),
            (vec!["Running command: yes".to_owned()], 1)
        );
    }

    #[test]
    fn stopped_actions_are_not_replayed() {
        let run = |command: &str| -> (EventSource, EventBody, Option<u64>) {
            let run = RunAction {
                command: command.into(),
                ..Default::default()
            };
            (EventSource::Agent, Action::from(run).into(), None)
        };
        let ended = |cause| {
            (
                EventSource::Agent,
                Observation::new("out", RunObservation::default()).into(),
                Some(cause),
            )
        };
        let stopped = ChangeAgentStateAction {
            agent_state: AgentState::Stopped,
            thought: String::new(),
        };
        let stopped = (EventSource::User, Action::from(stopped).into(), None);
        let events: Vec<Event> = [
            run("before"),
            ended(0),
            run("sleep inf"),
            stopped.clone(),
            ended(2),
            run("after"),
            ended(5),
            stopped,
        ]
        .into_iter()
        .zip(0..)
        .map(|((source, body, cause), id)| {
            let mut event = Event::new(EventId(id), timestamp(), source, body);
            event.cause = cause.map(EventId);
            event
        })
        .collect();
        let trajectory = Trajectory::new(&events);
        let done = done(&trajectory);
        assert_eq!((done.len(), trajectory.cancelled()), (2, 1), "{done:?}");
        assert!(
            done[0].contains("before") && done[1].contains("after"),
            "{done:?}"
        );
    }
}

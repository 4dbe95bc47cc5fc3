//! What a saved trajectory asks for, to be done again: V0's events, of any version that still reads.
//!
//! [`Replay`] is an agent that does what the trajectory's agent did, and then hands over to a live one. Where it stands it
//! reads from the log, so it goes on after a crash. What the trajectory's user said is for whoever drives the
//! conversation: [`Trajectory::said_after`].

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use protocol::action::{FinishAction, MessageAction, SystemAction};
use protocol::tool_call::ToolCallMetadata;
use protocol::{Action, Body, Event, EventId, EventSource, Observation, ObservationKind};

use crate::agent::{Agent, Step};
use crate::llm::{Llm, LlmError, LlmProgress};
use crate::view::View;

/// What was done and said in an earlier conversation, in order.
#[derive(Debug, Clone, Default)]
pub struct Trajectory {
    done: Vec<Done>,
    /// What the user said, each with how much was done before.
    said: Vec<(usize, MessageAction)>,
}

/// Something that the agent did.
#[derive(Debug, Clone)]
struct Done {
    action: Action,
    timeout: Option<f64>,
    tool_call_metadata: Option<ToolCallMetadata>,
    /// What came of it then.
    observation: Option<Observation>,
}

/// A replayed action of which something else came.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The action, in the new log.
    pub action: EventId,
    /// What it was, in a line.
    pub asked: String,
    /// What came of it in the trajectory; nothing: it has no observation there.
    pub before: Option<Observation>,
    /// What came of it now; nothing: it has not ended.
    pub after: Option<Observation>,
}

impl Trajectory {
    /// Takes what can be done again from a trajectory's events.
    pub fn new(events: &[Event]) -> Self {
        let mut trajectory = Self::default();
        let outcomes = outcomes(events);
        for event in events.iter().filter(|event| event.delegation.is_none()) {
            let Body::Action(action) = &event.body else { continue };
            match (event.source, action) {
                (EventSource::User, Action::Message(message)) => {
                    trajectory.said.push((trajectory.done.len(), message.clone()));
                }
                (EventSource::Agent, action) if is_done(action) => trajectory.done.push(Done {
                    action: action.clone(),
                    timeout: event.timeout,
                    tool_call_metadata: event.tool_call_metadata.clone(),
                    observation: outcomes.get(&event.id).map(|outcome| (*outcome).clone()),
                }),
                _ => {}
            }
        }
        trajectory
    }

    /// Whether there is nothing to do again.
    pub fn is_empty(&self) -> bool {
        self.done.is_empty()
    }

    /// How much the agent did.
    pub fn len(&self) -> usize {
        self.done.len()
    }

    /// What the user said as message `number`, from 0, if it is due when `done` actions have been done again.
    pub fn said_after(&self, number: usize, done: usize) -> Option<&MessageAction> {
        self.said.get(number).filter(|(after, _)| *after <= done).map(|(_, message)| message)
    }

    /// Where what came of the actions differs from what came of them then, in what their agent was told.
    pub fn differences(&self, log: &[Event]) -> Vec<Difference> {
        let outcomes = outcomes(log);
        let again = log.iter().filter(|event| is_replayable(event));
        self.done
            .iter()
            .zip(again)
            .filter_map(|(done, event)| {
                let after = outcomes.get(&event.id).map(|outcome| (*outcome).clone());
                (told(done.observation.as_ref()) != told(after.as_ref())).then(|| Difference {
                    action: event.id,
                    asked: done.action.message(),
                    before: done.observation.clone(),
                    after,
                })
            })
            .collect()
    }
}

/// How much an agent has done, by its log.
pub fn done_in<'a>(log: impl IntoIterator<Item = &'a Event>) -> usize {
    log.into_iter().filter(|event| is_replayable(event)).count()
}

/// An agent that does again what a trajectory's agent did, then hands over.
pub struct Replay {
    trajectory: Trajectory,
    live: Arc<dyn Agent>,
    hands_over: bool,
}

impl Replay {
    /// Replays, then lets `live` decide.
    pub fn new(trajectory: Trajectory, live: Arc<dyn Agent>) -> Self {
        Self { trajectory, live, hands_over: true }
    }

    /// Replays, then finishes; of `live` it has only its name and prompt.
    pub fn alone(trajectory: Trajectory, live: Arc<dyn Agent>) -> Self {
        Self { trajectory, live, hands_over: false }
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
    ) -> Result<Step, LlmError> {
        let action = |action| Step {
            body: Body::Action(action),
            timeout: None,
            tool_call_metadata: None,
            call: None,
            briefing: None,
        };
        match self.trajectory.done.get(view.replayable()) {
            Some(done) => Ok(Step {
                timeout: done.timeout,
                tool_call_metadata: done.tool_call_metadata.clone(),
                ..action(done.action.clone())
            }),
            None if self.hands_over => self.live.step(view, llm, on_progress).await,
            None => {
                let final_thought = "The trajectory ends here.".into();
                Ok(action(FinishAction { final_thought, ..Default::default() }.into()))
            }
        }
    }
}

/// Whether an agent decided on it, so that it can be done again.
pub(crate) fn is_replayable(event: &Event) -> bool {
    // What another agent made of a task that was handed to it, it makes anew.
    event.delegation.is_none()
        && matches!((event.source, &event.body), (EventSource::Agent, Body::Action(action)) if is_done(action))
}

/// Whether an agent decides on it, and it means the same in another conversation.
fn is_done(action: &Action) -> bool {
    !matches!(
        action,
        Action::Null(_)
            | Action::System(_)
            | Action::ChangeAgentState(_)
            | Action::Recall(_)
            | Action::Condensation(_)
            | Action::CondensationRequest(_)
    )
}

/// What came of each action.
fn outcomes(events: &[Event]) -> HashMap<EventId, &Observation> {
    events.iter().filter_map(outcome).collect()
}

/// V0 marks turns with empty observations: those are none.
fn outcome(event: &Event) -> Option<(EventId, &Observation)> {
    match &event.body {
        Body::Observation(observation) if !matches!(observation.kind, ObservationKind::Null(_)) => {
            Some((event.cause?, observation))
        }
        _ => None,
    }
}

/// What of an observation is compared: its kind, its text, and how a command ended.
fn told(observation: Option<&Observation>) -> Option<(&'static str, &str, Option<i32>)> {
    let observation = observation?;
    let exit_code = match &observation.kind {
        ObservationKind::Run(run) => Some(run.metadata.exit_code),
        _ => None,
    };
    Some((observation.kind.kind(), observation.content.trim_end(), exit_code))
}

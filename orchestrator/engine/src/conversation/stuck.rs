//! Detects agents that are stuck in a loop, and recovers from loops. Pure: a fold of the log.
//!
//! The patterns are V0's. Waiting for a running process is no loop: it resets the detector. Neither
//! are steps whose output changes. Loops that are not detected end at the limits of steps and
//! budget.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};

use protocol::action::{CondensationAction, LoopRecoveryAction, MessageAction};
use protocol::command::LoopRecovery;
use protocol::observation::{LoopDetectionObservation, RunIpythonObservation};
use protocol::tool_call::ToolCallMetadata;
use protocol::{Action, Event, EventBody, EventId, EventSource, Observation, ObservationKind};
use serde_json::value::RawValue;

use crate::llm::AssistantMessage;

/// Number of turns of the longest pattern.
const MAX_PATTERN_LENGTH: usize = 10;

/// Fields that do not determine what an action does.
const IGNORED_FIELDS: [&str; 3] = ["thought", "confirmation_state", "security_risk"];

/// Latest turns of one agent since the user's last message. Holds hashes instead of texts, and at
/// most ten turns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StuckDetector {
    recent: Vec<Turn>,
    /// The action without a terminal event.
    open: Option<OpenAction>,
}

/// A loop that an agent is stuck in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentLoop {
    /// Pattern of the loop.
    pub kind: LoopKind,
    /// First event of the first iteration.
    pub since: EventId,
}

/// Pattern of a loop. The five patterns are V0's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopKind {
    /// The same action with the same outcome, four times.
    SameOutcome,
    /// The same action with any error, or a cell with the same syntax error, three times.
    SameError,
    /// The same message three times.
    Monologue,
    /// Two turns that follow each other, three times.
    Alternating,
    /// Ten condensations without another turn between them.
    Condensations,
}

#[derive(Debug, Clone, PartialEq)]
struct OpenAction {
    id: EventId,
    fingerprint: u64,
    is_wait: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Turn {
    since: EventId,
    kind: TurnKind,
}

/// Texts are compared by 64-bit hashes: a forged collision can only stop the conversation that
/// forges it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TurnKind {
    Step {
        action: u64,
        outcome: u64,
        failure: Option<StepFailure>,
    },
    Message(u64),
    Condensation,
}

/// How a step failed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum StepFailure {
    /// Error. Its text may differ from one step to the next.
    Error,
    /// Python cannot parse the cell.
    Syntax,
}

/// A pattern, its number of turns, and a predicate on these turns.
type LoopPattern = (LoopKind, usize, fn(&[Turn]) -> bool);

impl StuckDetector {
    /// Applies an event of the agent.
    pub fn apply(&mut self, event: &Event) {
        match (&event.body, event.source) {
            (
                EventBody::Action(Action::Message(_) | Action::LoopRecovery(_)),
                EventSource::User,
            ) => {
                *self = Self::default();
            }
            (EventBody::Action(Action::Condensation(_)), _) => {
                self.push(event.id, TurnKind::Condensation);
            }
            (EventBody::Action(action), EventSource::Agent) => self.act(event.id, action),
            (EventBody::Observation(observation), _) => self.observe(event, observation),
            _ => {}
        }
    }

    /// Returns the loop that the agent is in. `None` if it is in none.
    pub fn detected_loop(&self) -> Option<AgentLoop> {
        const PATTERNS: [LoopPattern; 5] = [
            (LoopKind::SameOutcome, 4, |turns| {
                is_step(turns) && repeats_after(1, turns)
            }),
            (LoopKind::SameError, 3, has_same_error),
            (LoopKind::Monologue, 3, |turns| {
                matches!(
                    turns,
                    [
                        Turn {
                            kind: TurnKind::Message(_),
                            ..
                        },
                        ..
                    ]
                ) && repeats_after(1, turns)
            }),
            (LoopKind::Alternating, 6, |turns| {
                repeats_after(2, turns) && !repeats_after(1, turns)
            }),
            (LoopKind::Condensations, MAX_PATTERN_LENGTH, |turns| {
                turns.iter().all(|turn| turn.kind == TurnKind::Condensation)
            }),
        ];
        PATTERNS.into_iter().find_map(|(kind, length, matches)| {
            let turns = self.recent.get(self.recent.len().checked_sub(length)?..)?;
            let first = turns.first().filter(|_| matches(turns))?;
            Some(AgentLoop {
                kind,
                since: first.since,
            })
        })
    }

    fn act(&mut self, id: EventId, action: &Action) {
        match action {
            Action::Message(message) => self.push(id, TurnKind::Message(hash(&message.content))),
            Action::System(_)
            | Action::Null(_)
            | Action::Recall(_)
            | Action::CondensationRequest(_) => {}
            action => {
                let is_wait = matches!(action, Action::Run(run) if run.command.trim().is_empty());
                self.open = Some(OpenAction {
                    id,
                    fingerprint: fingerprint(action),
                    is_wait,
                });
            }
        }
    }

    fn observe(&mut self, event: &Event, observation: &Observation) {
        // Older logs of V0 have the observation instead of the action.
        if let ObservationKind::Condense(_) = observation.kind {
            return self.push(event.id, TurnKind::Condensation);
        }
        let failure = failure(observation);
        let action = self.open.take_if(|open| event.cause == Some(open.id));
        match action {
            Some(action) if action.is_wait || is_running(observation) => self.recent.clear(),
            Some(action) => {
                let outcome = outcome(observation);
                self.push(
                    action.id,
                    TurnKind::Step {
                        action: action.fingerprint,
                        outcome,
                        failure,
                    },
                );
            }
            // A call that became no action. Different calls may fail with the same text, such as an
            // unknown tool.
            None if failure == Some(StepFailure::Error) && event.cause.is_none() => {
                if let Some(call) = &event.tool_call_metadata {
                    let outcome = outcome(observation);
                    let action = fingerprint_of_call(call).unwrap_or(outcome);
                    self.push(
                        event.id,
                        TurnKind::Step {
                            action,
                            outcome,
                            failure,
                        },
                    );
                }
            }
            None => {}
        }
    }

    fn push(&mut self, since: EventId, kind: TurnKind) {
        if self.recent.len() == MAX_PATTERN_LENGTH {
            self.recent.remove(0);
        }
        self.recent.push(Turn { since, kind });
    }
}

impl AgentLoop {
    /// Observation that reports the loop.
    pub fn to_observation(&self) -> Observation {
        let description = match self.kind {
            LoopKind::SameOutcome => "took the same action with the same outcome four times",
            LoopKind::SameError => "took the same action with an error three times",
            LoopKind::Monologue => "said the same three times",
            LoopKind::Alternating => "took turns between the same two steps three times",
            LoopKind::Condensations => "had its history condensed ten times and did nothing else",
        };
        let text = format!(
            "The agent is stuck in a loop that started with event {}: it {description}.",
            self.since
        );
        Observation::new(text, LoopDetectionObservation {})
    }

    /// Returns the events that leave the loop, in order, without a change of the agent's state.
    /// `last` is the last event of the log, `message` the user's last message. Forgotten events
    /// stay in the log and leave the agent's view.
    pub fn recover(
        &self,
        recovery: LoopRecovery,
        last: EventId,
        message: Option<&MessageAction>,
    ) -> Vec<(EventSource, Action)> {
        // V0's numbers.
        let option = match recovery {
            LoopRecovery::BeforeLoop => 1,
            LoopRecovery::LastUserMessage => 2,
            LoopRecovery::Stop => 3,
        };
        let action = LoopRecoveryAction { option };
        let mut events = vec![(EventSource::User, action.into())];
        if recovery != LoopRecovery::Stop {
            let forgotten = CondensationAction {
                forgotten_events_start_id: i64::try_from(self.since.0).ok(),
                forgotten_events_end_id: i64::try_from(last.0).ok(),
                ..Default::default()
            };
            events.push((EventSource::Agent, forgotten.into()));
        }
        if recovery == LoopRecovery::LastUserMessage {
            events.extend(message.map(|message| (EventSource::User, message.clone().into())));
        }
        events
    }
}

fn repeats_after(period: usize, turns: &[Turn]) -> bool {
    turns
        .iter()
        .zip(turns.iter().skip(period))
        .all(|(turn, later)| turn.kind == later.kind)
}

fn is_step(turns: &[Turn]) -> bool {
    matches!(
        turns,
        [
            Turn {
                kind: TurnKind::Step { .. },
                ..
            },
            ..
        ]
    )
}

fn has_same_error(turns: &[Turn]) -> bool {
    let error = |turn: &Turn| match turn.kind {
        TurnKind::Step {
            action,
            failure: Some(StepFailure::Error),
            ..
        } => Some((action, None)),
        TurnKind::Step {
            action,
            outcome,
            failure: Some(StepFailure::Syntax),
        } => Some((action, Some(outcome))),
        _ => None,
    };
    let first = turns.first().and_then(error);
    first.is_some() && turns.iter().all(|turn| error(turn) == first)
}

fn is_running(observation: &Observation) -> bool {
    matches!(&observation.kind, ObservationKind::Run(run) if run.metadata.exit_code == -1)
}

/// Hash of what an action does, without its id, time and reason.
fn fingerprint(action: &Action) -> u64 {
    // The fields of every kind are an object. If they were not, only the kind would be compared.
    let text = serde_json::to_string(&action.fields()).unwrap_or_default();
    let fields: BTreeMap<&str, &RawValue> = serde_json::from_str(&text).unwrap_or_default();
    let is_included =
        |name: &str| matches!(action, Action::Think(_)) || !IGNORED_FIELDS.contains(&name);
    let included: Vec<_> = fields
        .iter()
        .filter(|(name, _)| is_included(name))
        .map(|(name, value)| (name, value.get()))
        .collect();
    hash(&(action.kind(), included))
}

/// Hash of a tool call's name and arguments. `None` if the model's response does not have the call.
fn fingerprint_of_call(metadata: &ToolCallMetadata) -> Option<u64> {
    let calls = AssistantMessage::from(&metadata.model_response).tool_calls;
    let call = calls
        .into_iter()
        .find(|call| call.id == metadata.tool_call_id)?;
    Some(hash(&(call.name, call.arguments)))
}

/// Hash of what the agent sees of an outcome, without the pid.
fn outcome(observation: &Observation) -> u64 {
    let exit_code = match &observation.kind {
        ObservationKind::Run(run) => Some(run.metadata.exit_code),
        _ => None,
    };
    let content = match &observation.kind {
        ObservationKind::RunIpython(_) => Cow::Owned(without_cell_numbers(&observation.content)),
        _ => Cow::Borrowed(&observation.content),
    };
    hash(&(observation.kind.kind(), exit_code, content))
}

/// Removes the cell numbers from a traceback. They count executed cells, so that no two tracebacks
/// would be equal.
fn without_cell_numbers(traceback: &str) -> String {
    // Prefixes of IPython since 8.7, 8.5, 8.0, and before.
    const PREFIXES: [&str; 4] = ["Cell In[", "Cell In [", "Input In [", "<ipython-input-"];
    PREFIXES
        .into_iter()
        .fold(traceback.to_owned(), |text, prefix| {
            let mut parts = text.split(prefix);
            let first = parts.next().unwrap_or_default().to_owned();
            parts.fold(first, |text, part| {
                text + prefix + part.trim_start_matches(|digit: char| digit.is_ascii_digit())
            })
        })
}

fn failure(observation: &Observation) -> Option<StepFailure> {
    match &observation.kind {
        ObservationKind::Error(_) => Some(StepFailure::Error),
        ObservationKind::RunIpython(_) => {
            let output =
                RunIpythonObservation::without_kernel_info(&observation.content).trim_end();
            let error = output.lines().next_back()?;
            // `SyntaxError` and its subclasses.
            let is_syntax = ["SyntaxError: ", "IndentationError: ", "TabError: "]
                .iter()
                .any(|name| error.starts_with(name));
            is_syntax.then_some(StepFailure::Syntax)
        }
        _ => None,
    }
}

/// Uses a fixed key, so that the same log folds to the same state in every process.
fn hash(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

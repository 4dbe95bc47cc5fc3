//! Notices an agent that goes in circles, and says how a conversation leaves them. Pure: one more fold of the log.
//!
//! The cases are V0's. Waiting on a running process belongs to no circle, however long it takes: it begins the count
//! anew. So does output that changes, because something goes on then. What goes in circles in spite of that ends at the
//! limits of steps and budget.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};

use protocol::action::{CondensationAction, LoopRecoveryAction, MessageAction};
use protocol::observation::{LoopDetectionObservation, RunIpythonObservation};
use protocol::tool_call::ToolCallMetadata;
use protocol::{Action, Event, EventBody, EventId, EventSource, Observation, ObservationKind};
use serde_json::value::RawValue;

use crate::llm::AssistantMessage;

/// The longest pattern that is looked for.
const LONGEST: usize = 10;

/// What of an action says why, or how it was judged, and not what it does.
const BESIDE_THE_POINT: [&str; 3] = ["thought", "confirmation_state", "security_risk"];

/// The latest turns of one agent since the user last said something. Holds no texts, and at most ten turns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StuckDetector {
    recent: Vec<Turn>,
    /// The action that has no ending yet.
    open: Option<OpenAction>,
}

/// That an agent goes in circles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stuck {
    /// In which.
    pub kind: StuckKind,
    /// The first event of the first round.
    pub since: EventId,
}

/// V0's five cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StuckKind {
    /// The same action with the same outcome, four times.
    SameOutcome,
    /// The same action with errors, or a cell with the same syntax error, three times.
    SameError,
    /// The agent says the same three times.
    Monologue,
    /// Two turns that follow each other, three times.
    Alternating,
    /// Ten condensations with nothing between them.
    Condensations,
}

/// How a conversation leaves a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// The agent forgets the loop.
    BeforeLoop,
    /// The same, and it hears the user's last message again.
    LastUserMessage,
    /// It ends here.
    Stop,
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
    what: What,
}

/// Texts are told apart by 64 bits: who makes them collide only stops their own conversation.
#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    Step { action: u64, outcome: u64, failure: Option<Failure> },
    Message(u64),
    Condensation,
}

/// How a step failed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    /// With an error, whose text may differ from time to time.
    Error,
    /// Python cannot parse the cell.
    Syntax,
}

/// A case, the number of turns that it takes, and whether these turns are it.
type Pattern = (StuckKind, usize, fn(&[Turn]) -> bool);

impl StuckDetector {
    /// Takes one more event of the agent's log.
    pub fn apply(&mut self, event: &Event) {
        match (&event.body, event.source) {
            (EventBody::Action(Action::Message(_) | Action::LoopRecovery(_)), EventSource::User) => {
                *self = Self::default();
            }
            (EventBody::Action(Action::Condensation(_)), _) => self.push(event.id, What::Condensation),
            (EventBody::Action(action), EventSource::Agent) => self.act(event.id, action),
            (EventBody::Observation(observation), _) => self.observe(event, observation),
            _ => {}
        }
    }

    /// Whether the agent goes in circles now.
    pub fn found(&self) -> Option<Stuck> {
        const PATTERNS: [Pattern; 5] = [
            (StuckKind::SameOutcome, 4, |turns| is_step(turns) && repeats_after(1, turns)),
            (StuckKind::SameError, 3, has_same_error),
            (StuckKind::Monologue, 3, |turns| {
                matches!(turns, [Turn { what: What::Message(_), .. }, ..]) && repeats_after(1, turns)
            }),
            (StuckKind::Alternating, 6, |turns| repeats_after(2, turns) && !repeats_after(1, turns)),
            (StuckKind::Condensations, LONGEST, |turns| {
                turns.iter().all(|turn| turn.what == What::Condensation)
            }),
        ];
        PATTERNS.into_iter().find_map(|(kind, length, is_it)| {
            let turns = self.recent.get(self.recent.len().checked_sub(length)?..)?;
            let first = turns.first().filter(|_| is_it(turns))?;
            Some(Stuck { kind, since: first.since })
        })
    }

    fn act(&mut self, id: EventId, action: &Action) {
        match action {
            Action::Message(message) => self.push(id, What::Message(hash(&message.content))),
            Action::System(_) | Action::Null(_) | Action::Recall(_) | Action::CondensationRequest(_) => {}
            action => {
                let is_wait = matches!(action, Action::Run(run) if run.command.trim().is_empty());
                self.open = Some(OpenAction { id, fingerprint: fingerprint(action), is_wait });
            }
        }
    }

    fn observe(&mut self, event: &Event, observation: &Observation) {
        let failure = failure(observation);
        let action = self.open.take_if(|open| event.cause == Some(open.id));
        match action {
            Some(action) if action.is_wait || is_running(observation) => self.recent.clear(),
            Some(action) => {
                let outcome = outcome(observation);
                self.push(action.id, What::Step { action: action.fingerprint, outcome, failure });
            }
            // A call that could not become an action. Others may fail with the same words: no such tool.
            None if failure == Some(Failure::Error) && event.cause.is_none() => {
                if let Some(call) = &event.tool_call_metadata {
                    let outcome = outcome(observation);
                    let action = fingerprint_of_call(call).unwrap_or(outcome);
                    self.push(event.id, What::Step { action, outcome, failure });
                }
            }
            None => {}
        }
    }

    fn push(&mut self, since: EventId, what: What) {
        if self.recent.len() == LONGEST {
            self.recent.remove(0);
        }
        self.recent.push(Turn { since, what });
    }
}

impl Stuck {
    /// What the log, and with it the user, is told.
    pub fn detected(&self) -> Observation {
        let what = match self.kind {
            StuckKind::SameOutcome => "took the same action with the same outcome four times",
            StuckKind::SameError => "took the same action with an error three times",
            StuckKind::Monologue => "said the same three times",
            StuckKind::Alternating => "took turns between the same two steps three times",
            StuckKind::Condensations => "had its history condensed ten times and did nothing else",
        };
        let text = format!("The agent is stuck in a loop that began with event {}: it {what}.", self.since);
        Observation::new(text, LoopDetectionObservation {})
    }

    /// The events of leaving the loop, in order. `last` is the log's last event so far, `message` what the user said
    /// last. What is forgotten stays in the log, out of the agent's view. The agent's state is not among them.
    pub fn recover(
        &self,
        recovery: Recovery,
        last: EventId,
        message: Option<&MessageAction>,
    ) -> Vec<(EventSource, Action)> {
        let chosen = LoopRecoveryAction { option: recovery.option() };
        let mut events = vec![(EventSource::User, chosen.into())];
        if recovery != Recovery::Stop {
            let forgotten = CondensationAction {
                forgotten_events_start_id: i64::try_from(self.since.0).ok(),
                forgotten_events_end_id: i64::try_from(last.0).ok(),
                ..Default::default()
            };
            events.push((EventSource::Agent, forgotten.into()));
        }
        if recovery == Recovery::LastUserMessage {
            events.extend(message.map(|message| (EventSource::User, message.clone().into())));
        }
        events
    }
}

impl Recovery {
    /// V0's number of it; nothing for one that there is not.
    pub fn of_option(option: i64) -> Option<Self> {
        [Self::BeforeLoop, Self::LastUserMessage, Self::Stop]
            .into_iter()
            .find(|known| known.option() == option)
    }

    fn option(self) -> i64 {
        match self {
            Self::BeforeLoop => 1,
            Self::LastUserMessage => 2,
            Self::Stop => 3,
        }
    }
}

fn repeats_after(period: usize, turns: &[Turn]) -> bool {
    turns.iter().zip(turns.iter().skip(period)).all(|(turn, later)| turn.what == later.what)
}

fn is_step(turns: &[Turn]) -> bool {
    matches!(turns, [Turn { what: What::Step { .. }, .. }, ..])
}

fn has_same_error(turns: &[Turn]) -> bool {
    let error = |turn: &Turn| match turn.what {
        What::Step { action, failure: Some(Failure::Error), .. } => Some((action, None)),
        What::Step { action, outcome, failure: Some(Failure::Syntax) } => Some((action, Some(outcome))),
        _ => None,
    };
    let first = turns.first().and_then(error);
    first.is_some() && turns.iter().all(|turn| error(turn) == first)
}

fn is_running(observation: &Observation) -> bool {
    matches!(&observation.kind, ObservationKind::Run(run) if run.metadata.exit_code == -1)
}

/// What an action does. Not its event's id and time, and not why.
fn fingerprint(action: &Action) -> u64 {
    // Each kind's fields are an object; what could not be one would be equal to nothing but its kind.
    let text = serde_json::to_string(&action.fields()).unwrap_or_default();
    let fields: BTreeMap<&str, &RawValue> = serde_json::from_str(&text).unwrap_or_default();
    let is_told = |name: &str| matches!(action, Action::Think(_)) || !BESIDE_THE_POINT.contains(&name);
    let told: Vec<_> =
        fields.iter().filter(|(name, _)| is_told(name)).map(|(name, value)| (name, value.get())).collect();
    hash(&(action.kind(), told))
}

/// What was called, and how; nothing when the model's response does not say it.
fn fingerprint_of_call(metadata: &ToolCallMetadata) -> Option<u64> {
    let calls = AssistantMessage::from(&metadata.model_response).tool_calls();
    let call = calls.into_iter().find(|call| call.id == metadata.tool_call_id)?;
    Some(hash(&(call.name, call.arguments)))
}

/// What the agent is told of an ending. Not its pid.
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

/// A traceback names its cell with the number of cells that were run, so that no two are equal.
fn without_cell_numbers(traceback: &str) -> String {
    // As IPython names a cell: since 8.7, 8.5, 8.0, and before.
    const BEFORE_NUMBER: [&str; 4] = ["Cell In[", "Cell In [", "Input In [", "<ipython-input-"];
    BEFORE_NUMBER.into_iter().fold(traceback.to_owned(), |text, before| {
        let mut parts = text.split(before);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            text + before + part.trim_start_matches(|digit: char| digit.is_ascii_digit())
        })
    })
}

fn failure(observation: &Observation) -> Option<Failure> {
    match &observation.kind {
        ObservationKind::Error(_) => Some(Failure::Error),
        ObservationKind::RunIpython(_) => {
            let said = RunIpythonObservation::without_kernel_info(&observation.content).trim_end();
            let error = said.lines().next_back()?;
            // A syntax error and its two subclasses.
            let is_syntax = ["SyntaxError: ", "IndentationError: ", "TabError: "]
                .iter()
                .any(|name| error.starts_with(name));
            is_syntax.then_some(Failure::Syntax)
        }
        _ => None,
    }
}

/// Without a key of this process: the same log folds to the same state everywhere.
fn hash(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

use proptest::prelude::*;
use protocol::AgentState;
use protocol::action::{BrowseAction, RunAction, RunIpythonAction, ThinkAction};
use protocol::observation::{
    AgentStateChangedObservation, CommandMetadata, RunIpythonObservation, RunObservation,
};
use protocol::tool_call::ToolCallMetadata;
use serde_json::json;

use super::*;
use crate::testing::timestamp;

/// An activity of an agent or of its environment. A small alphabet makes random loops likely.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Activity {
    Run { command: u8, output: u8 },
    Fail { url: u8, detail: u8 },
    Misuse { call: u8, detail: u8 },
    Message(u8),
    Condense,
    Wait,
    StillRunning(u8),
    StateChange,
    UserMessage,
    UserRecovers,
}

fn activity() -> impl Strategy<Value = Activity> {
    prop_oneof![
        8 => (0..2u8, 0..2u8).prop_map(|(command, output)| Activity::Run { command, output }),
        6 => (0..2u8, 0..2u8).prop_map(|(url, detail)| Activity::Fail { url, detail }),
        3 => (0..2u8, 0..2u8).prop_map(|(call, detail)| Activity::Misuse { call, detail }),
        4 => (0..2u8).prop_map(Activity::Message),
        4 => Just(Activity::Condense),
        1 => Just(Activity::Wait),
        1 => (0..2u8).prop_map(Activity::StillRunning),
        2 => Just(Activity::StateChange),
        1 => Just(Activity::UserMessage),
        1 => Just(Activity::UserRecovers),
    ]
}

/// A log. Its ids, thoughts and pids never repeat.
#[derive(Default)]
struct Log {
    events: Vec<Event>,
    detector: StuckDetector,
    /// Number of events that the detector has received.
    seen: usize,
}

impl Log {
    fn append(&mut self, source: EventSource, body: impl Into<EventBody>) -> EventId {
        let id = EventId(self.events.len() as u64);
        self.events.push(Event::new(id, timestamp(), source, body));
        id
    }

    fn observe(&mut self, cause: EventId, observation: Observation) {
        self.append(EventSource::Agent, observation);
        self.events.last_mut().unwrap().cause = Some(cause);
    }

    fn cell(&mut self, code: &str, output: &str) -> EventId {
        let cell = RunIpythonAction {
            code: code.into(),
            thought: format!("thought {}", self.events.len()),
            include_extra: true,
            confirmation_state: protocol::action::ConfirmationState::default(),
            security_risk: protocol::SecurityRisk::default(),
            kernel_init_code: String::new(),
        };
        let id = self.append(EventSource::Agent, Action::from(cell));
        let kernel_info =
            "\n[Jupyter current working directory: /w]\n[Jupyter Python interpreter: /bin/python]";
        self.observe(
            id,
            Observation::new(
                format!("{output}{kernel_info}"),
                RunIpythonObservation::default(),
            ),
        );
        id
    }

    fn run(&mut self, command: &str, exit_code: i64, output: &str) -> EventId {
        let unique = self.events.len();
        let thought = format!("thought {unique}");
        let run = RunAction {
            command: command.into(),
            thought,
            ..Default::default()
        };
        let id = self.append(EventSource::Agent, Action::from(run));
        let metadata = CommandMetadata {
            exit_code,
            pid: i64::try_from(unique).unwrap(),
            ..Default::default()
        };
        self.observe(
            id,
            Observation::new(
                output,
                RunObservation {
                    metadata,
                    ..Default::default()
                },
            ),
        );
        id
    }

    /// Appends the events of an activity. Returns the first one.
    fn perform(&mut self, activity: Activity) -> EventId {
        match activity {
            Activity::Run { command, output } => {
                self.run(&format!("c{command}"), 0, &format!("o{output}"))
            }
            Activity::Fail { url, detail } => {
                let thought = format!("thought {}", self.events.len());
                let action = BrowseAction {
                    url: format!("u{url}"),
                    thought,
                    ..Default::default()
                };
                let id = self.append(EventSource::Agent, Action::from(action));
                self.observe(id, Observation::error(format!("e{detail}"), "ID"));
                id
            }
            Activity::Misuse { call, detail } => {
                let error =
                    Observation::error(format!("missing field {detail}"), "AGENT$MALFORMED_CALL");
                let id = self.append(EventSource::Agent, error);
                let tool_call_id = format!("call {}", id.0);
                let function =
                    json!({"name": "execute_bash", "arguments": format!("{{\"c\": {call}}}")});
                let call = json!({"id": tool_call_id, "function": function});
                self.events.last_mut().unwrap().tool_call_metadata = Some(ToolCallMetadata {
                    function_name: "execute_bash".into(),
                    tool_call_id,
                    model_response: (&json!({"choices": [{"message": {"tool_calls": [call]}}]}))
                        .into(),
                    total_calls_in_response: 1,
                });
                id
            }
            Activity::Message(what) => {
                let message = MessageAction {
                    content: format!("m{what}"),
                    ..Default::default()
                };
                self.append(EventSource::Agent, Action::from(message))
            }
            Activity::Condense => {
                let forgotten = Some(self.events.len() as i64);
                let action = CondensationAction {
                    forgotten_events_end_id: forgotten,
                    ..Default::default()
                };
                self.append(EventSource::Agent, Action::from(action))
            }
            Activity::Wait => self.run("", 0, "the same"),
            Activity::StillRunning(command) => self.run(&format!("c{command}"), -1, "the same"),
            Activity::StateChange => {
                let changed = AgentStateChangedObservation {
                    agent_state: AgentState::Running,
                    reason: String::new(),
                };
                self.append(
                    EventSource::Environment,
                    Observation::without_content(changed),
                )
            }
            Activity::UserMessage => {
                self.append(EventSource::User, Action::from(MessageAction::default()))
            }
            Activity::UserRecovers => self.append(
                EventSource::User,
                Action::from(LoopRecoveryAction::default()),
            ),
        }
    }

    fn detect(&mut self) -> Option<AgentLoop> {
        self.events[self.seen..]
            .iter()
            .for_each(|event| self.detector.apply(event));
        self.seen = self.events.len();
        self.detector.detected_loop()
    }
}

type Case<'a> = (LoopKind, usize, &'a dyn Fn(&[&(EventId, Activity)]) -> bool);

/// Specification of the five patterns on a whole history.
fn expected_loop(history: &[(EventId, Activity)]) -> Option<AgentLoop> {
    let breaks = |activity: &Activity| {
        matches!(
            activity,
            Activity::Wait
                | Activity::StillRunning(_)
                | Activity::UserMessage
                | Activity::UserRecovers
        )
    };
    let start = history
        .iter()
        .rposition(|(_, activity)| breaks(activity))
        .map_or(0, |at| at + 1);
    let counted: Vec<_> = history[start..]
        .iter()
        .filter(|(_, activity)| *activity != Activity::StateChange)
        .collect();
    let last = |count: usize| {
        counted
            .len()
            .checked_sub(count)
            .map(|from| &counted[from..])
    };
    let is_step = |activity: Activity| {
        matches!(
            activity,
            Activity::Run { .. } | Activity::Fail { .. } | Activity::Misuse { .. }
        )
    };
    let error = |activity: Activity| match activity {
        Activity::Fail { url, .. } => Some((0, url)),
        Activity::Misuse { call, .. } => Some((1, call)),
        _ => None,
    };
    let cases: [Case<'_>; 5] = [
        (LoopKind::SameOutcome, 4, &|turns| {
            is_step(turns[0].1) && turns.iter().all(|turn| turn.1 == turns[0].1)
        }),
        (LoopKind::SameError, 3, &|turns| {
            error(turns[0].1).is_some()
                && turns.iter().all(|turn| error(turn.1) == error(turns[0].1))
        }),
        (LoopKind::Monologue, 3, &|turns| {
            matches!(turns[0].1, Activity::Message(_))
                && turns.iter().all(|turn| turn.1 == turns[0].1)
        }),
        (LoopKind::Alternating, 6, &|turns| {
            let (a, b) = (turns[0].1, turns[1].1);
            a != b && turns.chunks(2).all(|pair| (pair[0].1, pair[1].1) == (a, b))
        }),
        (LoopKind::Condensations, 10, &|turns| {
            turns.iter().all(|turn| turn.1 == Activity::Condense)
        }),
    ];
    cases.into_iter().find_map(|(kind, count, matches)| {
        let turns = last(count).filter(|turns| matches(turns))?;
        Some(AgentLoop {
            kind,
            since: turns[0].0,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn bounded_detector_finds_what_the_whole_history_shows(activities in prop::collection::vec(activity(), 0..60)) {
        let mut log = Log::default();
        let mut history = Vec::new();
        for activity in activities {
            history.push((log.perform(activity), activity));
            prop_assert_eq!(log.detect(), expected_loop(&history));
            prop_assert!(log.detector.recent.len() <= MAX_PATTERN_LENGTH);
        }
    }

    #[test]
    fn loop_is_found_from_its_first_event(
        activities in prop::collection::vec(activity(), 0..30),
        (pattern, times, kind) in prop_oneof![
            Just((vec![Activity::Run { command: 7, output: 7 }], 4, LoopKind::SameOutcome)),
            Just((vec![Activity::Fail { url: 7, detail: 7 }], 3, LoopKind::SameError)),
            Just((vec![Activity::Message(7)], 3, LoopKind::Monologue)),
            Just((vec![Activity::Run { command: 7, output: 7 }, Activity::Message(8)], 3, LoopKind::Alternating)),
        ],
    ) {
        let mut log = Log::default();
        for activity in activities {
            log.perform(activity);
        }
        let since = EventId(log.events.len() as u64);
        for _ in 0..times {
            for activity in &pattern {
                log.perform(*activity);
            }
        }
        prop_assert_eq!(log.detect(), Some(AgentLoop { kind, since }));
        log.perform(Activity::UserMessage);
        prop_assert_eq!(log.detect(), None);
    }

    #[test]
    fn waiting_is_no_loop(waits in prop::collection::vec(prop_oneof![Just(Activity::Wait), Just(Activity::StillRunning(0))], 0..50)) {
        let mut log = Log::default();
        for wait in waits {
            log.perform(wait);
            prop_assert_eq!(log.detect(), None);
        }
    }

    #[test]
    fn progress_is_no_loop(outputs in prop::collection::vec(any::<u32>(), 0..50)) {
        let mut log = Log::default();
        for (at, output) in outputs.iter().enumerate() {
            log.run("make test", 1, &format!("{at}: {output}"));
            prop_assert_eq!(log.detect(), None);
        }
    }
}

#[test]
fn failing_cell_is_a_loop_whatever_its_number() {
    type Traceback = fn(usize) -> String;
    let tracebacks: [Traceback; 4] = [
        |number| {
            format!("Cell In[{number}], line 1\n----> 1 1/0\n\nZeroDivisionError: division by zero")
        },
        |number| {
            format!(
                "Cell In [{number}], line 1, in <cell line: 1>()\nCell In [{number}], line 2, in f()\nKeyError: 'a'"
            )
        },
        |number| format!("Input In [{number}], in <module>\nKeyError: 'a'"),
        |number| format!("<ipython-input-{number}-9e1622b385b6> in <module>\nKeyError: 'a'"),
    ];
    for traceback in tracebacks {
        let mut log = Log::default();
        for number in 8..12 {
            assert_eq!(log.detect(), None);
            log.cell("1/0", &traceback(number));
        }
        assert_eq!(
            log.detect(),
            Some(AgentLoop {
                kind: LoopKind::SameOutcome,
                since: EventId(0)
            })
        );
    }
    let mut log = Log::default();
    for number in 0..6 {
        log.cell("step()", &format!("done In[{number}]"));
        assert_eq!(log.detect(), None, "output of the cell's own");
    }
}

#[test]
fn same_syntax_error_three_times_is_a_loop() {
    let error = |cell: usize, line: usize, kind: &str| {
        format!(
            "  Cell In[{cell}], line {line}\n    x = (\n        ^\n{kind}: wrong at line {line}\n"
        )
    };
    for kind in ["SyntaxError", "IndentationError", "TabError"] {
        let mut log = Log::default();
        for cell in 1..4 {
            assert_eq!(log.detect(), None);
            log.cell("x = (", &error(cell, 1, kind));
        }
        assert_eq!(
            log.detect(),
            Some(AgentLoop {
                kind: LoopKind::SameError,
                since: EventId(0)
            })
        );
        let mut changing = Log::default();
        for cell in 1..9 {
            changing.cell("import generated", &error(cell, cell, kind));
            assert_eq!(changing.detect(), None);
        }
    }
    let mut log = Log::default();
    for cell in 1..4 {
        log.cell(
            "print(e)",
            &(error(cell, 1, "SyntaxError") + "and more output"),
        );
        assert_eq!(log.detect(), None, "no error");
    }
}

#[test]
fn repeated_thought_is_a_loop() {
    let mut log = Log::default();
    for thought in ["a", "b", "b", "b", "b"] {
        assert_eq!(log.detect(), None);
        let id = log.append(
            EventSource::Agent,
            Action::from(ThinkAction {
                thought: thought.into(),
            }),
        );
        log.observe(
            id,
            Observation::without_content(protocol::observation::ThinkObservation {}),
        );
    }
    assert_eq!(
        log.detect(),
        Some(AgentLoop {
            kind: LoopKind::SameOutcome,
            since: EventId(2)
        })
    );
}

/// Older logs of V0 have the observations instead of the actions.
#[test]
fn condense_observations_in_a_row_are_a_loop() {
    let mut detector = StuckDetector::default();
    for id in 0..10 {
        assert_eq!(detector.detected_loop(), None, "{id}");
        let condensed =
            Observation::new("a summary", protocol::observation::CondenseObservation {});
        detector.apply(&Event::new(
            EventId(id),
            timestamp(),
            EventSource::Agent,
            condensed,
        ));
    }
    assert_eq!(
        detector.detected_loop().map(|stuck| stuck.kind),
        Some(LoopKind::Condensations)
    );
}

#[test]
fn loop_recovery_follows_the_chosen_option() {
    let stuck = AgentLoop {
        kind: LoopKind::SameError,
        since: EventId(4),
    };
    let message = MessageAction {
        content: "go".into(),
        ..Default::default()
    };
    let chosen = |option| {
        (
            EventSource::User,
            Action::from(LoopRecoveryAction { option }),
        )
    };
    let forgotten = CondensationAction {
        forgotten_events_start_id: Some(4),
        forgotten_events_end_id: Some(9),
        ..Default::default()
    };
    let forgotten = (EventSource::Agent, Action::from(forgotten));
    let events = |recovery| stuck.recover(recovery, EventId(9), Some(&message));
    assert_eq!(
        events(LoopRecovery::BeforeLoop),
        [chosen(1), forgotten.clone()]
    );
    assert_eq!(
        events(LoopRecovery::LastUserMessage),
        [
            chosen(2),
            forgotten,
            (EventSource::User, message.clone().into())
        ]
    );
    assert_eq!(events(LoopRecovery::Stop), [chosen(3)]);
    let detected = stuck.to_observation();
    assert_eq!(
        detected.content,
        "The agent is stuck in a loop that started with event 4: it took the same action with an error three times."
    );
    assert_eq!(detected.kind.kind(), "loop_detection");
}

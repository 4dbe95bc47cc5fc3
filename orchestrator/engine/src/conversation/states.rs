//! Compares `states.md` with what [`transition`](super::transition) does. `GLOVEBOX_WRITE_STATES=1`
//! rewrites it.

use protocol::risk::{ConfirmationPolicy, SecurityRisk};
use protocol::{AgentState, EventBody, ObservationKind};

use super::laws::{
    Decision,
    Occurrence::{self, *},
    World,
};

/// Lasting states, by name, and the occurrences that lead to each.
const STATES: &[(&str, &[Occurrence])] = &[
    ("`loading`", &[]),
    ("`awaiting_user_input`", &[SandboxReady]),
    ("`running`, no sandbox is ready", &[SandboxFailed, Message]),
    ("`running`, a step is in flight", &[SandboxReady, Message]),
    (
        "`running`, an action is in flight",
        &[SandboxReady, Message, StepDone(Decision::Run)],
    ),
    (
        "`awaiting_user_confirmation`",
        &[SandboxReady, Message, StepDone(Decision::RunRisky)],
    ),
    ("`paused`", &[SandboxReady, Message, Pause]),
    (
        "`paused`, an action is in flight",
        &[SandboxReady, Message, StepDone(Decision::Run), Pause],
    ),
    ("`stopped`", &[SandboxReady, Message, Stop]),
    (
        "`stopped`, an action is being cancelled",
        &[SandboxReady, Message, StepDone(Decision::Run), Stop],
    ),
    (
        "`finished`",
        &[SandboxReady, Message, StepDone(Decision::Finish)],
    ),
    (
        "`rejected`",
        &[SandboxReady, Message, StepDone(Decision::Reject)],
    ),
    (
        "`error`",
        &[SandboxReady, Message, StepDone(Decision::Fail)],
    ),
    ("`error` before the first message", &[SandboxFailed]),
    (
        "`error`, an action is pending",
        &[
            SandboxReady,
            Message,
            StepDone(Decision::Run),
            Crash,
            SandboxFailed,
        ],
    ),
];

const OCCURRENCES: &[(&str, Occurrence)] = &[
    ("the sandbox is ready", SandboxReady),
    ("the sandbox cannot be reached", SandboxFailed),
    ("the sandbox is lost", SandboxLost),
    ("a message", Message),
    ("pause", Pause),
    ("resume", Resume(true)),
    ("start", Reopen),
    ("stop", Stop),
    ("confirm", Confirm),
    ("reject with a reason", Reject("use rg")),
    ("reject without a reason", Reject("")),
    ("the agent acts", StepDone(Decision::Run)),
    (
        "the agent acts, and the action requires confirmation",
        StepDone(Decision::RunRisky),
    ),
    ("the agent asks a question", StepDone(Decision::Ask)),
    ("the agent finishes", StepDone(Decision::Finish)),
    ("the agent rejects the task", StepDone(Decision::Reject)),
    ("the model fails", StepDone(Decision::Fail)),
    ("the sandbox lacks the program of a tool", StepRefused),
    ("the action completes", ActionDone),
    ("the program crashes and restarts", Crash),
];

const HEAD: &str = "# The states of an agent

Each row lists the states that an occurrence leads through. An occurrence without a row does not change the state. If a
step is due and the limit of steps or the budget is reached, `error` follows. No agent steps without its sandbox. `init`
occurs only in older logs, as does `rate_limited`. `user_confirmed` and `user_rejected` are transient.

| state | occurrence | leads to |
|---|---|---|
";

fn table() -> String {
    let mut table = HEAD.to_owned();
    for (name, way) in STATES {
        for (label, occurrence) in OCCURRENCES {
            let mut world = World::start(
                None,
                ConfirmationPolicy::Risky {
                    from: SecurityRisk::High,
                },
            );
            way.iter().for_each(|occurrence| world.apply(occurrence));
            let before = world.log.len();
            world.apply(occurrence);
            let entered: Vec<_> = world.log[before..].iter().filter_map(entered).collect();
            if !entered.is_empty() {
                table.push_str(&format!("| {name} | {label} | {} |\n", entered.join(", ")));
            }
        }
    }
    table
}

fn entered(event: &protocol::Event) -> Option<String> {
    let EventBody::Observation(observation) = &event.body else {
        return None;
    };
    let ObservationKind::AgentStateChanged(changed) = &observation.kind else {
        return None;
    };
    Some(format!("`{}`", changed.agent_state))
}

#[test]
fn every_lasting_state_is_in_the_table() {
    let reached: Vec<AgentState> = STATES
        .iter()
        .map(|(_, way)| {
            let mut world = World::start(
                None,
                ConfirmationPolicy::Risky {
                    from: SecurityRisk::High,
                },
            );
            way.iter().for_each(|occurrence| world.apply(occurrence));
            world.state.agent_state
        })
        .collect();
    for (state, (name, _)) in reached.iter().zip(STATES) {
        assert!(name.starts_with(&format!("`{state}`")), "{name} is {state}");
    }
}

#[test]
fn table_of_states_matches_transition() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/conversation/states.md");
    let table = table();
    if std::env::var_os("GLOVEBOX_WRITE_STATES").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let written = include_str!("states.md");
    assert_eq!(
        written, table,
        "GLOVEBOX_WRITE_STATES=1 cargo test -p engine states rewrites it"
    );
}

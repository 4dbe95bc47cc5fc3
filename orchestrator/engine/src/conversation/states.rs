//! Compares `states.md` with what [`transition`](super::transition) does. `GLOVEBOX_WRITE_STATES=1` writes it anew.

use protocol::risk::{ConfirmationPolicy, SecurityRisk};
use protocol::{AgentState, EventBody, ObservationKind};

use super::laws::{
    Decision,
    Happening::{self, *},
    World,
};

/// How each state that lasts is reached, and what it is called.
const STATES: &[(&str, &[Happening])] = &[
    ("`loading`", &[]),
    ("`awaiting_user_input`", &[SandboxComes]),
    ("`running`, the sandbox is sought", &[SandboxFails, Message]),
    ("`running`, the model is asked", &[SandboxComes, Message]),
    ("`running`, an action is performed", &[SandboxComes, Message, StepEnds(Decision::Run)]),
    ("`rate_limited`", &[SandboxComes, Message, CallIsRetried(true)]),
    ("`awaiting_user_confirmation`", &[SandboxComes, Message, StepEnds(Decision::RunRisky)]),
    ("`paused`", &[SandboxComes, Message, Pause]),
    ("`paused`, an action is performed", &[SandboxComes, Message, StepEnds(Decision::Run), Pause]),
    ("`stopped`", &[SandboxComes, Message, Stop]),
    ("`stopped`, an action is being ended", &[SandboxComes, Message, StepEnds(Decision::Run), Stop]),
    ("`finished`", &[SandboxComes, Message, StepEnds(Decision::Finish)]),
    ("`rejected`", &[SandboxComes, Message, StepEnds(Decision::Reject)]),
    ("`error`", &[SandboxComes, Message, StepEnds(Decision::Fail)]),
    ("`error` before the first message", &[SandboxFails]),
    ("`error`, an action waits", &[SandboxComes, Message, StepEnds(Decision::Run), Crash, SandboxFails]),
];

const HAPPENINGS: &[(&str, Happening)] = &[
    ("the sandbox answers", SandboxComes),
    ("no sandbox can be reached", SandboxFails),
    ("the sandbox is lost", SandboxIsLost),
    ("a message", Message),
    ("pause", Pause),
    ("resume", Resume(true)),
    ("stop", Stop),
    ("confirm", Confirm),
    ("reject with a reason", Reject("use rg")),
    ("reject without one", Reject("")),
    ("the provider limits the rate", CallIsRetried(true)),
    ("the agent acts", StepEnds(Decision::Run)),
    ("the agent acts, and the policy asks", StepEnds(Decision::RunRisky)),
    ("the agent asks", StepEnds(Decision::Ask)),
    ("the agent finishes", StepEnds(Decision::Finish)),
    ("the agent refuses the task", StepEnds(Decision::Reject)),
    ("the model fails", StepEnds(Decision::Fail)),
    ("the sandbox lacks a tool's program", StepIsRefused),
    ("the action ends", ActionEnds),
    ("the program is killed and begins again", Crash),
];

const HEAD: &str = "# The states of an agent

What happens in a state, and which states it leads through. What is not here leaves the state as it is. Where a step is
due and a limit of steps or of money is reached, `error` follows. No agent steps without its sandbox. `init` is read in
older logs and never entered; `user_confirmed` and `user_rejected` are passed through.

| state | what happens | leads to |
|---|---|---|
";

fn table() -> String {
    let mut table = HEAD.to_owned();
    for (name, way) in STATES {
        for (label, happening) in HAPPENINGS {
            let mut world = World::begun(None, ConfirmationPolicy::Risky { from: SecurityRisk::High });
            way.iter().for_each(|happening| world.happen(happening));
            let before = world.log.len();
            world.happen(happening);
            let entered: Vec<_> = world.log[before..].iter().filter_map(entered).collect();
            if !entered.is_empty() {
                table.push_str(&format!("| {name} | {label} | {} |\n", entered.join(", ")));
            }
        }
    }
    table
}

fn entered(event: &protocol::Event) -> Option<String> {
    let EventBody::Observation(observation) = &event.body else { return None };
    let ObservationKind::AgentStateChanged(changed) = &observation.kind else { return None };
    Some(format!("`{}`", changed.agent_state))
}

#[test]
fn every_lasting_state_is_in_the_table() {
    let reached: Vec<AgentState> = STATES
        .iter()
        .map(|(_, way)| {
            let mut world = World::begun(None, ConfirmationPolicy::Risky { from: SecurityRisk::High });
            way.iter().for_each(|happening| world.happen(happening));
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
    assert_eq!(written, table, "GLOVEBOX_WRITE_STATES=1 cargo test -p engine states writes it anew");
}

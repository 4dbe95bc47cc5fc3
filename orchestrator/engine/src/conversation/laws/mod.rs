//! Laws of [`transition`](super::transition()), tried on random histories: messages, stops, answers late and doubled,
//! sandboxes lost, workspaces that are set up, tasks handed on, crashes between any two effects.

mod delegation;
mod world;

use std::sync::Arc;

use proptest::prelude::*;
use protocol::record::WorkspaceSetup;
use protocol::risk::{ConfirmationPolicy, SecurityRisk};
use protocol::{Action, AgentState, Event, EventBody, EventId, Observation, ObservationKind, Timestamp};

use super::{Effect, Input, InputKind, SANDBOX_REPLACED, SetupStep, State, fork, transition};
use crate::testing::timestamp;
use crate::view::View;
pub(super) use world::{Decision, Happening, World};

fn happening() -> impl Strategy<Value = Happening> {
    let decision = prop_oneof![
        6 => Just(Decision::Run),
        2 => Just(Decision::RunRisky),
        2 => Just(Decision::CallTool),
        2 => Just(Decision::Draft),
        1 => Just(Decision::Think),
        1 => Just(Decision::Ask),
        1 => Just(Decision::Finish),
        1 => Just(Decision::Reject),
        1 => Just(Decision::Browse),
        1 => Just(Decision::Misuse),
        1 => Just(Decision::Condense),
        1 => Just(Decision::AskToCondense),
        1 => Just(Decision::Fail),
        1 => Just(Decision::Overflow),
        2 => (1..4_usize).prop_map(Decision::Delegate),
    ];
    prop_oneof![
        2 => Just(Happening::Message),
        1 => Just(Happening::Stop),
        1 => Just(Happening::Pause),
        1 => any::<bool>().prop_map(Happening::Resume),
        2 => Just(Happening::Confirm),
        1 => Just(Happening::Approve),
        1 => Just(Happening::TitleIsRequested),
        1 => Just(Happening::TitleIsFound),
        1 => Just(Happening::UserNamesIt),
        1 => prop_oneof![Just(""), Just("use rg")].prop_map(Happening::Reject),
        1 => any::<bool>().prop_map(Happening::CallIsRetried),
        1 => Just(Happening::StepIsDeferred),
        1 => Just(Happening::StepIsRefused),
        8 => decision.prop_map(Happening::StepEnds),
        1 => Just(Happening::StaleStepEnds),
        6 => Just(Happening::ActionEnds),
        2 => Just(Happening::ActionFails),
        1 => Just(Happening::ActionIsCut),
        1 => Just(Happening::DoubledDraftEnds),
        1 => Just(Happening::DoubledActionEnds),
        4 => Just(Happening::SandboxComes),
        1 => Just(Happening::SandboxFails),
        1 => Just(Happening::SandboxIsLost),
        1 => Just(Happening::Crash),
    ]
}

fn setup() -> impl Strategy<Value = Option<WorkspaceSetup>> {
    prop_oneof![
        Just(None),
        Just(Some(repository())),
        Just(Some(WorkspaceSetup::EmptyRepository)),
        Just(Some(WorkspaceSetup::Folder)),
    ]
}

fn confirmation() -> impl Strategy<Value = ConfirmationPolicy> {
    prop_oneof![
        Just(ConfirmationPolicy::Never),
        Just(ConfirmationPolicy::Risky { from: SecurityRisk::Medium }),
        Just(ConfirmationPolicy::Always),
    ]
}

fn repository() -> WorkspaceSetup {
    WorkspaceSetup::Repository { url: "/origin".into(), branch: None }
}

fn many() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: config.cases.max(1000), ..config }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn fork_rests_and_continues_like_any_conversation(
        setup in setup(),
        confirmation in confirmation(),
        history in prop::collection::vec(happening(), 0..60),
        last in any::<prop::sample::Index>(),
    ) {
        let mut world = World::begun(setup, confirmation);
        history.iter().for_each(|happening| world.happen(happening));
        let last = EventId(last.index(world.log.len()) as u64);
        let log = fork(&world.log, &"other".parse().unwrap(), last, &timestamp()).unwrap();
        let state = State::fold(&log);
        prop_assert!(!state.is_working() && state.lease.is_none());
        let mut forked = World::with_log(log);
        forked.happen(&Happening::Crash);
        forked.reach_rest();
    }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn no_history_breaks_a_law_and_every_state_has_a_way_out(
        setup in setup(),
        confirmation in confirmation(),
        history in prop::collection::vec(happening(), 0..60),
    ) {
        let mut world = World::begun(setup, confirmation);
        for happening in &history {
            let cost = world.state.metrics.accumulated_cost;
            world.happen(happening);
            prop_assert!(world.state.metrics.accumulated_cost >= cost, "costs never fall");
        }
        world.reach_rest();
    }
}

/// What a world is taken through, and the step of the set-up that is ahead of it then.
fn after(happenings: &[Happening]) -> (World, Option<SetupStep>) {
    let mut world = World::begun(Some(repository()), ConfirmationPolicy::Never);
    happenings.iter().for_each(|happening| world.happen(happening));
    let step = world.state.setup_step();
    (world, step)
}

use Happening::{
    ActionEnds, ActionFails, Crash, Message, Pause, Resume, SandboxComes, SandboxFails, SandboxIsLost,
    StepEnds, Stop,
};

#[test]
fn workspace_is_set_up_before_the_agent_steps() {
    let (mut world, step) = after(&[Message, SandboxComes]);
    assert_eq!((step, world.is_stepping()), (Some(SetupStep::Clone), false));
    world.happen(&ActionEnds);
    assert_eq!(world.state.setup_step(), Some(SetupStep::RunScript));
    // A script that fails is told, and holds up nothing.
    world.happen(&ActionFails);
    assert_eq!(world.state.setup_step(), Some(SetupStep::InstallHook));
    assert_eq!(world.state.agent_state, AgentState::Loading);
    world.happen(&ActionEnds);
    assert_eq!((world.state.setup_step(), world.state.agent_state), (None, AgentState::Running));
    assert!(world.is_stepping());
}

#[test]
fn failed_clone_is_retried_on_resume() {
    let (mut world, step) = after(&[Message, SandboxComes, ActionFails]);
    assert_eq!((step, world.state.agent_state), (Some(SetupStep::Clone), AgentState::Error));
    let reason = match &world.log.last().unwrap().body {
        EventBody::Observation(Observation { kind: ObservationKind::AgentStateChanged(changed), .. }) => {
            &changed.reason
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(reason, "Cloning /origin failed with exit code 1: out");
    world.happen(&Resume(false));
    assert!(world.executing().is_some(), "it is cloned again");
}

#[test]
fn setup_continues_with_the_same_step_after_crash_or_stop() {
    let (mut world, _) = after(&[Message, SandboxComes, ActionEnds]);
    let action = world.executing();
    world.happen(&Crash);
    assert_eq!(world.executing(), action, "the same action is attached to");
    world.happen(&SandboxFails);
    assert_eq!(world.state.agent_state, AgentState::Error);
    for happening in [Message, SandboxComes, Stop] {
        world.happen(&happening);
    }
    assert_eq!((world.executing(), world.state.agent_state), (action, AgentState::Stopped));
    world.happen(&ActionFails);
    world.happen(&Message);
    assert!(world.executing() != action && world.executing().is_some());
    assert_eq!(world.state.setup_step(), Some(SetupStep::RunScript), "what was stopped is taken again");
}

#[test]
fn setup_repeats_a_step_stopped_before_a_message() {
    for done in [0, 1] {
        let (mut world, _) = after(&[Message, SandboxComes]);
        (0..done).for_each(|_| world.happen(&ActionEnds));
        let (step, action) = (world.state.setup_step(), world.executing());
        for happening in [Stop, Message, Crash, SandboxFails, Message, SandboxComes] {
            world.happen(&happening);
        }
        assert_eq!(world.executing(), action, "it is attached to, and cancelled");
        world.happen(&ActionFails);
        assert_eq!((world.state.setup_step(), world.state.agent_state), (step, AgentState::Loading));
        assert!(world.executing().is_some_and(|again| Some(again) != action));
    }
}

#[test]
fn agent_does_not_step_without_its_sandbox() {
    let mut world = World::begun(None, ConfirmationPolicy::Never);
    for happening in [SandboxFails, Message] {
        world.happen(&happening);
    }
    assert_eq!(world.state.agent_state, AgentState::Running);
    let before = world.log.len();
    world.happen(&StepEnds(Decision::Run));
    assert_eq!(world.log.len(), before, "it has not begun");
    world.happen(&SandboxFails);
    assert_eq!((world.state.agent_state, world.is_stepping()), (AgentState::Error, false));
    for happening in [Message, SandboxComes, StepEnds(Decision::Run)] {
        world.happen(&happening);
    }
    assert!(world.executing().is_some());
}

#[test]
fn new_sandbox_is_set_up_again() {
    let ready = [Message, SandboxComes, ActionEnds, ActionEnds, ActionEnds];
    let (mut world, step) = after(&ready);
    assert_eq!(step, None);
    world.happen(&StepEnds(Decision::Run));
    world.happen(&SandboxIsLost);
    assert_eq!((world.state.agent_state, world.is_stepping()), (AgentState::Loading, false));
    world.happen(&SandboxComes);
    assert_eq!(world.state.setup_step(), Some(SetupStep::Clone));
}

#[test]
fn setup_continues_without_reattaching_when_resumed() {
    let (mut world, _) = after(&[Message, SandboxComes, Pause, ActionEnds]);
    assert_eq!(world.executing(), None);
    // The world refuses to attach to a sandbox that is connected.
    world.happen(&Resume(false));
    assert!(world.executing().is_some());
}

/// Whom it was told, in order, that the sandbox is another one.
fn told_of_another(world: &World) -> Vec<Option<EventId>> {
    let is_it = |event: &&Event| {
        matches!(&event.body, EventBody::Observation(Observation { kind: ObservationKind::Error(error), .. })
            if error.error_id == SANDBOX_REPLACED)
    };
    world.log.iter().filter(is_it).map(|event| event.delegation).collect()
}

#[test]
fn agent_is_notified_once_of_a_replaced_sandbox() {
    let (mut world, _) = after(&[Message, SandboxComes, SandboxIsLost, SandboxComes]);
    assert_eq!(told_of_another(&world), [], "it knew none before");
    for happening in [ActionEnds, ActionEnds, ActionEnds, StepEnds(Decision::Run), ActionEnds, Stop] {
        world.happen(&happening);
    }
    // The same one again.
    for happening in [Crash, Resume(false), SandboxComes] {
        world.happen(&happening);
    }
    assert_eq!((told_of_another(&world), world.is_stepping()), (Vec::new(), true));
    world.happen(&Stop);
    world.remove_sandbox();
    for happening in [Crash, Message, SandboxComes] {
        world.happen(&happening);
    }
    assert_eq!(told_of_another(&world), [None]);
    let view = View::from_events(world.log.iter().cloned().map(Arc::new).collect());
    let messages = view.messages();
    let told = messages.iter().filter(|message| format!("{message:?}").contains("replaced by a new one"));
    assert_eq!(told.count(), 1);
    for happening in [ActionEnds, ActionEnds, ActionEnds, StepEnds(Decision::Run), Crash, SandboxComes] {
        world.happen(&happening);
    }
    assert_eq!(told_of_another(&world), [None], "it is told once");
}

#[test]
fn setup_fails_when_its_sandbox_is_lost_repeatedly() {
    let (mut world, _) = after(&[Message, SandboxComes, SandboxIsLost]);
    assert_eq!(world.state.agent_state, AgentState::Loading, "once may be chance");
    for happening in [SandboxComes, ActionEnds, SandboxIsLost, SandboxComes, SandboxIsLost] {
        world.happen(&happening);
    }
    assert_eq!(world.state.agent_state, AgentState::Error);
}

#[test]
fn setup_waits_for_the_tool_call_in_flight() {
    let ready = [Message, SandboxComes, ActionEnds, ActionEnds, ActionEnds];
    let (mut world, _) = after(&ready);
    for happening in [StepEnds(Decision::CallTool), SandboxIsLost, Stop, Message, ActionEnds, SandboxComes] {
        world.happen(&happening);
    }
    assert_eq!((world.state.agent_state, world.executing().is_some()), (AgentState::Loading, true));
}

#[test]
fn agent_resumes_before_the_loop_it_was_stopped_in() {
    for held in [None, Some(Stop)] {
        let mut world = World::begun(None, ConfirmationPolicy::Never);
        [SandboxComes, Message].iter().for_each(|happening| world.happen(happening));
        for _ in 0..4 {
            world.happen(&StepEnds(Decision::Run));
            world.happen(&ActionEnds);
        }
        assert_eq!(world.state.agent_state, AgentState::Error);
        held.iter().for_each(|happening| world.happen(happening));
        world.happen(&Resume(true));
        assert!(world.is_stepping(), "after {held:?}");
        let forgets = |event: &Event| matches!(&event.body, EventBody::Action(Action::Condensation(_)));
        assert_eq!(world.log.iter().filter(|event| forgets(event)).count(), 1);
    }
}

#[test]
fn setup_step_keeps_its_deadline_after_a_crash() {
    let (world, _) = after(&[Message, SandboxComes]);
    let later = Timestamp::try_from("2026-01-02T03:09:05.678901".to_owned()).unwrap();
    let mut state = State::fold(&world.log);
    let mut effects = Vec::new();
    for kind in [InputKind::Recovered, InputKind::SandboxReady(world.lease())] {
        (state, effects) = transition(state, Input { at: later.clone(), kind });
    }
    let time_left = effects.iter().find_map(|effect| match effect {
        Effect::Execute { time_left, .. } => *time_left,
        _ => None,
    });
    assert_eq!(time_left.unwrap().as_secs_f64().round(), 300.0);
}

/// A world in which the agent takes its first step.
fn stepping(history_truncation_disabled: bool) -> World {
    let mut world = World::begun(None, ConfirmationPolicy::Never);
    world.state.started.as_mut().unwrap().history_truncation_disabled = history_truncation_disabled;
    [Message, SandboxComes].iter().for_each(|happening| world.happen(happening));
    assert!(world.is_stepping());
    world
}

#[test]
fn approval_of_similar_actions_survives_a_crash() {
    let mut world = World::begun(None, ConfirmationPolicy::Risky { from: SecurityRisk::High });
    let risky = StepEnds(Decision::RunRisky);
    for happening in [SandboxComes, Message, risky.clone(), Happening::Approve, ActionEnds] {
        world.happen(&happening);
    }
    assert_eq!(world.state.approvals.len(), 1);
    for happening in [Crash, SandboxComes, risky] {
        world.happen(&happening);
    }
    assert_eq!(world.state.agent_state, AgentState::Running);
    assert!(world.executing().is_some(), "the same command is not asked about again");
    // What is not alike still is.
    for happening in [ActionEnds, StepEnds(Decision::CallTool)] {
        world.happen(&happening);
    }
    assert_eq!(world.state.agent_state, AgentState::AwaitingUserConfirmation);
}

#[test]
fn risk_reason_survives_a_crash() {
    let mut world = World::begun(None, ConfirmationPolicy::Always);
    for happening in [SandboxComes, Message, StepEnds(Decision::RunRisky), Crash] {
        world.happen(&happening);
    }
    let (_, asked) = world.state.asked().unwrap();
    assert_eq!(asked.risk_reason, "it deletes");
}

#[test]
fn overflowing_history_is_condensed_while_that_helps() {
    let mut world = stepping(false);
    for _ in 0..3 {
        world.happen(&StepEnds(Decision::Overflow));
        assert!(matches!(
            world.log.last().unwrap().body,
            EventBody::Action(protocol::Action::CondensationRequest(_))
        ));
        world.happen(&StepEnds(Decision::Condense));
        assert!(world.is_stepping());
    }
    world.happen(&StepEnds(Decision::Overflow));
    [Crash, SandboxComes].iter().for_each(|happening| world.happen(happening));
    assert!(world.is_stepping());
    // Nothing was condensed.
    world.happen(&StepEnds(Decision::Overflow));
    assert_eq!(world.state.agent_state, AgentState::Error);

    let mut world = stepping(true);
    world.happen(&StepEnds(Decision::Overflow));
    assert_eq!(world.state.agent_state, AgentState::Error);
}

#[test]
fn condensation_costs_money_and_is_no_step() {
    let mut world = stepping(false);
    let before = world.state.metrics.accumulated_cost;
    world.happen(&StepEnds(Decision::Condense));
    assert_eq!((world.state.metrics.accumulated_cost - before, world.state.iterations), (0.5, 0));
    world.happen(&StepEnds(Decision::Run));
    assert_eq!(world.state.iterations, 1);
}

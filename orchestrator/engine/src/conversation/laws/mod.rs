//! Laws of [`transition`](super::transition()), tested on random histories: messages, stops, late
//! and duplicate results, lost sandboxes, set-ups of workspaces, delegated tasks, and crashes
//! between any two inputs.

mod decision;
mod delegation;
mod invariants;
mod world;

use std::sync::Arc;

use proptest::prelude::*;
use protocol::record::{Limit, WorkspaceSetup};
use protocol::risk::{ConfirmationPolicy, SecurityRisk};
use protocol::{
    Action, AgentState, Event, EventBody, EventId, Observation, ObservationKind, Record, Timestamp,
    UserCommand,
};

use super::transition::step::LONG_HISTORY_STEPS;
use super::{Effect, Input, InputKind, SetupStep, State, fork, is_replacement_notice, transition};
use crate::testing::timestamp;
use crate::view::View;
pub(super) use decision::Decision;
pub(super) use world::{Occurrence, World};

fn occurrence() -> impl Strategy<Value = Occurrence> {
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
        1 => Just(Decision::RequestCondensation),
        1 => Just(Decision::Fail),
        1 => Just(Decision::Overflow),
        1 => Just(Decision::Refused),
        2 => (1..4_usize).prop_map(Decision::Delegate),
    ];
    prop_oneof![
        2 => Just(Occurrence::Message),
        1 => Just(Occurrence::Stop),
        1 => Just(Occurrence::Pause),
        1 => any::<bool>().prop_map(Occurrence::Resume),
        1 => Just(Occurrence::Reopen),
        2 => Just(Occurrence::Confirm),
        1 => Just(Occurrence::Approve),
        1 => (0..4_usize).prop_map(Occurrence::Repeat),
        1 => Just(Occurrence::TitleRequested),
        1 => Just(Occurrence::TitleFound),
        1 => Just(Occurrence::UserTitle),
        1 => prop_oneof![Just("scripted"), Just("large")].prop_map(Occurrence::UserModel),
        1 => prop_oneof![Just(""), Just("use rg")].prop_map(Occurrence::Reject),
        1 => Just(Occurrence::CallRetried),
        1 => Just(Occurrence::StepDeferred),
        1 => Just(Occurrence::StepRefused),
        8 => decision.prop_map(Occurrence::StepDone),
        1 => Just(Occurrence::StaleStepDone),
        6 => Just(Occurrence::ActionDone),
        2 => Just(Occurrence::ActionFailed),
        1 => Just(Occurrence::ActionInterrupted),
        1 => Just(Occurrence::DuplicateDraftDone),
        1 => Just(Occurrence::DuplicateActionDone),
        4 => Just(Occurrence::SandboxReady),
        1 => Just(Occurrence::SandboxFailed),
        1 => Just(Occurrence::SandboxLost),
        1 => Just(Occurrence::Crash),
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
        Just(ConfirmationPolicy::Risky {
            from: SecurityRisk::Medium
        }),
        Just(ConfirmationPolicy::Always),
    ]
}

fn repository() -> WorkspaceSetup {
    WorkspaceSetup::Repository {
        url: "/origin".into(),
        branch: None,
    }
}

fn many() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig {
        cases: config.cases.max(1000),
        ..config
    }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn fork_rests_and_continues_like_any_conversation(
        setup in setup(),
        confirmation in confirmation(),
        history in prop::collection::vec(occurrence(), 0..60),
        last in any::<prop::sample::Index>(),
    ) {
        let mut world = World::start(setup, confirmation);
        history.iter().for_each(|occurrence| world.apply(occurrence));
        let last = EventId(last.index(world.log.len()) as u64);
        let log = fork(&world.log, &"other".parse().unwrap(), last, &timestamp()).unwrap();
        let state = State::fold(&log);
        prop_assert!(!state.is_working() && state.lease.is_none());
        let mut forked = World::with_log(log);
        forked.apply(&Occurrence::Crash);
        forked.reach_rest();
    }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn no_history_breaks_a_law_and_every_state_has_a_way_out(
        setup in setup(),
        confirmation in confirmation(),
        history in prop::collection::vec(occurrence(), 0..60),
    ) {
        let mut world = World::start(setup, confirmation);
        for occurrence in &history {
            let cost = world.state.metrics.accumulated_cost;
            world.apply(occurrence);
            prop_assert!(world.state.metrics.accumulated_cost >= cost, "costs never fall");
        }
        world.reach_rest();
    }
}

/// A world with a repository to clone after these occurrences, and the next step of its set-up.
fn after(occurrences: &[Occurrence]) -> (World, Option<SetupStep>) {
    let mut world = World::start(Some(repository()), ConfirmationPolicy::Never);
    occurrences
        .iter()
        .for_each(|occurrence| world.apply(occurrence));
    let step = world.state.setup_step();
    (world, step)
}

use Occurrence::{
    ActionDone, ActionFailed, Crash, Message, Pause, Resume, SandboxFailed, SandboxLost,
    SandboxReady, StepDone, Stop,
};

#[test]
fn workspace_is_set_up_before_the_agent_steps() {
    let (mut world, step) = after(&[Message, SandboxReady]);
    assert_eq!((step, world.is_stepping()), (Some(SetupStep::Clone), false));
    world.apply(&ActionDone);
    assert_eq!(world.state.setup_step(), Some(SetupStep::RunScript));
    // A script that fails is reported, and does not fail the set-up.
    world.apply(&ActionFailed);
    assert_eq!(world.state.setup_step(), Some(SetupStep::InstallHook));
    assert_eq!(world.state.agent_state, AgentState::Loading);
    world.apply(&ActionDone);
    assert_eq!(
        (world.state.setup_step(), world.state.agent_state),
        (None, AgentState::Running)
    );
    assert!(world.is_stepping());
}

#[test]
fn failed_clone_is_retried_on_resume() {
    let (mut world, step) = after(&[Message, SandboxReady, ActionFailed]);
    assert_eq!(
        (step, world.state.agent_state),
        (Some(SetupStep::Clone), AgentState::Error)
    );
    let reason = match &world.log.last().unwrap().body {
        EventBody::Observation(Observation {
            kind: ObservationKind::AgentStateChanged(changed),
            ..
        }) => &changed.reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason, "Cloning /origin failed with exit code 1: out");
    world.apply(&Resume(false));
    assert!(world.executing().is_some(), "it is cloned again");
}

#[test]
fn setup_continues_with_the_same_step_after_crash_or_stop() {
    let (mut world, _) = after(&[Message, SandboxReady, ActionDone]);
    let action = world.executing();
    world.apply(&Crash);
    assert_eq!(world.executing(), action, "the same action is attached to");
    world.apply(&SandboxFailed);
    assert_eq!(world.state.agent_state, AgentState::Error);
    for occurrence in [Message, SandboxReady, Stop] {
        world.apply(&occurrence);
    }
    assert_eq!(
        (world.executing(), world.state.agent_state),
        (action, AgentState::Stopped)
    );
    world.apply(&ActionFailed);
    world.apply(&Message);
    assert!(world.executing() != action && world.executing().is_some());
    assert_eq!(
        world.state.setup_step(),
        Some(SetupStep::RunScript),
        "a stopped step is repeated"
    );
}

#[test]
fn setup_repeats_a_step_stopped_before_a_message() {
    for done in [0, 1] {
        let (mut world, _) = after(&[Message, SandboxReady]);
        (0..done).for_each(|_| world.apply(&ActionDone));
        let (step, action) = (world.state.setup_step(), world.executing());
        for occurrence in [Stop, Message, Crash, SandboxFailed, Message, SandboxReady] {
            world.apply(&occurrence);
        }
        assert_eq!(
            world.executing(),
            action,
            "the action is attached to and cancelled"
        );
        world.apply(&ActionFailed);
        assert_eq!(
            (world.state.setup_step(), world.state.agent_state),
            (step, AgentState::Loading)
        );
        assert!(world.executing().is_some_and(|again| Some(again) != action));
    }
}

#[test]
fn agent_does_not_step_without_its_sandbox() {
    let mut world = World::start(None, ConfirmationPolicy::Never);
    for occurrence in [SandboxFailed, Message] {
        world.apply(&occurrence);
    }
    assert_eq!(world.state.agent_state, AgentState::Running);
    let before = world.log.len();
    world.apply(&StepDone(Decision::Run));
    assert_eq!(world.log.len(), before, "no step is in flight");
    world.apply(&SandboxFailed);
    assert_eq!(
        (world.state.agent_state, world.is_stepping()),
        (AgentState::Error, false)
    );
    for occurrence in [Message, SandboxReady, StepDone(Decision::Run)] {
        world.apply(&occurrence);
    }
    assert!(world.executing().is_some());
}

#[test]
fn new_sandbox_is_set_up_again() {
    let ready = [Message, SandboxReady, ActionDone, ActionDone, ActionDone];
    let (mut world, step) = after(&ready);
    assert_eq!(step, None);
    world.apply(&StepDone(Decision::Run));
    world.apply(&SandboxLost);
    assert_eq!(
        (world.state.agent_state, world.is_stepping()),
        (AgentState::Loading, false)
    );
    world.apply(&SandboxReady);
    assert_eq!(world.state.setup_step(), Some(SetupStep::Clone));
}

#[test]
fn setup_continues_without_reattaching_when_resumed() {
    let (mut world, _) = after(&[Message, SandboxReady, Pause, ActionDone]);
    assert_eq!(world.executing(), None);
    // The world refuses to attach to a sandbox that is connected.
    world.apply(&Resume(false));
    assert!(world.executing().is_some());
}

/// Agents that were notified of a replaced sandbox, in order.
fn replacement_notices(world: &World) -> Vec<Option<EventId>> {
    world
        .log
        .iter()
        .filter(|event| is_replacement_notice(event))
        .map(|event| event.delegation)
        .collect()
}

#[test]
fn agent_is_notified_once_of_a_replaced_sandbox() {
    let (mut world, _) = after(&[Message, SandboxReady, SandboxLost, SandboxReady]);
    assert_eq!(
        replacement_notices(&world),
        [],
        "it has used no sandbox before"
    );
    for occurrence in [
        ActionDone,
        ActionDone,
        ActionDone,
        StepDone(Decision::Run),
        ActionDone,
        Stop,
    ] {
        world.apply(&occurrence);
    }
    // The same sandbox.
    for occurrence in [Crash, Resume(false), SandboxReady] {
        world.apply(&occurrence);
    }
    assert_eq!(
        (replacement_notices(&world), world.is_stepping()),
        (Vec::new(), true)
    );
    world.apply(&Stop);
    world.remove_sandbox();
    for occurrence in [Crash, Message, SandboxReady] {
        world.apply(&occurrence);
    }
    assert_eq!(replacement_notices(&world), [None]);
    let notice = world
        .log
        .iter()
        .find(|event| is_replacement_notice(event))
        .map(|event| event.id);
    assert!(
        notice < world.state.last_user_message,
        "the agent answers the message"
    );
    let view = View::from_events(world.log.iter().cloned().map(Arc::new).collect());
    let messages = view.messages();
    let notices = messages
        .iter()
        .filter(|message| format!("{message:?}").contains("replaced by a new one"));
    assert_eq!(notices.count(), 1);
    for occurrence in [
        ActionDone,
        ActionDone,
        ActionDone,
        StepDone(Decision::Run),
        Crash,
        SandboxReady,
    ] {
        world.apply(&occurrence);
    }
    assert_eq!(
        replacement_notices(&world),
        [None],
        "the notice is not repeated"
    );
}

#[test]
fn setup_fails_when_its_sandbox_is_lost_repeatedly() {
    let (mut world, _) = after(&[Message, SandboxReady, SandboxLost]);
    assert_eq!(
        world.state.agent_state,
        AgentState::Loading,
        "a single loss is no failure"
    );
    for occurrence in [
        SandboxReady,
        ActionDone,
        SandboxLost,
        SandboxReady,
        SandboxLost,
    ] {
        world.apply(&occurrence);
    }
    assert_eq!(world.state.agent_state, AgentState::Error);
}

#[test]
fn setup_waits_for_the_tool_call_in_flight() {
    let ready = [Message, SandboxReady, ActionDone, ActionDone, ActionDone];
    let (mut world, _) = after(&ready);
    for occurrence in [
        StepDone(Decision::CallTool),
        SandboxLost,
        Stop,
        Message,
        ActionDone,
        SandboxReady,
    ] {
        world.apply(&occurrence);
    }
    assert_eq!(
        (world.state.agent_state, world.executing().is_some()),
        (AgentState::Loading, true)
    );
}

#[test]
fn agent_resumes_before_the_loop_it_was_stopped_in() {
    for held in [None, Some(Stop)] {
        let mut world = World::start(None, ConfirmationPolicy::Never);
        [SandboxReady, Message]
            .iter()
            .for_each(|occurrence| world.apply(occurrence));
        for _ in 0..4 {
            world.apply(&StepDone(Decision::Run));
            world.apply(&ActionDone);
        }
        assert_eq!(world.state.agent_state, AgentState::Error);
        held.iter().for_each(|occurrence| world.apply(occurrence));
        world.apply(&Resume(true));
        assert!(world.is_stepping(), "after {held:?}");
        let forgets =
            |event: &Event| matches!(&event.body, EventBody::Action(Action::Condensation(_)));
        assert_eq!(world.log.iter().filter(|event| forgets(event)).count(), 1);
    }
}

#[test]
fn setup_step_keeps_its_deadline_after_a_crash() {
    let (world, _) = after(&[Message, SandboxReady]);
    let later = Timestamp::try_from("2026-01-02T03:09:05.678901".to_owned()).unwrap();
    let mut state = State::fold(&world.log);
    let mut effects = Vec::new();
    for kind in [InputKind::Recovered, InputKind::SandboxReady(world.lease())] {
        (state, effects) = transition(
            state,
            Input {
                at: later.clone(),
                kind,
            },
        );
    }
    let time_left = effects.iter().find_map(|effect| match effect {
        Effect::Execute { time_left, .. } => *time_left,
        _ => None,
    });
    assert_eq!(time_left.unwrap().as_secs_f64().round(), 300.0);
}

/// A world in which the first step of the agent is in flight.
fn stepping(history_truncation_disabled: bool) -> World {
    let mut world = World::start(None, ConfirmationPolicy::Never);
    world
        .state
        .started
        .as_mut()
        .unwrap()
        .history_truncation_disabled = history_truncation_disabled;
    [Message, SandboxReady]
        .iter()
        .for_each(|occurrence| world.apply(occurrence));
    assert!(world.is_stepping());
    world
}

#[test]
fn approval_of_similar_actions_survives_a_crash() {
    let mut world = World::start(
        None,
        ConfirmationPolicy::Risky {
            from: SecurityRisk::High,
        },
    );
    let risky = StepDone(Decision::RunRisky);
    for occurrence in [
        SandboxReady,
        Message,
        risky.clone(),
        Occurrence::Approve,
        ActionDone,
    ] {
        world.apply(&occurrence);
    }
    assert_eq!(world.state.approvals.len(), 1);
    for occurrence in [Crash, SandboxReady, risky] {
        world.apply(&occurrence);
    }
    assert_eq!(world.state.agent_state, AgentState::Running);
    assert!(
        world.executing().is_some(),
        "a similar command requires no confirmation"
    );
    // An action that is not similar requires confirmation.
    for occurrence in [ActionDone, StepDone(Decision::CallTool)] {
        world.apply(&occurrence);
    }
    assert_eq!(
        world.state.agent_state,
        AgentState::AwaitingUserConfirmation
    );
    // The name of a tool means the same one until a crash.
    let call = StepDone(Decision::CallTool);
    for occurrence in [Occurrence::Approve, ActionDone, call.clone()] {
        world.apply(&occurrence);
    }
    assert_eq!(world.state.agent_state, AgentState::Running);
    for occurrence in [ActionDone, Crash, SandboxReady, call] {
        world.apply(&occurrence);
    }
    assert_eq!(
        world.state.agent_state,
        AgentState::AwaitingUserConfirmation
    );
}

#[test]
fn risk_reason_survives_a_crash() {
    let mut world = World::start(None, ConfirmationPolicy::Always);
    for occurrence in [SandboxReady, Message, StepDone(Decision::RunRisky), Crash] {
        world.apply(&occurrence);
    }
    let (_, pending) = world.state.awaiting_confirmation().unwrap();
    assert_eq!(pending.risk_reason, "it deletes");
}

#[test]
fn overflowing_history_is_condensed_while_that_helps() {
    let mut world = stepping(false);
    for _ in 0..3 {
        world.apply(&StepDone(Decision::Overflow));
        assert!(matches!(
            world.log.last().unwrap().body,
            EventBody::Action(protocol::Action::CondensationRequest(_))
        ));
        world.apply(&StepDone(Decision::Condense));
        assert!(world.is_stepping());
    }
    world.apply(&StepDone(Decision::Overflow));
    [Crash, SandboxReady]
        .iter()
        .for_each(|occurrence| world.apply(occurrence));
    assert!(world.is_stepping());
    // The requested condensation has not arrived.
    world.apply(&StepDone(Decision::Overflow));
    assert_eq!(world.state.agent_state, AgentState::Error);

    let mut world = stepping(true);
    world.apply(&StepDone(Decision::Overflow));
    assert_eq!(world.state.agent_state, AgentState::Error);
}

#[test]
fn refused_long_history_is_condensed_once() {
    let mut world = stepping(false);
    world.apply(&StepDone(Decision::Refused));
    assert_eq!(world.state.agent_state, AgentState::Error);

    let mut world = stepping(false);
    (world.state.max_iterations, world.state.max_budget) = (u32::MAX, None);
    for _ in 0..LONG_HISTORY_STEPS {
        // Not a loop, because the user intervenes.
        world.apply(&Message);
        world.apply(&StepDone(Decision::Think));
    }
    world.apply(&StepDone(Decision::Refused));
    assert!(matches!(
        world.log.last().unwrap().body,
        EventBody::Action(protocol::Action::CondensationRequest(_))
    ));
    world.apply(&StepDone(Decision::Condense));
    assert!(world.is_stepping());
    world.apply(&StepDone(Decision::Refused));
    assert_eq!(world.state.agent_state, AgentState::Error);
}

#[test]
fn condensation_costs_money_and_is_no_step() {
    let mut world = stepping(false);
    let before = world.state.metrics.accumulated_cost;
    world.apply(&StepDone(Decision::Condense));
    assert_eq!(
        (
            world.state.metrics.accumulated_cost - before,
            world.state.iterations
        ),
        (0.5, 0)
    );
    world.apply(&StepDone(Decision::Run));
    assert_eq!(world.state.iterations, 1);
}

#[test]
fn message_grants_steps_again_but_no_spent_budget() {
    for (limit, granted) in [(Limit::Iterations, 1), (Limit::Budget, 0)] {
        let mut world = World::start(None, ConfirmationPolicy::Never);
        for occurrence in [SandboxReady, Message] {
            world.apply(&occurrence);
        }
        world.state.limit_reached = Some(limit);
        world.state.max_iterations = world.state.iterations;
        let before = world.log.len();
        world.command(UserCommand::message("go on"));
        let is_extension =
            |event: &&Event| matches!(event.body, EventBody::Record(Record::LimitExtended(_)));
        let extensions = world.log[before..].iter().filter(is_extension).count();
        assert_eq!(extensions, granted, "{limit:?}");
    }
}

#[test]
fn unattended_agent_continues_three_times_in_a_row() {
    let mut world = World::start(None, ConfirmationPolicy::Never);
    (world.state.max_iterations, world.state.max_budget) = (100, None);
    world.state.schedule.continue_requests = Some(0);
    for occurrence in [SandboxReady, Message] {
        world.apply(&occurrence);
    }
    for _ in 0..2 {
        for _ in 0..3 {
            world.apply(&StepDone(Decision::Ask));
            assert_eq!(world.state.agent_state, AgentState::Running);
        }
        world.apply(&StepDone(Decision::Run));
        world.apply(&ActionDone);
    }
    for _ in 0..4 {
        world.apply(&StepDone(Decision::Ask));
    }
    assert_eq!(world.state.agent_state, AgentState::AwaitingUserInput);
}

#[test]
fn unattended_agent_without_a_message_is_requested_to_continue() {
    for (requests, expected) in [
        (None, AgentState::AwaitingUserInput),
        (Some(0), AgentState::Running),
    ] {
        let mut world = World::start(None, ConfirmationPolicy::Never);
        world.state.schedule.continue_requests = requests;
        world.apply(&SandboxReady);
        assert_eq!(world.state.agent_state, expected);
    }
}

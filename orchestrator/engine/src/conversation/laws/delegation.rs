//! Delegated tasks, case by case.

use protocol::observation::DelegateObservation;
use protocol::risk::ConfirmationPolicy;
use protocol::{
    Action, AgentState, Event, EventBody, EventId, Observation, ObservationKind, UserCommand,
};

use super::{Decision, Occurrence, World};
use crate::conversation::{NOT_PERFORMED, State, fork};
use crate::testing::timestamp;
use Occurrence::{
    ActionDone, Confirm, Crash, Message, Pause, Reject, Resume, SandboxLost, SandboxReady,
    StepDone, StepRefused, Stop,
};

/// A world in which the agent has delegated this many tasks in one response.
fn delegated(tasks: usize, confirmation: ConfirmationPolicy) -> World {
    let mut world = World::start(None, confirmation);
    for occurrence in [
        SandboxReady,
        Message,
        StepDone(Decision::Delegate(tasks)),
        Resume(true),
    ] {
        world.apply(&occurrence);
    }
    while world.state.children.len() < tasks {
        // The decision is ignored: the agent makes the other calls of the same response.
        world.finish_step(None, Decision::Think);
    }
    assert_eq!(world.state.children.len(), tasks);
    world
}

/// Outcomes of the completed tasks, in order.
fn outcomes(world: &World) -> Vec<(EventId, String)> {
    let outcome = |event: &Event| match &event.body {
        EventBody::Observation(Observation {
            kind: ObservationKind::Delegate(DelegateObservation { outputs }),
            ..
        }) => Some((
            event.cause.unwrap(),
            outputs["outcome"].as_str().unwrap().to_owned(),
        )),
        _ => None,
    };
    world.log.iter().filter_map(outcome).collect()
}

fn children(world: &World) -> Vec<EventId> {
    world.state.children.keys().copied().collect()
}

#[test]
fn delegated_task_returns_its_outcome_to_the_parent() {
    let mut world = delegated(1, ConfirmationPolicy::Never);
    let [child] = children(&world)[..] else {
        panic!("one child")
    };
    assert!(world.state.is_stepping(Some(child)) && !world.state.is_stepping(None));
    world.apply(&StepDone(Decision::Run));
    assert_eq!(world.log.last().unwrap().delegation, Some(child));
    world.apply(&ActionDone);
    world.apply(&StepDone(Decision::Finish));
    assert_eq!(outcomes(&world), [(child, "finished".to_owned())]);
    let event = world.log.last().unwrap();
    assert_eq!(
        (event.delegation, event.tool_call_metadata.is_some()),
        (None, true)
    );
    assert!(world.state.is_stepping(None), "the parent continues");
    assert_eq!(world.state.iterations, 3, "all steps count");
}

#[test]
fn parent_continues_after_every_kind_of_outcome() {
    for (decision, outcome) in [
        (Decision::Finish, "finished"),
        (Decision::Ask, "finished"),
        (Decision::Reject, "rejected"),
        (Decision::Fail, "error"),
    ] {
        let mut world = delegated(1, ConfirmationPolicy::Never);
        let child = children(&world)[0];
        world.apply(&StepDone(decision));
        assert_eq!(
            outcomes(&world),
            [(child, outcome.to_owned())],
            "{decision:?}"
        );
        assert!(world.state.is_stepping(None), "{decision:?}");
    }
}

#[test]
fn limit_ends_the_task_before_the_conversation() {
    let mut world = delegated(1, ConfirmationPolicy::Never);
    // Spend the budget with five more calls.
    for _ in 0..5 {
        world.apply(&StepDone(Decision::Think));
    }
    let outcomes = outcomes(&world);
    assert_eq!(outcomes.len(), 1);
    assert_eq!(outcomes[0].1, "error");
    assert_eq!(world.state.agent_state, AgentState::Error);
    world.apply(&Resume(true));
    assert!(world.state.is_stepping(None));
}

#[test]
fn parent_continues_when_all_concurrent_tasks_are_done() {
    let mut world = delegated(3, ConfirmationPolicy::Never);
    let tasks = children(&world);
    assert!(
        tasks
            .iter()
            .all(|task| world.state.is_stepping(Some(*task)))
    );
    world.finish_step(Some(tasks[1]), Decision::Finish);
    assert!(!world.state.is_stepping(None), "two tasks are open");
    world.finish_step(Some(tasks[0]), Decision::Run);
    world.finish_step(Some(tasks[2]), Decision::Run);
    assert_eq!(world.state.pending().count(), 2, "actions are concurrent");
    world.apply(&ActionDone);
    world.apply(&ActionDone);
    world.apply(&Resume(true));
    world.finish_step(Some(tasks[2]), Decision::Finish);
    assert!(!world.state.is_stepping(None), "one task is open");
    world.finish_step(Some(tasks[0]), Decision::Finish);
    assert!(world.state.is_stepping(None));
    assert_eq!(
        outcomes(&world)
            .iter()
            .map(|(task, _)| *task)
            .collect::<Vec<_>>(),
        [tasks[1], tasks[2], tasks[0]]
    );
}

#[test]
fn stop_ends_all_tasks_and_their_actions() {
    let mut world = delegated(2, ConfirmationPolicy::Never);
    let tasks = children(&world);
    world.finish_step(Some(tasks[0]), Decision::Run);
    world.apply(&Stop);
    assert_eq!(
        outcomes(&world),
        [(tasks[1], "stopped".to_owned())],
        "the action of the other agent is being cancelled"
    );
    world.apply(&ActionDone);
    assert_eq!(outcomes(&world).len(), 2);
    assert!(!world.state.has_pending_actions());
}

#[test]
fn tasks_survive_a_pause_and_a_crash() {
    let mut world = delegated(2, ConfirmationPolicy::Never);
    world.apply(&Pause);
    assert!(!world.is_stepping());
    world.apply(&Crash);
    world.apply(&Resume(false));
    assert!(
        children(&world)
            .iter()
            .all(|task| world.state.is_stepping(Some(*task)))
    );
    world.apply(&Crash);
    assert!(
        children(&world)
            .iter()
            .all(|task| world.state.is_stepping(Some(*task)))
    );
    assert_eq!(outcomes(&world), []);
}

#[test]
fn other_agents_step_while_one_awaits_confirmation() {
    let mut world = delegated(2, ConfirmationPolicy::Always);
    let tasks = children(&world);
    world.finish_step(Some(tasks[0]), Decision::Run);
    assert_eq!(
        world.state.agent_state,
        AgentState::AwaitingUserConfirmation
    );
    assert!(world.state.is_stepping(Some(tasks[1])));
    world.finish_step(Some(tasks[1]), Decision::Run);
    assert_eq!(
        world.state.awaiting_confirmation().unwrap().0,
        Some(tasks[0])
    );
    world.apply(&Confirm);
    assert_eq!(
        world.state.awaiting_confirmation().unwrap().0,
        Some(tasks[1])
    );
    assert_eq!(
        world.state.agent_state,
        AgentState::AwaitingUserConfirmation
    );
    world.apply(&Reject("use rg"));
    assert_eq!(world.state.agent_state, AgentState::Running);
    assert!(world.state.is_stepping(Some(tasks[1])) && !world.state.is_stepping(Some(tasks[0])));
}

#[test]
fn pause_holds_other_agents_while_one_awaits_confirmation() {
    let mut world = delegated(2, ConfirmationPolicy::Always);
    let tasks = children(&world);
    tasks
        .iter()
        .for_each(|task| world.finish_step(Some(*task), Decision::Run));
    world.apply(&Confirm);
    assert_eq!(
        world.state.agent_state,
        AgentState::AwaitingUserConfirmation
    );
    world.apply(&Pause);
    world.apply(&ActionDone);
    assert_eq!(world.state.agent_state, AgentState::Paused);
    assert!(!world.is_stepping());
}

#[test]
fn confirmation_applies_only_to_the_named_action() {
    let mut world = delegated(2, ConfirmationPolicy::Always);
    let tasks = children(&world);
    tasks
        .iter()
        .for_each(|task| world.finish_step(Some(*task), Decision::Run));
    let action = world.state.awaiting_confirmation().unwrap().1.action;
    world.command(UserCommand::confirm(Some(action.next())));
    world.command(UserCommand::Reject {
        action: Some(EventId(0)),
        reason: String::new(),
    });
    assert_eq!(
        world.state.awaiting_confirmation().unwrap().1.action,
        action
    );
    world.command(UserCommand::confirm(Some(action)));
    assert_eq!(world.executing(), Some(action));
}

#[test]
fn rejection_without_a_reason_holds_all_agents() {
    let mut world = delegated(1, ConfirmationPolicy::Always);
    let task = children(&world)[0];
    world.apply(&StepDone(Decision::Run));
    world.apply(&Reject(""));
    assert_eq!(world.state.agent_state, AgentState::AwaitingUserInput);
    assert!(!world.state.is_working() && !world.state.has_pending_actions());
    world.apply(&Message);
    assert!(world.state.is_stepping(Some(task)), "it continues its task");
}

#[test]
fn agent_without_its_whole_briefing_does_not_start() {
    let world = delegated(1, ConfirmationPolicy::Never);
    let mut briefing = world.log.iter().filter(|event| event.delegation.is_some());
    let last = briefing.next_back().unwrap().id.previous().unwrap();
    let log = fork(&world.log, &"other".parse().unwrap(), last, &timestamp()).unwrap();
    assert!(State::fold(&log).children.is_empty());
    assert_eq!(outcomes(&World::with_log(log))[0].1, "error");
}

#[test]
fn agents_continue_when_their_sandbox_is_lost() {
    let mut world = delegated(2, ConfirmationPolicy::Never);
    let tasks = children(&world);
    tasks
        .iter()
        .for_each(|task| world.finish_step(Some(*task), Decision::Run));
    world.apply(&SandboxLost);
    assert!(
        tasks
            .iter()
            .all(|task| world.state.is_stepping(Some(*task)))
    );
}

#[test]
fn unconfirmed_action_of_a_failed_agent_is_not_performed() {
    let mut world = delegated(1, ConfirmationPolicy::Always);
    let task = children(&world)[0];
    // Two calls of one response: the second follows while the task of the first is open.
    world.finish_step(Some(task), Decision::Delegate(2));
    let grandchild = children(&world)[1];
    world.finish_step(Some(grandchild), Decision::Run);
    let action = world.state.awaiting_confirmation().unwrap().1.action;
    world.apply(&StepRefused);
    let outcome = world
        .log
        .iter()
        .find(|event| event.cause == Some(action))
        .unwrap();
    assert!(
        matches!(&outcome.body, EventBody::Observation(Observation { kind: ObservationKind::Error(error), .. })
            if error.error_id == NOT_PERFORMED)
    );
    assert_eq!(
        (children(&world), world.state.is_stepping(None)),
        (Vec::new(), true)
    );
}

/// The other calls of a response cost nothing. They are made even if other agents have reached the
/// budget.
#[test]
fn calls_of_one_response_end_when_the_budget_is_reached() {
    let mut world = World::start(None, ConfirmationPolicy::Never);
    for occurrence in [
        SandboxReady,
        Message,
        StepDone(Decision::Think),
        StepDone(Decision::Think),
    ] {
        world.apply(&occurrence);
    }
    world.finish_step(None, Decision::Delegate(3));
    let child = children(&world)[0];
    world.finish_step(Some(child), Decision::Delegate(3));
    let grandchild = children(&world)[1];
    world.finish_step(Some(grandchild), Decision::Run);
    assert!(world.state.is_budget_reached());
    for agent in [None, Some(child), None, Some(child)] {
        world.finish_step(agent, Decision::Think);
    }
    let delegations = world
        .log
        .iter()
        .filter(|event| matches!(event.body, EventBody::Action(Action::Delegate(_))))
        .count();
    assert_eq!(delegations, 6);
}

#[test]
fn delegation_depth_and_concurrency_are_limited() {
    let mut world = delegated(1, ConfirmationPolicy::Never);
    for depth in 2..=4 {
        world.apply(&Resume(true));
        let deepest = *world.state.children.keys().next_back().unwrap();
        world.finish_step(Some(deepest), Decision::Delegate(1));
        assert_eq!(world.state.children.len(), depth.min(3));
    }
    assert_eq!(outcomes(&world).len(), 1, "the deepest task is refused");
    let mut world = delegated(8, ConfirmationPolicy::Never);
    let first = children(&world)[0];
    world.finish_step(Some(first), Decision::Delegate(1));
    let delegations = world
        .log
        .iter()
        .filter(|event| matches!(event.body, EventBody::Action(Action::Delegate(_))))
        .count();
    assert_eq!((delegations, world.state.children.len()), (9, 8));
}

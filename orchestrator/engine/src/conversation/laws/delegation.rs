//! Tasks that are handed on, case by case.

use protocol::observation::DelegateObservation;
use protocol::risk::ConfirmationPolicy;
use protocol::{Action, AgentState, Event, EventBody, EventId, Observation, ObservationKind};

use super::{Decision, Happening, World};
use crate::conversation::{InputKind, NOT_PERFORMED, State, fork};
use crate::testing::timestamp;
use Happening::{
    ActionEnds, Confirm, Crash, Message, Pause, Reject, Resume, SandboxComes, SandboxIsLost, StepEnds,
    StepIsRefused, Stop,
};

/// A world in which as many tasks are handed on.
fn handed_on(tasks: usize, confirmation: ConfirmationPolicy) -> World {
    let mut world = World::begun(None, confirmation);
    for happening in [SandboxComes, Message, StepEnds(Decision::Delegate(tasks)), Resume(true)] {
        world.happen(&happening);
    }
    while world.state.children.len() < tasks {
        // Whatever it would decide: it makes the other calls of the same response.
        world.step_ends(None, Decision::Think);
    }
    assert_eq!(world.state.children.len(), tasks);
    world
}

/// What came of the tasks, in order of their ends.
fn outcomes(world: &World) -> Vec<(EventId, String)> {
    let outcome = |event: &Event| match &event.body {
        EventBody::Observation(Observation {
            kind: ObservationKind::Delegate(DelegateObservation { outputs }),
            ..
        }) => Some((event.cause.unwrap(), outputs["outcome"].as_str().unwrap().to_owned())),
        _ => None,
    };
    world.log.iter().filter_map(outcome).collect()
}

fn children(world: &World) -> Vec<EventId> {
    world.state.children.keys().copied().collect()
}

#[test]
fn delegated_task_returns_its_outcome_to_the_parent() {
    let mut world = handed_on(1, ConfirmationPolicy::Never);
    let [child] = children(&world)[..] else { panic!("one child") };
    assert!(world.state.is_stepping(Some(child)) && !world.state.is_stepping(None));
    world.happen(&StepEnds(Decision::Run));
    assert_eq!(world.log.last().unwrap().delegation, Some(child));
    world.happen(&ActionEnds);
    world.happen(&StepEnds(Decision::Finish));
    assert_eq!(outcomes(&world), [(child, "finished".to_owned())]);
    let told = world.log.last().unwrap();
    assert_eq!((told.delegation, told.tool_call_metadata.is_some()), (None, true));
    assert!(world.state.is_stepping(None), "the one that waited goes on");
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
        let mut world = handed_on(1, ConfirmationPolicy::Never);
        let child = children(&world)[0];
        world.happen(&StepEnds(decision));
        assert_eq!(outcomes(&world), [(child, outcome.to_owned())], "{decision:?}");
        assert!(world.state.is_stepping(None), "{decision:?}");
    }
}

#[test]
fn limit_ends_the_task_before_the_conversation() {
    let mut world = handed_on(1, ConfirmationPolicy::Never);
    // Of money: five more calls.
    for _ in 0..5 {
        world.happen(&StepEnds(Decision::Think));
    }
    let outcomes = outcomes(&world);
    assert_eq!(outcomes.len(), 1);
    assert_eq!(outcomes[0].1, "error");
    assert_eq!(world.state.agent_state, AgentState::Error);
    world.happen(&Resume(true));
    assert!(world.state.is_stepping(None));
}

#[test]
fn parent_continues_when_all_concurrent_tasks_are_done() {
    let mut world = handed_on(3, ConfirmationPolicy::Never);
    let tasks = children(&world);
    assert!(tasks.iter().all(|task| world.state.is_stepping(Some(*task))));
    world.step_ends(Some(tasks[1]), Decision::Finish);
    assert!(!world.state.is_stepping(None), "two are at work");
    world.step_ends(Some(tasks[0]), Decision::Run);
    world.step_ends(Some(tasks[2]), Decision::Run);
    assert_eq!(world.state.pending().count(), 2, "at the same time");
    world.happen(&ActionEnds);
    world.happen(&ActionEnds);
    world.happen(&Resume(true));
    world.step_ends(Some(tasks[2]), Decision::Finish);
    assert!(!world.state.is_stepping(None), "one is at work");
    world.step_ends(Some(tasks[0]), Decision::Finish);
    assert!(world.state.is_stepping(None));
    assert_eq!(
        outcomes(&world).iter().map(|(task, _)| *task).collect::<Vec<_>>(),
        [tasks[1], tasks[2], tasks[0]]
    );
}

#[test]
fn stop_ends_all_tasks_and_their_actions() {
    let mut world = handed_on(2, ConfirmationPolicy::Never);
    let tasks = children(&world);
    world.step_ends(Some(tasks[0]), Decision::Run);
    world.happen(&Stop);
    assert_eq!(outcomes(&world), [(tasks[1], "stopped".to_owned())], "the other one's action is being ended");
    world.happen(&ActionEnds);
    assert_eq!(outcomes(&world).len(), 2);
    assert!(!world.state.is_underway());
}

#[test]
fn tasks_survive_a_pause_and_a_crash() {
    let mut world = handed_on(2, ConfirmationPolicy::Never);
    world.happen(&Pause);
    assert!(!world.is_stepping());
    world.happen(&Crash);
    world.happen(&Resume(false));
    assert!(children(&world).iter().all(|task| world.state.is_stepping(Some(*task))));
    world.happen(&Crash);
    assert!(children(&world).iter().all(|task| world.state.is_stepping(Some(*task))));
    assert_eq!(outcomes(&world), []);
}

#[test]
fn other_agents_step_while_one_awaits_confirmation() {
    let mut world = handed_on(2, ConfirmationPolicy::Always);
    let tasks = children(&world);
    world.step_ends(Some(tasks[0]), Decision::Run);
    assert_eq!(world.state.agent_state, AgentState::AwaitingUserConfirmation);
    assert!(world.state.is_stepping(Some(tasks[1])));
    world.step_ends(Some(tasks[1]), Decision::Run);
    assert_eq!(world.state.asked().unwrap().0, Some(tasks[0]));
    world.happen(&Confirm);
    assert_eq!(world.state.asked().unwrap().0, Some(tasks[1]));
    assert_eq!(world.state.agent_state, AgentState::AwaitingUserConfirmation);
    world.happen(&Reject("use rg"));
    assert_eq!(world.state.agent_state, AgentState::Running);
    assert!(world.state.is_stepping(Some(tasks[1])) && !world.state.is_stepping(Some(tasks[0])));
}

#[test]
fn pause_holds_other_agents_while_one_awaits_confirmation() {
    let mut world = handed_on(2, ConfirmationPolicy::Always);
    let tasks = children(&world);
    tasks.iter().for_each(|task| world.step_ends(Some(*task), Decision::Run));
    world.happen(&Confirm);
    assert_eq!(world.state.agent_state, AgentState::AwaitingUserConfirmation);
    world.happen(&Pause);
    world.happen(&ActionEnds);
    assert_eq!(world.state.agent_state, AgentState::Paused);
    assert!(!world.is_stepping());
}

#[test]
fn confirmation_applies_only_to_the_named_action() {
    let mut world = handed_on(2, ConfirmationPolicy::Always);
    let tasks = children(&world);
    tasks.iter().for_each(|task| world.step_ends(Some(*task), Decision::Run));
    let asked = world.state.asked().unwrap().1.action;
    world.tell(InputKind::UserConfirm { action: Some(asked.next()), and_similar: false });
    world.tell(InputKind::UserReject { action: Some(EventId(0)), reason: String::new() });
    assert_eq!(world.state.asked().unwrap().1.action, asked);
    world.tell(InputKind::UserConfirm { action: Some(asked), and_similar: false });
    assert_eq!(world.executing(), Some(asked));
}

#[test]
fn rejection_without_a_reason_holds_all_agents() {
    let mut world = handed_on(1, ConfirmationPolicy::Always);
    let task = children(&world)[0];
    world.happen(&StepEnds(Decision::Run));
    world.happen(&Reject(""));
    assert_eq!(world.state.agent_state, AgentState::AwaitingUserInput);
    assert!(!world.state.is_working() && !world.state.is_underway());
    world.happen(&Message);
    assert!(world.state.is_stepping(Some(task)), "it goes on with its task");
}

#[test]
fn agent_without_its_whole_briefing_does_not_start() {
    let world = handed_on(1, ConfirmationPolicy::Never);
    let mut briefing = world.log.iter().filter(|event| event.delegation.is_some());
    let last = briefing.next_back().unwrap().id.previous().unwrap();
    let log = fork(&world.log, &"other".parse().unwrap(), last, &timestamp()).unwrap();
    assert!(State::fold(&log).children.is_empty());
    assert_eq!(outcomes(&World::with_log(log))[0].1, "error");
}

#[test]
fn agents_continue_when_their_sandbox_is_lost() {
    let mut world = handed_on(2, ConfirmationPolicy::Never);
    let tasks = children(&world);
    tasks.iter().for_each(|task| world.step_ends(Some(*task), Decision::Run));
    world.happen(&SandboxIsLost);
    assert!(tasks.iter().all(|task| world.state.is_stepping(Some(*task))));
}

#[test]
fn unconfirmed_action_of_a_failed_agent_is_not_performed() {
    let mut world = handed_on(1, ConfirmationPolicy::Always);
    let task = children(&world)[0];
    // It makes the second call of the same response while the first one's task is worked on.
    world.step_ends(Some(task), Decision::Delegate(2));
    let below = children(&world)[1];
    world.step_ends(Some(below), Decision::Run);
    let asked = world.state.asked().unwrap().1.action;
    world.happen(&StepIsRefused);
    let outcome = world.log.iter().find(|event| event.cause == Some(asked)).unwrap();
    assert!(
        matches!(&outcome.body, EventBody::Observation(Observation { kind: ObservationKind::Error(error), .. })
            if error.error_id == NOT_PERFORMED)
    );
    assert_eq!((children(&world), world.state.is_stepping(None)), (Vec::new(), true));
}

/// The other calls of a response are free, and are made although the budget is reached while other agents work.
#[test]
fn calls_of_one_response_end_when_the_budget_is_reached() {
    let mut world = World::begun(None, ConfirmationPolicy::Never);
    for happening in [SandboxComes, Message, StepEnds(Decision::Think), StepEnds(Decision::Think)] {
        world.happen(&happening);
    }
    world.step_ends(None, Decision::Delegate(3));
    let child = children(&world)[0];
    world.step_ends(Some(child), Decision::Delegate(3));
    let grandchild = children(&world)[1];
    world.step_ends(Some(grandchild), Decision::Run);
    assert!(world.state.is_budget_reached());
    for agent in [None, Some(child), None, Some(child)] {
        world.step_ends(agent, Decision::Think);
    }
    let delegations =
        world.log.iter().filter(|event| matches!(event.body, EventBody::Action(Action::Delegate(_)))).count();
    assert_eq!(delegations, 6);
}

#[test]
fn delegation_depth_and_concurrency_are_limited() {
    let mut world = handed_on(1, ConfirmationPolicy::Never);
    for depth in 2..=4 {
        world.happen(&Resume(true));
        let deepest = *world.state.children.keys().next_back().unwrap();
        world.step_ends(Some(deepest), Decision::Delegate(1));
        assert_eq!(world.state.children.len(), depth.min(3));
    }
    assert_eq!(outcomes(&world).len(), 1, "refused");
    let mut world = handed_on(8, ConfirmationPolicy::Never);
    let first = children(&world)[0];
    world.step_ends(Some(first), Decision::Delegate(1));
    let delegations =
        world.log.iter().filter(|event| matches!(event.body, EventBody::Action(Action::Delegate(_)))).count();
    assert_eq!((delegations, world.state.children.len()), (9, 8));
}

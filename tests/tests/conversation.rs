//! A conversation's task with real parts but for the sandbox, which plays a script.

use std::sync::Arc;
use std::time::Duration;

use engine::agent::CodeActAgent;
use engine::conversation::{Afterwards, Conversation, INTERRUPTED, Parts, State};
use engine::llm::Llm;
use engine::sandbox::SandboxSpec;
use engine::testing::{Ending, MemoryStore, ScriptedProvider};
use llm::ScriptedLlm;
use protocol::action::MessageAction;
use protocol::observation::RunObservation;
use protocol::record::ConversationStarted;
use protocol::sandbox_api::SandboxAction;
use protocol::{Action, AgentState, Body, ConversationId, Event, Observation, ObservationKind};
use serde_json::{Value, json};
use tests::glovebox::{bash, finish};

struct World {
    store: Arc<MemoryStore>,
    provider: ScriptedProvider,
    parts: Parts,
}

impl World {
    /// Commands answer with their text; `hang` answers when it is cancelled.
    fn new(responses: &Value) -> Self {
        let provider = ScriptedProvider::new(|request| {
            let SandboxAction::Run(run) = &request.action else { panic!("only commands are scripted") };
            let observation = Observation::new(run.command.clone(), RunObservation::default());
            if run.command == "hang" {
                Ending::WhenCancelled(observation)
            } else {
                Ending::Observation(observation)
            }
        });
        let store = Arc::new(MemoryStore::default());
        let parts = Parts {
            store: store.clone(),
            llm: scripted(responses, 0),
            agent: Arc::new(CodeActAgent { command_timeout: 120.0, declares_risk: false }),
            provider: Arc::new(provider.clone()),
            spec: SandboxSpec::of(id()),
        };
        Self { store, provider, parts }
    }

    async fn begin(&self) -> Conversation {
        let started = ConversationStarted {
            agent: "CodeActAgent".into(),
            model: "scripted".into(),
            max_iterations: 50,
            runtime: "scripted".into(),
            image: None,
            workspace: None,
            setup: None,
        };
        let conversation = Conversation::begin(self.parts.clone(), id(), started).await.unwrap();
        say(&conversation, "work");
        conversation
    }

    fn log(&self) -> Vec<Event> {
        self.store.log(&id())
    }

    /// Every action that a sandbox performs, and the texts of its endings.
    fn endings(&self) -> Vec<(String, Vec<String>)> {
        let log = self.log();
        let ending_of = |action: &Event| {
            let ended = log.iter().filter(|event| event.cause == Some(action.id));
            ended.filter_map(|event| observation(event).map(|o| o.content.clone())).collect()
        };
        log.iter()
            .filter_map(|event| match &event.body {
                Body::Action(Action::Run(run)) => Some((run.command.clone(), ending_of(event))),
                _ => None,
            })
            .collect()
    }
}

fn id() -> ConversationId {
    "conversation".parse().unwrap()
}

fn scripted(responses: &Value, answered: usize) -> Arc<dyn Llm> {
    let script = json!({"responses": responses}).to_string();
    Arc::new(ScriptedLlm::from_json(&script).unwrap().starting_at(answered))
}

fn say(conversation: &Conversation, text: &str) {
    conversation.say(MessageAction { content: text.into(), ..Default::default() }).unwrap();
}

fn observation(event: &Event) -> Option<&Observation> {
    match &event.body {
        Body::Observation(observation) => Some(observation),
        _ => None,
    }
}

async fn reach(conversation: &Conversation, agent_state: AgentState) -> Arc<State> {
    let reached = conversation.wait_for(|state| state.agent_state == agent_state && state.pending.is_none());
    tokio::time::timeout(Duration::from_secs(10), reached).await.expect("the state is reached")
}

async fn perform(conversation: &Conversation) {
    let performed = conversation.wait_for(|state| state.pending.is_some());
    tokio::time::timeout(Duration::from_secs(10), performed).await.expect("an action is performed");
}

fn one(command: &str, ending: &str) -> (String, Vec<String>) {
    (command.into(), vec![ending.into()])
}

#[tokio::test]
async fn a_stop_ends_the_command_and_its_observation_still_comes() {
    let world = World::new(&json!([bash("hang"), finish()]));
    let conversation = world.begin().await;
    perform(&conversation).await;
    conversation.stop().unwrap();
    reach(&conversation, AgentState::Stopped).await;
    assert_eq!(world.endings(), [one("hang", "hang")]);
    say(&conversation, "go on");
    reach(&conversation, AgentState::Finished).await;
    conversation.close(Afterwards::Remove).await.unwrap();
    assert_eq!(world.provider.placed_now(), 0);
}

#[tokio::test]
async fn a_message_while_the_agent_works_is_not_overlooked_at_the_end() {
    let world = World::new(&json!([bash("hang"), finish(), bash("more"), finish()]));
    let conversation = world.begin().await;
    perform(&conversation).await;
    say(&conversation, "and this too");
    conversation.stop().unwrap();
    conversation.resume(None).unwrap();
    reach(&conversation, AgentState::Finished).await;
    say(&conversation, "and that");
    let again =
        conversation.wait_for(|state| state.iterations == 4 && state.agent_state == AgentState::Finished);
    tokio::time::timeout(Duration::from_secs(10), again).await.expect("the second message is heard");
    assert_eq!(world.endings(), [one("hang", "hang"), one("more", "more")]);
    conversation.close(Afterwards::Remove).await.unwrap();
}

#[tokio::test]
async fn a_lost_sandbox_interrupts_the_action_and_the_next_one_gets_another() {
    let world = World::new(&json!([bash("hang"), bash("after"), finish()]));
    let conversation = world.begin().await;
    perform(&conversation).await;
    world.provider.lose_all();
    reach(&conversation, AgentState::Finished).await;
    let log = world.log();
    let interrupted: Vec<_> = log
        .iter()
        .filter_map(observation)
        .filter(|o| matches!(&o.kind, ObservationKind::Error(error) if error.error_id == INTERRUPTED))
        .collect();
    assert_eq!(interrupted.len(), 1);
    assert_eq!(world.endings()[1], one("after", "after"));
    conversation.close(Afterwards::Remove).await.unwrap();
}

#[tokio::test]
async fn a_conversation_whose_process_died_goes_on_and_runs_nothing_twice() {
    let responses = json!([bash("one"), bash("hang"), bash("two"), finish()]);
    let world = World::new(&responses);
    let conversation = world.begin().await;
    let second = conversation.wait_for(|state| state.iterations == 2 && state.pending.is_some());
    second.await;
    // As a killed process leaves it: nothing is told, nothing removed.
    drop(conversation);
    let parts = Parts { llm: scripted(&responses, 2), ..world.parts.clone() };
    let conversation = Conversation::recover(parts, id()).await.unwrap();
    conversation.stop().unwrap();
    reach(&conversation, AgentState::Stopped).await;
    conversation.resume(None).unwrap();
    reach(&conversation, AgentState::Finished).await;
    assert_eq!(world.endings(), [one("one", "one"), one("hang", "hang"), one("two", "two")]);
    assert!(world.provider.runs().values().all(|runs| *runs == 1));
    assert_eq!(State::fold(&world.log()), *conversation.state());
    conversation.close(Afterwards::Remove).await.unwrap();
}

#[tokio::test]
async fn calls_of_one_response_are_made_one_after_another_also_over_a_crash() {
    let both = json!({"tool_calls": [
        {"name": "execute_bash", "arguments": {"command": "hang"}},
        {"name": "execute_bash", "arguments": {"command": "second"}},
    ]});
    let world = World::new(&json!([both, finish()]));
    let conversation = world.begin().await;
    perform(&conversation).await;
    drop(conversation);
    let parts = Parts { llm: scripted(&json!([both, finish()]), 1), ..world.parts.clone() };
    let conversation = Conversation::recover(parts, id()).await.unwrap();
    conversation.stop().unwrap();
    reach(&conversation, AgentState::Stopped).await;
    conversation.resume(None).unwrap();
    reach(&conversation, AgentState::Finished).await;
    assert_eq!(world.endings(), [one("hang", "hang"), one("second", "second")]);
    assert_eq!(conversation.state().iterations, 2, "the model was asked twice");
    conversation.close(Afterwards::Remove).await.unwrap();
}

#[tokio::test]
async fn an_unknown_conversation_cannot_be_recovered() {
    let world = World::new(&json!([]));
    assert!(Conversation::recover(world.parts.clone(), id()).await.is_err());
    assert_eq!(world.log(), []);
}

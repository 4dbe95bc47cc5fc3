use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use protocol::action::{FinishAction, MessageAction, SystemAction};
use protocol::observation::{CommandMetadata, RunObservation};
use protocol::record::{ConversationStarted, ModelSource, WorkspaceSetup};
use protocol::sandbox_api::SandboxAction;
use protocol::{
    Action, AgentState, CommandRequest, ConversationId, Event, EventBody, EventId, Observation,
    UserCommand,
};
use tokio::time::Instant;

use crate::agent::{Agent, AgentStep, Agents, TeamMember};
use crate::clock;
use crate::condenser::Noop;
use crate::conversation::{
    Conversation, ConversationStart, Effect, EngineParts, Input, InputKind, State, transition,
};
use crate::llm::{Llm, LlmError, LlmProgress};
use crate::sandbox::SandboxSpec;
use crate::testing::{HangingLlm, MemoryStore, ScriptedProvider, ScriptedResult, UnusedLlm};
use crate::view::View;

/// An agent that panics at its first step.
struct UnusedAgent;

#[async_trait]
impl Agent for UnusedAgent {
    fn name(&self) -> &str {
        "unused"
    }

    fn system(&self) -> SystemAction {
        SystemAction::default()
    }

    async fn step(
        &self,
        _: &View,
        _: &dyn Llm,
        _: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<AgentStep, LlmError> {
        panic!("the agent steps");
    }
}

/// An agent that finishes at its first step.
struct FinishingAgent;

#[async_trait]
impl Agent for FinishingAgent {
    fn name(&self) -> &str {
        "finishing"
    }

    fn system(&self) -> SystemAction {
        UnusedAgent.system()
    }

    async fn step(
        &self,
        _: &View,
        _: &dyn Llm,
        _: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<AgentStep, LlmError> {
        Ok(AgentStep::new(Action::from(FinishAction::default())))
    }
}

/// An agent that sends the name of its model.
struct NamingAgent;

#[async_trait]
impl Agent for NamingAgent {
    fn name(&self) -> &str {
        "naming"
    }

    fn system(&self) -> SystemAction {
        UnusedAgent.system()
    }

    async fn step(
        &self,
        _: &View,
        llm: &dyn Llm,
        _: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<AgentStep, LlmError> {
        let name = MessageAction {
            content: llm.model().to_owned(),
            wait_for_response: true,
            ..MessageAction::default()
        };
        Ok(AgentStep::new(Action::from(name)))
    }
}

fn hanging(max_cost: f64) -> Arc<dyn Llm> {
    Arc::new(HangingLlm {
        max_cost,
        ..Default::default()
    })
}

fn id() -> ConversationId {
    "conversation".parse().unwrap()
}

fn started() -> ConversationStarted {
    ConversationStarted {
        agent: "agent".into(),
        model: "model".into(),
        max_iterations: 1,
        runtime: "scripted".into(),
        ..Default::default()
    }
}

fn parts(provider: &ScriptedProvider, agent: Arc<dyn Agent>, llm: Arc<dyn Llm>) -> EngineParts {
    EngineParts {
        store: Arc::new(MemoryStore::default()),
        write_lock: Arc::new(()),
        agents: Agents::from(member(agent, llm)),
        provider: Arc::new(provider.clone()),
        spec: SandboxSpec::new(id()),
        analyzer: None,
        memory: None,
        is_unattended: false,
        replayed_user: None,
    }
}

fn member(agent: Arc<dyn Agent>, llm: Arc<dyn Llm>) -> TeamMember {
    TeamMember {
        draft_editor: Arc::clone(&llm),
        llm,
        agent,
        condenser: Arc::new(Noop),
        tool_servers: Arc::new(crate::tool_servers::NoToolServers),
    }
}

#[tokio::test(start_paused = true)]
async fn step_does_not_wait_for_a_title() {
    let provider = ScriptedProvider::new(|request| panic!("{request:?}"));
    let parts = parts(&provider, Arc::new(FinishingAgent), hanging(f64::INFINITY));
    let started = ConversationStarted {
        max_budget: Some(1.0),
        ..started()
    };
    let conversation = Conversation::start(parts, id(), started).await.unwrap();
    conversation
        .request_title(hanging(0.9), "work".into())
        .unwrap();
    conversation
        .apply(UserCommand::message("work"))
        .await
        .unwrap();
    let finished = conversation.wait_for(|state| state.agent_state == AgentState::Finished);
    let state = tokio::time::timeout(Duration::from_secs(3600), finished)
        .await
        .unwrap();
    assert_eq!(state.title, None, "the search is in flight");
    conversation
        .close(crate::conversation::SandboxDisposition::Remove)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn chosen_model_answers_from_the_next_step_on() {
    let provider = ScriptedProvider::new(|request| panic!("{request:?}"));
    let parts = parts(&provider, Arc::new(NamingAgent), Arc::new(UnusedLlm));
    let started = ConversationStarted {
        max_iterations: 9,
        ..started()
    };
    let conversation = Conversation::start(parts, id(), started).await.unwrap();
    let answer = async |message: &str| {
        conversation
            .apply(UserCommand::message(message))
            .await
            .unwrap();
        let waits = |state: &State| state.agent_state == AgentState::AwaitingUserInput;
        conversation.wait_for(waits).await;
        let log = conversation.log().cursor(EventId::FIRST).next().await;
        let log = log.unwrap();
        let mut messages = log.iter().filter_map(|event| match &event.body {
            EventBody::Action(Action::Message(message)) => Some(message.content.clone()),
            _ => None,
        });
        messages.next_back()
    };
    assert_eq!(answer("who?").await.as_deref(), Some("unused"));
    let change = CommandRequest {
        id: Some("change".parse().unwrap()),
        command: UserCommand::SetModel {
            model: "hanging".to_owned(),
        },
    };
    let mut changes = Vec::new();
    for llm in [hanging(0.0), Arc::new(UnusedLlm)] {
        let agents = Agents::from(member(Arc::new(UnusedAgent), llm));
        let change = conversation.submit_model(change.clone(), agents).unwrap();
        changes.push(change.await.unwrap());
    }
    assert!(changes[0].is_some() && changes[0] == changes[1], "once");
    assert_eq!(answer("and now?").await.as_deref(), Some("hanging"));
    let state = conversation.state();
    let started = state.started.as_ref().unwrap();
    assert_eq!(started.model, "hanging");
    assert_eq!(started.model_source, Some(ModelSource::Conversation));
}

#[tokio::test(start_paused = true)]
async fn next_setup_step_follows_when_one_times_out() {
    let provider = ScriptedProvider::new(|request| {
        let SandboxAction::Run(run) = &request.action else {
            panic!("{request:?}")
        };
        let ran = |exit_code| {
            let metadata = CommandMetadata {
                exit_code,
                ..Default::default()
            };
            Observation::new(
                "",
                RunObservation {
                    metadata,
                    ..Default::default()
                },
            )
        };
        match run.thought.as_str() {
            "Running the set-up script" => ScriptedResult::WhenCancelled(ran(137)),
            _ => ScriptedResult::Observation(ran(0)),
        }
    });
    let parts = parts(&provider, Arc::new(UnusedAgent), Arc::new(UnusedLlm));
    let started = ConversationStarted {
        setup: Some(WorkspaceSetup::Folder),
        ..started()
    };
    let started_at = Instant::now();
    let conversation = Conversation::start(parts, id(), started).await.unwrap();
    let state = conversation
        .wait_for(|state| state.agent_state == AgentState::AwaitingUserInput)
        .await;
    assert_eq!(
        (state.setup_step(), provider.start_counts().len()),
        (None, 2)
    );
    let took = started_at.elapsed().as_secs_f64();
    assert!((590.0..=601.0).contains(&took), "{took}");
    conversation
        .close(crate::conversation::SandboxDisposition::Remove)
        .await
        .unwrap();
}

/// A crash between the two would leave a conversation that has lost its task.
#[test]
fn first_message_is_stored_with_the_start() {
    let message = MessageAction {
        content: "work".into(),
        ..Default::default()
    };
    let start = ConversationStart {
        started: started(),
        system: FinishingAgent.system(),
        title: Some("Work".into()),
        message: Some(message.clone()),
    };
    let input = Input {
        at: clock::now(),
        kind: InputKind::Start(Box::new(start)),
    };
    let (state, effects) = transition(State::default(), input);
    let Some(Effect::Append(events)) = effects.first() else {
        panic!("{effects:?}")
    };
    let is_message = |event: &Event| matches!(&event.body, EventBody::Action(Action::Message(found)) if *found == message);
    assert_eq!(events.iter().filter(|event| is_message(event)).count(), 1);
    assert_eq!(state.title.as_deref(), Some("Work"));
    assert_eq!(state.agent_state, AgentState::Loading);
}

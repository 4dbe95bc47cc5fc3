//! Embeds conversations in a program: starts one, follows it until it waits, answers once, and
//! closes it.
//!
//! The parts are the engine's test parts. A real program takes `storage`, `llm` and a crate in
//! `orchestrator/sandbox` instead.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use conversations::{
    CloseReason, ConversationParts, Conversations, InitialTask, NewConversation, NoWorkspaces,
    ProcessLocks,
};
use engine::agent::{Agent, AgentStep, Agents, TeamMember};
use engine::condenser::Noop;
use engine::conversation::SandboxDisposition;
use engine::llm::{Llm, LlmError, LlmProgress};
use engine::sandbox::SandboxSpec;
use engine::secrets::{Redactor, SecretRegistry};
use engine::testing::{MemoryStore, ScriptedProvider, ScriptedResult, UnusedLlm};
use engine::tool_servers::NoToolServers;
use engine::view::View;
use protocol::action::{FinishAction, MessageAction, SystemAction};
use protocol::observation::RunObservation;
use protocol::record::ConversationStarted;
use protocol::{
    Action, ConversationId, ConversationUpdate, EventBody, EventId, EventSource, Observation,
    UserCommand,
};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let conversations = Conversations::new(
        Arc::new(MemoryStore::default()),
        Arc::new(ProcessLocks::default()),
        Arc::new(NoWorkspaces),
    );
    let id = Conversations::new_id();
    let new = NewConversation {
        started: ConversationStarted {
            max_iterations: 10,
            ..Default::default()
        },
        parts: parts(id.clone()),
        title: Some("An example".to_owned()),
        task: InitialTask::Message(MessageAction {
            content: "Greet me.".to_owned(),
            ..Default::default()
        }),
    };
    conversations
        .start(conversations.create(id.clone()).await?, new)
        .await?;

    let mut follower = conversations.follow(&id, EventId::FIRST).await?;
    let mut is_answered = false;
    loop {
        match follower.next().await? {
            ConversationUpdate::Event(event) => tracing::info!(id = %event.id, "appended"),
            ConversationUpdate::Waiting(_) if !is_answered => {
                is_answered = true;
                conversations
                    .apply(&id, UserCommand::message("Ada"))
                    .await?;
            }
            ConversationUpdate::Waiting(_) | ConversationUpdate::Closed {} => break,
            _ => {}
        }
    }
    let closed = conversations.close(&id, CloseReason::Idle).await?;
    tracing::info!(
        state = closed.state.agent_state.as_str(),
        answer = follower.answer(),
        "closed"
    );
    Ok(())
}

pub(crate) fn parts(id: ConversationId) -> ConversationParts {
    let script =
        |_: &_| ScriptedResult::Observation(Observation::new("foo", RunObservation::default()));
    ConversationParts {
        agents: Agents::from(TeamMember {
            agent: Arc::new(Greeter),
            llm: Arc::new(UnusedLlm),
            draft_editor: Arc::new(UnusedLlm),
            condenser: Arc::new(Noop),
            tool_servers: Arc::new(NoToolServers),
        }),
        provider: Arc::new(ScriptedProvider::new(script)),
        spec: SandboxSpec::new(id),
        analyzer: None,
        memory: None,
        is_unattended: false,
        redactor: Redactor::default(),
        secrets: SecretRegistry::default(),
        title_model: None,
        disposition: SandboxDisposition::Remove,
    }
}

/// Asks for the user's name, then greets. Calls no model.
struct Greeter;

#[async_trait]
impl Agent for Greeter {
    fn name(&self) -> &str {
        "Greeter"
    }

    fn system(&self) -> SystemAction {
        SystemAction::default()
    }

    async fn step(
        &self,
        view: &View,
        _: &dyn Llm,
        _: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<AgentStep, LlmError> {
        let messages = view
            .events()
            .filter_map(|event| match (event.source, &event.body) {
                (EventSource::User, EventBody::Action(Action::Message(message))) => Some(message),
                _ => None,
            });
        let action = match messages.skip(1).last() {
            None => Action::from(MessageAction {
                content: "What is your name?".to_owned(),
                wait_for_response: true,
                ..Default::default()
            }),
            Some(name) => Action::from(FinishAction {
                final_thought: format!("Hello, {}!", name.content),
                ..Default::default()
            }),
        };
        Ok(AgentStep::new(action))
    }
}

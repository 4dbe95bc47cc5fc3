//! A stop while the draft of an edit is written out, and after it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use conversations::ConversationParts;
use engine::agent::{Agent, AgentStep, Agents, TeamMember};
use engine::conversation::NOT_PERFORMED;
use engine::llm::{Llm, LlmError, LlmProgress};
use engine::testing::{HangingLlm, ScriptedProvider, ScriptedResult};
use engine::view::View;
use protocol::action::{EditAction, EditCommand, FileImplementation, SystemAction};
use protocol::observation::{EditObservation, ReadObservation};
use protocol::sandbox_api::SandboxAction;
use protocol::{
    Action, AgentState, Event, EventBody, EventId, Observation, ObservationKind, UserCommand,
};
use tokio::sync::Notify;

use super::{conversations, start_with, until};

/// Drafts an edit of the same file in each step.
struct DraftingAgent;

#[async_trait]
impl Agent for DraftingAgent {
    fn name(&self) -> &str {
        "drafting"
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
        let draft = EditAction {
            impl_source: FileImplementation::LlmBasedEdit,
            content: "two".to_owned(),
            start: 1,
            end: -1,
            ..EditAction::new("/f", EditCommand::Unspecified)
        };
        Ok(AgentStep::new(Action::from(draft)))
    }
}

/// Edits that the sandbox was asked to perform.
#[derive(Default)]
struct Edits {
    count: Mutex<u32>,
    started: Notify,
}

/// Runs a conversation whose agent drafts an edit, stops it when the draft is being written out or
/// the edit is in flight, and returns the terminal events of the draft with the number of edits in
/// the sandbox.
async fn stop(file_exists: bool) -> (Vec<Observation>, u32) {
    let edits = Arc::new(Edits::default());
    let seen = Arc::clone(&edits);
    let provider = ScriptedProvider::new(move |request| match &request.action {
        SandboxAction::Read(_) if file_exists => {
            ScriptedResult::Observation(Observation::new("one\n", ReadObservation::default()))
        }
        SandboxAction::Edit(_) => {
            *seen.count.lock().unwrap() += 1;
            seen.started.notify_one();
            ScriptedResult::WhenCancelled(Observation::new("edited", EditObservation::default()))
        }
        _ => ScriptedResult::Observation(Observation::error("there is no such file", "")),
    });
    let editor = Arc::new(HangingLlm::default());
    let draft_editor = Arc::clone(&editor);
    let conversations = conversations();
    let id = start_with(&conversations, Some("Edit"), |parts| ConversationParts {
        agents: Agents::from(TeamMember {
            agent: Arc::new(DraftingAgent),
            draft_editor,
            ..parts.agents.own.clone()
        }),
        provider: Arc::new(provider),
        ..parts
    })
    .await;
    if file_exists {
        editor.called.notified().await;
    } else {
        edits.started.notified().await;
    }
    conversations.apply(&id, UserCommand::Stop).await.unwrap();
    let mut follower = conversations.follow(&id, EventId::FIRST).await.unwrap();
    until(&mut follower, AgentState::Stopped).await;
    let events = conversations.events(&id).await.unwrap();
    let is_draft = |event: &&Event| matches!(&event.body, EventBody::Action(Action::Edit(_)));
    let draft = events.iter().find(is_draft).unwrap().id;
    let terminal = events.iter().filter(|event| event.cause == Some(draft));
    let observations = terminal.filter_map(|event| match &event.body {
        EventBody::Observation(observation) => Some(observation.clone()),
        _ => None,
    });
    (observations.collect(), *edits.count.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn edit_is_not_performed_when_stopped_before_its_draft() {
    let (terminal, edits) = stop(true).await;
    let [observation] = &terminal[..] else {
        panic!("{terminal:?}")
    };
    let ObservationKind::Error(error) = &observation.kind else {
        panic!("{observation:?}")
    };
    assert_eq!((error.error_id.as_str(), edits), (NOT_PERFORMED, 0));
}

/// A new file needs no model, so the edit is in flight at the stop.
#[tokio::test(start_paused = true)]
async fn edit_is_cancelled_when_stopped_after_its_draft() {
    let (terminal, edits) = stop(false).await;
    let [observation] = &terminal[..] else {
        panic!("{terminal:?}")
    };
    assert_eq!((observation.content.as_str(), edits), ("edited", 1));
}

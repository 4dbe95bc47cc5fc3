//! The search for a title, which runs concurrently with the agent.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conversations::{CloseReason, ConversationParts, Conversations, Follower};
use engine::llm::{Completion, Llm, LlmError, LlmErrorKind, LlmProgress, LlmRequest};
use engine::testing::{HangingLlm, UnusedLlm};
use protocol::{ConversationId, EventId};
use tokio::time::timeout;

use super::{conversations, embedded, follow, start_with};

/// Fails each call, so that the title is the first line of the message.
struct FailingLlm;

#[async_trait]
impl Llm for FailingLlm {
    fn model(&self) -> &str {
        "failing"
    }

    fn max_cost(&self, _: u64) -> f64 {
        0.0
    }

    async fn complete(
        &self,
        _: &LlmRequest,
        _: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        Err(LlmError {
            kind: LlmErrorKind::Unavailable,
            detail: String::new(),
            retry_after: None,
        })
    }
}

fn with_title_model(llm: Arc<dyn Llm>) -> impl FnOnce(ConversationParts) -> ConversationParts {
    |parts| ConversationParts {
        title_model: Some(llm),
        ..parts
    }
}

/// Follows until the conversation has a title.
async fn title(conversations: &Conversations, id: &ConversationId) -> String {
    let mut follower: Follower = conversations.follow(id, EventId::FIRST).await.unwrap();
    loop {
        if let Some(title) = &follower.state().title {
            return title.clone();
        }
        timeout(Duration::from_secs(60), follower.next())
            .await
            .unwrap()
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn title_is_found_for_the_first_message() {
    let conversations = conversations();
    let id = start_with(&conversations, None, with_title_model(Arc::new(FailingLlm))).await;
    assert_eq!(title(&conversations, &id).await, "Say hello.");
    let listed = conversations.search("say hello").await.unwrap();
    assert_eq!(listed[0].overview.as_ref().unwrap().title(), "Say hello.");
}

#[tokio::test(start_paused = true)]
async fn title_model_is_not_called_when_the_user_sets_a_title() {
    let conversations = conversations();
    let id = start_with(
        &conversations,
        Some("Mine"),
        with_title_model(Arc::new(UnusedLlm)),
    )
    .await;
    assert!(follow(&conversations, &id, EventId::FIRST).await.is_some());
    let closed = conversations.close(&id, CloseReason::Idle).await.unwrap();
    assert_eq!(closed.state.title.as_deref(), Some("Mine"));
}

/// A model that does not respond delays neither the agent nor the close.
#[tokio::test(start_paused = true)]
async fn title_search_ends_with_close_and_restarts_on_resume() {
    let conversations = conversations();
    let hanging = Arc::new(HangingLlm::default());
    let id = start_with(&conversations, None, with_title_model(hanging.clone())).await;
    hanging.called.notified().await;
    assert!(follow(&conversations, &id, EventId::FIRST).await.is_some());
    let closing = timeout(
        Duration::from_secs(60),
        conversations.close(&id, CloseReason::Idle),
    );
    let closed = closing.await.unwrap().unwrap();
    assert_eq!(
        (closed.state.title.as_ref(), Arc::strong_count(&hanging)),
        (None, 1)
    );
    drop(closed);
    let stored = conversations.open(&id).await.unwrap();
    let parts = with_title_model(Arc::new(FailingLlm))(embedded::parts(id.clone()));
    conversations.resume(stored, parts, None).await.unwrap();
    assert_eq!(title(&conversations, &id).await, "Say hello.");
}

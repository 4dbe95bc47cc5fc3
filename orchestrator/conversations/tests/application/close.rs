//! A close that takes long, because the sandbox is slow to be removed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conversations::{CloseReason, ConversationParts, Conversations, ConversationsError};
use engine::sandbox::decorator::{ConnectResult, ProviderDecorator};
use engine::sandbox::{SandboxError, SandboxProvider, SandboxSpec, StartProgress};
use engine::testing::{ScriptedProvider, ScriptedResult};
use protocol::{ConversationId, EventId, Observation, SandboxId, UserCommand};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use super::{conversations, follow, start, start_with};

/// Provider whose sandboxes are created and removed only with a permit.
struct SlowProvider {
    inner: ScriptedProvider,
    creating: Notify,
    creations: Semaphore,
    removing: Notify,
    permits: Semaphore,
}

impl SlowProvider {
    fn new() -> Arc<Self> {
        let inner = ScriptedProvider::new(|_| {
            ScriptedResult::Observation(Observation::error("no action", ""))
        });
        Arc::new(Self {
            inner,
            creating: Notify::new(),
            creations: Semaphore::new(1),
            removing: Notify::new(),
            permits: Semaphore::new(0),
        })
    }
}

#[async_trait]
impl ProviderDecorator for SlowProvider {
    fn inner(&self) -> &dyn SandboxProvider {
        &self.inner
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> ConnectResult {
        self.creating.notify_one();
        self.creations.acquire().await.unwrap().forget();
        self.inner.create(spec, on_progress).await
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.removing.notify_one();
        self.permits.acquire().await.unwrap().forget();
        self.inner.destroy(sandbox).await
    }
}

/// Starts a conversation with a slow provider, and follows it until it is idle.
async fn start_and_wait(
    conversations: &Conversations,
    provider: &Arc<SlowProvider>,
) -> ConversationId {
    let provider = Arc::clone(provider);
    let id = start_with(conversations, Some("Slow"), |parts| ConversationParts {
        provider,
        ..parts
    })
    .await;
    follow(conversations, &id, EventId::FIRST).await;
    id
}

#[tokio::test(start_paused = true)]
async fn conversation_is_locked_while_it_is_closed() {
    let (conversations, provider) = (Arc::new(conversations()), SlowProvider::new());
    let id = start_and_wait(&conversations, &provider).await;
    let closing = {
        let (conversations, id) = (Arc::clone(&conversations), id.clone());
        tokio::spawn(async move { conversations.close(&id, CloseReason::Idle).await })
    };
    provider.removing.notified().await;
    assert!(conversations.running().is_empty());
    assert!(matches!(
        conversations.open(&id).await,
        Err(ConversationsError::Locked(_))
    ));
    assert!(matches!(
        conversations.apply(&id, UserCommand::Stop).await,
        Err(ConversationsError::NotRunning(_))
    ));
    let second = conversations.close(&id, CloseReason::Idle).await;
    assert!(matches!(second, Err(ConversationsError::NotRunning(_))));
    // Other conversations do not wait for the close.
    let other = start(&conversations).await;
    follow(&conversations, &other, EventId::FIRST).await;
    assert!(!closing.is_finished());
    provider.permits.add_permits(1);
    drop(
        timeout(Duration::from_secs(60), closing)
            .await
            .unwrap()
            .unwrap()
            .unwrap(),
    );
    assert_eq!(provider.inner.sandbox_count(), 0);
    assert_eq!(conversations.open(&id).await.unwrap().state.lease, None);
}

#[tokio::test(start_paused = true)]
async fn conversation_stays_locked_when_its_close_is_dropped() {
    let (conversations, provider) = (conversations(), SlowProvider::new());
    let id = start_and_wait(&conversations, &provider).await;
    tokio::select! {
        _ = conversations.close(&id, CloseReason::Idle) => panic!("the sandbox cannot be removed yet"),
        () = provider.removing.notified() => {}
    }
    assert!(matches!(
        conversations.open(&id).await,
        Err(ConversationsError::Locked(_))
    ));
    provider.permits.add_permits(1);
    let unlocked = async {
        while conversations.open(&id).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), unlocked).await.unwrap();
    assert_eq!(provider.inner.sandbox_count(), 0);
}

/// Its start completes while the conversation is being closed, before an event has it.
#[tokio::test]
async fn closed_conversation_leaves_no_sandbox_that_was_just_started() {
    // The two are handled in any order.
    for _ in 0..20 {
        let (conversations, provider) = (conversations(), SlowProvider::new());
        provider.creations.acquire().await.unwrap().forget();
        provider.permits.add_permits(1);
        let used = Arc::clone(&provider);
        let change = |parts| ConversationParts {
            provider: used,
            ..parts
        };
        let id = start_with(&conversations, Some("Slow"), change).await;
        provider.creating.notified().await;
        provider.creations.add_permits(1);
        let closed = conversations.close(&id, CloseReason::Interrupted).await;
        drop(closed.unwrap());
        assert_eq!(provider.inner.sandbox_count(), 0);
    }
}

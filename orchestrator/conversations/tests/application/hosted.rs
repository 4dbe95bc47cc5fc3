//! Conversations of a server, with a factory of the engine's fakes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conversations::{
    Claim, ComposedAgents, ComposedConversation, ConversationFactory, ConversationLocks as _,
    ConversationRequest, Conversations, ConversationsError, HostError, HostedConversations,
    HostingOptions, InitialTask, NewConversation, NoWorkspaces, ProcessLocks, StoredConversation,
};
use engine::conversation::SandboxDisposition;
use engine::events::EventStore as _;
use engine::sandbox::SandboxProvider;
use engine::secrets::Redactor;
use engine::testing::MemoryStore;
use futures_util::future::join_all;
use protocol::record::{ConversationStarted, FeedbackGiven};
use protocol::risk::ConfirmationPolicy;
use protocol::{
    AgentState, CommandRequest, ConversationId, ConversationUpdate, Event, EventBody, EventId,
    Record, UserCommand,
};
use tokio::time::timeout;

use super::{embedded, message};

/// Composes conversations with an agent that asks for a name, and then greets.
struct GreeterFactory;

#[async_trait]
impl ConversationFactory for GreeterFactory {
    async fn compose_new(
        &self,
        claim: &mut Claim,
        request: ConversationRequest,
    ) -> Result<NewConversation, HostError> {
        Ok(NewConversation {
            started: ConversationStarted {
                max_iterations: 10,
                ..Default::default()
            },
            parts: embedded::parts(claim.id().clone()),
            title: Some("Greeting".to_owned()),
            task: request
                .message
                .map_or(InitialTask::None, InitialTask::Message),
        })
    }

    async fn compose_stored(
        &self,
        stored: &mut StoredConversation,
    ) -> Result<ComposedConversation, HostError> {
        let parts = embedded::parts(stored.claim().id().clone());
        Ok(ComposedConversation {
            parts,
            confirmation: ConfirmationPolicy::Never,
        })
    }

    async fn compose_agents(
        &self,
        _: &ConversationStarted,
        _: u32,
    ) -> Result<ComposedAgents, HostError> {
        Ok(composed_agents())
    }

    fn provider(&self, _: &str, _: Option<&str>) -> Result<Arc<dyn SandboxProvider>, HostError> {
        Err(HostError::Refused("no runtime".to_owned()))
    }

    fn disposition(&self) -> SandboxDisposition {
        SandboxDisposition::Remove
    }
}

/// The agents of the example.
pub(super) fn composed_agents() -> ComposedAgents {
    ComposedAgents {
        agents: embedded::parts(Conversations::new_id()).agents,
        redactor: Redactor::default(),
    }
}

/// A server's conversations in a store that outlives it.
pub(super) fn hosted(
    store: &Arc<MemoryStore>,
    max_running: usize,
    close_delay: Duration,
) -> Arc<HostedConversations> {
    hosted_with(
        Arc::new(ProcessLocks::default()),
        store,
        max_running,
        close_delay,
    )
}

fn hosted_with(
    locks: Arc<ProcessLocks>,
    store: &Arc<MemoryStore>,
    max_running: usize,
    close_delay: Duration,
) -> Arc<HostedConversations> {
    let store = Arc::clone(store);
    let conversations = Conversations::new(store, locks, Arc::new(NoWorkspaces));
    let options = HostingOptions {
        max_running,
        max_running_per_user: 2,
        close_delay,
    };
    HostedConversations::new(conversations, Arc::new(GreeterFactory), options)
}

async fn greeting(hosted: &Arc<HostedConversations>) -> ConversationId {
    let request = ConversationRequest {
        message: Some(message("Greet me.")),
        ..Default::default()
    };
    hosted.create(request).await.unwrap()
}

/// Waits until the conversation is idle in this state.
pub(super) async fn until(
    hosted: &Arc<HostedConversations>,
    id: &ConversationId,
    state: AgentState,
) {
    let mut stream = hosted.stream(id, EventId::FIRST).await.unwrap();
    loop {
        if let ConversationUpdate::Waiting(waiting) = stream.next().await.unwrap()
            && waiting.agent_state == state
        {
            return;
        }
    }
}

pub(super) const LONG: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn conversation_whose_message_is_not_stored_is_discarded() {
    let store = Arc::new(MemoryStore::default());
    let hosted = hosted(&store, 10, LONG);
    let request = ConversationRequest {
        message: Some(message("Greet me.")),
        ..Default::default()
    };
    // The first append has the settings and the message.
    store.set_room(0);
    hosted.create(request).await.unwrap_err();
    let listed = store
        .list(&engine::events::ConversationQuery::default())
        .await
        .unwrap();
    assert_eq!(listed.conversations.len(), 0);
}

#[tokio::test]
async fn feedback_is_answered_once_it_is_stored() {
    let store = Arc::new(MemoryStore::default());
    let hosted = hosted(&store, 10, LONG);
    let id = greeting(&hosted).await;
    until(&hosted, &id, AgentState::AwaitingUserInput).await;
    let feedback = || {
        let json =
            r#"{"version": "1", "email": "", "polarity": "positive", "permissions": "private"}"#;
        serde_json::from_str::<FeedbackGiven>(json).unwrap()
    };
    hosted
        .apply(&id, UserCommand::GiveFeedback(feedback()))
        .await
        .unwrap();
    let is_feedback =
        |event: &Event| matches!(event.body, EventBody::Record(Record::FeedbackGiven(_)));
    assert!(store.log(&id).iter().any(is_feedback));
    store.set_full(true);
    hosted
        .apply(&id, UserCommand::GiveFeedback(feedback()))
        .await
        .unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn idle_conversation_is_closed_and_opened_by_a_message() {
    let hosted = hosted(&Arc::<MemoryStore>::default(), 10, LONG);
    let id = greeting(&hosted).await;
    until(&hosted, &id, AgentState::AwaitingUserInput).await;
    assert!(hosted.state(&id).is_some());
    tokio::time::sleep(LONG + Duration::from_secs(1)).await;
    assert!(hosted.state(&id).is_none());
    hosted
        .apply(&id, UserCommand::message("Ada"))
        .await
        .unwrap();
    until(&hosted, &id, AgentState::Finished).await;
}

#[tokio::test]
async fn command_that_is_sent_again_is_applied_once() {
    let store = Arc::new(MemoryStore::default());
    let first = hosted(&store, 10, LONG);
    let id = greeting(&first).await;
    until(&first, &id, AgentState::AwaitingUserInput).await;
    let request = || CommandRequest {
        id: Some("a".parse().unwrap()),
        command: UserCommand::message("Ada"),
    };
    let sent = join_all((0..8).map(|_| first.apply(&id, request()))).await;
    let event = sent
        .into_iter()
        .map(Result::unwrap)
        .collect::<BTreeSet<_>>();
    assert_eq!(event.len(), 1);
    until(&first, &id, AgentState::Finished).await;
    first.stop(&id).await.unwrap();
    let length = store.log(&id).len();
    for hosted in [first, hosted(&store, 10, LONG)] {
        let again = hosted.apply(&id, request()).await.unwrap();
        assert_eq!(Some(&again), event.first());
        assert!(hosted.state(&id).is_none(), "it is not opened");
    }
    assert_eq!(store.log(&id).len(), length);
}

#[tokio::test]
async fn created_conversation_is_in_the_store() {
    let store = Arc::new(MemoryStore::default());
    let hosted = hosted(&store, 10, LONG);
    let id = greeting(&hosted).await;
    assert!(store.find(&id).await.unwrap().is_some());
    assert!(matches!(
        hosted
            .stream(&"none".parse().unwrap(), EventId::FIRST)
            .await,
        Err(ConversationsError::Unknown(_))
    ));
}

#[tokio::test]
async fn conversation_that_waited_longest_makes_room() {
    let hosted = hosted(&Arc::<MemoryStore>::default(), 2, LONG);
    let (first, second) = (greeting(&hosted).await, greeting(&hosted).await);
    until(&hosted, &first, AgentState::AwaitingUserInput).await;
    until(&hosted, &second, AgentState::AwaitingUserInput).await;
    let third = greeting(&hosted).await;
    let is_running = [&first, &second, &third].map(|id| hosted.state(id).is_some());
    assert_eq!(is_running, [false, true, true]);
}

#[tokio::test]
async fn messages_to_a_stored_conversation_open_it_once() {
    let store = Arc::new(MemoryStore::default());
    let first = hosted(&store, 10, LONG);
    let id = first.create(ConversationRequest::default()).await.unwrap();
    until(&first, &id, AgentState::AwaitingUserInput).await;
    first.shut_down().await;
    assert!(matches!(
        first.apply(&id, UserCommand::message("late")).await,
        Err(ConversationsError::ShuttingDown)
    ));
    let second = hosted(&store, 10, LONG);
    let sent = (0..8).map(|_| second.apply(&id, UserCommand::message("Hello.")));
    for result in join_all(sent).await {
        result.unwrap();
    }
    until(&second, &id, AgentState::Finished).await;
    assert_eq!(second.conversations().running(), [id]);
}

#[tokio::test]
async fn stream_continues_across_stop_and_start() {
    let hosted = hosted(&Arc::<MemoryStore>::default(), 10, LONG);
    let id = greeting(&hosted).await;
    let mut stream = hosted.stream(&id, EventId::FIRST).await.unwrap();
    let mut ids = Vec::new();
    let mut is_stopped = false;
    loop {
        match stream.next().await.unwrap() {
            ConversationUpdate::Event(event) => ids.push(event.id.0),
            ConversationUpdate::Waiting(waiting) if !is_stopped => {
                assert_eq!(waiting.agent_state, AgentState::AwaitingUserInput);
                is_stopped = true;
                hosted.stop(&id).await.unwrap();
                hosted
                    .apply(&id, UserCommand::message("Ada"))
                    .await
                    .unwrap();
            }
            ConversationUpdate::Waiting(waiting) if waiting.agent_state == AgentState::Finished => {
                break;
            }
            _ => {}
        }
    }
    assert!(ids.iter().copied().eq(0..ids.len() as u64), "{ids:?}");
}

#[tokio::test]
async fn title_is_replaced_while_running_and_while_stored() {
    let hosted = hosted(&Arc::<MemoryStore>::default(), 10, LONG);
    let id = greeting(&hosted).await;
    until(&hosted, &id, AgentState::AwaitingUserInput).await;
    for title in ["While running", "While stored"] {
        hosted
            .apply(
                &id,
                UserCommand::SetTitle {
                    title: title.into(),
                },
            )
            .await
            .unwrap();
        hosted.stop(&id).await.unwrap();
        let entry = hosted.conversations().entry(&id).await.unwrap().unwrap();
        assert_eq!(entry.overview.unwrap().title(), title);
    }
    hosted.delete(&id).await.unwrap();
    assert!(matches!(
        hosted.stop(&id).await,
        Err(ConversationsError::Unknown(_))
    ));
}

#[tokio::test]
async fn input_that_cannot_be_stored_is_an_error() {
    let store = Arc::new(MemoryStore::default());
    let hosted = hosted(&store, 10, LONG);
    let running = greeting(&hosted).await;
    until(&hosted, &running, AgentState::AwaitingUserInput).await;
    let stored = greeting(&hosted).await;
    until(&hosted, &stored, AgentState::AwaitingUserInput).await;
    hosted.stop(&stored).await.unwrap();
    store.set_full(true);
    for id in [&running, &stored] {
        let sent = hosted.apply(id, UserCommand::message("Ada")).await;
        assert!(
            matches!(sent, Err(ConversationsError::Conversation(_))),
            "{sent:?}"
        );
        assert!(hosted.state(id).is_none());
    }
    let request = ConversationRequest {
        message: Some(message("Greet me.")),
        ..Default::default()
    };
    let created = hosted.create(request).await;
    assert!(
        matches!(created, Err(ConversationsError::Conversation(_))),
        "{created:?}"
    );
    assert_eq!(store.conversations().await.unwrap().conversations.len(), 2);
    store.set_full(false);
    for id in [&running, &stored] {
        hosted.apply(id, UserCommand::message("Ada")).await.unwrap();
        until(&hosted, id, AgentState::Finished).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_message_is_answered_although_room_is_made() {
    for _ in 0..50 {
        let hosted = hosted(&Arc::<MemoryStore>::default(), 1, LONG);
        let id = greeting(&hosted).await;
        until(&hosted, &id, AgentState::AwaitingUserInput).await;
        let (sent, created) = tokio::join!(
            hosted.apply(&id, UserCommand::message("Ada")),
            hosted.create(ConversationRequest::default())
        );
        for result in [sent.as_ref().err(), created.as_ref().err()]
            .into_iter()
            .flatten()
        {
            assert!(
                matches!(result, ConversationsError::TooManyRunning(1)),
                "{result}"
            );
        }
        if sent.is_ok() {
            let mut stream = hosted.stream(&id, EventId::FIRST).await.unwrap();
            let is_finished =
                |event: &Event| serde_json::to_value(event).unwrap()["action"] == "finish";
            while !matches!(stream.next().await.unwrap(), ConversationUpdate::Event(event) if is_finished(&event))
            {
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn maximum_of_running_conversations_is_never_exceeded() {
    let hosted = hosted(&Arc::<MemoryStore>::default(), 2, LONG);
    let creations = join_all((0..20).map(|_| hosted.create(ConversationRequest::default())));
    let watch = async {
        loop {
            assert!(hosted.conversations().running().len() <= 2);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        created = creations => assert!(created.iter().any(Result::is_ok)),
        () = watch => {}
    }
}

#[tokio::test]
async fn stream_of_a_stored_conversation_has_its_title_and_end() {
    let hosted = hosted(&Arc::<MemoryStore>::default(), 10, LONG);
    let id = greeting(&hosted).await;
    until(&hosted, &id, AgentState::AwaitingUserInput).await;
    hosted.stop(&id).await.unwrap();
    let end = EventId(hosted.conversations().event_count(&id).await.unwrap());
    let mut stream = hosted.stream(&id, end).await.unwrap();
    let ended = stream.next().await.unwrap();
    assert!(
        matches!(&ended, ConversationUpdate::Waiting(waiting)
            if waiting.is_idle && waiting.agent_state == AgentState::Stopped),
        "{ended:?}"
    );
    let (event, ()) = tokio::join!(stream.next(), async {
        tokio::task::yield_now().await;
        hosted
            .apply(
                &id,
                UserCommand::SetTitle {
                    title: "New title".into(),
                },
            )
            .await
            .unwrap();
    });
    let ConversationUpdate::Event(event) = event.unwrap() else {
        panic!("no event")
    };
    let EventBody::Record(Record::ConversationTitled(titled)) = &event.body else {
        panic!("no title")
    };
    assert_eq!(titled.title, "New title");
    let ended = stream.next().await.unwrap();
    assert!(matches!(ended, ConversationUpdate::Waiting(_)), "{ended:?}");
    let (ended, ()) = tokio::join!(stream.next(), async {
        tokio::task::yield_now().await;
        hosted.delete(&id).await.unwrap();
    });
    assert!(
        matches!(ended, Err(ConversationsError::Unknown(_))),
        "{ended:?}"
    );
}

/// A user who runs as many conversations as a user may gets another one only when an own one is
/// closed, or waits.
#[tokio::test(start_paused = true)]
async fn user_with_the_maximum_waits_without_effect_on_others() {
    let hosted = hosted(&Arc::<MemoryStore>::default(), 10, LONG);
    let create = async |owner: Option<&str>, text: Option<&str>| {
        let owner = owner.map(|name| name.parse().unwrap());
        hosted
            .create(ConversationRequest {
                owner,
                message: text.map(message),
                ..Default::default()
            })
            .await
    };
    let of_ben = create(Some("ben"), None).await.unwrap();
    let first = create(Some("ada"), None).await.unwrap();
    let second = create(Some("ada"), None).await.unwrap();
    for id in [&of_ben, &first, &second] {
        until(&hosted, id, AgentState::AwaitingUserInput).await;
    }
    let third = create(Some("ada"), None).await.unwrap();
    let mut running = hosted.conversations().running();
    running.sort();
    let mut expected = vec![of_ben, second, third];
    expected.sort();
    assert_eq!(
        running, expected,
        "the own one that waited longest is closed"
    );
    for _ in 0..5 {
        create(None, None).await.unwrap();
    }
    assert_eq!(
        hosted.conversations().running().len(),
        8,
        "the operator has no limit per user"
    );
    let owner = hosted.conversations().owner(&first).await.unwrap();
    assert_eq!(owner, Some("ada".parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_client_wait_for_nothing() {
    let store = Arc::<MemoryStore>::default();
    let before = hosted(&store, 1, LONG);
    let id = greeting(&before).await;
    until(&before, &id, AgentState::AwaitingUserInput).await;
    let length = "Greet me.".len() as u64;
    assert_eq!(before.state(&id).unwrap().user_bytes, length);
    before.stop(&id).await.unwrap();
    // There is never room for a conversation.
    let hosted = hosted(&store, 0, LONG);
    let moment = Duration::from_millis(1);
    for _ in 0..200 {
        let waiting = hosted.create(ConversationRequest::default());
        timeout(moment, waiting).await.unwrap_err();
    }
    for _ in 0..3 {
        let waiting = hosted.apply(&id, UserCommand::message("Ada"));
        timeout(moment, waiting).await.unwrap_err();
    }
    let titled = timeout(
        Duration::from_secs(1),
        hosted.apply(
            &id,
            UserCommand::SetTitle {
                title: "Next".into(),
            },
        ),
    );
    titled.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn message_is_refused_while_another_process_runs_it() {
    let locks = Arc::new(ProcessLocks::default());
    let hosted = hosted_with(Arc::clone(&locks), &Arc::<MemoryStore>::default(), 10, LONG);
    let id = greeting(&hosted).await;
    until(&hosted, &id, AgentState::AwaitingUserInput).await;
    hosted.stop(&id).await.unwrap();
    let _lock = locks
        .lock(&id)
        .await
        .unwrap()
        .expect("the conversation is closed");
    let refused = hosted.apply(&id, UserCommand::message("Ben")).await;
    assert!(
        matches!(refused, Err(ConversationsError::Locked(_))),
        "{refused:?}"
    );
}

//! Tests of the application layer with the engine's fakes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod close;
mod draft;
#[path = "../../examples/embedded.rs"]
mod embedded;
mod hosted;
mod list;
mod sandbox;
mod title;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use conversations::{
    CloseReason, ConversationFilter, ConversationParts, ConversationSelector, Conversations,
    ConversationsError, DeleteMode, Follower, HostError, InitialTask, NewConversation,
    NoWorkspaces, ProcessLocks, run_outcome,
};
use engine::agent::{Agents, TeamMember};
use engine::replay::Trajectory;
use engine::sandbox::SandboxProvider;
use engine::secrets::Redactor;
use engine::testing::MemoryStore;
use futures_util::future::join_all;
use protocol::action::MessageAction;
use protocol::client_api::v2::ConversationStatus;
use protocol::record::ConversationStarted;
use protocol::update::RunOutcome;
use protocol::{
    Action, AgentState, CommandRequest, ConversationId, ConversationUpdate, Event, EventBody,
    EventId, EventSource, UserCommand,
};
use secrecy::SecretString;

fn conversations() -> Conversations {
    let store = Arc::new(MemoryStore::default());
    Conversations::new(
        store,
        Arc::new(ProcessLocks::default()),
        Arc::new(NoWorkspaces),
    )
}

async fn start(conversations: &Conversations) -> ConversationId {
    start_with(conversations, Some("Greeting"), |parts| parts).await
}

/// Starts a conversation with changed parts. If `title` is `None`, one is generated.
async fn start_with(
    conversations: &Conversations,
    title: Option<&str>,
    change: impl FnOnce(ConversationParts) -> ConversationParts,
) -> ConversationId {
    let id = Conversations::new_id();
    let new = NewConversation {
        started: ConversationStarted {
            max_iterations: 10,
            ..Default::default()
        },
        parts: change(embedded::parts(id.clone())),
        title: title.map(str::to_owned),
        task: InitialTask::Message(message("Say hello.")),
    };
    conversations
        .start(conversations.create(id.clone()).await.unwrap(), new)
        .await
        .unwrap();
    id
}

/// Follows a conversation until it waits for the user. Returns the agent's answer.
async fn follow(
    conversations: &Conversations,
    id: &ConversationId,
    from: EventId,
) -> Option<String> {
    let mut follower = conversations.follow(id, from).await.unwrap();
    while !matches!(
        follower.next().await.unwrap(),
        ConversationUpdate::Waiting(_)
    ) {}
    follower.answer().map(str::to_owned)
}

#[test]
fn embedding_example_runs() {
    embedded::main().unwrap();
}

#[tokio::test]
async fn running_conversation_is_locked_until_closed() {
    let conversations = conversations();
    let id = start(&conversations).await;
    let answer = follow(&conversations, &id, EventId::FIRST).await;
    assert_eq!(answer.as_deref(), Some("What is your name?"));
    assert_eq!(conversations.running(), std::slice::from_ref(&id));
    assert!(matches!(
        conversations.open(&id).await,
        Err(ConversationsError::Locked(_))
    ));
    let closed = conversations.close(&id, CloseReason::Idle).await.unwrap();
    assert_eq!(run_outcome(&closed.state), RunOutcome::AwaitingUser);
    assert!(conversations.running().is_empty());
    assert!(matches!(
        conversations.apply(&id, UserCommand::Stop).await,
        Err(ConversationsError::NotRunning(_))
    ));
    assert!(matches!(
        conversations.open(&id).await,
        Err(ConversationsError::Locked(_))
    ));
    drop(closed);
    conversations.open(&id).await.unwrap();
}

#[tokio::test]
async fn conversation_stays_locked_while_a_follower_keeps_it() {
    let (store, locks) = (
        Arc::new(MemoryStore::default()),
        Arc::new(ProcessLocks::default()),
    );
    let open = || Conversations::new(store.clone(), locks.clone(), Arc::new(NoWorkspaces));
    let (first, other) = (open(), open());
    let id = start(&first).await;
    let mut follower = first.follow(&id, EventId::FIRST).await.unwrap();
    while !matches!(
        follower.next().await.unwrap(),
        ConversationUpdate::Waiting(_)
    ) {}
    drop(first);
    assert!(matches!(
        other.open(&id).await,
        Err(ConversationsError::Locked(_))
    ));
    drop(follower);
    let unlocked = async {
        while other.open(&id).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), unlocked)
        .await
        .unwrap();
}

#[tokio::test]
async fn id_of_a_stored_conversation_is_refused() {
    let conversations = conversations();
    let id = start(&conversations).await;
    assert!(matches!(
        conversations.create(id.clone()).await,
        Err(ConversationsError::Locked(_))
    ));
    conversations.close(&id, CloseReason::Idle).await.unwrap();
    assert!(matches!(
        conversations.create(id).await,
        Err(ConversationsError::Exists(_))
    ));
}

#[tokio::test]
async fn running_conversation_is_steered_by_its_id() {
    let conversations = conversations();
    let id = start(&conversations).await;
    conversations.apply(&id, UserCommand::Pause).await.unwrap();
    let mut follower = conversations.follow(&id, EventId::FIRST).await.unwrap();
    until(&mut follower, AgentState::Paused).await;
    conversations
        .apply(&id, UserCommand::message("Ada"))
        .await
        .unwrap();
    until(&mut follower, AgentState::Finished).await;
    assert_eq!(follower.answer(), Some("Hello, Ada!"));
    conversations.apply(&id, UserCommand::Stop).await.unwrap();
    until(&mut follower, AgentState::Stopped).await;
}

/// A front end that stops a conversation after the question and before the change of state would
/// stop it after its end.
#[tokio::test]
async fn question_is_queued_with_its_change_of_state() {
    let conversations = conversations();
    let id = start(&conversations).await;
    let mut follower = conversations.follow(&id, EventId::FIRST).await.unwrap();
    loop {
        let ConversationUpdate::Event(event) = follower.next().await.unwrap() else {
            continue;
        };
        let is_message = matches!(event.body, EventBody::Action(Action::Message(_)));
        if is_message && event.source == EventSource::Agent {
            break;
        }
    }
    assert!(follower.has_queued() && !follower.is_idle());
    assert_eq!(follower.state().agent_state, AgentState::AwaitingUserInput);
}

/// Follows until the agent is in this state.
async fn until(follower: &mut Follower, expected: AgentState) {
    while follower.state().agent_state != expected || !follower.is_idle() {
        tokio::time::timeout(Duration::from_secs(10), follower.next())
            .await
            .unwrap()
            .unwrap();
    }
}

#[tokio::test]
async fn command_is_applied_when_it_returns() {
    let conversations = conversations();
    let id = start(&conversations).await;
    follow(&conversations, &id, EventId::FIRST).await;
    drop(conversations.close(&id, CloseReason::Idle).await.unwrap());
    let stored = conversations.open(&id).await.unwrap();
    assert!(stored.awaits_message());
    let from = stored.state.next_id;
    let parts = embedded::parts(id.clone());
    conversations.resume(stored, parts, None).await.unwrap();
    let sent = conversations.apply(&id, UserCommand::message("Ada")).await;
    assert_eq!(sent.unwrap(), Some(from));
    let answer = follow(&conversations, &id, from).await;
    assert_eq!(answer.as_deref(), Some("Hello, Ada!"));
    let decided = conversations.apply(&id, UserCommand::confirm(None)).await;
    assert!(matches!(
        decided,
        Err(ConversationsError::NothingToDecide(_))
    ));
}

#[tokio::test]
async fn secret_in_the_id_of_a_command_is_refused() {
    let conversations = conversations();
    let id = start_with(&conversations, Some("Greeting"), |parts| {
        let secret = SecretString::from("hunter2hunter2");
        ConversationParts {
            redactor: Redactor::new([("CANARY", &secret)]).unwrap(),
            ..parts
        }
    })
    .await;
    let request = |id: &str| CommandRequest {
        id: Some(id.parse().unwrap()),
        command: UserCommand::Pause,
    };
    let refused = conversations.apply(&id, request("a-hunter2hunter2")).await;
    assert!(refused.is_err_and(|error| error.is_bad_request()));
    conversations.apply(&id, request("a")).await.unwrap();
}

/// Waits until the agent of a conversation that is not followed has finished.
async fn until_finished(conversations: &Conversations, id: &ConversationId) {
    let finished = async {
        while conversations.state(id).unwrap().agent_state != AgentState::Finished {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), finished)
        .await
        .unwrap();
}

#[tokio::test]
async fn unattended_agent_that_asks_continues_without_follower() {
    let conversations = conversations();
    let id = start_with(&conversations, Some("Greeting"), |parts| {
        ConversationParts {
            is_unattended: true,
            ..parts
        }
    })
    .await;
    until_finished(&conversations, &id).await;
}

#[tokio::test]
async fn replay_is_the_same_with_any_number_of_followers() {
    let conversations = conversations();
    let id = start(&conversations).await;
    follow(&conversations, &id, EventId::FIRST).await;
    conversations
        .apply(&id, UserCommand::message("Ada"))
        .await
        .unwrap();
    until_finished(&conversations, &id).await;
    let trajectory = Trajectory::new(&conversations.export(&id, true).await.unwrap());
    let mut kinds = Vec::new();
    for followers in [0, 1, 10] {
        let id = Conversations::new_id();
        let task = InitialTask::Replay {
            trajectory: trajectory.clone(),
            continues: false,
        };
        let parts = embedded::parts(id.clone());
        let agent = task.agent(Arc::clone(&parts.agents.own.agent));
        let new = NewConversation {
            started: ConversationStarted {
                max_iterations: 10,
                ..Default::default()
            },
            parts: ConversationParts {
                agents: Agents::from(TeamMember {
                    agent,
                    ..parts.agents.own
                }),
                is_unattended: true,
                ..parts
            },
            title: Some("Replay".to_owned()),
            task,
        };
        let claim = conversations.create(id.clone()).await.unwrap();
        conversations.start(claim, new).await.unwrap();
        let followers = (0..followers).map(|_| follow(&conversations, &id, EventId::FIRST));
        join_all(followers).await;
        until_finished(&conversations, &id).await;
        let events = conversations.export(&id, true).await.unwrap();
        let text = |event: &Event| (event.source, event.body.kind(), event.message());
        kinds.push(events.iter().map(text).collect::<Vec<_>>());
    }
    let messages = kinds[0].iter().filter(|event| event.1 == "message");
    let texts: Vec<_> = messages.map(|event| event.2.as_str()).collect();
    assert_eq!(texts, ["Say hello.", "What is your name?", "Ada"]);
    assert_eq!(kinds[0], kinds[1]);
    assert_eq!(kinds[0], kinds[2]);
}

#[tokio::test]
async fn fork_is_listed_and_deleted_on_its_own() {
    let conversations = conversations();
    let id = start(&conversations).await;
    follow(&conversations, &id, EventId::FIRST).await;
    let fork = Conversations::new_id();
    conversations.fork(&id, None, &fork).await.unwrap();
    let listed = conversations.search("greeting").await.unwrap();
    assert_eq!(listed.len(), 2);
    let filter = ConversationFilter {
        statuses: vec![ConversationStatus::Agent(AgentState::AwaitingUserInput)],
        limit: Some(1),
        ..Default::default()
    };
    assert_eq!(conversations.list(&filter).await.unwrap().len(), 1);
    let no_provider = |_: &str, _: Option<&str>| -> Result<Arc<dyn SandboxProvider>, HostError> {
        Err(HostError::Refused("none".into()))
    };
    let running = conversations
        .delete(&id, DeleteMode::Force, &no_provider, &mut |_| {})
        .await;
    assert!(matches!(running, Err(ConversationsError::Locked(_))));
    let mut refuse = |error| panic!("{error}");
    conversations
        .delete(&fork, DeleteMode::KeepOnFailure, &no_provider, &mut refuse)
        .await
        .unwrap();
    let selector = ConversationSelector::IdPart(fork);
    assert!(
        conversations
            .find(&selector)
            .await
            .is_err_and(|error| error.is_bad_request())
    );
    assert_eq!(
        conversations
            .find(&ConversationSelector::Latest)
            .await
            .unwrap(),
        id
    );
}

fn message(content: &str) -> MessageAction {
    MessageAction {
        content: content.to_owned(),
        ..Default::default()
    }
}

//! Turns of hosted conversations.

use std::sync::Arc;
use std::time::Duration;

use conversations::{
    ConversationRequest, ConversationsError, HostedConversations, Turn, TurnEnd, TurnOutcome,
    TurnUpdate,
};
use engine::testing::MemoryStore;
use protocol::{Action, AgentState, Event, EventBody, EventSource};

use super::hosted::{LONG, hosted, until};
use super::message;

async fn first_turn(hosted: &Arc<HostedConversations>) -> Turn {
    let request = ConversationRequest {
        message: Some(message("Greet me.")),
        ..Default::default()
    };
    hosted.start_turn(request, LONG).await.unwrap()
}

async fn read(turn: &mut Turn) -> (Vec<Arc<Event>>, TurnEnd) {
    let mut events = Vec::new();
    loop {
        match turn.next().await.unwrap() {
            TurnUpdate::Event(event) => events.push(event),
            TurnUpdate::Ended(end) => return (events, end),
        }
    }
}

/// Source and text of the messages.
fn messages(events: &[Arc<Event>]) -> Vec<(EventSource, &str)> {
    events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::Action(Action::Message(message)) => {
                Some((event.source, message.content.as_str()))
            }
            EventBody::Action(Action::Finish(finish)) => {
                Some((event.source, finish.final_thought.as_str()))
            }
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn turn_starts_with_its_message_and_ends_when_it_is_idle() {
    let hosted = hosted(&Arc::<MemoryStore>::default(), 10, LONG);
    let mut turn = first_turn(&hosted).await;
    let id = turn.conversation().clone();
    let (events, end) = read(&mut turn).await;
    assert_eq!(end.outcome, TurnOutcome::AwaitingMessage);
    assert_eq!(
        messages(&events),
        [
            (EventSource::User, "Greet me."),
            (EventSource::Agent, "What is your name?")
        ]
    );
    drop(turn);
    assert!(
        hosted.state(&id).is_some(),
        "a turn that has ended stops nothing"
    );

    let mut turn = hosted
        .continue_turn(&id, message("Ada"), LONG)
        .await
        .unwrap();
    let (events, end) = read(&mut turn).await;
    assert_eq!(end.outcome, TurnOutcome::Finished);
    assert_eq!(
        messages(&events),
        [
            (EventSource::User, "Ada"),
            (EventSource::Agent, "Hello, Ada!")
        ]
    );
}

#[tokio::test]
async fn conversation_of_a_dropped_first_turn_is_stopped() {
    let hosted = hosted(&Arc::<MemoryStore>::default(), 10, LONG);
    let turn = first_turn(&hosted).await;
    let id = turn.conversation().clone();
    drop(turn);
    let stopped = async {
        while hosted.state(&id).is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, stopped).await.unwrap();
    let mut turn = first_turn(&hosted).await;
    turn.detach();
    let id = turn.conversation().clone();
    drop(turn);
    until(&hosted, &id, AgentState::AwaitingUserInput).await;
}

/// The caller is gone before there is a turn.
#[tokio::test(start_paused = true)]
async fn conversation_of_a_cancelled_start_is_stopped() {
    let hosted = hosted(&Arc::<MemoryStore>::default(), 10, LONG);
    let request = ConversationRequest {
        message: Some(message("Greet me.")),
        ..Default::default()
    };
    let starting = hosted.start_turn(request, LONG);
    assert!(
        tokio::time::timeout(Duration::ZERO, starting)
            .await
            .is_err()
    );
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(hosted.conversations().running(), []);
}

#[tokio::test]
async fn turn_of_a_stored_conversation_is_read_from_the_store() {
    let hosted = hosted(&Arc::<MemoryStore>::default(), 10, LONG);
    let mut turn = first_turn(&hosted).await;
    let id = turn.conversation().clone();
    let (_, _) = read(&mut turn).await;
    hosted.stop(&id).await.unwrap();
    let mut turn = hosted.follow_turn(&id, LONG).await.unwrap();
    let (events, end) = read(&mut turn).await;
    assert_eq!(end.outcome, TurnOutcome::Stopped);
    assert_eq!(messages(&events).len(), 2);
    let unknown = hosted
        .continue_turn(&"none".parse().unwrap(), message("Ada"), LONG)
        .await;
    assert!(matches!(
        unknown.err(),
        Some(ConversationsError::Unknown(_))
    ));
}

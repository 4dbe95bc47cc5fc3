//! Followers of a conversation.

use std::sync::Arc;

use futures_util::future::join_all;
use protocol::client_api::v2::ExportConversation;
use protocol::{AgentState, Event, EventId, EventQuery, UserCommand};

use super::{ServiceBackend, asked, message, wait_for};

/// Number of followers.
const FOLLOWERS: usize = 50;

/// Number of followers that read nothing.
const IDLE_FOLLOWERS: usize = 10;

/// Pages in both orders have the events of the stream, which continues after any of them.
pub async fn event_pages_and_streams_have_the_same_events(backend: &dyn ServiceBackend) {
    let service = backend.service(Some("ada"));
    let id = asked(service.as_ref()).await;
    service.apply(&id, message("a", "Ada")).await.unwrap();
    let mut updates = service.follow(&id, None).await.unwrap();
    let (streamed, _) = wait_for(&mut updates, AgentState::Finished).await;
    for is_reverse in [false, true] {
        let mut query = EventQuery {
            limit: 2,
            is_reverse,
            ..EventQuery::default()
        };
        let mut read = Vec::new();
        loop {
            let page = service.events(&id, query.clone()).await.unwrap();
            read.extend(page.parse().unwrap().into_iter().map(Arc::new));
            match page.next_id {
                Some(next) if is_reverse => query.until = Some(next),
                Some(next) => query.from = next,
                None => break,
            }
        }
        if is_reverse {
            read.reverse();
        }
        assert_eq!(read, streamed);
    }
    let all = ExportConversation::default();
    let exported = service.export(&id, all).await.unwrap();
    // V0 has one `system` action with all tools.
    let is_other = |event: &&Event| event.body.kind() != "system";
    let streamed_others = streamed.iter().map(Arc::as_ref).filter(is_other);
    assert!(exported.iter().filter(is_other).eq(streamed_others));
    let last = streamed[streamed.len() - 3].id;
    let mut updates = service.follow(&id, Some(last)).await.unwrap();
    let (rest, _) = wait_for(&mut updates, AgentState::Finished).await;
    assert_eq!(rest, streamed[streamed.len() - 2..]);
}

/// Followers see the same events while others read nothing.
pub async fn readers_do_not_delay_each_other(backend: &dyn ServiceBackend) {
    let service = backend.service(Some("ada"));
    let id = asked(service.as_ref()).await;
    let opened = (0..FOLLOWERS).map(|_| service.follow(&id, None));
    let mut followers = join_all(opened).await;
    let idle = followers.split_off(FOLLOWERS - IDLE_FOLLOWERS);
    let reading = followers.into_iter().map(|updates| async {
        let mut updates = updates.unwrap();
        wait_for(&mut updates, AgentState::Finished).await.0
    });
    let disturbed = async {
        service.apply(&id, message("a", "Ada")).await.unwrap();
        backend.disturb();
    };
    let (read, ()) = tokio::join!(join_all(reading), disturbed);
    let ids = |events: &[Arc<Event>]| events.iter().map(|event| event.id).collect::<Vec<_>>();
    let expected = ids(&read[0]);
    assert!(expected.is_sorted_by(|first, second| first < second));
    assert!(read.iter().all(|events| ids(events) == expected));
    drop(idle);
}

/// A stream has each event once, across a stop, a lost connection and a resumption.
pub async fn stream_continues_when_the_conversation_is_resumed(backend: &dyn ServiceBackend) {
    let service = backend.service(Some("ada"));
    let id = asked(service.as_ref()).await;
    let mut updates = service.follow(&id, None).await.unwrap();
    let (before, _) = wait_for(&mut updates, AgentState::AwaitingUserInput).await;
    service.apply(&id, UserCommand::Stop.into()).await.unwrap();
    let (stopped, _) = wait_for(&mut updates, AgentState::Stopped).await;
    backend.disturb();
    service.apply(&id, message("a", "Ada")).await.unwrap();
    let (after, _) = wait_for(&mut updates, AgentState::Finished).await;
    let all = [before, stopped, after].concat();
    let ids: Vec<EventId> = all.iter().map(|event| event.id).collect();
    let query = EventQuery {
        limit: 1000,
        ..EventQuery::default()
    };
    let stored = service.events(&id, query).await.unwrap().parse().unwrap();
    assert_eq!(ids, stored.iter().map(|event| event.id).collect::<Vec<_>>());
}

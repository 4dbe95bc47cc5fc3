//! Conversations are created, forked and deleted.

use conversations::ServiceErrorKind::{Conflict, Invalid, NotFound};
use protocol::client_api::v2::{
    ConversationStatus, CreateConversation, ExportConversation, ForkConversation, ListConversations,
};
use protocol::update::RunOutcome;
use protocol::{AgentState, EventId, EventQuery, UserCommand};

use super::{ServiceBackend, asked, greeting, kind, message, next, wait_for};

/// A conversation runs to its end. Once it is deleted, its streams end too.
pub async fn conversation_is_created_followed_and_deleted(backend: &dyn ServiceBackend) {
    let service = backend.service(Some("ada"));
    let request = CreateConversation {
        title: Some("Greeting".to_owned()),
        ..greeting()
    };
    let id = service.create(request).await.unwrap();
    let mut updates = service.follow(&id, None).await.unwrap();
    let (asked, waiting) = wait_for(&mut updates, AgentState::AwaitingUserInput).await;
    assert!(asked.len() > 2 && waiting.outcome == RunOutcome::AwaitingUser);
    let answered = service.apply(&id, message("answer", "Ada")).await.unwrap();
    let (answers, waiting) = wait_for(&mut updates, AgentState::Finished).await;
    assert_eq!(waiting.outcome, RunOutcome::Finished);
    let first = answers.first().unwrap();
    assert_eq!(Some(first.id), answered);
    assert_eq!(first.command, Some("answer".parse().unwrap()));

    let item = service.get(&id).await.unwrap();
    assert_eq!(
        (item.title.as_str(), item.status, item.folder),
        (
            "Greeting",
            ConversationStatus::Agent(AgentState::Finished),
            None
        )
    );
    assert_eq!(item.owner, Some("ada".parse().unwrap()));
    let page = service.list(ListConversations::default()).await.unwrap();
    assert_eq!(page.conversations.len(), 1);
    assert_eq!((&page.conversations[0].id, page.next), (&id, None));

    service.delete(&id).await.unwrap();
    assert_eq!(kind(service.get(&id).await), NotFound);
    assert_eq!(kind(service.delete(&id).await), NotFound);
    let ended = loop {
        if let Err(error) = next(&mut updates).await.unwrap() {
            break error;
        }
    };
    assert_eq!(ended.kind, NotFound);
    assert!(next(&mut updates).await.is_none());
}

/// A creation that is sent again, also concurrently, returns the same conversation.
pub async fn creation_is_repeated_with_its_id(backend: &dyn ServiceBackend) {
    let (ada, ben) = (backend.service(Some("ada")), backend.service(Some("ben")));
    let id = "0190b1c2-7d3e-7f00-8000-0123456789ab".parse().unwrap();
    let request = CreateConversation {
        id: Some(id),
        ..greeting()
    };
    let (first, second) = tokio::join!(ada.create(request.clone()), ada.create(request.clone()));
    let id = first.unwrap();
    assert_eq!(second.unwrap(), id);
    assert_eq!(ada.create(request.clone()).await.unwrap(), id);
    let query = EventQuery {
        kinds: vec!["message".to_owned()],
        source: Some(protocol::EventSource::User),
        ..EventQuery::default()
    };
    let messages = ada.events(&id, query).await.unwrap().parse().unwrap();
    assert_eq!(messages.len(), 1, "the message is stored once");
    assert_eq!(kind(ben.create(request).await), Conflict);
    let invalid = CreateConversation {
        id: Some("mine".parse().unwrap()),
        ..greeting()
    };
    assert_eq!(kind(ada.create(invalid).await), Invalid);
}

/// A fork shares the events up to its last one, remembers no command, and continues on its own.
pub async fn fork_has_the_events_up_to_its_last(backend: &dyn ServiceBackend) {
    let service = backend.service(Some("ada"));
    let id = asked(service.as_ref()).await;
    service.apply(&id, message("a", "Ada")).await.unwrap();
    let mut updates = service.follow(&id, None).await.unwrap();
    let (events, _) = wait_for(&mut updates, AgentState::Finished).await;
    let question = events
        .iter()
        .rfind(|event| event.command.is_some())
        .and_then(|answer| answer.id.previous());
    let fork = ForkConversation {
        id: Some("0190b1c2-7d3e-7f00-8000-0123456789ab".parse().unwrap()),
        last_event: question,
    };
    let (first, again) = tokio::join!(
        service.fork(&id, fork.clone()),
        service.fork(&id, fork.clone())
    );
    let forked = first.unwrap();
    assert_eq!(
        (again.unwrap(), fork.id),
        (forked.clone(), Some(forked.clone()))
    );
    let all = EventQuery::default;
    let shared = service.events(&forked, all()).await.unwrap();
    let shared = shared.parse().unwrap();
    let original: Vec<_> = events.iter().map(|event| event.id).collect();
    let common = shared.iter().filter(|event| Some(event.id) <= question);
    let expected = original.iter().copied().filter(|id| Some(*id) <= question);
    assert!(common.map(|event| event.id).eq(expected));
    assert!(!shared.iter().any(|event| event.command.is_some()));
    // It does not run, waits, and continues on its own.
    let mut updates = service.follow(&forked, None).await.unwrap();
    let item = service.get(&forked).await.unwrap();
    assert!(!item.is_running);
    let (read, waiting) = wait_for(&mut updates, item.agent_state.unwrap()).await;
    assert!(read.len() == shared.len() && waiting.outcome != RunOutcome::Finished);
    service.apply(&forked, message("a", "Eva")).await.unwrap();
    wait_for(&mut updates, AgentState::Finished).await;
    let missing = ForkConversation {
        last_event: Some(EventId(1_000_000)),
        ..ForkConversation::default()
    };
    assert_eq!(kind(service.fork(&id, missing).await), NotFound);
    let invalid = ForkConversation {
        id: Some("mine".parse().unwrap()),
        ..ForkConversation::default()
    };
    assert_eq!(kind(service.fork(&id, invalid).await), Invalid);
}

/// A user sees only own conversations, and the operator all of them.
pub async fn conversations_of_others_are_like_none(backend: &dyn ServiceBackend) {
    let (ada, ben) = (backend.service(Some("ada")), backend.service(Some("ben")));
    let id = asked(ada.as_ref()).await;
    let unknown = "0".repeat(32).parse().unwrap();
    for id in [&id, &unknown] {
        let all = EventQuery::default();
        let fork = ForkConversation::default();
        assert_eq!(kind(ben.get(id).await), NotFound);
        assert_eq!(kind(ben.events(id, all).await), NotFound);
        assert_eq!(kind(ben.follow(id, None).await), NotFound);
        let export = ExportConversation::default();
        assert_eq!(kind(ben.export(id, export).await), NotFound);
        assert_eq!(kind(ben.fork(id, fork).await), NotFound);
        assert_eq!(kind(ben.delete(id).await), NotFound);
        let stop = UserCommand::Stop.into();
        assert_eq!(kind(ben.apply(id, stop).await), NotFound);
    }
    let all = ListConversations::default();
    assert!(ben.list(all).await.unwrap().conversations.is_empty());
    let operator = backend.service(None);
    let seen = operator.get(&id).await.unwrap();
    assert_eq!(seen.owner, Some("ada".parse().unwrap()));
    let of_ada = ListConversations {
        owner: Some("ada".parse().unwrap()),
        ..ListConversations::default()
    };
    assert_eq!(operator.list(of_ada).await.unwrap().conversations, [seen]);
}

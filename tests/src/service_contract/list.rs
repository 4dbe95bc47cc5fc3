//! The list of conversations.

use std::collections::BTreeSet;

use conversations::ServiceErrorKind::Invalid;
use protocol::AgentState;
use protocol::client_api::v2::{CreateConversation, ListConversations};

use super::{ServiceBackend, greeting, wait_for};

/// Pages have each conversation once, and filters select some.
pub async fn pages_have_each_conversation_once(backend: &dyn ServiceBackend) {
    let service = backend.service(None);
    let mut created = BTreeSet::new();
    for number in 0..5 {
        let request = CreateConversation {
            title: Some(format!("Number {number}")),
            ..greeting()
        };
        let id = service.create(request).await.unwrap();
        // The next event of a conversation moves it to the first page.
        let mut updates = service.follow(&id, None).await.unwrap();
        wait_for(&mut updates, AgentState::AwaitingUserInput).await;
        created.insert(id);
    }
    let mut request = ListConversations {
        limit: 2,
        ..ListConversations::default()
    };
    let mut listed = Vec::new();
    loop {
        let page = service.list(request.clone()).await.unwrap();
        assert!(page.conversations.len() <= 2);
        listed.extend(page.conversations.into_iter().map(|item| item.id));
        request.before = page.next;
        if request.before.is_none() {
            break;
        }
    }
    assert_eq!(listed.len(), 5);
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), created);
    let found = ListConversations {
        text: Some("NUMBER 3".to_owned()),
        ..ListConversations::default()
    };
    let found = service.list(found).await.unwrap().conversations;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].title, "Number 3");
    let of_status = ListConversations {
        status: vec!["damaged".to_owned(), "error".to_owned()],
        ..ListConversations::default()
    };
    assert!(
        service
            .list(of_status)
            .await
            .unwrap()
            .conversations
            .is_empty()
    );
}

/// The error of an invalid filter names its field.
pub async fn invalid_filters_are_rejected(backend: &dyn ServiceBackend) {
    let service = backend.service(None);
    let all = ListConversations::default;
    for (request, field) in [
        (ListConversations { limit: 0, ..all() }, "limit"),
        (
            ListConversations {
                limit: 101,
                ..all()
            },
            "limit",
        ),
        (
            ListConversations {
                before: Some("x".to_owned()),
                ..all()
            },
            "before",
        ),
        (
            ListConversations {
                status: vec!["asleep".to_owned()],
                ..all()
            },
            "status",
        ),
    ] {
        let error = service.list(request).await.unwrap_err();
        assert_eq!(error.kind, Invalid);
        assert!(error.message.starts_with(field), "{error}");
    }
}

//! Cases of overviews, and of the queries for them.

use engine::events::{
    ConversationPage, ConversationQuery, EventStore, ListedConversation, OverviewChange,
};
use protocol::record::ConversationTrigger;
use protocol::{AgentState, ConversationId, Event};
use serde_json::{Value, json};

use super::{StoreBackend, assert_out_of_order, conversation, event, event_with, events};

/// Returns a query for all conversations.
pub fn all() -> ConversationQuery {
    ConversationQuery {
        limit: usize::MAX,
        ..ConversationQuery::default()
    }
}

/// Returns the ids of a page.
pub fn ids(page: &ConversationPage) -> Vec<ConversationId> {
    page.conversations
        .iter()
        .map(|listed| listed.summary.id.clone())
        .collect()
}

fn event_from(id: u64, body: &Value) -> Event {
    let mut event = json!({"id": id, "timestamp": format!("2025-10-03T12:00:{:02}.000000", id % 60), "source": "agent"});
    event
        .as_object_mut()
        .unwrap()
        .extend(body.as_object().unwrap().clone());
    Event::from_value(&event).unwrap()
}

fn titled(id: u64, title: &str) -> Event {
    event_from(
        id,
        &json!({"record": "conversation_titled", "args": {"title": title}}),
    )
}

fn entered(id: u64, state: AgentState) -> Event {
    let extras = json!({"agent_state": state, "reason": ""});
    event_from(
        id,
        &json!({"observation": "agent_state_changed", "content": "", "extras": extras}),
    )
}

fn started(folder: &str, repository: &str) -> Event {
    owned(folder, repository, None, None)
}

fn owned(folder: &str, repository: &str, owner: Option<&str>, trigger: Option<&str>) -> Event {
    event_from(
        0,
        &json!({"record": "conversation_started", "args": {
            "agent": "CodeActAgent", "model": "Sonnet", "max_iterations": 5, "runtime": "local", "image": null,
            "workspace": folder, "setup": {"from": "repository", "url": repository, "branch": "main"},
            "owner": owner, "git_provider": trigger.map(|_| "azure_devops"), "trigger": trigger,
        }}),
    )
}

/// Returns a log of six events that each change the overview.
pub fn agent_log() -> Vec<Event> {
    let think = json!({"action": "think", "args": {"thought": "so"}, "llm_metrics": {"accumulated_cost": 0.25}});
    vec![
        owned("/work", "https://host/a/b", Some("ada"), Some("slack")),
        event_with(1, "Fix Login\nnow"),
        entered(2, AgentState::Running),
        titled(3, "Login \u{1f9e4}"),
        event_from(4, &think),
        entered(5, AgentState::Finished),
    ]
}

async fn find(store: &dyn EventStore, name: &str) -> ListedConversation {
    store.find(&conversation(name)).await.unwrap().unwrap()
}

/// The overview is that of all events, however they are divided into appends, and also for another
/// handle.
pub async fn overview_equals_the_fold_of_its_log(backend: &dyn StoreBackend) {
    let (store, other) = (backend.open().await, backend.open().await);
    // The second title and message follow those of the log.
    let log: Vec<_> = agent_log()
        .into_iter()
        .chain([
            titled(6, "NUL \0 and more"),
            event_with(7, "later"),
            entered(8, AgentState::Error),
        ])
        .collect();
    for size in 1..=log.len() {
        let name = format!("by-{size}");
        for batch in log.chunks(size) {
            store.append(&conversation(&name), batch).await.unwrap();
        }
        let found = find(&*other, &name).await;
        assert_eq!(
            found.overview,
            OverviewChange::from_events(&log).overview,
            "{size}"
        );
        assert_eq!(found.overview_events, found.summary.events);
        assert_eq!(other.list(&all()).await.unwrap().conversations.len(), size);
        assert!(
            other
                .list(&all())
                .await
                .unwrap()
                .conversations
                .contains(&found)
        );
    }
}

/// Neither the fields of the entry nor the texts change.
pub async fn rejected_append_does_not_change_the_overview(backend: &dyn StoreBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    store.append(&a, &agent_log()).await.unwrap();
    let before = find(&*store, "a").await;
    for wrong in [
        vec![titled(3, "wrong")],
        vec![titled(6, "wrong"), entered(8, AgentState::Error)],
    ] {
        assert_out_of_order(store.append(&a, &wrong).await);
        assert_eq!(find(&*store, "a").await, before);
    }
    let query = ConversationQuery {
        text: Some("wrong".into()),
        ..all()
    };
    assert_eq!(store.list(&query).await.unwrap().conversations, []);
}

/// The overview of a removed conversation is gone with it.
pub async fn overview_is_that_of_the_new_log_after_a_removal(backend: &dyn StoreBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    store.append(&a, &agent_log()).await.unwrap();
    store.remove(&a).await.unwrap();
    assert_eq!(store.find(&a).await.unwrap(), None);
    assert_eq!(store.list(&all()).await.unwrap().conversations, []);
    store.append(&a, &events(0..1)).await.unwrap();
    assert_eq!(
        find(&*store, "a").await.overview,
        OverviewChange::from_events(&events(0..1)).overview
    );
}

/// A text is found in title, start of the first message, model and folder; in any case and without
/// wildcards.
pub async fn text_is_found_in_any_case_and_literally(backend: &dyn StoreBackend) {
    let store = backend.open().await;
    let append = async |name: &str, log: &[Event]| store.append(&conversation(name), log).await;
    append(
        "title",
        &[event_with(0, "x"), titled(1, "ÄPFEL 100% \u{1f9e4}")],
    )
    .await
    .unwrap();
    append(
        "message",
        &[event_with(
            0,
            "first line\nΣΊΣΥΦΟΣ a_b \\ ' \" $1 \0 beyond NUL",
        )],
    )
    .await
    .unwrap();
    append("settings", &[started("/srv/Größe", "https://host/x")])
        .await
        .unwrap();
    append(
        "long",
        &[event_with(
            0,
            &format!("{}beyond the excerpt", "long ".repeat(100)),
        )],
    )
    .await
    .unwrap();
    append(
        "plain",
        &[
            event_with(0, "axb 1005"),
            titled(1, "old"),
            titled(2, "new"),
        ],
    )
    .await
    .unwrap();
    for (text, expected) in [
        ("äpfel", "title"),
        ("100%", "title"),
        ("\u{1f9e4}", "title"),
        ("\nσίσυ", "message"),
        ("a_b", "message"),
        ("\\ ' \" $1", "message"),
        ("beyond nul", "message"),
        ("sonnet", "settings"),
        ("/srv/größe", "settings"),
        ("long long", "long"),
        ("new", "plain"),
    ] {
        let query = ConversationQuery {
            text: Some(text.into()),
            ..all()
        };
        assert_eq!(
            ids(&store.list(&query).await.unwrap()),
            [conversation(expected)],
            "{text}"
        );
    }
    // A title that was replaced, text beyond the excerpt, and a part of the URL are not searched.
    for text in ["old", "beyond the", "https", "no such text"] {
        let query = ConversationQuery {
            text: Some(text.into()),
            ..all()
        };
        assert_eq!(ids(&store.list(&query).await.unwrap()), [], "{text}");
    }
}

/// Every filter selects, alone and with others.
pub async fn conversations_are_selected_by_their_overview(backend: &dyn StoreBackend) {
    let store = backend.open().await;
    for (name, state, folder, owner, trigger) in [
        (
            "a",
            Some(AgentState::Finished),
            "/work",
            Some("ada"),
            Some("openhands_api"),
        ),
        (
            "b",
            Some(AgentState::Running),
            "/work",
            Some("Ada"),
            Some("gui"),
        ),
        (
            "c",
            Some(AgentState::Error),
            "/works/inner",
            Some("ada"),
            Some("microagent_management"),
        ),
        ("d", None, "/other", None, None),
    ] {
        let log = [owned(
            folder,
            &format!("https://host/{name}/repo"),
            owner,
            trigger,
        )]
        .into_iter()
        .chain(state.map(|state| entered(1, state)));
        store
            .append(&conversation(name), &log.collect::<Vec<_>>())
            .await
            .unwrap();
    }
    let states = |agent_states: &[AgentState]| ConversationQuery {
        agent_states: agent_states.to_vec(),
        ..all()
    };
    let folder = |folder: &str| ConversationQuery {
        folder: Some(folder.into()),
        ..all()
    };
    let repository = |part: &str| ConversationQuery {
        repository: Some(part.into()),
        ..all()
    };
    let owner = |name: &str| ConversationQuery {
        owner: Some(name.parse().unwrap()),
        ..all()
    };
    let trigger = |trigger| ConversationQuery {
        trigger: Some(trigger),
        ..all()
    };
    let cases: [(ConversationQuery, &[&str]); 16] = [
        (trigger(ConversationTrigger::Api), &["a"]),
        (trigger(ConversationTrigger::MicroagentManagement), &["c"]),
        // A conversation without a trigger has the first one.
        (trigger(ConversationTrigger::Gui), &["b", "d"]),
        (
            ConversationQuery {
                owner: Some("ada".parse().unwrap()),
                ..trigger(ConversationTrigger::Gui)
            },
            &[],
        ),
        (owner("ada"), &["c", "a"]),
        (owner("ad"), &[]),
        (
            ConversationQuery {
                folder: Some("/work".into()),
                ..owner("ada")
            },
            &["a"],
        ),
        (all(), &["c", "b", "a", "d"]),
        (
            states(&[AgentState::Finished, AgentState::Error]),
            &["c", "a"],
        ),
        // A conversation without a state has the first one.
        (states(&[AgentState::default()]), &["d"]),
        (folder("/work"), &["b", "a"]),
        (folder("/wor"), &[]),
        (repository("b/repo"), &["b"]),
        (repository("B/repo"), &[]),
        (
            ConversationQuery {
                folder: Some("/work".into()),
                ..states(&[AgentState::Running])
            },
            &["b"],
        ),
        (
            ConversationQuery {
                text: Some("inner".into()),
                ..folder("/work")
            },
            &[],
        ),
    ];
    for (query, expected) in cases {
        let expected: Vec<_> = expected.iter().map(|name| conversation(name)).collect();
        assert_eq!(
            ids(&store.list(&query).await.unwrap()),
            expected,
            "{query:?}"
        );
    }
}

/// Pages follow each other without a gap or a repetition, also between conversations of the same
/// time.
pub async fn pages_have_each_conversation_once(backend: &dyn StoreBackend) {
    let store = backend.open().await;
    for number in 0..20_u64 {
        let name = conversation(&format!("c{}", number * 7 % 20));
        store
            .append(&name, &(0..=number % 3).map(event).collect::<Vec<_>>())
            .await
            .unwrap();
    }
    let whole = ids(&store.list(&all()).await.unwrap());
    assert_eq!(whole.len(), 20);
    for limit in [1, 3, 20, 21] {
        let mut query = ConversationQuery { limit, ..all() };
        let mut paged = Vec::new();
        loop {
            let page = store.list(&query).await.unwrap();
            assert!(page.conversations.len() <= limit);
            paged.extend(ids(&page));
            query.before = page.conversations.last().map(ListedConversation::position);
            if page.conversations.len() < limit {
                break;
            }
        }
        assert_eq!(paged, whole, "{limit}");
    }
    let none = store.list(&ConversationQuery::default()).await.unwrap();
    assert_eq!(none.conversations, [], "a limit of none");
}

//! Cases of rows that a disk or another program has damaged: a typed error that names the event,
//! never a skipped one.

use engine::events::{ConversationQuery, EventStore, Overview, OverviewChange, StoreError};
use protocol::EventId;

use super::overviews::{agent_log, all, ids};
use super::{SqlBackend, conversation, event, events, log};

/// Returns the event that is reported as damaged after `sql`, and the cause.
async fn damage(backend: &dyn SqlBackend, sql: &str) -> (u64, String) {
    let (store, a) = (backend.open().await, conversation("a"));
    store.remove(&a).await.unwrap();
    store.append(&a, &events(0..5)).await.unwrap();
    backend.execute(sql);
    assert_eq!(store.read(&a, EventId(0), 3).await.unwrap(), events(0..3)); // undamaged events can be read
    match store.read(&a, EventId(2), 10).await {
        Err(StoreError::Damaged {
            conversation,
            id,
            source,
        }) if conversation == a => (id.0, source.to_string()),
        other => panic!("{other:?}"),
    }
}

/// A truncated row is reported.
pub async fn read_fails_when_a_row_is_no_json(backend: &dyn SqlBackend) {
    let found = damage(
        backend,
        "UPDATE events SET json = substr(json, 1, 40) WHERE id = 3",
    )
    .await;
    assert_eq!(found, (3, "its row holds no event".into()));
}

/// A row that is not UTF-8 is reported as damage of its event.
pub async fn read_fails_when_a_row_is_no_text(backend: &dyn SqlBackend) {
    let sql = format!(
        "UPDATE events SET json = {} WHERE id = 3",
        backend.invalid_utf8()
    );
    assert_eq!(
        damage(backend, &sql).await,
        (3, "its row holds no event".into())
    );
}

/// A row with another event than its key says is reported.
pub async fn read_fails_when_a_row_has_another_event(backend: &dyn SqlBackend) {
    let sql = "UPDATE events SET json = (SELECT json FROM events WHERE id = 1) WHERE id = 3";
    assert_eq!(
        damage(backend, sql).await,
        (3, "its row holds event 1".into())
    );
}

/// A missing row, also the last one, is reported.
pub async fn read_fails_when_a_row_is_missing(backend: &dyn SqlBackend) {
    for missing in [3, 4] {
        let found = damage(backend, &format!("DELETE FROM events WHERE id = {missing}")).await;
        assert_eq!(found, (missing, "its row is missing".into()));
    }
}

/// A row beyond the end of a log makes only appends to that log fail.
pub async fn only_one_append_fails_when_its_row_exists(backend: &dyn SqlBackend) {
    let store = backend.open().await;
    let (bad, good) = (conversation("bad"), conversation("good"));
    store.append(&bad, &events(0..1)).await.unwrap();
    backend.execute(
        "INSERT INTO events (conversation, id, json) SELECT conversation, 2, json FROM events",
    );
    let (rejected, next) = (events(1..3), [event(0)]);
    let (rejected, appended) =
        tokio::join!(store.append(&bad, &rejected), store.append(&good, &next));
    assert!(
        matches!(rejected, Err(StoreError::Storage { .. })),
        "{rejected:?}"
    );
    appended.unwrap();
    assert_eq!(log(&*store, &bad).await, events(0..1));
    assert_eq!(log(&*store, &good).await, events(0..1));
}

/// Entries with an invalid id, number or time are listed as damaged.
pub async fn damaged_entry_is_named_and_the_others_are_listed(backend: &dyn SqlBackend) {
    let store = backend.open().await;
    for name in ["a", "b", "c", "d"] {
        store
            .append(&conversation(name), &events(0..1))
            .await
            .unwrap();
    }
    backend.execute(
        "UPDATE conversations SET id = '../b' WHERE id = 'b';
         UPDATE conversations SET events = -1 WHERE id = 'c';
         UPDATE conversations SET created_at = 'yesterday' WHERE id = 'd'",
    );
    let list = store.conversations().await.unwrap();
    let ids: Vec<_> = list
        .conversations
        .into_iter()
        .map(|summary| summary.id)
        .collect();
    assert_eq!(ids, [conversation("a")]);
    for name in ["c", "d"] {
        let error = store.find(&conversation(name)).await.unwrap_err();
        assert!(matches!(error, StoreError::DamagedEntry { .. }), "{error}");
    }
    let mut damaged: Vec<_> = list.damaged.iter().map(ToString::to_string).collect();
    damaged.sort();
    assert_eq!(
        damaged,
        ["../b", "c", "d"].map(|id| format!("the entry of conversation {id:?} is damaged"))
    );
}

/// Pages are as long as their limit although damaged entries are between the others, and name each
/// of them once.
pub async fn damaged_entries_do_not_shorten_pages(backend: &dyn SqlBackend) {
    let store = backend.open().await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        store
            .append(&conversation(name), &events(0..1))
            .await
            .unwrap();
    }
    backend
        .execute("UPDATE conversations SET created_at = 'yesterday' WHERE id IN ('b', 'd', 'e')");
    let mut query = ConversationQuery {
        limit: 2,
        ..ConversationQuery::default()
    };
    let page = store.list(&query).await.unwrap();
    assert_eq!(
        (ids(&page).as_slice(), page.damaged.len()),
        (["f", "c"].map(conversation).as_slice(), 2)
    );
    query.before = page
        .conversations
        .last()
        .map(engine::events::ListedConversation::position);
    let page = store.list(&query).await.unwrap();
    assert_eq!(
        (ids(&page).as_slice(), page.damaged.len()),
        ([conversation("a")].as_slice(), 1)
    );
}

/// Removes the overviews, as if an older version of Glovebox had written the logs.
fn remove_overviews(backend: &dyn SqlBackend) {
    backend.execute(
        "DELETE FROM overviews; UPDATE conversations SET overview_events = 0, owner = NULL, agent_state = NULL, cost = NULL",
    );
}

/// Returns a listed conversation's overview, and the number of events that it covers.
async fn overview(store: &dyn EventStore, name: &str) -> (Overview, u64) {
    let found = store.find(&conversation(name)).await.unwrap().unwrap();
    (found.overview, found.overview_events)
}

/// Opening a store completes the overviews of logs of any length, also the texts to search in.
pub async fn missing_overview_is_completed_when_opened(backend: &dyn SqlBackend) {
    let store = backend.open().await;
    let long: Vec<_> = agent_log().into_iter().chain((6..300).map(event)).collect();
    store.append(&conversation("long"), &long).await.unwrap();
    for number in 0..150 {
        store
            .append(&conversation(&format!("c{number}")), &events(0..2))
            .await
            .unwrap();
    }
    let expected = store.list(&all()).await.unwrap().conversations;
    remove_overviews(backend);
    assert_eq!(overview(&*store, "long").await, (Overview::default(), 0));
    let opened = backend.open().await;
    assert_eq!(opened.list(&all()).await.unwrap().conversations, expected);
    let query = ConversationQuery {
        text: Some("größer".to_owned()),
        ..all()
    };
    assert_eq!(opened.list(&query).await.unwrap().conversations.len(), 150);
}

/// The events before a damaged one are applied. The conversation remains incomplete; the others are
/// completed.
pub async fn overview_is_completed_up_to_a_damaged_event(backend: &dyn SqlBackend) {
    let store = backend.open().await;
    for name in ["a", "b"] {
        store
            .append(&conversation(name), &agent_log())
            .await
            .unwrap();
    }
    remove_overviews(backend);
    backend.execute(
        "UPDATE events SET json = substr(json, 1, 40)
         WHERE id = 4 AND conversation = (SELECT number FROM conversations WHERE id = 'a')",
    );
    let opened = backend.open().await;
    let fold = |end: usize| OverviewChange::from_events(&agent_log()[..end]).overview;
    assert_eq!(overview(&*opened, "a").await, (fold(4), 4));
    assert_eq!(overview(&*opened, "b").await, (fold(6), 6));
}

/// An append to a log whose overview lacks earlier events changes no overview: the earlier ones
/// must be applied first.
pub async fn append_to_an_incomplete_overview_is_no_gap(backend: &dyn SqlBackend) {
    let (store, a) = (backend.open().await, conversation("a"));
    let log = agent_log();
    store.append(&a, &log[..4]).await.unwrap();
    remove_overviews(backend);
    store.append(&a, &log[4..]).await.unwrap();
    assert_eq!(overview(&*store, "a").await, (Overview::default(), 0));
    let opened = backend.open().await;
    assert_eq!(
        overview(&*opened, "a").await,
        (OverviewChange::from_events(&log).overview, 6)
    );
}

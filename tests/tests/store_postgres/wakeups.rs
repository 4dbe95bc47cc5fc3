//! Subscriptions to logs that other hosts append to.

use std::sync::Arc;

use engine::events::EventStore as _;
use protocol::EventId;
use tests::postgres::{PostgresServer, TestDatabase};
use tests::store_contract::{conversation, event, events};

use super::host;

#[tokio::test]
async fn subscriber_is_woken_by_appends_of_another_host() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (one, other, a) = (
        host(&database).await,
        host(&database).await,
        conversation("a"),
    );
    let mut end = other.subscribe(&a).unwrap();
    let mut unrelated = other.subscribe(&conversation("b")).unwrap();
    assert_eq!(*end.borrow_and_update(), EventId::FIRST);
    for next in 0..20 {
        one.append(&a, &[event(next)]).await.unwrap();
        end.wait_for(|end| *end == EventId(next + 1)).await.unwrap();
    }
    assert_eq!(*unrelated.borrow_and_update(), EventId::FIRST);
    assert!(!unrelated.has_changed().unwrap());
}

#[tokio::test]
async fn slow_subscriber_is_woken_once_with_the_latest_end() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (one, other, a) = (
        host(&database).await,
        host(&database).await,
        conversation("a"),
    );
    let mut slow = other.subscribe(&a).unwrap();
    let mut fast = other.subscribe(&a).unwrap();
    for next in 0..20 {
        one.append(&a, &[event(next)]).await.unwrap();
    }
    fast.wait_for(|end| *end == EventId(20)).await.unwrap();
    slow.changed().await.unwrap();
    assert_eq!(*slow.borrow_and_update(), EventId(20));
    assert!(!slow.has_changed().unwrap());
}

#[tokio::test]
async fn subscriber_is_woken_when_the_notification_is_lost() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (one, a) = (host(&database).await, conversation("a"));
    one.append(&a, &events(0..2)).await.unwrap();
    let mut end = one.subscribe(&a).unwrap();
    // As an append would, but without its notification.
    database.execute("UPDATE conversations SET events = 7");
    end.wait_for(|end| *end == EventId(7)).await.unwrap();
}

#[tokio::test]
async fn subscriber_is_woken_after_a_restart_of_postgresql() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let server = Arc::new(server);
    let database = TestDatabase::on(Arc::clone(&server));
    let (one, a) = (host(&database).await, conversation("a"));
    let mut end = one.subscribe(&a).unwrap();
    one.append(&a, &[event(0)]).await.unwrap();
    end.wait_for(|end| *end == EventId(1)).await.unwrap();
    server.stop(rustix::process::Signal::QUIT);
    server.restart();
    let other = host(&database).await;
    other.append(&a, &[event(1)]).await.unwrap();
    end.wait_for(|end| *end == EventId(2)).await.unwrap();
}

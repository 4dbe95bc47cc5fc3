//! Take-over of conversations whose host was suspended or killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use engine::events::{EventStore as _, StoreError};
use storage::PostgresStore;
use storage::postgres::PostgresOptions;
use tests::postgres::TestDatabase;
use tests::store_contract::blobs::{BlobPlace as _, FolderPlace};
use tests::store_contract::{conversation, event, event_with, events, log};
use tokio::runtime::{Builder, Runtime};

use super::{acquire, expire_leases, host};

const ADDRESS: &str = "STORE_TEST_ADDRESS";
const REPORT: &str = "appended ";

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A host of its own runtime is suspended whenever that is not in `block_on`: neither its renewals
/// nor its connections proceed.
#[test]
fn suspended_host_writes_nothing_after_the_takeover() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (frozen_runtime, live_runtime, a) = (runtime(), runtime(), conversation("a"));
    let (frozen, lease) = frozen_runtime.block_on(async {
        let store = host(&database).await;
        let lease = acquire(&store, "a").await;
        store.append(&a, &events(0..2)).await.unwrap();
        (store, lease)
    });
    expire_leases(&database);
    let live: PostgresStore = live_runtime.block_on(async {
        let store = host(&database).await;
        assert_eq!(store.leases().expired().await.unwrap(), [a.clone()].into());
        let taken = acquire(&store, "a").await;
        assert!(taken.generation() > lease.generation());
        store.append(&a, &[event(2)]).await.unwrap();
        std::mem::forget(taken);
        store
    });
    frozen_runtime.block_on(async {
        // It would follow the log.
        for change in [frozen.append(&a, &[event(3)]), frozen.remove(&a)] {
            let result = change.await;
            assert!(
                matches!(result, Err(StoreError::LeaseLost { .. })),
                "{result:?}"
            );
        }
        assert!(lease.lost().is_cancelled());
        drop(lease);
        // Nor without the lost lease.
        let result = frozen.append(&a, &[event(3)]).await;
        assert!(
            matches!(result, Err(StoreError::LeaseLost { .. })),
            "{result:?}"
        );
        frozen.close().await;
    });
    live_runtime.block_on(async {
        assert_eq!(log(&live, &a).await, events(0..3));
        live.append(&a, &[event(3)]).await.unwrap();
    });
}

/// A host that is suspended before its queued append is sent does not send it successfully after
/// the take-over.
#[test]
fn queued_append_is_rejected_after_the_takeover() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (frozen_runtime, live_runtime, a) = (runtime(), runtime(), conversation("a"));
    let (frozen, lease) = frozen_runtime.block_on(async {
        let store = host(&database).await;
        let lease = acquire(&store, "a").await;
        store.append(&a, &events(0..2)).await.unwrap();
        (store, lease)
    });
    let queued = [event(2)];
    let mut append = frozen.append(&a, &queued);
    // Only queued: the task that writes is not polled.
    let polled = append
        .as_mut()
        .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(polled.is_pending());
    expire_leases(&database);
    let live = live_runtime.block_on(async {
        let store = host(&database).await;
        std::mem::forget(acquire(&store, "a").await);
        store
    });
    let result = frozen_runtime.block_on(append);
    assert!(
        matches!(result, Err(StoreError::LeaseLost { .. })),
        "{result:?}"
    );
    assert!(lease.lost().is_cancelled());
    assert_eq!(live_runtime.block_on(log(&live, &a)), events(0..2));
    frozen_runtime.block_on(async { drop(lease) });
}

/// A host that lost its lease may store a blob. It changes neither the log nor a blob that the log
/// refers to.
#[tokio::test]
async fn large_append_changes_nothing_after_the_takeover() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (place, a) = (FolderPlace::new(), conversation("a"));
    let open = async || {
        let blobs = Some(place.open().with_min_length(1));
        let options = PostgresOptions {
            blobs,
            ..PostgresOptions::default()
        };
        PostgresStore::open(&database.address(), options)
            .await
            .unwrap()
    };
    let (old, new) = (open().await, open().await);
    let lease = acquire(&old, "a").await;
    old.append(&a, &events(0..2)).await.unwrap();
    expire_leases(&database);
    let _taken = acquire(&new, "a").await;
    new.append(&a, &[event(2)]).await.unwrap();
    // One would follow the log; the blob of the other is that of an event of it.
    for late in [event(3), event(2)] {
        let result = old.append(&a, &[late]).await;
        assert!(
            matches!(result, Err(StoreError::LeaseLost { .. })),
            "{result:?}"
        );
    }
    let result = old.remove(&a).await;
    assert!(
        matches!(result, Err(StoreError::LeaseLost { .. })),
        "{result:?}"
    );
    drop(lease);
    assert_eq!(log(&new, &a).await, events(0..3));
    new.append(&a, &[event_with(3, "other")]).await.unwrap();
    assert_eq!(log(&new, &a).await[3], event_with(3, "other"));
    new.remove(&a).await.unwrap();
    assert_eq!(place.names().await, [""; 0]);
    old.close().await;
}

#[tokio::test]
#[ignore = "run by the test below, in a process of its own"]
async fn appends_and_reports() {
    let address = std::env::var(ADDRESS).unwrap();
    let store = PostgresStore::open(&address, Default::default())
        .await
        .unwrap();
    let _lease = acquire(&store, "a").await;
    for next in 0.. {
        store
            .append(&conversation("a"), &[event(next)])
            .await
            .unwrap();
        // Unbuffered, so that the report precedes the next append.
        std::io::stdout()
            .write_all(format!("{REPORT}{next}\n").as_bytes())
            .unwrap();
    }
}

#[tokio::test]
async fn conversation_of_a_killed_host_is_taken_over() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "store_postgres::takeover::appends_and_reports",
            "--ignored",
            "--nocapture",
        ])
        .env(ADDRESS, database.address())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let mut reports = lines.filter_map(|line| line.split_once(REPORT)?.1.parse::<u64>().ok());
    let seen = reports.by_ref().take(50).last().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let acknowledged = reports.last().unwrap_or(seen);

    let (store, a) = (host(&database).await, conversation("a"));
    assert!(store.leases().acquire(&a).await.unwrap().is_none());
    expire_leases(&database);
    assert_eq!(store.leases().expired().await.unwrap(), [a.clone()].into());
    let _lease = acquire(&store, "a").await;
    let stored = log(&store, &a).await;
    let end = stored.len() as u64;
    assert!(
        end > acknowledged,
        "{acknowledged} was acknowledged, the log ends at {end}"
    );
    assert_eq!(stored, events(0..end));
    store.append(&a, &[event(end)]).await.unwrap();
}

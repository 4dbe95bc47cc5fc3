//! Connections that break during appends: the result is determined from the log, and no event is
//! written twice.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::events::{EventStore as _, StoreError};
use protocol::EventId;
use rustix::process::Signal;
use storage::PostgresStore;
use storage::postgres::PostgresOptions;
use tempfile::TempDir;
use tests::postgres::{PostgresServer, TestDatabase};
use tests::store_contract::{conversation, event, events, log};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use super::host;

/// Where the proxy cuts a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// Before the server receives the statement.
    Request,
    /// After the server has executed the statement, before the client receives the response.
    Response,
}

/// A proxy that cuts one connection: the first that mentions a conversation after
/// [`arm`](Self::arm).
struct CuttingProxy {
    folder: TempDir,
    is_armed: Arc<AtomicBool>,
}

impl CuttingProxy {
    fn start(server: &Path, cut: Cut, marker: &'static str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("gbp")
            .tempdir_in("/tmp")
            .unwrap();
        let listener = UnixListener::bind(folder.path().join(server.file_name().unwrap())).unwrap();
        let is_armed = Arc::new(AtomicBool::new(false));
        let (server, armed) = (server.to_owned(), Arc::clone(&is_armed));
        // Ends with the runtime of the test.
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(
                    client,
                    server.clone(),
                    cut,
                    marker,
                    Arc::clone(&armed),
                ));
            }
        });
        Self { folder, is_armed }
    }

    fn address(&self, database: &TestDatabase) -> String {
        let folder = database
            .server()
            .socket()
            .parent()
            .unwrap()
            .display()
            .to_string();
        database
            .address()
            .replace(&folder, &self.folder.path().display().to_string())
    }

    fn arm(&self) {
        self.is_armed.store(true, Ordering::SeqCst);
    }

    fn has_cut(&self) -> bool {
        !self.is_armed.load(Ordering::SeqCst)
    }
}

async fn forward(
    mut client: UnixStream,
    server: PathBuf,
    cut: Cut,
    marker: &'static str,
    is_armed: Arc<AtomicBool>,
) {
    let mut server = UnixStream::connect(server).await.unwrap();
    let (mut request, mut response) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut is_cut = false;
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(length @ 1..) = read else { return };
                let bytes = &request[..length];
                if bytes.windows(marker.len()).any(|window| window == marker.as_bytes()) {
                    is_cut |= is_armed.swap(false, Ordering::SeqCst);
                }
                if is_cut && cut == Cut::Request || server.write_all(bytes).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut response) => {
                let Ok(length @ 1..) = read else { return };
                if is_cut || client.write_all(&response[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[tokio::test]
async fn append_succeeds_when_only_its_response_is_lost() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let proxy = CuttingProxy::start(&database.server().socket(), Cut::Response, "marked");
    let store = PostgresStore::open(&proxy.address(&database), PostgresOptions::default())
        .await
        .unwrap();
    let marked = conversation("marked");
    store.append(&marked, &events(0..2)).await.unwrap();
    proxy.arm();
    store.append(&marked, &events(2..5)).await.unwrap();
    assert!(proxy.has_cut());
    assert_eq!(log(&store, &marked).await, events(0..5));
    store.append(&marked, &[event(5)]).await.unwrap();
}

#[tokio::test]
async fn append_fails_when_the_connection_breaks_before_it() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let proxy = CuttingProxy::start(&database.server().socket(), Cut::Request, "marked");
    let store = PostgresStore::open(&proxy.address(&database), PostgresOptions::default())
        .await
        .unwrap();
    let (marked, other) = (conversation("marked"), conversation("other"));
    store.append(&marked, &events(0..2)).await.unwrap();
    proxy.arm();
    let error = store.append(&marked, &events(2..5)).await.unwrap_err();
    assert!(proxy.has_cut());
    assert!(matches!(error, StoreError::Storage { .. }), "{error}");
    assert_eq!(log(&store, &marked).await, events(0..2));
    // The next connection works.
    store.append(&marked, &events(2..5)).await.unwrap();
    store.append(&other, &events(0..1)).await.unwrap();
    assert_eq!(log(&store, &marked).await, events(0..5));
}

/// Holds the row of a conversation until an append waits for it, and terminates the session of the
/// append.
const TERMINATE_APPEND: &str = "
    BEGIN;
    UPDATE conversations SET events = events;
    SELECT pg_advisory_lock(7);
    DO $$
    DECLARE waiting int;
    BEGIN
        LOOP
            PERFORM pg_stat_clear_snapshot(), pg_sleep(0.01);
            SELECT pid INTO waiting FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid));
            EXIT WHEN waiting IS NOT NULL AND pg_terminate_backend(waiting, 10000);
        END LOOP;
    END $$;
    ROLLBACK";

#[tokio::test]
async fn append_fails_when_the_server_terminates_its_session() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (store, a, database) = (host(&database).await, conversation("a"), Arc::new(database));
    store.append(&a, &events(0..2)).await.unwrap();
    let terminator = Arc::clone(&database);
    let terminating = tokio::task::spawn_blocking(move || terminator.execute(TERMINATE_APPEND));
    // Other tests take advisory locks in their databases of the same server.
    let lock = "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database \
                WHERE datname = current_database() AND locktype = 'advisory' AND objid = 7 AND granted";
    while database.execute(lock) == "0" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let error = store.append(&a, &[event(2)]).await.unwrap_err();
    assert!(matches!(error, StoreError::Storage { .. }), "{error}");
    terminating.await.unwrap();
    assert_eq!(log(&store, &a).await, events(0..2));
    store.append(&a, &[event(2)]).await.unwrap();
}

/// Appends to one conversation until `is_done`. Returns the number of events that were acknowledged
/// or found in the log.
async fn append_through_failures(
    store: Arc<PostgresStore>,
    name: String,
    appended: Arc<AtomicU64>,
    is_done: Arc<AtomicBool>,
) -> u64 {
    let own = conversation(&name);
    let mut next = 0;
    while !is_done.load(Ordering::SeqCst) {
        match store.append(&own, &[event(next)]).await {
            Ok(()) => {
                next += 1;
                appended.fetch_add(1, Ordering::SeqCst);
            }
            Err(StoreError::Storage { .. }) => {
                // Reads may fail too while the server is down.
                let rest = store
                    .read(&own, EventId(next), 10)
                    .await
                    .unwrap_or_default();
                // Written if the server died after its commit and stayed away for longer than the
                // store waits.
                assert!(rest.is_empty() || rest == [event(next)], "{rest:?}");
                next += rest.len() as u64;
            }
            Err(error) => panic!("{error}"),
        }
    }
    next
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_has_each_event_once_and_in_order_after_crashes() {
    const CONVERSATIONS: usize = 8;
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let server = Arc::new(server);
    let database = TestDatabase::on(Arc::clone(&server));
    let store = Arc::new(host(&database).await);
    let (appended, is_done) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let appending: Vec<_> = (0..CONVERSATIONS)
        .map(|number| {
            let (appended, is_done) = (Arc::clone(&appended), Arc::clone(&is_done));
            let name = format!("c{number}");
            tokio::spawn(append_through_failures(
                Arc::clone(&store),
                name,
                appended,
                is_done,
            ))
        })
        .collect();
    let progress = async |count: u64| {
        let target = appended.load(Ordering::SeqCst) + count;
        while appended.load(Ordering::SeqCst) < target {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    for signal in [Signal::QUIT, Signal::INT, Signal::QUIT] {
        progress(200).await;
        let restarted = Arc::clone(&server);
        tokio::task::spawn_blocking(move || {
            restarted.stop(signal);
            restarted.restart();
        })
        .await
        .unwrap();
    }
    progress(200).await;
    is_done.store(true, Ordering::SeqCst);
    for (number, task) in appending.into_iter().enumerate() {
        let acknowledged = task.await.unwrap();
        assert_eq!(
            log(&*store, &conversation(&format!("c{number}"))).await,
            events(0..acknowledged)
        );
    }
}

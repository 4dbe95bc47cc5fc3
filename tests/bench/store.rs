//! Events appended per second, each committed before the next one of its conversation, so that it
//! survives a `kill -9` or, on the disk, a power cut; by two hosts in one PostgreSQL database,
//! which syncs. Also the delay until a subscriber of the log receives them.

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::events::{EventLog, EventStore};
use protocol::action::RunAction;
use protocol::{Action, ConversationId, Event, EventId, EventSource, Timestamp};
use storage::postgres::PostgresOptions;
use storage::{Durability, PostgresStore, SqliteStore};
use tests::postgres::{PostgresServer, TestDatabase};

use super::figure::{Figure, quantile_ms};
use super::report::BenchmarkReport;

const EVENTS: u64 = 3000;

/// Conversations of a busy host.
const MANY: u64 = 64;
/// Events of all of them: more, because the store writes them in groups.
const MANY_EVENTS: u64 = 64 * 500;

const FOLLOWED: u64 = 2000;

pub(crate) async fn measure(report: BenchmarkReport) {
    let (events, many_events) = (count(&report, EVENTS), count(&report, MANY_EVENTS));
    let folder = tempfile::tempdir().unwrap();
    let bare = bare(&folder.path().join("bare"), events, |_| {});
    let synced = bare_synced(&folder.path().join("synced"), events);
    let open = async |durability| {
        Arc::new(
            SqliteStore::open(folder.path().join("log.db"), durability)
                .await
                .unwrap(),
        )
    };
    let store = open(Durability::ProcessDeath).await;
    let alone = rate(&store, "alone", 1, events).await;
    let together = rate(&store, "eight", 8, events).await;
    let many = rate(&store, "many", MANY, many_events).await;
    report.add_all([
        Figure::plain(
            "events appended by one conversation (floor: bare file)",
            alone,
            "events/s",
        )
        .with_floor(bare),
        Figure::plain(
            "events appended by 8 conversations at once",
            together,
            "events/s",
        )
        .with_floor(bare),
        Figure::above(
            "events appended by 64 conversations at once",
            many,
            "events/s",
            20_000.0,
        )
        .with_floor(bare),
    ]);
    report.add_all(follow(store, count(&report, FOLLOWED)).await);
    let store = open(Durability::PowerCut).await;
    let alone = rate(&store, "alone-on-disk", 1, events / 10).await;
    let many = rate(&store, "many-on-disk", MANY, many_events).await;
    report.add_all([
        Figure::plain(
            "the same on the disk, by one (floor: bare file, synced)",
            alone,
            "events/s",
        )
        .with_floor(synced),
        Figure::above(
            "the same on the disk, by 64 at once",
            many,
            "events/s",
            10_000.0,
        )
        .with_floor(synced),
    ]);
    match PostgresServer::start_with(5432, |_| vec!["fsync=on".into()]) {
        Some(server) => {
            let rate = two_hosts(&TestDatabase::on(Arc::new(server)), many_events).await;
            let name = "PostgreSQL: events appended by 64 conversations of two hosts";
            report.add(Figure::above(name, rate, "events/s", 5000.0).with_floor(synced));
        }
        None => report.skip("store", "PostgreSQL is not installed"),
    }
}

/// Returns the events appended per second by two hosts, each with a half of the conversations and
/// their leases.
async fn two_hosts(database: &TestDatabase, events: u64) -> f64 {
    let open = async || {
        PostgresStore::open(&database.address(), PostgresOptions::default())
            .await
            .unwrap()
    };
    let hosts = [Arc::new(open().await), Arc::new(open().await)];
    let mut leases = Vec::new();
    let mut appends = Vec::new();
    for number in 0..MANY {
        let (host, id) = (
            &hosts[number as usize % 2],
            format!("of-hosts-{number}").parse().unwrap(),
        );
        leases.push(
            host.leases()
                .acquire(&id)
                .await
                .unwrap()
                .expect("no other host has it"),
        );
        appends.push(append(Arc::clone(host), id, events / MANY));
    }
    let started = Instant::now();
    let appending: Vec<_> = appends.into_iter().map(tokio::spawn).collect();
    for task in appending {
        task.await.unwrap();
    }
    per_second(events, started.elapsed())
}

fn count(report: &BenchmarkReport, full: u64) -> u64 {
    report.repetitions(usize::try_from(full).unwrap()) as u64
}

/// Returns the events appended per second by this number of concurrent conversations.
async fn rate(store: &Arc<SqliteStore>, name: &str, conversations: u64, events: u64) -> f64 {
    let started = Instant::now();
    let appending: Vec<_> = (0..conversations)
        .map(|number| {
            let id = format!("{name}-{number}").parse().unwrap();
            tokio::spawn(append(Arc::clone(store), id, events / conversations))
        })
        .collect();
    for task in appending {
        task.await.unwrap();
    }
    per_second(events, started.elapsed())
}

async fn append<S: EventStore>(store: Arc<S>, conversation: ConversationId, events: u64) {
    for id in 0..events {
        store.append(&conversation, &[event(id)]).await.unwrap();
    }
}

/// Measures the delay until a subscriber receives an event: since the append was requested, and
/// since the event was durable, before which it is not published.
async fn follow(store: Arc<SqliteStore>, count: u64) -> Vec<Figure> {
    let (log, _) = EventLog::open(store, "followed".parse().unwrap())
        .await
        .unwrap();
    let mut cursor = log.cursor(EventId::FIRST);
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let follower = tokio::spawn(async move {
        while let Some(event) = cursor.next().await.unwrap().last() {
            sender.send((event.id, Instant::now())).await.unwrap();
        }
    });
    let (mut since_asked, mut since_durable) = (Vec::new(), Vec::new());
    for id in 0..count {
        let event = event(id);
        let asked = Instant::now();
        log.append(vec![event]).await.unwrap();
        let durable = Instant::now();
        let (received, at) = receiver.recv().await.unwrap();
        assert_eq!(received, EventId(id));
        since_asked.push(at - asked);
        // The subscriber may run before the appending task continues.
        since_durable.push(at.saturating_duration_since(durable));
    }
    drop(log);
    follower.await.unwrap();
    vec![
        Figure::below(
            "an appended event to a live subscriber, p50",
            quantile_ms(&mut since_durable, 0.5),
            "ms",
            0.1,
        ),
        Figure::plain(
            "the same, from before the append",
            quantile_ms(&mut since_asked, 0.5),
            "ms",
        ),
    ]
}

/// Returns the events per second that a bare loop writes to a file.
fn bare(path: &std::path::Path, events: u64, after_each: impl Fn(&File)) -> f64 {
    let mut file = File::create(path).unwrap();
    let started = Instant::now();
    for id in 0..events {
        serde_json::to_writer(&mut file, &event(id)).unwrap();
        file.write_all(b"\n").unwrap();
        after_each(&file);
    }
    per_second(events, started.elapsed())
}

fn bare_synced(path: &std::path::Path, events: u64) -> f64 {
    bare(path, events / 10, |file| file.sync_data().unwrap())
}

fn event(id: u64) -> Event {
    let timestamp = Timestamp::try_from("2026-01-02T03:04:05.678901".to_owned()).unwrap();
    let action = RunAction {
        command: "cargo test --workspace".into(),
        ..Default::default()
    };
    Event::new(
        EventId(id),
        timestamp,
        EventSource::Agent,
        Action::from(action),
    )
}

fn per_second(events: u64, elapsed: Duration) -> f64 {
    events as f64 / elapsed.as_secs_f64()
}

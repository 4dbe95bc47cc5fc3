//! Pages of the list of conversations, and the search in it, for the front ends: through the
//! application layer, in both stores.

use std::sync::Arc;
use std::time::Instant;

use conversations::{ConversationFilter, Conversations, NoWorkspaces, ProcessLocks};
use engine::events::EventStore;
use futures_util::{StreamExt as _, stream};
use protocol::action::MessageAction;
use protocol::observation::AgentStateChangedObservation;
use protocol::record::{ConversationStarted, ConversationTitled};
use protocol::{
    Action, AgentState, ConversationId, Event, EventId, EventSource, Observation, Record, Timestamp,
};
use storage::postgres::PostgresOptions;
use storage::{Durability, PostgresStore, SqliteStore};
use tests::postgres::TestDatabase;

use super::figure::{Figure, quantile_ms};
use super::report::BenchmarkReport;

const CONVERSATIONS: usize = 10_000;

/// Length of a first message. Longer than the part that is searched.
const MESSAGE_BYTES: usize = 4096;

const PAGE: usize = 20;

const REPETITIONS: usize = 50;

/// Concurrent appends while the stores are filled.
const WRITERS: usize = 64;

/// Maximum time of a page, in milliseconds.
const AIM_MS: f64 = 50.0;

/// Names of the figures of a store.
struct Names {
    first: &'static str,
    deep: &'static str,
    search: &'static str,
    no_match: &'static str,
}

const SQLITE: Names = Names {
    first: "the first 20 of 10,000 conversations, p50",
    deep: "20 after 9,900 others, p50",
    search: "20 of 5,000 that contain a text, p50",
    no_match: "a search without a result, p50",
};

const POSTGRES: Names = Names {
    first: "PostgreSQL: the first 20 of 10,000 conversations, p50",
    deep: "PostgreSQL: 20 after 9,900 others, p50",
    search: "PostgreSQL: 20 of 5,000 that contain a text, p50",
    no_match: "PostgreSQL: a search without a result, p50",
};

pub(crate) async fn measure(report: BenchmarkReport) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.db");
    let open = async || {
        Arc::new(
            SqliteStore::open(&file, Durability::default())
                .await
                .unwrap(),
        )
    };
    measure_store(&report, open().await, &SQLITE).await;
    remove_overviews(&file);
    let started = Instant::now();
    drop(open().await);
    let elapsed = started.elapsed().as_secs_f64();
    report.add(Figure::plain(
        "a store of 10,000 conversations migrated",
        elapsed,
        "s",
    ));
    match TestDatabase::create() {
        Some(database) => {
            let store = PostgresStore::open(&database.address(), PostgresOptions::default())
                .await
                .unwrap();
            measure_store(&report, Arc::new(store), &POSTGRES).await;
        }
        None => report.skip("list", "PostgreSQL is not installed"),
    }
}

async fn measure_store(report: &BenchmarkReport, store: Arc<dyn EventStore>, names: &Names) {
    let count = report.repetitions(CONVERSATIONS);
    fill(&*store, count).await;
    let conversations = Conversations::new(
        store,
        Arc::new(ProcessLocks::default()),
        Arc::new(NoWorkspaces),
    );
    let all = conversations
        .list(&ConversationFilter::default())
        .await
        .unwrap();
    assert_eq!(all.len(), count);
    let before = all[count - (count / 100).max(PAGE) - 1].position();
    let search = |text: &str| ConversationFilter {
        text: Some(text.to_owned()),
        ..page()
    };
    for (name, filter, expected) in [
        (names.first, page(), PAGE),
        (names.deep, ConversationFilter { before, ..page() }, PAGE),
        (names.search, search("TASK OF AN EVEN NUMBER"), PAGE),
        (names.no_match, search("no such text"), 0),
    ] {
        let times = measure_list(report, &conversations, &filter, expected).await;
        report.add(Figure::below(name, times, "ms", AIM_MS));
    }
}

fn page() -> ConversationFilter {
    ConversationFilter {
        limit: Some(PAGE),
        ..ConversationFilter::default()
    }
}

/// Returns the median of the time that a list takes.
async fn measure_list(
    report: &BenchmarkReport,
    conversations: &Conversations,
    filter: &ConversationFilter,
    expected: usize,
) -> f64 {
    let mut times = Vec::new();
    for _ in 0..report.repetitions(REPETITIONS) {
        let started = Instant::now();
        let entries = conversations.list(filter).await.unwrap();
        times.push(started.elapsed());
        assert_eq!(entries.len(), expected);
    }
    quantile_ms(&mut times, 0.5)
}

async fn fill(store: &dyn EventStore, count: usize) {
    let appends = (0..count).map(|number| async move {
        let id: ConversationId = format!("{number:032x}").parse().unwrap();
        store.append(&id, &log(number)).await.unwrap();
    });
    stream::iter(appends)
        .buffer_unordered(WRITERS)
        .collect::<()>()
        .await;
}

/// Returns the log of a conversation that has ended.
fn log(number: usize) -> Vec<Event> {
    let second = number % 60;
    let timestamp = format!(
        "2026-01-02T03:{:02}:{second:02}.{number:06}",
        number / 60 % 60
    );
    let timestamp = Timestamp::try_from(timestamp).unwrap();
    let parity = if number.is_multiple_of(2) {
        "even"
    } else {
        "odd"
    };
    let text = format!("Task of an {parity} number: {number}. ");
    let content = text.repeat(MESSAGE_BYTES / text.len() + 1);
    let event = |id, source, body: protocol::EventBody| {
        Event::new(EventId(id), timestamp.clone(), source, body)
    };
    let started = ConversationStarted {
        model: "anthropic/claude-sonnet-4-5".into(),
        workspace: Some(format!("/home/user/projects/{number}")),
        ..Default::default()
    };
    let message = MessageAction {
        content,
        ..Default::default()
    };
    let titled = ConversationTitled {
        title: format!("Title of number {number}"),
    };
    let finished = AgentStateChangedObservation {
        agent_state: AgentState::Finished,
        reason: String::new(),
    };
    vec![
        event(0, EventSource::Environment, Record::from(started).into()),
        event(1, EventSource::User, Action::from(message).into()),
        event(2, EventSource::Environment, Record::from(titled).into()),
        event(
            3,
            EventSource::Environment,
            Observation::without_content(finished).into(),
        ),
    ]
}

/// Leaves the store as a version of Glovebox without overviews would.
fn remove_overviews(file: &std::path::Path) {
    let sql = "DELETE FROM overviews; UPDATE conversations SET overview_events = 0, owner = NULL, agent_state = NULL, cost = NULL";
    rusqlite::Connection::open(file)
        .unwrap()
        .execute_batch(sql)
        .unwrap();
}

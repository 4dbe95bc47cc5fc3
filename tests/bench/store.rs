//! Events appended per second. Each is committed before the next is sent: it survives a `kill -9`.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::events::EventStore;
use protocol::action::RunAction;
use protocol::{Action, ConversationId, Event, EventId, EventSource, Timestamp};
use storage::SqliteStore;

use super::figure::Figure;

const EVENTS: u64 = 3000;
const WRITERS: u64 = 8;

pub(crate) async fn measure() -> Vec<Figure> {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(folder.path().join("log.db")).await.unwrap());

    let begin = Instant::now();
    append(store.clone(), "alone".parse().unwrap(), EVENTS).await;
    let alone = per_second(EVENTS, begin.elapsed());

    let begin = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            tokio::spawn(append(store.clone(), format!("writer-{number}").parse().unwrap(), EVENTS / WRITERS))
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let together = per_second(EVENTS, begin.elapsed());

    let mut file = std::fs::File::create(folder.path().join("bare")).unwrap();
    let begin = Instant::now();
    for id in 0..EVENTS {
        serde_json::to_writer(&mut file, &event(id)).unwrap();
        file.write_all(b"\n").unwrap();
    }
    let bare = per_second(EVENTS, begin.elapsed());
    vec![
        Figure::plain("events appended by one conversation (floor: bare file)", alone, "events/s")
            .with_floor(bare),
        Figure::plain("events appended by 8 conversations at once", together, "events/s").with_floor(bare),
    ]
}

async fn append(store: Arc<SqliteStore>, conversation: ConversationId, events: u64) {
    for id in 0..events {
        store.append(&conversation, &[event(id)]).await.unwrap();
    }
}

fn event(id: u64) -> Event {
    let timestamp = Timestamp::try_from("2026-01-02T03:04:05.678901".to_owned()).unwrap();
    let action = RunAction { command: "cargo test --workspace".into(), ..Default::default() };
    Event::new(EventId(id), timestamp, EventSource::Agent, Action::from(action))
}

#[expect(clippy::cast_precision_loss)]
fn per_second(events: u64, elapsed: Duration) -> f64 {
    events as f64 / elapsed.as_secs_f64()
}

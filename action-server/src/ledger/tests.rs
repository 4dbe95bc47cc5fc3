//! The ledger's promises, in paused time.

use futures_util::StreamExt as _;
use protocol::observation::ReadObservation;
use protocol::sandbox_api::{ActionFrame, ActionFrameDecoder};
use protocol::{ActionId, Observation};
use tokio_util::sync::CancellationToken;

use super::*;

fn ledger() -> Ledger {
    Ledger::new(SpoolStore::new(&std::env::temp_dir()))
}

fn id(text: &str) -> ActionId {
    text.parse().unwrap()
}

fn request(command: &str) -> ActionRequest {
    serde_json::from_value(serde_json::json!({"action": "run", "args": {"command": command}})).unwrap()
}

fn said(text: &str) -> Observation {
    Observation::error(text, "")
}

fn begin(ledger: &Ledger, name: &str) -> Running {
    match ledger.begin(id(name), &request(name)).unwrap() {
        StartedAction::New(running) => running,
        StartedAction::Known(_) => panic!("{name} was begun before"),
    }
}

async fn read(entry: Arc<Entry>, after: u64) -> Vec<ActionFrame> {
    let mut decoder = ActionFrameDecoder::default();
    let mut stream = std::pin::pin!(frames(entry, after));
    let mut read = Vec::new();
    while let Some(Ok(bytes)) = stream.next().await {
        decoder.push(&bytes);
        while let Some(frame) = decoder.next_frame().unwrap() {
            read.push(frame);
        }
    }
    read
}

#[tokio::test(start_paused = true)]
async fn a_reader_gets_output_as_it_comes_and_then_the_observation() {
    let ledger = ledger();
    let running = begin(&ledger, "a");
    let reader = tokio::spawn(read(running.entry(), 2));
    let mut output = running.output();
    output(b"hel");
    tokio::task::yield_now().await;
    output(b"lo");
    running.end(said("done"));
    let frames = reader.await.unwrap();
    let text: Vec<u8> = frames
        .iter()
        .flat_map(|frame| match frame {
            ActionFrame::Output { bytes, .. } => bytes.clone(),
            _ => Vec::new(),
        })
        .collect();
    assert_eq!(text, b"llo");
    assert_eq!(frames.last(), Some(&ActionFrame::Observation(Box::new(said("done")))));
}

#[tokio::test(start_paused = true)]
async fn the_same_id_attaches_and_another_request_conflicts() {
    let ledger = ledger();
    let running = begin(&ledger, "a");
    assert!(matches!(ledger.begin(id("a"), &request("a")), Ok(StartedAction::Known(_))));
    assert_eq!(ledger.begin(id("a"), &request("b")).unwrap_err(), LedgerError::Conflict(id("a")));
    running.end(said("done"));
    let Ok(StartedAction::Known(entry)) = ledger.begin(id("a"), &request("a")) else { panic!("it ran twice") };
    assert_eq!(read(entry, 0).await, [Frame::Observation(Box::new(said("done")))]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_action_ends_as_an_error() {
    let ledger = ledger();
    drop(begin(&ledger, "a"));
    let frames = read(ledger.find(id("a")).unwrap(), 0).await;
    let [ActionFrame::Observation(observation)] = frames.as_slice() else { panic!("{frames:?}") };
    assert_eq!(observation.kind.kind(), "error");
}

#[tokio::test(start_paused = true)]
async fn an_ended_action_is_gone_after_its_retention_and_never_runs_again() {
    let ledger = ledger();
    let shutdown = CancellationToken::new();
    let retention = tokio::spawn(forget_the_expired(ledger.register(), shutdown.clone()));
    begin(&ledger, "a").end(said("done"));
    tokio::time::sleep(RETENTION - std::time::Duration::from_secs(1)).await;
    assert!(ledger.find(id("a")).is_ok());
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(ledger.register.all().len(), 0);
    assert_eq!(ledger.find(id("a")).unwrap_err(), LedgerError::Gone(id("a")));
    assert_eq!(ledger.begin(id("a"), &request("a")).unwrap_err(), LedgerError::Gone(id("a")));
    shutdown.cancel();
    retention.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn running_actions_stay_and_the_oldest_ended_go_first() {
    let ledger = ledger();
    let _running = begin(&ledger, "running");
    (0..=MAX_ENDED).for_each(|n| begin(&ledger, &format!("n{n}")).end(said("done")));
    assert_eq!(ledger.find(id("n0")).unwrap_err(), LedgerError::Gone(id("n0")));
    assert!(ledger.find(id("n1")).is_ok());
    tokio::time::advance(10 * RETENTION).await;
    assert!(ledger.find(id("running")).is_ok());
}

/// A kind whose `message` does not repeat the text.
fn shown(text: String) -> Observation {
    Observation::new(text, ReadObservation::default())
}

#[tokio::test(start_paused = true)]
async fn held_bytes_are_bounded_but_the_newest_ending_stays() {
    let ledger = ledger();
    let long = "x".repeat(40 << 20);
    begin(&ledger, "a").end(shown(long.clone()));
    assert!(ledger.find(id("a")).is_ok());
    begin(&ledger, "b").end(shown(long));
    assert_eq!(ledger.find(id("a")).unwrap_err(), LedgerError::Gone(id("a")));
    assert!(ledger.find(id("b")).is_ok());
}

#[tokio::test(start_paused = true)]
async fn too_many_at_once_are_refused_until_one_ends() {
    let ledger = ledger();
    let mut running: Vec<Running> = (0..64).map(|n| begin(&ledger, &format!("n{n}"))).collect();
    assert_eq!(ledger.begin(id("more"), &request("more")).unwrap_err(), LedgerError::Busy(64));
    drop(running.pop());
    begin(&ledger, "more").end(said("done"));
}

#[tokio::test(start_paused = true)]
async fn an_observation_too_long_to_be_sent_is_told() {
    let ledger = ledger();
    let running = begin(&ledger, "a");
    let entry = running.entry();
    running.end(shown("\u{1}".repeat(11 << 20)));
    let frames = read(entry, 0).await;
    let [ActionFrame::Observation(observation)] = frames.as_slice() else {
        panic!("{} frames", frames.len())
    };
    assert_eq!(observation.kind.kind(), "error");
}

#[tokio::test(start_paused = true)]
async fn cancelling_everything_reaches_every_running_action() {
    let ledger = ledger();
    let running = begin(&ledger, "a");
    ledger.cancel_all();
    running.cancellation().cancelled().await;
}

#[tokio::test(start_paused = true)]
async fn an_acknowledged_result_is_forgotten_and_its_action_never_runs_again() {
    let ledger = ledger();
    let running = begin(&ledger, "a");
    assert_eq!(ledger.acknowledge(id("a")), Err(LedgerError::StillRuns(id("a"))));
    running.end(said("done"));
    assert_eq!(ledger.acknowledge(id("a")), Ok(()));
    assert_eq!(ledger.acknowledge(id("a")), Err(LedgerError::Gone(id("a"))));
    assert_eq!(ledger.begin(id("a"), &request("a")).unwrap_err(), LedgerError::Gone(id("a")));
    assert_eq!(ledger.acknowledge(id("b")), Err(LedgerError::Unknown(id("b"))));
}

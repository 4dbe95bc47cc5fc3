//! Properties of the ledger, in paused time.

use futures_util::StreamExt as _;
use protocol::observation::ReadObservation;
use protocol::sandbox_api::{ActionFrame, ActionFrameDecoder};
use protocol::{ActionId, Observation};
use tokio_util::sync::CancellationToken;

use super::*;

fn ledger() -> Ledger {
    Ledger::new(SpoolStore::new(
        &std::env::temp_dir(),
        &std::env::temp_dir(),
    ))
}

fn id(text: &str) -> ActionId {
    text.parse().unwrap()
}

fn request(command: &str) -> ActionRequest {
    serde_json::from_value(serde_json::json!({"action": "run", "args": {"command": command}}))
        .unwrap()
}

fn observation(text: &str) -> Observation {
    Observation::error(text, "")
}

fn start(ledger: &Ledger, name: &str) -> RunningAction {
    match ledger.start(id(name), &request(name)).unwrap() {
        StartedAction::New(running) => running,
        StartedAction::Known(_) => panic!("{name} was started before"),
    }
}

async fn read(entry: Arc<ActionRecord>, after: u64) -> Vec<ActionFrame> {
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
async fn reader_gets_output_and_then_the_observation() {
    let ledger = ledger();
    let running = start(&ledger, "a");
    let reader = tokio::spawn(read(running.entry(), 2));
    let mut output = running.output();
    output(b"hel");
    tokio::task::yield_now().await;
    output(b"lo");
    running.complete(observation("done"));
    let frames = reader.await.unwrap();
    let text: Vec<u8> = frames
        .iter()
        .flat_map(|frame| match frame {
            ActionFrame::Output { bytes, .. } => bytes.clone(),
            _ => Vec::new(),
        })
        .collect();
    assert_eq!(text, b"llo");
    assert_eq!(
        frames.last(),
        Some(&ActionFrame::Observation(Box::new(observation("done"))))
    );
}

#[tokio::test(start_paused = true)]
async fn start_attaches_or_conflicts_when_the_id_is_known() {
    let ledger = ledger();
    let running = start(&ledger, "a");
    assert!(matches!(
        ledger.start(id("a"), &request("a")),
        Ok(StartedAction::Known(_))
    ));
    assert_eq!(
        ledger.start(id("a"), &request("b")).unwrap_err(),
        LedgerError::Conflict(id("a"))
    );
    running.complete(observation("done"));
    let Ok(StartedAction::Known(entry)) = ledger.start(id("a"), &request("a")) else {
        panic!("it ran twice")
    };
    assert_eq!(
        read(entry, 0).await,
        [ActionFrame::Observation(Box::new(observation("done")))]
    );
}

#[tokio::test(start_paused = true)]
async fn action_completes_with_an_error_when_dropped() {
    let ledger = ledger();
    drop(start(&ledger, "a"));
    let frames = read(ledger.find(id("a")).unwrap(), 0).await;
    let [ActionFrame::Observation(observation)] = frames.as_slice() else {
        panic!("{frames:?}")
    };
    assert_eq!(observation.kind.kind(), "error");
}

#[tokio::test(start_paused = true)]
async fn action_is_gone_and_not_run_again_after_its_retention() {
    let ledger = ledger();
    let shutdown = CancellationToken::new();
    let retention = tokio::spawn(expire_records(ledger.registry(), shutdown.clone()));
    start(&ledger, "a").complete(observation("done"));
    tokio::time::sleep(RETENTION - std::time::Duration::from_secs(1)).await;
    assert!(ledger.find(id("a")).is_ok());
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(ledger.registry.all().len(), 0);
    assert_eq!(
        ledger.find(id("a")).unwrap_err(),
        LedgerError::Gone(id("a"))
    );
    assert_eq!(
        ledger.start(id("a"), &request("a")).unwrap_err(),
        LedgerError::Gone(id("a"))
    );
    shutdown.cancel();
    retention.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn oldest_ended_actions_expire_first_and_running_ones_stay() {
    let ledger = ledger();
    let _running = start(&ledger, "running");
    (0..=MAX_ENDED).for_each(|n| start(&ledger, &format!("n{n}")).complete(observation("done")));
    assert_eq!(
        ledger.find(id("n0")).unwrap_err(),
        LedgerError::Gone(id("n0"))
    );
    assert!(ledger.find(id("n1")).is_ok());
    tokio::time::advance(10 * RETENTION).await;
    assert!(ledger.find(id("running")).is_ok());
}

/// An observation whose `message` does not repeat the text.
fn read_observation(text: String) -> Observation {
    Observation::new(text, ReadObservation::default())
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_but_the_newest_result_stays() {
    let ledger = ledger();
    let long = "x".repeat(40 << 20);
    start(&ledger, "a").complete(read_observation(long.clone()));
    assert!(ledger.find(id("a")).is_ok());
    start(&ledger, "b").complete(read_observation(long));
    assert_eq!(
        ledger.find(id("a")).unwrap_err(),
        LedgerError::Gone(id("a"))
    );
    assert!(ledger.find(id("b")).is_ok());
}

#[tokio::test(start_paused = true)]
async fn start_is_refused_when_too_many_are_running() {
    let ledger = ledger();
    let mut running: Vec<RunningAction> =
        (0..64).map(|n| start(&ledger, &format!("n{n}"))).collect();
    assert_eq!(
        ledger.start(id("more"), &request("more")).unwrap_err(),
        LedgerError::Busy(64)
    );
    drop(running.pop());
    start(&ledger, "more").complete(observation("done"));
}

#[tokio::test(start_paused = true)]
async fn result_is_an_error_when_the_observation_is_too_long() {
    let ledger = ledger();
    let running = start(&ledger, "a");
    let entry = running.entry();
    running.complete(read_observation("\u{1}".repeat(11 << 20)));
    let frames = read(entry, 0).await;
    let [ActionFrame::Observation(observation)] = frames.as_slice() else {
        panic!("{} frames", frames.len())
    };
    assert_eq!(observation.kind.kind(), "error");
}

#[tokio::test(start_paused = true)]
async fn cancel_all_cancels_every_running_action() {
    let ledger = ledger();
    let running = start(&ledger, "a");
    ledger.cancel_all();
    running.cancellation().cancelled().await;
}

#[tokio::test(start_paused = true)]
async fn action_is_forgotten_and_not_run_again_when_acknowledged() {
    let ledger = ledger();
    let running = start(&ledger, "a");
    assert_eq!(
        ledger.acknowledge(id("a")),
        Err(LedgerError::StillRuns(id("a")))
    );
    running.complete(observation("done"));
    assert_eq!(ledger.acknowledge(id("a")), Ok(()));
    assert_eq!(ledger.acknowledge(id("a")), Err(LedgerError::Gone(id("a"))));
    assert_eq!(
        ledger.start(id("a"), &request("a")).unwrap_err(),
        LedgerError::Gone(id("a"))
    );
    assert_eq!(
        ledger.acknowledge(id("b")),
        Err(LedgerError::Unknown(id("b")))
    );
}

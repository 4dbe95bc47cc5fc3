//! Tests with several processes: acknowledged events survive `kill -9`, and two processes can share
//! a file.
//!
//! The other process is this test binary, which runs only [`appends_and_reports`].

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use engine::events::EventStore as _;
use storage::{Durability, SqliteStore};

use crate::fixture::{Fixture, conversation, event, events, id};

const FILE: &str = "STORAGE_TEST_FILE";
const CONVERSATION: &str = "STORAGE_TEST_CONVERSATION";
const REPORT: &str = "appended ";

/// A process that appends events. Killed on drop.
struct Appender {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Appender {
    fn start(file: &Path, conversation: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "crash::appends_and_reports",
                "--ignored",
                "--nocapture",
            ])
            .env(FILE, file)
            .env(CONVERSATION, conversation)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Waits for the next `count` reports and returns the last.
    fn wait_for(&mut self, count: usize) -> u64 {
        self.reports().take(count).last().unwrap()
    }

    /// Kills the process with SIGKILL. Returns the last report, which may still have been in the
    /// pipe. `None` if there is none.
    fn kill(mut self) -> Option<u64> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reports().last()
    }

    fn reports(&mut self) -> impl Iterator<Item = u64> {
        self.lines
            .by_ref()
            .map_while(Result::ok)
            .filter_map(|line| {
                let (_, report) = line.split_once(REPORT)?;
                report.parse().ok()
            })
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
#[ignore = "started by the other tests as a separate process"]
async fn appends_and_reports() {
    let store = SqliteStore::open(std::env::var_os(FILE).unwrap(), Durability::default())
        .await
        .unwrap();
    let log = conversation(&std::env::var(CONVERSATION).unwrap());
    for next in 0.. {
        store.append(&log, &[event(next)]).await.unwrap();
        // Unbuffered, so that the report is sent before the next append starts.
        std::io::stdout()
            .write_all(format!("{REPORT}{next}\n").as_bytes())
            .unwrap();
    }
}

#[tokio::test]
async fn no_acknowledged_event_is_lost_by_kill_9() {
    for reports in [1, 10, 500] {
        let fixture = Fixture::new();
        let mut appender = Appender::start(&fixture.file(), "a");
        let reported = appender.wait_for(reports);
        let acknowledged = appender.kill().unwrap_or(reported);

        let store = fixture.store().await;
        let log = conversation("a");
        let kept = store.read(&log, id(0), usize::MAX).await.unwrap();
        let end = kept.len() as u64;
        assert!(
            end > acknowledged,
            "{acknowledged} was acknowledged, the log ends at {end}"
        );
        assert_eq!(kept, events(0..end));
        store.append(&log, &[event(end)]).await.unwrap();
    }
}

#[tokio::test]
async fn two_processes_share_a_file() {
    let fixture = Fixture::new();
    let mut other = Appender::start(&fixture.file(), "theirs");
    let store = fixture.store().await;
    let ours = conversation("ours");
    for next in 0..200 {
        store.append(&ours, &[event(next)]).await.unwrap();
    }
    let reported = other.wait_for(200);
    let acknowledged = other.kill().unwrap_or(reported);
    assert_eq!(
        store.read(&ours, id(0), 1000).await.unwrap(),
        events(0..200)
    );
    let theirs = store
        .read(&conversation("theirs"), id(0), usize::MAX)
        .await
        .unwrap();
    assert!(theirs.len() as u64 > acknowledged);
}

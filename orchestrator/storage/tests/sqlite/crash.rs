//! Real processes: what one has acknowledged survives its `kill -9`, and two may use one file.
//!
//! The other process is this test program again, asked for [`appends_and_reports`] alone.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use engine::events::EventStore as _;
use storage::{Durability, SqliteStore};

use crate::scene::{Scene, conversation, event, events, id};

const FILE: &str = "STORAGE_TEST_FILE";
const CONVERSATION: &str = "STORAGE_TEST_CONVERSATION";
const REPORT: &str = "appended ";

/// Another process that appends; killed when dropped.
struct Appender {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Appender {
    fn start(file: &Path, conversation: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::appends_and_reports", "--ignored", "--nocapture"])
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

    /// `kill -9`; returns the last report, also of those that were still in the pipe.
    fn kill(mut self) -> Option<u64> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reports().last()
    }

    fn reports(&mut self) -> impl Iterator<Item = u64> {
        self.lines.by_ref().map_while(Result::ok).filter_map(|line| {
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
#[ignore = "run by the other tests here, in a process of its own"]
async fn appends_and_reports() {
    let store = SqliteStore::open(std::env::var_os(FILE).unwrap(), Durability::default()).await.unwrap();
    let log = conversation(&std::env::var(CONVERSATION).unwrap());
    for next in 0.. {
        store.append(&log, &[event(next)]).await.unwrap();
        // Unbuffered, so that the report is out before the next append begins.
        std::io::stdout().write_all(format!("{REPORT}{next}\n").as_bytes()).unwrap();
    }
}

#[tokio::test]
async fn no_acknowledged_event_is_lost_by_kill_9() {
    for reports in [1, 10, 500] {
        let scene = Scene::new();
        let mut appender = Appender::start(&scene.file(), "a");
        let seen = appender.wait_for(reports);
        let acknowledged = appender.kill().unwrap_or(seen);

        let store = scene.store().await;
        let log = conversation("a");
        let kept = store.read(&log, id(0), usize::MAX).await.unwrap();
        let end = kept.len() as u64;
        assert!(end > acknowledged, "{acknowledged} was acknowledged, the log ends at {end}");
        assert_eq!(kept, events(0..end));
        store.append(&log, &[event(end)]).await.unwrap();
    }
}

#[tokio::test]
async fn two_processes_share_a_file() {
    let scene = Scene::new();
    let mut other = Appender::start(&scene.file(), "theirs");
    let store = scene.store().await;
    let ours = conversation("ours");
    for next in 0..200 {
        store.append(&ours, &[event(next)]).await.unwrap();
    }
    let seen = other.wait_for(200);
    let acknowledged = other.kill().unwrap_or(seen);
    assert_eq!(store.read(&ours, id(0), 1000).await.unwrap(), events(0..200));
    let theirs = store.read(&conversation("theirs"), id(0), usize::MAX).await.unwrap();
    assert!(theirs.len() as u64 > acknowledged);
}

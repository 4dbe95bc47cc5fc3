//! A process that writes is killed: the document is the last one that it reported, or a later one,
//! and never a part.
//!
//! The other process is this test binary, which runs only [`writes_and_reports`].

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use rusqlite::Connection;

use crate::{Fixture, content, open, read};

const FILE: &str = "STORAGE_TEST_SEALED_FILE";
const REPORT: &str = "written ";

/// Returns a content that names its revision, and is too large for one page.
fn numbered(revision: u64) -> String {
    format!("{revision} ").repeat(5000)
}

#[tokio::test]
#[ignore = "started by another test as a separate process"]
async fn writes_and_reports() {
    let documents = open(std::env::var_os(FILE).unwrap().into(), "the operator's key")
        .await
        .unwrap();
    for revision in 0.. {
        documents
            .write("a", revision, content(&numbered(revision + 1)))
            .await
            .unwrap();
        std::io::stdout()
            .write_all(format!("{REPORT}{}\n", revision + 1).as_bytes())
            .unwrap();
    }
}

#[tokio::test]
async fn document_is_whole_when_its_writer_is_killed() {
    for reports in [1, 7, 40] {
        let fixture = Fixture::new();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "crash::writes_and_reports",
                "--ignored",
                "--nocapture",
            ])
            .env(FILE, fixture.file())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut reported = lines
            .map_while(Result::ok)
            .filter_map(|line| line.split_once(REPORT)?.1.parse::<u64>().ok());
        let reached = reported.by_ref().nth(reports - 1).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = reported.last().unwrap_or(reached);

        let documents = fixture.open().await;
        let (revision, text) = read(&documents, "a").await.unwrap();
        assert!(
            revision >= acknowledged,
            "{acknowledged} was reported, {revision} is stored"
        );
        assert_eq!(text, numbered(revision));
        documents
            .write("a", revision, content("next"))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn write_without_a_commit_leaves_the_old_document() {
    let fixture = Fixture::new();
    let documents = fixture.open().await;
    documents.write("a", 0, content("old")).await.unwrap();
    let mut other = Connection::open(fixture.file()).unwrap();
    let transaction = other.transaction().unwrap();
    transaction
        .execute("UPDATE documents SET revision = 2, sealed = x'00'", [])
        .unwrap();
    assert_eq!(read(&documents, "a").await, Some((1, "old".to_owned())));
    drop(transaction);
    documents.write("a", 1, content("new")).await.unwrap();
    assert_eq!(read(&documents, "a").await, Some((2, "new".to_owned())));
}

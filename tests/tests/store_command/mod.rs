//! `glovebox store`: migrations, backups, restores and exports, of files and of PostgreSQL.

mod backup;
mod export;
mod migrate;

use std::path::Path;

use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish};

/// Runs a conversation whose agent finishes, and returns its id.
fn run(home: &Home, text: &str) -> String {
    let model = home.script(&json!([bash("echo 1"), finish()]));
    home.run(&[
        "run",
        "--json",
        "--runtime",
        "local",
        "-t",
        text,
        "-l",
        &model,
    ])
    .expect(0);
    home.conversations()[0].clone()
}

/// Continues a conversation with a message.
fn resume(home: &Home, id: &str, text: &str) {
    // A scripted model skips what was answered before.
    let model = home.script(&json!([bash("echo 1"), finish(), finish(), finish()]));
    home.run(&["resume", id, "-t", text, "-l", &model])
        .expect(0);
}

/// Returns the stored events of a conversation.
fn events(home: &Home, id: &str, store: &[&str]) -> Vec<Value> {
    home.run(&[&["conversations", "show", id, "--json"], store].concat())
        .expect(0)
        .events()
}

/// Splits the output of a copy into the status of each conversation, by id, and the totals.
fn report(stdout: &str) -> (Vec<(String, String)>, Value) {
    let mut lines: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let summary = lines.pop().unwrap()["summary"].take();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (
        lines
            .iter()
            .map(|line| (text(&line["conversation"]), text(&line["status"])))
            .collect(),
        summary,
    )
}

/// Returns the number of added, existing and failed things of a kind.
fn counts(summary: &Value, kind: &str) -> [u64; 3] {
    ["added", "existing", "failed"].map(|name| summary[kind][name].as_u64().unwrap())
}

/// Copies the key of settings, which no backup and no database has.
fn copy_secrets_key(from: &Home, to: &Home) {
    to.write(
        ".glovebox/secrets-key",
        std::fs::read(from.path().join(".glovebox/secrets-key")).unwrap(),
    );
}

fn names(folder: &Path) -> Vec<String> {
    let entries = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

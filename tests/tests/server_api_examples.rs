//! The examples of `docs/server-api.md` run.

use std::process::Command;

use secrecy::SecretString;
use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish};
use tests::host_server::{HostServer, is_state};

use crate::skip::skip_without;

#[expect(dead_code, reason = "its `main` is for the example")]
#[path = "../../orchestrator/client/examples/task.rs"]
mod task;

const DOCUMENTATION: &str = include_str!("../../docs/server-api.md");

/// Address of the server in the examples.
const ADDRESS: &str = "http://127.0.0.1:3000";

/// Returns the example of a task in a language.
fn example(language: &str) -> &'static str {
    let (_, section) = DOCUMENTATION.split_once("## Commands and events").unwrap();
    let blocks = section.split("\n```");
    let mut examples = blocks.filter_map(|block| block.strip_prefix(language));
    examples
        .find(|example| example.contains("Fix the tests."))
        .unwrap()
}

fn start(home: &Home) -> HostServer {
    let responses = json!([bash("echo hello"), finish(), finish()]);
    HostServer::start(home, &home.script(&responses), &[])
}

/// Runs an example with an interpreter. Returns the JSON objects that it prints.
fn run(server: &HostServer, program: &str, language: &str) -> Vec<Value> {
    let script = example(language).replace(ADDRESS, &server.url);
    assert!(script.contains(&server.url));
    let output = Command::new(program)
        .args(["-c", &script])
        .env("GLOVEBOX_KEY", &server.key)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let printed = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    printed.map(Result::unwrap).collect()
}

fn count(printed: &[Value], key: &str, value: &str) -> usize {
    printed.iter().filter(|object| object[key] == value).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shell_example_runs() {
    if skip_without("curl") {
        return;
    }
    let home = Home::new();
    let server = start(&home);
    let printed = run(&server, "sh", "sh");
    assert_eq!(count(&printed, "observation", "run"), 1);
    let id = printed[0]["id"].as_str().unwrap();
    assert!(printed.last().unwrap()["event_id"].is_number());
    let events = server
        .wait_for_event(id, |event| event["args"]["content"] == "Go on.")
        .await;
    assert!(events.iter().any(|event| is_state(event, "finished")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_example_runs() {
    if skip_without("python3") {
        return;
    }
    let home = Home::new();
    let printed = run(&start(&home), "python3", "python");
    assert_eq!(count(&printed, "observation", "run"), 1);
    assert_eq!(count(&printed, "action", "finish"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_example_runs() {
    let home = Home::new();
    let server = start(&home);
    let key = SecretString::from(server.key.as_str());
    task::run(&server.url, &key, "Fix the tests.".to_owned())
        .await
        .unwrap();
    let source = include_str!("../../orchestrator/client/examples/task.rs");
    let loop_of = |text: &str| {
        let (_, rest) = text.split_once("let mut updates").unwrap();
        let lines = rest.lines().map(str::trim).take(8);
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(loop_of(example("rust")), loop_of(source));
}

//! Killed programs: no event is lost and no action runs twice.

use std::time::Duration;

use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish, wait_until};
use tests::model_server::{ModelReply, ModelServer};
use tests::sandbox_contract::docker::DockerBackend;

/// Counts its runs, then prints for three seconds.
const LONG: &str = "echo run >> counter; i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo line $i; sleep 0.1; done; echo the end";

fn is_run(event: &Value) -> bool {
    event["action"] == "run"
}

fn observations(events: &[Value], kind: &str) -> Vec<Value> {
    events
        .iter()
        .filter(|event| event["observation"] == kind)
        .cloned()
        .collect()
}

/// Returns the stored log.
fn log(home: &Home, id: &str) -> Vec<Value> {
    home.run(&["conversations", "show", id, "--json"])
        .expect(0)
        .events()
}

fn resume_attaches_to_a_running_command(runtime: &[&str]) {
    let home = Home::new();
    let model = home.script(&json!([bash(LONG), bash("echo after"), finish()]));
    let workspace = home.workspace();
    let mut arguments = vec![
        "run",
        "--json",
        "-t",
        "work",
        "-l",
        &model,
        "-d",
        workspace.to_str().unwrap(),
    ];
    arguments.extend(runtime);
    let mut run = home.start(&mut home.glovebox(&arguments));
    let id = run.conversation();
    run.wait_for("the command", is_run);
    let counter = workspace.join("counter");
    wait_until("the command runs", || counter.exists());
    run.kill();

    let resumed = home.run(&["resume", &id, "--json"]).expect(0);
    assert!(
        resumed
            .events()
            .iter()
            .any(|event| event["action"] == "finish"),
        "the task is completed"
    );

    assert_eq!(
        std::fs::read_to_string(&counter).unwrap(),
        "run\n",
        "the command ran once"
    );
    let ran = observations(&log(&home, &id), "run");
    assert_eq!(ran.len(), 2);
    let whole: String = (1..=30)
        .map(|line| format!("line {line}\n"))
        .collect::<String>()
        + "the end";
    assert_eq!(ran[0]["content"].as_str().unwrap().trim_end(), whole);
    assert_eq!(ran[0]["extras"]["metadata"]["exit_code"], 0);
    assert_eq!(ran[1]["content"].as_str().unwrap().trim_end(), "after");
    home.assert_nothing_runs();
}

#[test]
fn resume_attaches_to_a_running_command_on_docker() {
    if let Some(backend) = DockerBackend::busybox() {
        let image = tests::sandbox_contract::Backend::image(&backend).unwrap();
        resume_attaches_to_a_running_command(&["--runtime", "docker", "--image", &image]);
    }
}

#[test]
fn resume_attaches_to_a_running_command_on_local() {
    resume_attaches_to_a_running_command(&["--runtime", "local"]);
}

async fn resume_repeats_an_interrupted_model_call(runtime: &[&str]) {
    let home = Home::new();
    let replies = [
        ModelReply::call("execute_bash", &json!({"command": "echo run >> counter"})),
        ModelReply::Silence,
        ModelReply::call("finish", &json!({"message": "Done."})),
    ];
    let server = ModelServer::start(replies).await;
    let workspace = home.workspace();
    let mut arguments = vec![
        "run",
        "--json",
        "-t",
        "work",
        "-l",
        "test",
        "-d",
        workspace.to_str().unwrap(),
    ];
    arguments.extend(runtime);
    let mut command = home.glovebox(&arguments);
    let mut run = home.start(command.env("LLM_BASE_URL", &server.base_url));
    let id = run.conversation();
    server.called(2).await;
    run.kill();

    let mut resume = home.glovebox(&["resume", &id, "--json"]);
    let resumed = home
        .start(resume.env("LLM_BASE_URL", &server.base_url))
        .end()
        .expect(0);
    assert!(
        resumed
            .events()
            .iter()
            .any(|event| event["action"] == "finish")
    );
    server.called(3).await;
    assert_eq!(
        std::fs::read_to_string(workspace.join("counter")).unwrap(),
        "run\n"
    );
    assert_eq!(observations(&log(&home, &id), "run").len(), 1);
    home.assert_nothing_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resume_repeats_an_interrupted_model_call_on_docker() {
    if let Some(backend) = DockerBackend::busybox() {
        let image = tests::sandbox_contract::Backend::image(&backend).unwrap();
        resume_repeats_an_interrupted_model_call(&["--runtime", "docker", "--image", &image]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resume_repeats_an_interrupted_model_call_on_local() {
    resume_repeats_an_interrupted_model_call(&["--runtime", "local"]).await;
}

/// The shell's parent is the server.
fn agent_is_notified_when_action_server_is_killed(runtime: &[&str]) {
    let home = Home::new();
    let model = home.script(&json!([
        bash("echo started; kill -9 $PPID; sleep 60"),
        bash("echo alive"),
        finish()
    ]));
    let mut arguments = vec!["run", "--json", "-t", "work", "-l", &model];
    arguments.extend(runtime);
    let events = home.run(&arguments).expect(0).events();
    let action = events.iter().find(|event| is_run(event)).unwrap();
    let ended: Vec<_> = events
        .iter()
        .filter(|event| event["cause"] == action["id"])
        .collect();
    assert_eq!(ended.len(), 1, "exactly one terminal event");
    assert_eq!(ended[0]["extras"]["error_id"], "ACTION$INTERRUPTED");
    assert_eq!(
        ended[0]["tool_call_metadata"]["tool_call_id"],
        action["tool_call_metadata"]["tool_call_id"]
    );
    let took = seconds(ended[0]) - seconds(action);
    assert!(took < 5.0, "ended after {took} s");
    let after = observations(&events, "run");
    assert_eq!(after.len(), 1, "the agent continued in another sandbox");
    assert_eq!(after[0]["content"].as_str().unwrap().trim_end(), "alive");
    let leases = events
        .iter()
        .filter(|event| event["record"] == "sandbox_leased")
        .count();
    assert_eq!(leases, 2);
    home.assert_nothing_runs();
}

#[test]
fn agent_is_notified_when_action_server_is_killed_on_docker() {
    if let Some(backend) = DockerBackend::debian() {
        let image = tests::sandbox_contract::Backend::image(&backend).unwrap();
        agent_is_notified_when_action_server_is_killed(&["--runtime", "docker", "--image", &image]);
    }
}

#[test]
fn agent_is_notified_when_action_server_is_killed_on_local() {
    agent_is_notified_when_action_server_is_killed(&["--runtime", "local"]);
}

#[test]
fn lost_sandbox_leaves_nothing_when_not_replaced() {
    if let Some(backend) = DockerBackend::debian() {
        let home = Home::new();
        let image = tests::sandbox_contract::Backend::image(&backend).unwrap();
        let model = home.script(&json!([bash("kill -9 $PPID; sleep 60"), finish()]));
        let run = home.run(&[
            "run",
            "--json",
            "-t",
            "x",
            "-l",
            &model,
            "--runtime",
            "docker",
            "--image",
            &image,
        ]);
        run.expect(0);
        home.assert_nothing_runs();
    }
}

#[test]
fn second_process_cannot_run_the_same_conversation() {
    let home = Home::new();
    let model = home.script(&json!([bash("sleep 60"), finish()]));
    let mut run = home.start(&mut home.glovebox(&[
        "run",
        "--json",
        "-t",
        "work",
        "-l",
        &model,
        "--runtime",
        "local",
    ]));
    let id = run.conversation();
    run.wait_for("the command", is_run);
    let second = home.run(&["resume", &id]).expect(1);
    assert!(
        second.stderr.contains("is being run by another process"),
        "{}",
        second.stderr
    );
    run.signal(rustix::process::Signal::INT);
    run.end().expect(130);
    home.assert_nothing_runs();
}

/// Returns the time of day of an event in seconds.
fn seconds(event: &Value) -> f64 {
    let time = &event["timestamp"].as_str().unwrap()[11..];
    let mut parts = time.split(':').map(|part| part.parse::<f64>().unwrap());
    let (hours, minutes, seconds) = (
        parts.next().unwrap(),
        parts.next().unwrap(),
        parts.next().unwrap(),
    );
    Duration::from_secs_f64(hours * 3600.0 + minutes * 60.0 + seconds).as_secs_f64()
}

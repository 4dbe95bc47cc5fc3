//! Sandboxes of killed programs are removed by the next program. Those in use are kept.

use std::process::Command;

use serde_json::{Value, json};
use tests::glovebox::{Home, RunningProgram, bash, finish, tool_call, wait_until};
use tests::sandbox_contract::docker::DockerBackend;

/// Starts an agent and waits until its command runs.
fn start_run(home: &Home, runtime: &[&str]) -> (RunningProgram, String) {
    let model = home.script(&json!([
        bash("echo started > started; sleep 1044"),
        finish()
    ]));
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
    wait_until("the command runs", || workspace.join("started").exists());
    std::fs::remove_file(workspace.join("started")).unwrap();
    (run, id)
}

/// Returns the number of sandboxes of this home.
fn sandboxes(home: &Home, runtime: &[&str]) -> usize {
    let mut arguments = vec!["sandbox", "ls", "--json"];
    arguments.extend(&runtime[..2]);
    let listed = home.run(&arguments).expect(0);
    serde_json::from_str::<Vec<Value>>(&listed.stdout)
        .unwrap()
        .len()
}

fn exec(home: &Home, runtime: &[&str], close_delay: &str) {
    let mut arguments = vec!["exec"];
    arguments.extend(runtime);
    arguments.extend(["--", "true"]);
    let mut command = home.glovebox(&arguments);
    assert!(
        command
            .env("SANDBOX_CLOSE_DELAY", close_delay)
            .status()
            .unwrap()
            .success()
    );
}

fn sandbox_of_a_killed_run_is_removed(runtime: &[&str]) {
    let home = Home::new();
    let (run, _) = start_run(&home, runtime);
    run.kill();
    let (second, _) = start_run(&home, runtime);
    exec(&home, runtime, "3600");
    assert_eq!(sandboxes(&home, runtime), 2, "both may be resumed");
    exec(&home, runtime, "0");
    assert_eq!(sandboxes(&home, runtime), 1, "one is in use");
    second.kill();
    exec(&home, runtime, "0");
    assert_eq!(sandboxes(&home, runtime), 0);
    home.assert_nothing_runs();
}

/// The host program is killed between the end of its conversation and the removal of the sandbox.
fn finished_conversation_loses_its_sandbox(runtime: &[&str]) {
    let home = Home::new();
    // Longer than a pipe's buffer: the program waits for its reader before it removes the sandbox.
    let end = tool_call("finish", &json!({"message": "x".repeat(200_000)}));
    let model = home.script(&json!([end]));
    let arguments = [&["run", "--json", "-t", "work", "-l", &model], runtime].concat();
    let mut run = home.start(&mut home.glovebox(&arguments));
    run.conversation();
    wait_until("the conversation is finished", || {
        let list = home
            .run(&["conversations", "ls", "--json"])
            .expect(0)
            .stdout;
        serde_json::from_str::<Value>(&list).unwrap()[0]["agent_state"] == "finished"
    });
    exec(&home, runtime, "3600");
    assert_eq!(sandboxes(&home, runtime), 1, "it is in use");
    run.kill();
    exec(&home, runtime, "3600");
    assert_eq!(sandboxes(&home, runtime), 0);
    home.assert_nothing_runs();
}

fn sandbox_of_a_killed_exec_is_removed(runtime: &[&str]) {
    let home = Home::new();
    let started = home.workspace().join("started");
    let workspace = home.workspace();
    let mut arguments = vec!["exec", "-d", workspace.to_str().unwrap()];
    arguments.extend(runtime);
    arguments.extend(["--", "echo > started; sleep 1044"]);
    let mut killed = home.glovebox(&arguments).spawn().unwrap();
    wait_until("the command runs", || started.exists());
    exec(&home, runtime, "3600");
    assert_eq!(sandboxes(&home, runtime), 1, "it is in use");
    killed.kill().unwrap();
    killed.wait().unwrap();
    exec(&home, runtime, "3600");
    assert_eq!(sandboxes(&home, runtime), 0);
    home.assert_nothing_runs();
}

/// A sandbox that outlives its run is found again with its processes.
fn sandbox_is_kept_when_configured(home: &Home, runtime: &[&str], pause: &str) {
    let model = home.script(&json!([
        bash("sleep 1045 & color=green"),
        finish(),
        bash("echo $color"),
        finish()
    ]));
    let mut arguments = vec!["run", "--json", "-t", "work", "-l", &model];
    arguments.extend(runtime);
    let keep = |command: &mut Command| {
        command
            .env("SANDBOX_KEEP_RUNTIME_ALIVE", "true")
            .env("SANDBOX_PAUSE_CLOSED_RUNTIMES", pause);
    };
    let mut run = home.glovebox(&arguments);
    keep(&mut run);
    let mut run = home.start(&mut run);
    let id = run.conversation();
    run.end().expect(0);
    let mut exec = home.glovebox(&[&["exec"], runtime, &["--", "true"]].concat());
    keep(&mut exec);
    assert!(
        exec.env("SANDBOX_CLOSE_DELAY", "0")
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(sandboxes(home, runtime), 1);

    let resumed = home
        .run(&["resume", &id, "--json", "-t", "go on"])
        .expect(0)
        .events();
    let ran = resumed
        .iter()
        .find(|event| event["observation"] == "run")
        .unwrap();
    assert_eq!(
        ran["content"].as_str().unwrap().trim_end(),
        "green",
        "the same shell"
    );
    assert_eq!(sandboxes(home, runtime), 0);
    home.assert_nothing_runs();
}

#[test]
fn sandbox_of_a_killed_run_is_removed_on_local() {
    sandbox_of_a_killed_run_is_removed(&["--runtime", "local"]);
}

#[test]
fn sandbox_of_a_killed_exec_is_removed_on_local() {
    sandbox_of_a_killed_exec_is_removed(&["--runtime", "local"]);
}

#[test]
fn finished_conversation_loses_its_sandbox_after_kill_on_local() {
    finished_conversation_loses_its_sandbox(&["--runtime", "local"]);
}

#[test]
fn finished_conversation_loses_its_sandbox_after_kill_on_docker() {
    if let Some(image) = DockerBackend::debian_image() {
        finished_conversation_loses_its_sandbox(&["--runtime", "docker", "--image", &image]);
    }
}

#[test]
fn sandbox_is_kept_when_configured_on_local() {
    sandbox_is_kept_when_configured(&Home::new(), &["--runtime", "local"], "true");
}

#[test]
fn sandbox_of_a_killed_run_is_removed_on_docker() {
    if let Some(image) = DockerBackend::debian_image() {
        sandbox_of_a_killed_run_is_removed(&["--runtime", "docker", "--image", &image]);
    }
}

#[test]
fn sandbox_of_a_killed_exec_is_removed_on_docker() {
    if let Some(image) = DockerBackend::debian_image() {
        sandbox_of_a_killed_exec_is_removed(&["--runtime", "docker", "--image", &image]);
    }
}

#[test]
fn sandbox_is_kept_when_configured_on_docker() {
    for pause in ["true", "false"] {
        if let Some(image) = DockerBackend::debian_image() {
            sandbox_is_kept_when_configured(
                &Home::new(),
                &["--runtime", "docker", "--image", &image],
                pause,
            );
        }
    }
}

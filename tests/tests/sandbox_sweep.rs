//! What a program that was killed has left goes with the next one; what somebody still uses stays.

use std::process::Command;

use serde_json::{Value, json};
use tests::glovebox::{Home, RunningProgram, bash, calls, finish, wait_until};
use tests::sandbox_contract::docker::DockerBackend;

/// Runs an agent until its command is under way.
fn begin(home: &Home, place: &[&str]) -> (RunningProgram, String) {
    let model = home.script(&json!([bash("echo begun > begun; sleep 1044"), finish()]));
    let workspace = home.workspace();
    let mut arguments = vec!["run", "--json", "-t", "work", "-l", &model, "-d", workspace.to_str().unwrap()];
    arguments.extend(place);
    let mut run = home.start(&mut home.glovebox(&arguments));
    let id = run.conversation();
    wait_until("the command runs", || workspace.join("begun").exists());
    std::fs::remove_file(workspace.join("begun")).unwrap();
    (run, id)
}

/// How many sandboxes of this home there are.
fn sandboxes(home: &Home, place: &[&str]) -> usize {
    let mut arguments = vec!["sandbox", "ls", "--json"];
    arguments.extend(&place[..2]);
    let listed = home.run(&arguments).expect(0);
    serde_json::from_str::<Vec<Value>>(&listed.stdout).unwrap().len()
}

fn exec(home: &Home, place: &[&str], close_delay: &str) {
    let mut arguments = vec!["exec"];
    arguments.extend(place);
    arguments.extend(["--", "true"]);
    let mut command = home.glovebox(&arguments);
    assert!(command.env("SANDBOX_CLOSE_DELAY", close_delay).status().unwrap().success());
}

fn sandbox_of_a_killed_run_is_removed(place: &[&str]) {
    let home = Home::new();
    let (run, _) = begin(&home, place);
    run.kill();
    let (second, _) = begin(&home, place);
    exec(&home, place, "3600");
    assert_eq!(sandboxes(&home, place), 2, "both may be resumed");
    exec(&home, place, "0");
    assert_eq!(sandboxes(&home, place), 1, "one is used");
    second.kill();
    exec(&home, place, "0");
    assert_eq!(sandboxes(&home, place), 0);
    home.assert_nothing_runs();
}

/// The host program is killed between the end of its conversation and the removal of the sandbox.
fn finished_conversation_loses_its_sandbox(place: &[&str]) {
    let home = Home::new();
    // Longer than a pipe holds: the program waits for its reader before it comes to removing the sandbox.
    let end = calls("finish", &json!({"message": "x".repeat(200_000)}));
    let model = home.script(&json!([end]));
    let arguments = [&["run", "--json", "-t", "work", "-l", &model], place].concat();
    let mut run = home.start(&mut home.glovebox(&arguments));
    run.conversation();
    wait_until("the conversation is finished", || {
        let list = home.run(&["conversations", "ls", "--json"]).expect(0).stdout;
        serde_json::from_str::<Value>(&list).unwrap()[0]["agent_state"] == "finished"
    });
    exec(&home, place, "3600");
    assert_eq!(sandboxes(&home, place), 1, "it is used");
    run.kill();
    exec(&home, place, "3600");
    assert_eq!(sandboxes(&home, place), 0);
    home.assert_nothing_runs();
}

fn sandbox_of_a_killed_exec_is_removed(place: &[&str]) {
    let home = Home::new();
    let begun = home.workspace().join("begun");
    let workspace = home.workspace();
    let mut arguments = vec!["exec", "-d", workspace.to_str().unwrap()];
    arguments.extend(place);
    arguments.extend(["--", "echo > begun; sleep 1044"]);
    let mut killed = home.glovebox(&arguments).spawn().unwrap();
    wait_until("the command runs", || begun.exists());
    exec(&home, place, "3600");
    assert_eq!(sandboxes(&home, place), 1, "it is used");
    killed.kill().unwrap();
    killed.wait().unwrap();
    exec(&home, place, "3600");
    assert_eq!(sandboxes(&home, place), 0);
    home.assert_nothing_runs();
}

/// A sandbox that outlives its conversation's run is found again with what ran in it.
fn sandbox_is_kept_when_configured(home: &Home, place: &[&str], pause: &str) {
    let model =
        home.script(&json!([bash("sleep 1045 & color=green"), finish(), bash("echo $color"), finish()]));
    let mut arguments = vec!["run", "--json", "-t", "work", "-l", &model];
    arguments.extend(place);
    let keep = |command: &mut Command| {
        command.env("SANDBOX_KEEP_RUNTIME_ALIVE", "true").env("SANDBOX_PAUSE_CLOSED_RUNTIMES", pause);
    };
    let mut run = home.glovebox(&arguments);
    keep(&mut run);
    let mut run = home.start(&mut run);
    let id = run.conversation();
    run.end().expect(0);
    let mut exec = home.glovebox(&[&["exec"], place, &["--", "true"]].concat());
    keep(&mut exec);
    assert!(exec.env("SANDBOX_CLOSE_DELAY", "0").status().unwrap().success());
    assert_eq!(sandboxes(home, place), 1);

    let resumed = home.run(&["resume", &id, "--json", "-t", "go on"]).expect(0).events();
    let ran = resumed.iter().find(|event| event["observation"] == "run").unwrap();
    assert_eq!(ran["content"].as_str().unwrap().trim_end(), "green", "the same shell");
    assert_eq!(sandboxes(home, place), 0);
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
            sandbox_is_kept_when_configured(&Home::new(), &["--runtime", "docker", "--image", &image], pause);
        }
    }
}

//! Output that arrives too fast, and interrupted work.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::glovebox::{CompletedRun, Home, bash, finish, unwritable, wait_until};

fn run(home: &Home, responses: &Value) -> Command {
    let (model, workspace) = (home.script(responses), home.workspace());
    let workspace = workspace.to_str().unwrap();
    let mut command = home.glovebox(&[
        "run",
        "--runtime",
        "local",
        "-t",
        "work",
        "-l",
        &model,
        "-d",
        workspace,
    ]);
    command.stderr(Stdio::piped());
    command
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn exec(home: &Home, more: &[&str]) -> CompletedRun {
    home.run(&[&["exec", "--runtime", "local"], more].concat())
}

#[test]
fn doctor_ends_with_130_when_interrupted() {
    let home = Home::new();
    let socket = home.path().join("engine.sock");
    // An engine that never responds.
    let engine = UnixListener::bind(&socket).unwrap();
    let mut doctor = home.glovebox(&["doctor"]);
    doctor
        .env("DOCKER_HOST", format!("unix://{}", socket.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = doctor.spawn().unwrap();
    let _connection = engine.accept().unwrap();
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    home.assert_nothing_runs();
}

#[test]
fn command_ends_after_an_interrupt_when_its_sandbox_is_silent() {
    let home = Home::new();
    let mut exec = home.glovebox(&[
        "exec",
        "--runtime",
        "local",
        "--",
        "echo started; sleep 1000",
    ]);
    let mut exec = exec
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut started = [0; 8];
    std::io::Read::read_exact(exec.stdout.as_mut().unwrap(), &mut started).unwrap();
    // As a paused container, or a host that is unreachable.
    let suspended = home.processes();
    assert!(!suspended.is_empty());
    for (id, _) in suspended {
        let id = Pid::from_raw(id).unwrap();
        let _ = kill_process(id, Signal::STOP); // may have ended
    }
    signal(&exec, Signal::INT);
    let exec = CompletedRun::from_output(&exec.wait_with_output().unwrap()).expect(130);
    assert!(
        exec.stderr.contains("the sandbox does not respond"),
        "{exec:?}"
    );
    home.assert_nothing_runs();
}

#[test]
fn omitted_output_is_reported_once_per_command() {
    let home = Home::new();
    let flood = |name: &str| bash(&format!("yes | head -c 30000000; touch {name}"));
    let mut child = run(&home, &json!([flood("first"), finish()]))
        .spawn()
        .unwrap();
    // The output is not read meanwhile, so that the program falls behind.
    wait_until("all of it is printed", || {
        home.workspace().join("first").exists()
    });
    let mut shown = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut shown)
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(shown.matches("left out; the log has").count(), 1);
    assert!(shown.matches("faster than it can be shown").count() <= 1 && shown.len() < 1 << 20);
    home.assert_nothing_runs();
}

#[test]
fn run_is_resumable_when_ended_before_sandbox_responded() {
    let home = Home::new();
    let mut child = run(&home, &json!([bash("touch started; sleep 1000"), finish()]))
        .spawn()
        .unwrap();
    wait_until("the command runs", || {
        home.workspace().join("started").exists()
    });
    // A sandbox that does not respond.
    let own = i32::try_from(child.id()).unwrap();
    for (id, _) in home.processes().into_iter().filter(|(id, _)| *id != own) {
        kill_process(Pid::from_raw(id).unwrap(), Signal::STOP).unwrap();
    }
    signal(&child, Signal::HUP);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut shown = String::new();
    while !shown.contains("interrupt again to exit immediately") {
        assert_ne!(stderr.read_line(&mut shown).unwrap(), 0, "{shown}");
    }
    signal(&child, Signal::INT);
    stderr.read_to_string(&mut shown).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let id = &home.conversations()[0];
    // Whether the agent stops before the program ends is a race.
    assert!(
        ["\nstopped after 1 step: ", "\ninterrupted after 1 step: "]
            .iter()
            .any(|stderr| shown.contains(stderr)),
        "{shown}"
    );
    assert!(
        shown.ends_with(&format!("resume with: glovebox resume {id}\n")),
        "{shown}"
    );
    home.run(&["resume", id]).expect(0);
    home.assert_nothing_runs();
}

#[test]
fn command_json_has_whole_output_and_marks_truncation() {
    let home = Home::new();
    let observation = |command: &str| -> Value {
        serde_json::from_str(&exec(&home, &["--json", "--", command]).expect(0).stdout).unwrap()
    };
    let whole = observation("seq 1 20000");
    let expected: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(whole["content"], expected.trim_end());
    assert_eq!(whole["extras"]["hidden"], false);
    let cut = observation("seq 1 300000");
    let suffix = cut["extras"]["metadata"]["suffix"].as_str().unwrap();
    assert!(
        suffix.contains("characters were left out of the middle.]"),
        "{suffix}"
    );
    home.assert_nothing_runs();
}

#[test]
fn output_is_complete_when_command_is_interrupted() {
    let home = Home::new();
    let workspace = home.workspace();
    for more in [[].as_slice(), &["--json"]] {
        let runtime = [
            "exec",
            "--runtime",
            "local",
            "-d",
            workspace.to_str().unwrap(),
        ];
        let command = ["--", "echo so far; touch started; sleep 1000"];
        let mut command = home.glovebox(&[&runtime, more, &command].concat());
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until("the command runs", || workspace.join("started").exists());
        signal(&child, Signal::INT);
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        assert!(
            stderr.ends_with("glovebox: interrupted; the command was terminated\n"),
            "{stderr}"
        );
        let text = String::from_utf8(output.stdout).unwrap();
        if more.is_empty() {
            assert!(text.starts_with("so far\n"), "{text}");
        } else {
            let observation: Value = serde_json::from_str(&text).unwrap();
            assert!(
                observation["content"]
                    .as_str()
                    .unwrap()
                    .starts_with("so far"),
                "{text}"
            );
            assert_eq!(observation["extras"]["metadata"]["exit_code"], 130);
        }
        std::fs::remove_file(workspace.join("started")).unwrap();
    }
    home.assert_nothing_runs();
}

/// Starts a command with endless output in both ways, in a home with a secret that has to be
/// redacted.
fn floods(home: &Home) -> [Child; 2] {
    home.run(&["sandbox", "create", "box", "--runtime", "local"])
        .expect(0);
    let commands = [
        ["exec", "--runtime", "local", "--", "yes"].as_slice(),
        &["sandbox", "exec", "--runtime", "local", "box", "--", "yes"],
    ];
    commands.map(|arguments| {
        let mut command = home.glovebox(arguments);
        command
            .env("LLM_API_KEY", "sk-hunter2hunter2")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    })
}

#[test]
fn flooding_command_is_interrupted() {
    let home = Home::new();
    for mut child in floods(&home) {
        let mut stdout = child.stdout.take().unwrap();
        let mut first = [0; 1 << 20];
        stdout.read_exact(&mut first).unwrap();
        let reader = std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        signal(&child, Signal::INT);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130), "{ended:?}");
        reader.join().unwrap().unwrap();
    }
    home.run(&["sandbox", "rm", "box", "--runtime", "local"])
        .expect(0);
    home.assert_nothing_runs();
}

#[test]
fn command_ends_when_its_output_has_no_reader() {
    let home = Home::new();
    for mut child in floods(&home) {
        let mut first = [0; 2];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(
            (ended.status.code(), &first),
            (Some(141), b"y\n"),
            "{ended:?}"
        );
    }
    home.run(&["sandbox", "rm", "box", "--runtime", "local"])
        .expect(0);
    home.assert_nothing_runs();
}

#[test]
fn lost_output_is_reported_at_the_end_of_a_command() {
    let home = Home::new();
    for (full, code) in [(true, 1), (false, 141)].repeat(3) {
        let mut command = home.glovebox(&["exec", "--runtime", "local", "--", "echo", "short"]);
        assert_eq!(
            command.stdout(unwritable(full)).status().unwrap().code(),
            Some(code)
        );
    }
    home.assert_nothing_runs();
}

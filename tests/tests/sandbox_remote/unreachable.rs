//! Commands whose sandbox service refuses connections, or accepts them and never responds: they
//! name the cause while they retry, and a signal ends them soon.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tests::glovebox::{CompletedRun, Home, finish};

/// Returns an address at which nothing listens.
fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

/// Its connections are accepted by the kernel, and no response comes.
fn silent_service() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn command(home: &Home, service: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = home.glovebox(arguments);
    command.env(
        "SANDBOX_REMOTE_RUNTIME_API_URL",
        format!("http://{service}"),
    );
    command
        .env("SANDBOX_API_KEY", "the key")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Interrupts a command after it has reported a retry with this cause.
fn assert_reported_and_interruptible(mut command: Command, cause: &str) {
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut shown = String::new();
    while !(shown.contains(cause) && shown.contains("; next try in ")) {
        assert_ne!(stderr.read_line(&mut shown).unwrap(), 0, "{shown}");
    }
    // In the delay, or in the next attempt.
    std::thread::sleep(Duration::from_millis(400));
    let interrupted = Instant::now();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let elapsed = interrupted.elapsed();
    assert_eq!(output.status.code(), Some(130), "{shown}");
    // Less than two seconds, and what a busy machine needs. The first request alone would take ten.
    assert!(elapsed < Duration::from_secs(8), "{elapsed:?}");
}

#[test]
fn start_reports_retries_and_ends_within_two_seconds() {
    let home = Home::new();
    let silent = silent_service();
    let model = home.script(&json!([finish()]));
    let run = ["run", "--runtime", "remote", "-t", "work", "-l", &model];
    let exec = ["exec", "--runtime", "remote", "--", "true"];
    std::thread::scope(|scope| {
        for arguments in [&run[..], &exec] {
            let refused = command(&home, closed_port(), arguments);
            scope.spawn(|| assert_reported_and_interruptible(refused, "Connection refused"));
            let unanswered = command(&home, silent.local_addr().unwrap(), arguments);
            scope
                .spawn(|| assert_reported_and_interruptible(unanswered, "no response within 10 s"));
        }
    });
    home.assert_nothing_runs();
}

#[test]
fn list_names_the_service_that_does_not_respond() {
    let home = Home::new();
    let (closed, silent) = (closed_port(), silent_service());
    let silent = silent.local_addr().unwrap();
    let refused = (
        closed,
        format!("cannot reach {closed}"),
        Duration::from_secs(5),
    );
    let unanswered = (
        silent,
        format!("http://{silent}/list: no response within 10 s"),
        Duration::from_secs(15),
    );
    let (refused, unanswered) = (&refused, &unanswered);
    std::thread::scope(|scope| {
        for (service, cause, limit) in [refused, unanswered] {
            for arguments in [
                &["ls"][..],
                &["exec", "box", "--", "true"],
                &["logs", "box"],
            ] {
                let (subcommand, more) = arguments.split_first().unwrap();
                let arguments = [&["sandbox", subcommand, "--runtime", "remote"], more].concat();
                let mut command = command(&home, *service, &arguments);
                scope.spawn(move || {
                    let started = Instant::now();
                    let ran = CompletedRun::from_output(&command.output().unwrap()).expect(1);
                    assert!(ran.stderr.contains(cause.as_str()), "{}", ran.stderr);
                    assert!(started.elapsed() < *limit, "{:?}", started.elapsed());
                });
            }
        }
    });
}

#[test]
fn list_names_the_engine_that_does_not_respond() {
    let home = Home::new();
    let socket = format!("unix://{}/engine.sock", home.path().display());
    let _engine = UnixListener::bind(home.path().join("engine.sock")).unwrap();
    let mut list = home.glovebox(&["sandbox", "ls", "--runtime", "docker"]);
    let ran =
        CompletedRun::from_output(&list.env("DOCKER_HOST", &socket).output().unwrap()).expect(1);
    let expected =
        format!("the engine at {socket} does not answer within 15 s; is Docker running?");
    assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
}

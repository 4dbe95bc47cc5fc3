//! Processes without a terminal: exact and separate streams, ids, limits, users, signals and
//! reaping.

use std::fs;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use nix::sys::signal::{Signal, kill};
use protocol::sandbox_api::{
    ExitReason, OutputStream, ProcessExit, ProcessFrame, ProcessFrameDecoder, ProcessInfo,
    ProcessState,
};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio_util::task::AbortOnDropHandle;

use crate::harness::{
    HttpReply, TEST_TIMEOUT, TestServer, is_gone, pids, wait_until, wait_until_dead,
};
use crate::skip::{Requirement, skip};

/// The complete stream of a process.
struct ProcessReply {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    gaps: Vec<(OutputStream, u64, u64)>,
    exit: Option<ProcessExit>,
}

impl ProcessReply {
    fn text(&self) -> (&str, &str) {
        (
            std::str::from_utf8(&self.stdout).unwrap(),
            std::str::from_utf8(&self.stderr).unwrap(),
        )
    }

    fn exit(&self) -> (Option<i32>, Option<i32>, ExitReason) {
        let exit = self.exit.as_ref().expect("the stream ends with the exit");
        (exit.code, exit.signal, exit.reason)
    }
}

fn decode(reply: &HttpReply) -> ProcessReply {
    assert_eq!(reply.status, 200, "{reply:?}");
    let mut decoder = ProcessFrameDecoder::default();
    decoder.push(&reply.body);
    let mut result = ProcessReply {
        stdout: Vec::new(),
        stderr: Vec::new(),
        gaps: Vec::new(),
        exit: None,
    };
    while let Some(frame) = decoder.next_frame().unwrap() {
        assert_eq!(result.exit, None, "a frame after the exit");
        match frame {
            ProcessFrame::Output {
                stream: OutputStream::Stdout,
                bytes,
                ..
            } => result.stdout.extend(bytes),
            ProcessFrame::Output {
                stream: OutputStream::Stderr,
                bytes,
                ..
            } => result.stderr.extend(bytes),
            ProcessFrame::Gap { stream, from, to } => result.gaps.push((stream, from, to)),
            ProcessFrame::Exit(exit) => result.exit = Some(*exit),
        }
    }
    result
}

fn sh(script: &str) -> Value {
    json!({"argv": ["sh", "-c", script]})
}

async fn exec(server: &TestServer, id: &str, request: Value) -> ProcessReply {
    decode(
        &server
            .send(
                Method::POST,
                &format!("/v1/processes/{id}"),
                request.to_string(),
            )
            .await,
    )
}

async fn start(server: &TestServer, id: &str, request: Value) -> ProcessInfo {
    let reply = server
        .send(
            Method::POST,
            &format!("/v1/processes/{id}?follow=false"),
            request.to_string(),
        )
        .await;
    assert_eq!(reply.status, 201, "{reply:?}");
    serde_json::from_slice(&reply.body).unwrap()
}

async fn info(server: &TestServer, id: &str) -> ProcessInfo {
    let reply = server
        .send(Method::GET, &format!("/v1/processes/{id}"), "")
        .await;
    assert_eq!(reply.status, 200, "{reply:?}");
    serde_json::from_slice(&reply.body).unwrap()
}

async fn wait_until_written(server: &TestServer, id: &str, bytes: u64) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while info(server, id).await.stdout_bytes < bytes {
        assert!(
            Instant::now() < deadline,
            "waited too long for {bytes} bytes of {id}"
        );
    }
}

async fn follow(server: &TestServer, id: &str) -> ProcessReply {
    decode(
        &server
            .send(
                Method::GET,
                &format!("/v1/processes/{id}/output?follow=true"),
                "",
            )
            .await,
    )
}

async fn post(server: &TestServer, path: &str, body: impl Into<Bytes>) -> (u16, Value) {
    let reply = server
        .send(Method::POST, &format!("/v1/processes/{path}"), body)
        .await;
    (
        reply.status,
        if reply.body.is_empty() {
            Value::Null
        } else {
            reply.json()
        },
    )
}

/// Returns the pid of the server, the supervisor's child.
fn server_pid(server: &TestServer) -> i32 {
    let children =
        fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.pid())).unwrap();
    children.trim().parse().unwrap()
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[tokio::test(flavor = "multi_thread")]
async fn stdout_and_stderr_are_exact_and_separate() {
    let server = TestServer::start();
    let script = r"printf 'a\000\377\r\n'; printf 'err\n' >&2; printf 'no newline'; exit 3";
    let result = exec(&server, "a", sh(script)).await;
    assert_eq!(result.stdout, b"a\0\xff\r\nno newline");
    assert_eq!(result.stderr, b"err\n");
    assert_eq!(result.exit(), (Some(3), None, ExitReason::Exited));
    assert!(result.exit.unwrap().usage.is_some());
    let result = exec(&server, "b", sh("kill -9 $$")).await;
    assert_eq!(result.exit(), (None, Some(9), ExitReason::Exited));
}

#[tokio::test(flavor = "multi_thread")]
async fn process_starts_once_for_its_id() {
    let server = TestServer::start();
    let gate = server.gate("gate");
    let request = sh("echo ran | tee -a count; cat gate");
    let info_at_start = start(&server, "a", request.clone()).await;
    assert_eq!(
        (info_at_start.state, info_at_start.exit),
        (ProcessState::Running, None)
    );
    assert_eq!(
        start(&server, "a", request.clone()).await.pid,
        info_at_start.pid
    );
    assert_eq!(
        post(&server, "a", sh("other").to_string()).await.1["code"],
        "conflict"
    );
    assert_eq!(post(&server, "a/acknowledge", "").await.0, 409);
    wait_until("the process has written", || server.file("count").exists());
    fs::write(&gate, "open\n").unwrap();
    let result = follow(&server, "a").await;
    assert_eq!(result.text(), ("ran\nopen\n", ""));
    assert_eq!(
        exec(&server, "a", request.clone()).await.text(),
        result.text()
    );
    assert_eq!(fs::read_to_string(server.file("count")).unwrap(), "ran\n");
    let ended = info(&server, "a").await;
    assert_eq!(
        (ended.state, ended.stdout_bytes, ended.exit),
        (ProcessState::Exited, 9, result.exit)
    );
    let listed = server.send(Method::GET, "/v1/processes", "").await.json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(post(&server, "a/acknowledge", "").await.0, 204);
    assert_eq!(post(&server, "a", request.to_string()).await.0, 410);
    assert_eq!(
        server.send(Method::GET, "/v1/processes", "").await.json(),
        json!([])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_read_from_any_offset() {
    let server = TestServer::start();
    exec(&server, "a", sh("printf 0123456789; printf abcdef >&2")).await;
    let reply = server
        .send(Method::GET, "/v1/processes/a/output?stdout=7&stderr=4", "")
        .await;
    assert_eq!(decode(&reply).text(), ("789", "ef"));
    let reply = server
        .send(Method::GET, "/v1/processes/a/output?stdout=70", "")
        .await;
    assert_eq!(decode(&reply).text(), ("", "abcdef"));
    start(&server, "b", sh("printf ready; exec sleep 1000")).await;
    wait_until_written(&server, "b", 5).await;
    let result = decode(&server.send(Method::GET, "/v1/processes/b/output", "").await);
    assert_eq!((result.text(), &result.exit), (("ready", ""), &None));
}

#[tokio::test(flavor = "multi_thread")]
async fn process_has_the_requested_environment_and_folder() {
    let server = TestServer::start();
    fs::create_dir(server.file("below")).unwrap();
    let request =
        json!({"argv": ["env"], "env": {"A": "b c=d", "EMPTY": ""}, "inherit_env": false});
    let result = exec(&server, "env", request).await;
    let mut variables: Vec<_> = result
        .text()
        .0
        .lines()
        .filter(|line| !line.starts_with("GLOVEBOX_"))
        .collect();
    variables.sort_unstable();
    assert_eq!(variables, ["A=b c=d", "EMPTY="]);
    let request = json!({"argv": ["sh", "-c", "pwd; echo $HOME$PATH | wc -w; echo $1", "0", "x"], "cwd": "below"});
    let result = exec(&server, "cwd", request).await;
    let folder = server.dir.path().canonicalize().unwrap().join("below");
    assert_eq!(result.text().0, format!("{}\n1\nx\n", folder.display()));
    fs::write(server.file("below/tool"), "#!/bin/sh\necho \"$0 $1\"\n").unwrap();
    fs::set_permissions(
        server.file("below/tool"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let request = json!({"argv": ["./tool", "y"], "cwd": "below"});
    assert_eq!(exec(&server, "tool", request).await.text().0, "./tool y\n");
    let request = json!({"argv": ["tool", "z"], "env": {"PATH": folder}});
    assert!(
        exec(&server, "path", request)
            .await
            .text()
            .0
            .ends_with("/tool z\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn process_runs_as_the_requested_user() {
    let server = TestServer::start();
    let script = "id -u; id -g; id -G; echo $HOME $USER; cat /proc/self/status | grep -c 'Groups:'";
    let request = json!({"argv": ["sh", "-c", script], "user": "nobody"});
    if !is_root() {
        let (status, body) = post(&server, "u", request.to_string()).await;
        assert_eq!((status, body["code"].as_str()), (422, Some("invalid")));
        return skip(
            Requirement::Root,
            "only root can start processes as another user",
        );
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let fields: Vec<_> = passwd
        .lines()
        .find(|line| line.starts_with("nobody:"))
        .unwrap()
        .split(':')
        .collect();
    let (uid, gid, home) = (fields[2], fields[3], fields[5]);
    let result = exec(&server, "u", request).await;
    assert_eq!(
        result.text().0,
        format!("{uid}\n{gid}\n{gid}\n{home} nobody\n1\n")
    );
    let request =
        json!({"argv": ["sh", "-c", "id -u; id -g; id -G; kill -0 $PPID"], "user": "12345:54321"});
    let result = exec(&server, "n", request).await;
    assert_eq!(result.text().0, "12345\n54321\n54321\n");
    assert_ne!(
        result.exit().0,
        Some(0),
        "the process can signal the server"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_apply_before_exec() {
    let server = TestServer::start();
    let limits =
        json!({"memory_bytes": 1 << 30, "cpu_seconds": 7, "open_files": 33, "file_bytes": 1024});
    let script =
        "ulimit -v; ulimit -t; ulimit -n; ulimit -Hn; head -c 5000 /dev/zero > big; wc -c < big";
    let result = exec(
        &server,
        "a",
        json!({"argv": ["sh", "-c", script], "limits": limits}),
    )
    .await;
    assert_eq!(result.text().0, "1048576\n7\n33\n33\n1024\n");
    let burn = json!({"argv": ["sh", "-c", "while :; do :; done"], "limits": {"cpu_seconds": 1}});
    let result = exec(&server, "b", burn).await;
    assert!(matches!(result.exit().1, Some(9 | 24)), "{:?}", result.exit);
    assert!(result.exit.unwrap().usage.unwrap().user_us > 500_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn stdin_contains_the_given_input_and_ends() {
    let server = TestServer::start();
    let bytes: Vec<u8> = (0..500_000_u32).map(|n| (n % 253) as u8).collect();
    let request = json!({"argv": ["cat"], "stdin_base64": STANDARD.encode(&bytes)});
    let result = exec(&server, "a", request).await;
    assert!(result.stdout == bytes);
    assert_eq!(
        exec(&server, "b", json!({"argv": ["cat"]})).await.exit().0,
        Some(0)
    );
    assert_eq!(post(&server, "b/stdin", "x").await.1["code"], "conflict");
    let unread = json!({"argv": ["true"], "stdin_base64": STANDARD.encode(&bytes)});
    assert_eq!(exec(&server, "c", unread).await.exit().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn stdin_of_any_length_is_written_at_the_process_s_pace() {
    let server = TestServer::start();
    start(
        &server,
        "a",
        json!({"argv": ["sh", "-c", "cat | sha256sum"], "stdin": "pipe"}),
    )
    .await;
    // More than the maximum of other bodies.
    let part = vec![b'x'; 40 << 20];
    assert_eq!(
        post(&server, "a/stdin", part.clone()).await,
        (204, Value::Null)
    );
    assert_eq!(
        post(&server, "a/stdin?close=true", "end").await,
        (204, Value::Null)
    );
    let result = follow(&server, "a").await;
    fs::write(server.file("whole"), [&part[..], b"end"].concat()).unwrap();
    let expected = exec(
        &server,
        "b",
        json!({"argv": ["sh", "-c", "sha256sum < whole"]}),
    )
    .await;
    assert_eq!(result.text(), expected.text());
    assert_eq!(post(&server, "a/stdin", "x").await.0, 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn stdin_request_ends_when_the_process_exits() {
    let server = TestServer::start();
    // The grandchild holds the reading end for ever.
    let script = "exec 3<&0; setsid sleep 1000 <&3 >/dev/null 2>&1 & read line; exit 4";
    start(
        &server,
        "a",
        json!({"argv": ["sh", "-c", script], "stdin": "pipe"}),
    )
    .await;
    let body = [b"one line\n".to_vec(), vec![b'x'; 4 << 20]].concat();
    // Over HTTP/2: an answer in the middle of a body ends a connection of HTTP/1.
    let request = Request::post("http://sandbox/v1/processes/a/stdin")
        .body(Full::<Bytes>::from(body))
        .unwrap();
    let reply = server.http2().await.send_request(request).await.unwrap();
    assert_eq!(reply.status(), 409);
    assert_eq!(follow(&server, "a").await.exit().0, Some(4));
    assert_eq!(
        post(&server, "a/signal", r#"{"signal":"KILL","scope":"tree"}"#)
            .await
            .0,
        204
    );
    wait_until("what it left is dead", || {
        fs::read_to_string(format!("/proc/{0}/task/{0}/children", server_pid(&server))).is_ok_and(
            |children| {
                // The shell stays.
                children.split_ascii_whitespace().count() == 1
            },
        )
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_is_sent_by_name_and_by_number() {
    let server = TestServer::start();
    let script = "trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    start(&server, "a", sh(script)).await;
    wait_until_written(&server, "a", 6).await;
    assert_eq!(
        post(&server, "a/signal", r#"{"signal":"USR1"}"#).await.0,
        204
    );
    wait_until_written(&server, "a", 11).await;
    assert_eq!(post(&server, "a/signal", r#"{"signal":15}"#).await.0, 204);
    let result = follow(&server, "a").await;
    assert_eq!(
        (result.text().0, result.exit()),
        ("ready\nusr1\nterm\n", (Some(5), None, ExitReason::Exited))
    );
    assert_eq!(
        post(&server, "a/signal", r#"{"signal":"SIGTERM"}"#).await.0,
        409
    );
}

/// A tree with everything that evades: new sessions, lost parents, ignored signals.
const EVASIVE: &str = "trap '' TERM HUP INT; echo $$ >> pids; sleep 1000 & echo $! >> pids; \
    setsid sh -c 'trap \"\" TERM HUP; echo $$ >> pids; while :; do sleep 1; done' & \
    (setsid sh -c 'trap \"\" TERM HUP; echo $$ >> pids; while :; do sleep 1; done' &); \
    while :; do sleep 1; done";

#[tokio::test(flavor = "multi_thread")]
async fn kill_ends_the_process_tree_and_reports_the_exit() {
    let server = TestServer::start();
    start(&server, "other", sh("exec sleep 1000")).await;
    let reply = server.start_request(Method::POST, "/v1/processes/a", sh(EVASIVE).to_string());
    let tree = pids(&server.file("pids"), 4);
    assert_eq!(
        server
            .send(Method::DELETE, "/v1/processes/a", "")
            .await
            .status,
        204
    );
    let reply = reply.await.unwrap();
    assert_eq!(decode(&reply).exit(), (None, Some(9), ExitReason::Killed));
    tree.into_iter().for_each(wait_until_dead);
    assert_eq!(
        server
            .send(Method::DELETE, "/v1/processes/a", "")
            .await
            .status,
        204
    );
    assert_eq!(info(&server, "other").await.state, ProcessState::Running);
    assert_eq!(server.run("shell", "echo alive").await.text(), "alive\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_command_does_not_kill_another_process_s_daemon() {
    let server = TestServer::start();
    let gate = server.gate("gate");
    let command =
        json!({"action": "run", "args": {"command": "echo $$ > started; cat", "blocking": true}});
    let command = server.start_request(Method::POST, "/v1/actions/a", command.to_string());
    pids(&server.file("started"), 1);
    let script =
        "(setsid sh -c 'echo $$ >> daemon; cat gate > opened; sleep 1000' >/dev/null 2>&1 &)";
    exec(&server, "d", sh(script)).await;
    pids(&server.file("daemon"), 1);
    assert_eq!(
        server
            .send(Method::DELETE, "/v1/actions/a", "")
            .await
            .status,
        204
    );
    command.await.unwrap().answer();
    fs::write(&gate, "alive").unwrap();
    wait_until("the daemon continues", || {
        fs::read_to_string(server.file("opened")).is_ok_and(|text| text == "alive")
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn timeout_kills_the_process_tree() {
    let server = TestServer::start();
    let mut request = sh(EVASIVE);
    request["timeout_seconds"] = json!(0.5);
    let result = exec(&server, "a", request).await;
    assert_eq!(result.exit(), (None, Some(9), ExitReason::TimedOut));
    pids(&server.file("pids"), 4)
        .into_iter()
        .for_each(wait_until_dead);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_get_the_exit_when_the_server_is_terminated() {
    let mut server = TestServer::start();
    let reader = server.start_request(Method::POST, "/v1/processes/a", sh(EVASIVE).to_string());
    start(&server, "b", sh("exec sleep 1000")).await;
    // Ended itself; what it left behind is still there.
    exec(
        &server,
        "c",
        sh("(setsid sh -c 'trap \"\" TERM; echo $$ >> pids; exec sleep 1000' &)"),
    )
    .await;
    let mut started = pids(&server.file("pids"), 5);
    started.push(info(&server, "b").await.pid);
    let requested = Instant::now();
    kill(server.pid(), Signal::SIGTERM).unwrap();
    let status = server.wait();
    assert!(
        requested.elapsed() < Duration::from_secs(2),
        "{:?}",
        requested.elapsed()
    );
    assert_eq!(status.code(), Some(0));
    assert_eq!(
        decode(&reader.await.unwrap()).exit(),
        (None, Some(9), ExitReason::Killed)
    );
    assert!(started.into_iter().all(is_gone));
}

#[tokio::test(flavor = "multi_thread")]
async fn descendants_continue_when_the_process_exits() {
    let server = TestServer::start();
    let script = "(trap '' HUP; while [ ! -e stop ]; do echo more || exit; done; echo done > finished) & exit 0";
    let result = exec(&server, "a", sh(script)).await;
    assert_eq!(result.exit().0, Some(0));
    fs::write(server.file("stop"), "").unwrap();
    wait_until("the rest has ended by itself", || {
        server.file("finished").exists()
    });
    assert_eq!(post(&server, "a/acknowledge", "").await.0, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_of_descendants_is_delivered_after_the_exit() {
    let server = TestServer::start();
    for (number, script) in [
        "exec > >(sed s/^/P:/); seq 20000; exit 3",
        "{ sleep 0.5; seq 20000 | sed s/^/P:/; } & exit 3",
        "{ sleep 0.5; seq 20000 | sed s/^/P:/; } 2>&- & exec >&-; exit 3",
    ]
    .into_iter()
    .enumerate()
    {
        let request = json!({"argv": ["bash", "-c", script]});
        let result = exec(&server, &format!("p{number}"), request).await;
        let lines = (1..=20_000).map(|line| format!("P:{line}\n"));
        assert!(result.text().0 == lines.collect::<String>(), "{script}");
        assert_eq!(result.exit(), (Some(3), None, ExitReason::Exited));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_is_reported_while_a_daemon_holds_the_output() {
    let server = TestServer::start();
    for (id, daemon, min_seconds) in [
        ("none", "", 0),
        ("quiet", "sleep 1000 &", 2),
        ("endless", "while sleep 0.1; do echo more; done &", 10),
    ] {
        let started = Instant::now();
        let result = exec(&server, id, sh(&format!("{daemon} exit 3"))).await;
        assert_eq!(result.exit().0, Some(3));
        let elapsed = started.elapsed().as_secs();
        assert!(elapsed >= min_seconds, "{id}: {elapsed} s");
    }
    // A kill does not wait for the daemon.
    start(
        &server,
        "killed",
        sh("while sleep 0.1; do echo more; done & exit 3"),
    )
    .await;
    let started = Instant::now();
    let killed = server
        .send(Method::DELETE, "/v1/processes/killed", "")
        .await;
    assert_eq!(killed.status, 204, "{killed:?}");
    follow(&server, "killed").await;
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_reaped_without_a_client() {
    let server = TestServer::start();
    let started: Vec<i32> = {
        let mut started = Vec::new();
        for n in 0..40 {
            started.push(
                start(&server, &format!("n{n}"), sh("(sleep 0.01 &) ; exit 1"))
                    .await
                    .pid,
            );
        }
        started
    };
    wait_until("all are buried", || started.iter().all(|pid| is_gone(*pid)));
    let children =
        || fs::read_to_string(format!("/proc/{0}/task/{0}/children", server_pid(&server))).unwrap();
    wait_until("only the shell is left", || {
        children().split_ascii_whitespace().count() == 1
    });
}

fn resident_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn long_output_is_stored_on_disk_and_read_again() {
    let server = TestServer::start();
    let pid = server_pid(&server);
    exec(&server, "warm", sh("head -c 1000000 /dev/zero")).await;
    let before = resident_bytes(pid);
    start(&server, "a", sh("seq 1500000")).await;
    let result = follow(&server, "a").await;
    let grown = resident_bytes(pid).saturating_sub(before);
    let expected: String = (1..=1_500_000).map(|n| format!("{n}\n")).collect();
    assert!(result.stdout == expected.as_bytes() && result.gaps.is_empty());
    let again = follow(&server, "a").await;
    assert!(again.stdout == expected.as_bytes() && again.gaps.is_empty());
    // The output has 10 MB. The buffers of the responses need up to 5 MB when the machine is busy.
    assert!(grown < 7 << 20, "{grown} bytes");
    let names: Vec<_> = fs::read_dir(std::env::temp_dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.to_string_lossy().starts_with(".glovebox-")),
        "{names:?}"
    );
}

/// Follows the process without reading. Returns when the process is held.
async fn follow_and_stall(server: &TestServer, id: &str) -> (Incoming, impl Drop + use<>) {
    let stream = UnixStream::connect(server.socket()).await.unwrap();
    let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request =
        Request::get(format!("/v1/processes/{id}/output?follow=true")).header("host", "sandbox");
    let response = client
        .send_request(request.body(Full::<Bytes>::default()).unwrap())
        .await
        .unwrap();
    wait_until_written(server, id, 1).await;
    let deadline = Instant::now() + TEST_TIMEOUT;
    let mut written = 0;
    while written != info(server, id).await.stdout_bytes {
        assert!(Instant::now() < deadline, "the process is not held");
        written = info(server, id).await.stdout_bytes;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    (response.into_body(), connection)
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_reader_holds_the_process_and_loses_nothing() {
    let server = TestServer::start();
    let pid = server_pid(&server);
    exec(&server, "warm", sh("head -c 1000000 /dev/zero")).await;
    let before = resident_bytes(pid);
    start(&server, "a", sh("seq 14000000")).await;
    let (mut body, _connection) = follow_and_stall(&server, "a").await;
    let written = info(&server, "a").await.stdout_bytes;
    assert!(written < 4 << 20, "{written} bytes");

    let mut decoder = ProcessFrameDecoder::default();
    let (mut received, mut last) = (0, Vec::new());
    let exit = 'body: loop {
        decoder.push(&body.frame().await.unwrap().unwrap().into_data().unwrap());
        while let Some(frame) = decoder.next_frame().unwrap() {
            match frame {
                ProcessFrame::Output { offset, bytes, .. } => {
                    assert_eq!(offset, received);
                    received += bytes.len() as u64;
                    last = bytes;
                }
                ProcessFrame::Gap { .. } => panic!("{frame:?}"),
                ProcessFrame::Exit(exit) => break 'body exit,
            }
        }
    };
    let length: u64 = (1..=8)
        .map(|digits| {
            (10_u64.pow(digits).min(14_000_001) - 10_u64.pow(digits - 1)) * u64::from(digits + 1)
        })
        .sum();
    assert_eq!((exit.code, received), (Some(0), length));
    assert!(last.ends_with(b"\n14000000\n"));
    let grown = resident_bytes(pid).saturating_sub(before);
    assert!(grown < 10 << 20, "{grown} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn process_continues_when_its_reader_disconnects() {
    let server = TestServer::start();
    start(
        &server,
        "a",
        sh("head -c 50000000 /dev/zero; echo done > done"),
    )
    .await;
    drop(follow_and_stall(&server, "a").await);
    let disconnected = Instant::now();
    assert!(!server.file("done").exists());
    wait_until("the process has continued", || server.file("done").exists());
    assert!(
        disconnected.elapsed() > Duration::from_secs(5),
        "it was not held for a reader that reconnects"
    );
    let result = follow(&server, "a").await;
    assert_eq!(
        (result.stdout.len(), result.gaps.as_slice()),
        (50_000_000, &[][..])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn id_stays_free_when_the_process_cannot_be_started() {
    let server = TestServer::start();
    let many = STANDARD.encode(vec![0; (1 << 20) + 1]);
    for (request, field) in [
        (json!({}), "argv"),
        (json!({"argv": []}), "argv"),
        (json!({"argv": [""]}), "argv"),
        (json!({"argv": [7]}), "argv[0]"),
        (json!({"argv": ["a\0"]}), "argv"),
        (json!({"argv": ["true", "x".repeat(3 << 20)]}), "argv"),
        (json!({"argv": ["true"], "env": {"A=B": ""}}), "env"),
        (json!({"argv": ["true"], "env": {"A": "\0"}}), "env"),
        (json!({"argv": ["true"], "env": {"A": 1}}), "env.A"),
        (json!({"argv": ["true"], "cwd": "/nowhere"}), "cwd"),
        (json!({"argv": ["true"], "cwd": "a\0b"}), "cwd"),
        (json!({"argv": ["true"], "cwd": "/etc/passwd"}), "cwd"),
        (json!({"argv": ["true"], "user": "nobody-here"}), "user"),
        (json!({"argv": ["true"], "user": "4000000000"}), "user"),
        (json!({"argv": ["true"], "stdin": "file"}), "stdin"),
        (
            json!({"argv": ["true"], "stdin_base64": "?"}),
            "stdin_base64",
        ),
        (
            json!({"argv": ["true"], "stdin_base64": many}),
            "stdin_base64",
        ),
        (
            json!({"argv": ["true"], "limits": {"open_files": u64::MAX}}),
            "limits.open_files",
        ),
        (
            json!({"argv": ["true"], "limits": {"open_files": -1}}),
            "limits.open_files",
        ),
        (json!({"argv": ["true"], "limits": {"files": 1}}), "limits"),
        (
            json!({"argv": ["true"], "timeout_seconds": -1}),
            "timeout_seconds",
        ),
        (json!({"argv": ["true"], "timeout": 1}), "timeout"),
    ] {
        let (status, body) = post(&server, "a", request.to_string()).await;
        assert_eq!(
            (status, body["code"].as_str()),
            (422, Some("invalid")),
            "{request} {body}"
        );
        assert!(
            body["detail"]
                .as_str()
                .unwrap()
                .contains(&format!("field `{field}")),
            "{request} {body}"
        );
    }
    for (program, code) in [
        ("no-such-program", "no_program"),
        ("/nowhere/program", "no_program"),
        ("/", "not_executable"),
    ] {
        let (status, body) = post(&server, "a", json!({"argv": [program]}).to_string()).await;
        assert_eq!(
            (status, body["code"].as_str()),
            (422, Some(code)),
            "{program} {body}"
        );
        let detail = body["detail"].as_str().unwrap();
        assert!(
            detail.starts_with("field `argv`: ") && detail.contains(&format!("`{program}`")),
            "{body}"
        );
    }
    assert_eq!(exec(&server, "a", sh("echo ok")).await.text().0, "ok\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_process_requests_are_refused() {
    let server = TestServer::start();
    start(&server, "a", sh("exec sleep 1000")).await;
    for (method, path, body, status) in [
        (Method::GET, "none", "", 404),
        (Method::DELETE, "none", "", 404),
        (Method::POST, "none/acknowledge", "", 404),
        (Method::GET, "none/output", "", 404),
        (Method::POST, "none/stdin", "x", 404),
        (Method::POST, "none/signal", r#"{"signal":"TERM"}"#, 404),
        (Method::POST, "a/signal", r#"{"signal":"NONE"}"#, 422),
        (Method::POST, "a/signal", r#"{"signal":0}"#, 422),
        (Method::POST, "a/signal", r#"{"signal":-9}"#, 422),
        (Method::POST, "a/signal", r#"{"signal":[]}"#, 422),
        (
            Method::POST,
            "a/signal",
            r#"{"signal":9,"scope":"all"}"#,
            422,
        ),
        (Method::POST, "a/signal", "no JSON", 400),
        (Method::GET, "a/output?stdout=-1", "", 400),
        (Method::GET, "a/output?follow=perhaps", "", 400),
        (Method::POST, "a/stdin?close=7", "", 400),
        (Method::GET, ".hidden", "", 400),
        (Method::PUT, "a", "", 405),
    ] {
        let reply = server
            .send(method.clone(), &format!("/v1/processes/{path}"), body)
            .await;
        assert_eq!(reply.status, status, "{method} {path} {reply:?}");
        assert!(reply.json()["detail"].is_string());
    }
}

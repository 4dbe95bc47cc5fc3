//! Start and end of the program. It leaves nothing behind.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hyper::Method;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::harness::{TestServer, is_gone, pids, program, wait_until};

const BUSY: &str = "sleep 1000 & echo $! >> pids; setsid sh -c 'echo $$ >> pids; exec sleep 1001' & \
                    (setsid sh -c 'echo $$ >> pids; exec sleep 1002' &); echo $$ >> pids; cat";

async fn busy(server: &TestServer) -> Vec<i32> {
    let busy =
        json!({"action": "run", "args": {"command": BUSY, "blocking": true}, "timeout": 0.5})
            .to_string();
    let reply = server.send(Method::POST, "/v1/actions/busy", busy).await;
    assert_eq!(reply.status, 200);
    pids(&server.file("pids"), 4)
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_shuts_down_within_two_seconds() {
    let mut server = TestServer::start();
    let started = busy(&server).await;
    let requested = Instant::now();
    kill(server.pid(), Signal::SIGTERM).unwrap();
    let status = server.wait();
    assert!(
        requested.elapsed() < Duration::from_secs(2),
        "{:?}",
        requested.elapsed()
    );
    assert_eq!(status.code(), Some(0));
    assert!(started.into_iter().all(is_gone));
    assert!(!server.socket().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn attached_client_gets_the_observation_at_shutdown() {
    let server = TestServer::start();
    let request =
        json!({"action": "run", "args": {"command": "echo $$ >> pids; cat", "blocking": true}});
    let reply = server.start_request(Method::POST, "/v1/actions/a", request.to_string());
    pids(&server.file("pids"), 1);
    kill(server.pid(), Signal::SIGTERM).unwrap();
    reply.await.unwrap().answer();
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_killed_when_the_server_is_killed() {
    let mut server = TestServer::start();
    let started = busy(&server).await;
    let children =
        fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.pid())).unwrap();
    kill(
        Pid::from_raw(children.trim().parse().unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
    assert_eq!(server.wait().code(), Some(128 + 9));
    assert!(started.into_iter().all(is_gone));
}

#[tokio::test(flavor = "multi_thread")]
async fn socket_is_reused_after_kill_9() {
    let server = TestServer::start();
    let old = server.send(Method::GET, "/v1/info", "").await.json();
    kill(server.pid(), Signal::SIGKILL).unwrap();
    let again = program()
        .args(["serve", "--detach", "--working-dir", "/", "--socket"])
        .arg(server.socket())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let line: Value = serde_json::from_slice(&again.stdout).unwrap_or_else(|_| panic!("{again:?}"));
    let new = server.send(Method::GET, "/v1/info", "").await.json();
    assert_ne!(new["boot_id"], old["boot_id"]);
    let pid = line["pid"].as_i64().unwrap() as i32;
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    wait_until("the second server has exited", || !server.socket().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_server_releases_the_streams_of_its_launcher() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("deep/er/s.sock");
    let mut launcher = program()
        .args([
            "serve",
            "--detach",
            "--key-stdin",
            "--idle-timeout",
            "60",
            "--working-dir",
        ])
        .arg(dir.path())
        .arg("--socket")
        .arg(&socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut launcher.stdin.take().unwrap(), b"key\n").unwrap();
    // Reads both streams to their ends, which requires that no process holds them.
    let output = launcher.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["socket"], socket.to_str().unwrap());
    assert_eq!(
        fs::metadata(&socket).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(
        fs::metadata(socket.parent().unwrap())
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    kill(
        Pid::from_raw(line["pid"].as_i64().unwrap() as i32),
        Signal::SIGTERM,
    )
    .unwrap();
    wait_until("the server has exited", || !socket.exists());
}

#[test]
fn server_is_killed_when_its_address_cannot_be_printed() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut launcher = program();
    launcher
        .args(["serve", "--working-dir", "/", "--detach", "--socket"])
        .arg(&socket)
        .arg("--");
    let ended = launcher.stdin(Stdio::null()).stdout(full).output().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(
        (
            ended.status.code(),
            stderr.contains("cannot print the server's address")
        ),
        (Some(1), true),
        "{stderr}"
    );
    wait_until("the server has exited", || {
        UnixStream::connect(&socket).is_err()
    });
}

#[test]
fn server_starts_when_its_binary_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("program"), dir.path().join("socket"));
    fs::copy(program().get_program(), &path).unwrap();
    let file = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let started = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .args(["serve", "--detach", "--working-dir", "/", "--socket"])
        .arg(&socket)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let line: Value =
        serde_json::from_slice(&started.stdout).unwrap_or_else(|_| panic!("{started:?}"));
    let pid = line["pid"].as_i64().unwrap() as i32;
    assert_eq!(
        fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(),
        "action-server\n"
    );
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    wait_until("the server has exited", || !socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn inherited_descriptors_are_closed_in_commands() {
    let (left_open, _other_end) = nix::unistd::pipe().unwrap();
    // Unlike the pipe's own descriptor, a duplicate is inherited.
    let copy = nix::unistd::dup(&left_open).unwrap();
    let server = TestServer::start();
    let link = fs::read_link(format!("/proc/self/fd/{}", copy.as_raw_fd())).unwrap();
    let process = json!({"argv": ["sh", "-c", "ls -l /proc/self/fd"]}).to_string();
    let command = json!({"action": "run", "args": {"command": "ls -l /proc/self/fd"}}).to_string();
    for (path, request) in [
        ("/v1/processes/list", process),
        ("/v1/actions/list", command),
    ] {
        let reply = server.send(Method::POST, path, request).await;
        let listed = String::from_utf8_lossy(&reply.body);
        assert!(
            listed.contains("/proc/") && !listed.contains(link.to_str().unwrap()),
            "{listed}"
        );
    }
}

#[test]
fn start_error_is_a_single_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for more in [&[][..], &["--detach"]] {
        let missing = serve(
            &[more, &["--working-dir", "/nowhere", "--socket"]].concat(),
            &dir.path().join("s"),
        );
        assert_eq!(missing, (1, "action-server: cannot open the working directory /nowhere: No such file or directory (os error 2)\n".into()));
        let not_a_socket = serve(&[more, &["--working-dir", "/", "--socket"]].concat(), &file);
        assert_eq!(
            not_a_socket,
            (
                1,
                format!(
                    "action-server: {} exists and is not a socket\n",
                    file.display()
                )
            )
        );
    }
    assert_eq!(serve(&["--listen", "0", "--working-dir"], dir.path()).0, 2);
    assert_eq!(
        serve(
            &["--key-stdin", "--working-dir", "/", "--socket"],
            &dir.path().join("s")
        )
        .0,
        1
    );
}

fn serve(arguments: &[&str], last: &std::path::Path) -> (i32, String) {
    let output = program()
        .arg("serve")
        .args(arguments)
        .arg(last)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn start_fails_when_another_server_listens() {
    let server = TestServer::start();
    for more in [&[][..], &["--detach"]] {
        let (code, stderr) = serve(
            &[more, &["--working-dir", "/", "--socket"]].concat(),
            &server.socket(),
        );
        assert_eq!(
            (code, stderr),
            (
                1,
                format!(
                    "action-server: another server listens on {}\n",
                    server.socket().display()
                )
            )
        );
    }
    assert!(
        fs::metadata(server.socket())
            .unwrap()
            .file_type()
            .is_socket()
    );
}

#[test]
fn idle_server_shuts_down() {
    let mut server = TestServer::start_in(
        tempfile::tempdir().unwrap(),
        None,
        &["--idle-timeout", "0.2"],
    );
    assert_eq!(server.wait().code(), Some(0));
    assert!(!server.socket().exists());
}

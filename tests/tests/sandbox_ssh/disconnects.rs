//! Broken connections while an action runs.

use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

use engine::sandbox::Sandbox;
use tests::glovebox::{CompletedRun, Home};
use tests::sandbox_contract::ssh::SshBackend;
use tests::sandbox_contract::{
    Backend, CommandResult, OutputRecorder, command, command_result, id, remove, run, spec,
};
use tests::sshd::{SshdOptions, USER};
use tests::tcp_proxy::TcpProxy;
use tokio::time::timeout;

const LINES: usize = 400;

/// Prints numbered lines for seconds and counts its runs.
const PRINTING: &str = "echo once >> ran; i=0; while [ $i -lt 400 ]; do printf 'line %05d\\n' $i; i=$((i+1)); sleep 0.01; done; exit 7";

/// Runs the command, and `breaks` after about a quarter of its output.
async fn run_through(sandbox: &dyn Sandbox, breaks: impl AsyncFnOnce()) -> CommandResult {
    let (output, first) = (OutputRecorder::default(), id(1));
    let (listener, request) = (output.listener(), command(PRINTING));
    let broken = async {
        output.wait_for("line 00100").await;
        breaks().await;
    };
    let (ended, ()) = timeout(Duration::from_secs(50), async {
        tokio::join!(sandbox.execute(&first, &request, &listener), broken)
    })
    .await
    .expect("an action ends although its connection breaks");
    command_result(ended.unwrap(), &output)
}

/// Checks that the output is complete and in order, and that the command ran once.
async fn assert_whole(sandbox: &dyn Sandbox, ran: &CommandResult) {
    assert_eq!(ran.exit_code, 7);
    let text = String::from_utf8_lossy(&ran.streamed).replace("\r\n", "\n");
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("line ") && line.len() == 10)
        .collect();
    let expected: Vec<String> = (0..LINES)
        .map(|number| format!("line {number:05}"))
        .collect();
    assert_eq!(lines, expected);
    assert_eq!(run(sandbox, 2, "cat ran").await.content.trim(), "once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_complete_when_the_connection_is_cut() {
    for settings in ["", "AllowStreamLocalForwarding no"] {
        let Some(backend) = SshBackend::with(&SshdOptions {
            settings,
            ..SshdOptions::default()
        }) else {
            return;
        };
        let proxy = TcpProxy::to(backend.sshd.port()).await;
        backend.configure(&format!(
            "Host far\n HostName 127.0.0.1\n Port {}\n User {USER}\n",
            proxy.port()
        ));
        let sandbox = backend
            .provider()
            .create(&spec(&backend), &|_| {})
            .await
            .unwrap();
        let ran = run_through(&*sandbox, async || {
            assert!(proxy.cut() > 0);
            tokio::time::sleep(Duration::from_millis(700)).await; // longer than a reconnect
            assert!(proxy.cut() > 0);
        })
        .await;
        assert_whole(&*sandbox, &ran).await;
        remove(&backend, sandbox).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_complete_when_sshd_is_restarted() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let sandbox = backend
        .provider()
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    let ran = run_through(&*sandbox, async || {
        backend.sshd.stop();
        // Longer than a local server may be unreachable.
        tokio::time::sleep(Duration::from_secs(5)).await;
        backend.sshd.restart();
    })
    .await;
    assert_whole(&*sandbox, &ran).await;
    remove(&backend, sandbox).await;
}

#[test]
fn user_reads_that_the_connection_is_lost() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let home = Home::new();
    let mut exec = home.glovebox(&[
        "exec",
        "--host",
        "far",
        "--",
        "echo sta''rted; sleep 5; echo end",
    ]);
    let exec = exec
        .env("HOME", backend.sshd.client_home())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut exec = exec.spawn().unwrap();
    let mut started = [0; 8];
    exec.stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut started)
        .unwrap();
    assert_eq!(&started, b"started\n");
    backend.sshd.stop();
    std::thread::sleep(Duration::from_secs(3));
    backend.sshd.restart();
    let exec = CompletedRun::from_output(&exec.wait_with_output().unwrap()).expect(0);
    assert_eq!(exec.stdout, "end\n");
    assert!(
        exec.stderr
            .contains("no connection to the sandbox: trying again for "),
        "{exec:?}"
    );
}

// The home is small, so that a sandbox can fill its disk.
tests::sandbox_faults!(SshBackend::with(&SshdOptions {
    home_kib: Some(40 << 10),
    ..SshdOptions::default()
}));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_sandboxes_reconnect_over_one_connection() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let proxy = TcpProxy::to(backend.sshd.port()).await;
    backend.configure(&format!(
        "Host far\n HostName 127.0.0.1\n Port {}\n User {USER}\n",
        proxy.port()
    ));
    let provider = backend.provider();
    let mut sandboxes = Vec::new();
    for _ in 0..4 {
        sandboxes.push(provider.create(&spec(&backend), &|_| {}).await.unwrap());
    }
    assert_eq!(proxy.cut(), 1);
    let again = sandboxes
        .iter()
        .map(|sandbox| run(&**sandbox, 1, "echo back"));
    for ran in futures_util::future::join_all(again).await {
        assert_eq!(ran.content.trim(), "back");
    }
    assert_eq!(proxy.cut(), 1);
    for sandbox in sandboxes {
        remove(&backend, sandbox).await;
    }
}

//! Sandboxes over SSH, compared with OpenSSH's client on the same server.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use engine::sandbox::Sandbox;
use protocol::ActionId;
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::ssh::SshBackend;
use tests::sandbox_contract::{Backend, run, spec};

use super::figure::{Figure, quantile_ms};
use super::report::BenchmarkReport;

const STARTS: usize = 15;
const ROUND_TRIPS: usize = 500;

pub(crate) async fn measure(report: BenchmarkReport) {
    let Some(backend) = SshBackend::new() else {
        return report.skip("ssh", "no SSH server, or no root to start one");
    };
    let mut floors = Vec::new();
    let [mut first, mut second, mut third] = [const { Vec::new() }; 3];
    ssh_true(&backend);
    for _ in 0..report.repetitions(STARTS) {
        let started = Instant::now();
        ssh_true(&backend);
        floors.push(started.elapsed());
        let _ = std::fs::remove_dir_all(backend.sshd.home().join(".glovebox")); // does not exist the first time
        first.push(first_result(&backend, &*backend.provider()).await);
        let started = Instant::now();
        ssh_true(&backend);
        floors.push(started.elapsed());
        let provider = backend.provider();
        second.push(first_result(&backend, &*provider).await);
        third.push(first_result(&backend, &*provider).await);
    }
    let floor = quantile_ms(&mut floors, 0.5);
    let (over_ssh, over_socket) = round_trips(&backend, report.repetitions(ROUND_TRIPS)).await;
    report.add_all([
        Figure::plain(
            "ssh: create to first result with the upload (floor: ssh true)",
            quantile_ms(&mut first, 0.5),
            "ms",
        )
        .with_floor(floor),
        Figure::within(
            "ssh: create to first result, a new connection (same floor)",
            quantile_ms(&mut second, 0.5),
            "ms",
            floor,
            1.3,
        ),
        Figure::plain(
            "ssh: the same on an open connection",
            quantile_ms(&mut third, 0.5),
            "ms",
        )
        .with_floor(floor),
        Figure::within(
            "ssh: HTTP round trip, p50 (floor: a unix socket)",
            over_ssh,
            "ms",
            over_socket,
            3.0,
        ),
    ]);
}

fn ssh_true(backend: &SshBackend) {
    let home = backend.sshd.client_home().join(".ssh");
    let status = Command::new("ssh")
        .arg("-F")
        .arg(home.join("config"))
        .arg("-i")
        .arg(home.join("id_ed25519"))
        .args(["-o", "IdentityAgent=none", "-o", "IdentitiesOnly=yes", "-o"])
        .arg(format!(
            "UserKnownHostsFile={}",
            home.join("known_hosts").display()
        ))
        .args(["far", "true"])
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

async fn first_result(
    backend: &SshBackend,
    provider: &dyn engine::sandbox::SandboxProvider,
) -> Duration {
    let started = Instant::now();
    let sandbox = provider.create(&spec(backend), &|_| {}).await.unwrap();
    assert_eq!(run(&*sandbox, 1, "true").await.exit_code, 0);
    let took = started.elapsed();
    let id = sandbox.lease().sandbox_id.clone();
    drop(sandbox);
    provider.destroy(&id).await.unwrap();
    took
}

/// Measures requests that do nothing, over SSH and over a unix socket, in turns: cancels of an
/// unknown action.
async fn round_trips(backend: &SshBackend, count: usize) -> (f64, f64) {
    let local = LocalBackend::new().unwrap();
    let (far, near) = (backend.provider(), local.provider());
    let far_sandbox = far.create(&spec(backend), &|_| {}).await.unwrap();
    let near_sandbox = near.create(&spec(&local), &|_| {}).await.unwrap();
    let (mut over_ssh, mut over_socket) = (Vec::new(), Vec::new());
    for _ in 0..count {
        over_ssh.push(round_trip(&*far_sandbox).await);
        over_socket.push(round_trip(&*near_sandbox).await);
    }
    far.destroy(&far_sandbox.lease().sandbox_id).await.unwrap();
    near.destroy(&near_sandbox.lease().sandbox_id)
        .await
        .unwrap();
    (
        quantile_ms(&mut over_ssh, 0.5),
        quantile_ms(&mut over_socket, 0.5),
    )
}

async fn round_trip(sandbox: &dyn Sandbox) -> Duration {
    let unknown: ActionId = "action.none".parse().unwrap();
    let started = Instant::now();
    sandbox.cancel(&unknown).await.unwrap();
    started.elapsed()
}

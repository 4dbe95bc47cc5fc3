//! The contract of sandboxes on the Docker backend, and its own features.

use std::future::ready;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use engine::sandbox::{SandboxError, SandboxProvider, StartProgress, sweep};
use sandbox_docker::DockerProvider;
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::{Backend, error, remove, remove_with, run, spec};

mod files;
mod network;
mod pause;
mod platform;
mod pull;
mod snapshot;
mod usage;
mod warm_pool;

mod busybox {
    use super::DockerBackend;
    tests::sandbox_contract!(DockerBackend::busybox());
    tests::sandbox_faults!(DockerBackend::busybox());
}

mod alpine {
    use super::DockerBackend;
    tests::sandbox_contract!(DockerBackend::alpine());
    tests::sandbox_faults!(DockerBackend::alpine());
}

mod debian {
    use super::DockerBackend;
    tests::sandbox_contract!(DockerBackend::debian());
    tests::sandbox_faults!(DockerBackend::debian());
}

#[tokio::test]
async fn error_is_typed_when_the_image_cannot_be_pulled() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let mut spec = spec(&backend);
    // No registry listens on this loopback port.
    spec.image = Some("127.0.0.1:1/no/image:1".into());
    let reports = Mutex::new(Vec::new());
    let failed = error(
        backend
            .provider()
            .create(&spec, &|progress| reports.lock().unwrap().push(progress))
            .await,
    );
    assert!(
        matches!(&failed, SandboxError::NoSuchImage { image, .. } if image == "127.0.0.1:1/no/image:1"),
        "{failed}"
    );
    assert!(matches!(
        reports.lock().unwrap().first(),
        Some(StartProgress::Pulling { .. })
    ));
}

#[tokio::test]
async fn error_is_typed_when_the_engine_does_not_respond() {
    let folder = tempfile::tempdir().unwrap();
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let backend = backend.with_host(format!("unix://{}/docker.sock", folder.path().display()));
    let failed = error(backend.provider().create(&spec(&backend), &|_| {}).await);
    assert!(
        matches!(failed, SandboxError::RuntimeUnavailable { .. }),
        "{failed}"
    );
    assert!(
        failed.to_string().contains("is Docker running?"),
        "{failed}"
    );
}

#[tokio::test]
async fn engine_check_fails_within_two_seconds() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    DockerProvider::new(backend.config())
        .backend()
        .answers()
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let silent = folder.path().join("docker.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
    let started = Instant::now();
    let backend = backend.with_host(format!("unix://{}", silent.display()));
    let failed = error(
        DockerProvider::new(backend.config())
            .backend()
            .answers()
            .await,
    );
    assert!(
        matches!(failed, SandboxError::RuntimeUnavailable { .. }),
        "{failed}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn container_of_another_installation_is_never_removed() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let spec = spec(&backend);
    let ours = backend.provider().create(&spec, &|_| {}).await.unwrap();
    let id = ours.lease().sandbox_id.clone();
    let mut config = backend.config();
    config.owner = format!("other-{}", std::process::id());
    let other = DockerProvider::new(config);
    let refused = error(other.create(&spec, &|_| {}).await);
    assert!(
        matches!(&refused, SandboxError::Invalid { detail } if detail.contains("another installation")),
        "{refused}"
    );
    other.destroy(&id).await.unwrap();
    other.wait_for_cleanup().await;
    assert_eq!(run(&*ours, 1, "echo alive").await.content.trim(), "alive");
    remove(&backend, ours).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_is_uploaded_when_engine_cannot_see_our_files() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let backend = backend.behind_tcp().await;
    let sandbox = backend
        .provider()
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    assert_eq!(run(&*sandbox, 1, "echo far").await.content.trim(), "far");
    remove(&backend, sandbox).await;
}

#[tokio::test]
async fn key_is_hidden_in_the_sandbox_and_limits_apply() {
    let Some(backend) = DockerBackend::debian() else {
        return;
    };
    let sandbox = backend
        .provider()
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    // The server's own memory and descriptors are closed to everyone; a key has 64 hexadecimal
    // digits.
    let search = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -cE '[0-9a-f]{64}'";
    assert_eq!(run(&*sandbox, 1, search).await.content.trim(), "0");
    let network = run(&*sandbox, 2, "ls /sys/class/net").await;
    assert_eq!(network.content.trim(), "lo");
    remove(&backend, sandbox).await;
}

#[tokio::test]
async fn sweep_removes_only_unused_sandboxes() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let mut config = backend.config();
    config.owner = format!("sweep-{}", std::process::id());
    let provider = DockerProvider::new(config);
    let [kept, left] = [spec(&backend), spec(&backend)];
    let kept_sandbox = provider.create(&kept, &|_| {}).await.unwrap();
    let left_sandbox = provider.create(&left, &|_| {}).await.unwrap();
    let swept = sweep(&provider, |summary| {
        ready(summary.conversation.as_ref() == Some(&kept.conversation))
    })
    .await
    .unwrap();
    assert_eq!(swept, [left_sandbox.lease().sandbox_id.clone()]);
    assert_eq!(backend.remains(&swept[0]).await, Vec::<String>::new());
    remove_with(&provider, &backend, kept_sandbox).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sandbox_continues_after_a_pause_beyond_the_ping_timeout() {
    // Pings are sent every 5 s and time out after 10 s.
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    tests::sandbox_contract::faults::frozen_for(&backend, Duration::from_secs(22)).await;
}

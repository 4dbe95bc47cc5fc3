//! The contract of sandboxes on the local backend, and its own features.

use std::future::ready;
use std::time::Instant;

use engine::sandbox::sweep;
use sandbox::ServerBinary;
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::{Backend, error, remove, run, spec};

tests::sandbox_contract!(LocalBackend::new());
tests::sandbox_faults!(LocalBackend::new());

#[tokio::test]
async fn user_workspace_is_used_and_never_removed() {
    let backend = LocalBackend::new().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    let mut spec = spec(&backend);
    spec.workspace = Some(workspace.path().into());
    let sandbox = backend.provider().create(&spec, &|_| {}).await.unwrap();
    run(&*sandbox, 1, "echo kept > file").await;
    remove(&backend, sandbox).await;
    assert_eq!(std::fs::read_to_string(workspace.path().join("file")).unwrap(), "kept\n");

    spec.workspace = Some(workspace.path().join("missing"));
    let failed = error(backend.provider().create(&spec, &|_| {}).await).to_string();
    assert!(failed.contains("missing"), "{failed}");
}

#[tokio::test]
async fn sweep_removes_only_unused_sandboxes() {
    let backend = LocalBackend::new().unwrap();
    let provider = backend.local_provider(ServerBinary::from_file("/nowhere"));
    let [kept, left] = [spec(&backend), spec(&backend)];
    let kept_sandbox = backend.provider().create(&kept, &|_| {}).await.unwrap();
    let left_sandbox = backend.provider().create(&left, &|_| {}).await.unwrap();
    let swept = sweep(&provider, |summary| ready(summary.conversation.as_ref() == Some(&kept.conversation)))
        .await
        .unwrap();
    assert_eq!(swept, [left_sandbox.lease().sandbox_id.clone()]);
    assert_eq!(backend.remains(&swept[0]).await, Vec::<String>::new());
    assert_eq!(run(&*kept_sandbox, 1, "true").await.exit_code, 0);
    remove(&backend, kept_sandbox).await;
}

/// `cargo test -p tests -- --ignored --nocapture start_time`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: meaningless on a busy machine"]
async fn start_time_is_short() {
    let backend = LocalBackend::new().unwrap();
    let mut times = Vec::new();
    for _ in 0..15 {
        let started = Instant::now();
        let sandbox = backend.provider().create(&spec(&backend), &|_| {}).await.unwrap();
        let created = started.elapsed();
        assert_eq!(run(&*sandbox, 1, "true").await.exit_code, 0);
        times.push((started.elapsed(), created));
        remove(&backend, sandbox).await;
    }
    times.sort();
    println!("create to first result: {:?} (created after {:?})", times[7].0, times[7].1);
}

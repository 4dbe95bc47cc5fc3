//! Cases for the removal of sandboxes: nothing is left, whatever the cause.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use engine::sandbox::{SandboxError, SandboxSpec};
use protocol::SandboxId;
use sandbox_client::ServerBinary;
use tokio::time::timeout;

use super::{Backend, create_sandbox, error, remove, run, spec};

/// Background processes are killed with the sandbox.
pub async fn destroy_leaves_nothing_and_is_idempotent(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    let id = sandbox.lease().sandbox_id.clone();
    run(
        &*sandbox,
        1,
        "sleep 1042 & (setsid sleep 1042 >/dev/null 2>&1 &) ; mkdir -p locked/in && chmod 500 locked",
    )
    .await;
    remove(backend, sandbox).await;
    backend.provider().destroy(&id).await.unwrap();
}

/// A server that does not start is an error that quotes its output.
pub async fn failed_start_leaves_nothing_and_quotes_the_output(backend: &dyn Backend) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("boom");
    // Closed before it is run, because a file that is open for writing cannot be executed.
    let mut file = std::fs::File::create(&program).unwrap();
    file.write_all(b"#!/bin/sh\necho boom >&2\nexit 3\n")
        .unwrap();
    drop(file);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();

    let spec = spec(backend);
    let started = Instant::now();
    let failed = error(
        backend
            .provider_with(ServerBinary::from_file(program))
            .create(&spec, &|_| {})
            .await,
    );
    assert!(
        matches!(&failed, SandboxError::Start { logs, .. } if logs.contains("boom")),
        "{failed:?}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(
        backend.remains(&sandbox_id_for(&spec)).await,
        Vec::<String>::new()
    );
}

/// A start that is cancelled at any moment leaves nothing.
pub async fn cancelled_start_leaves_nothing(backend: &dyn Backend) {
    let provider = backend.provider();
    let mut abandoned = Vec::new();
    for milliseconds in [0, 2, 10, 30, 80, 150] {
        let spec = spec(backend);
        let start = provider.create(&spec, &|_| {});
        match timeout(Duration::from_millis(milliseconds), start).await {
            Ok(created) => remove(backend, created.unwrap()).await,
            Err(_) => abandoned.push(sandbox_id_for(&spec)),
        }
    }
    assert!(!abandoned.is_empty());
    // Pending operations may still create something before it is removed, so nothing must appear
    // for a whole second.
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut last_seen = Instant::now();
    while last_seen.elapsed() < Duration::from_secs(1) {
        for sandbox in &abandoned {
            let left = backend.remains(sandbox).await;
            if !left.is_empty() {
                assert!(Instant::now() < deadline, "{left:?}");
                last_seen = Instant::now();
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A host that crashed before it stored the lease requests a sandbox again, and the conversation
/// gets a new one.
pub async fn leftover_sandbox_is_replaced(backend: &dyn Backend) {
    let spec = spec(backend);
    let first = backend.provider().create(&spec, &|_| {}).await.unwrap();
    run(&*first, 1, "touch old").await;
    let lease = first.lease().clone();
    drop(first);

    let second = backend.provider().create(&spec, &|_| {}).await.unwrap();
    assert_eq!(second.lease().sandbox_id, lease.sandbox_id);
    assert_ne!(second.lease().boot_id, lease.boot_id);
    assert_eq!(
        run(&*second, 1, "ls old 2>/dev/null").await.content.trim(),
        ""
    );
    assert!(matches!(
        error(backend.provider().attach(&lease).await),
        SandboxError::Lost { .. }
    ));
    remove(backend, second).await;
}

fn sandbox_id_for(spec: &SandboxSpec) -> SandboxId {
    format!("glovebox-{}", spec.conversation).parse().unwrap()
}

//! Resource usage of a sandbox, and the log of its server.

use engine::sandbox::ResourceLimits;
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::{Backend, create_sandbox, remove, run, spec};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_has_consumption_and_limits() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let sandbox = create_sandbox(&backend).await;
    let name = sandbox.lease().sandbox_id.clone();
    let ResourceLimits { memory_bytes, .. } = spec(&backend).resources;
    let idle = backend
        .provider()
        .monitoring()
        .unwrap()
        .usage(&name)
        .await
        .unwrap();
    run(&*sandbox, 1, "(while :; do :; done) & sleep 0.1").await;
    let busy = backend
        .provider()
        .monitoring()
        .unwrap()
        .usage(&name)
        .await
        .unwrap();
    assert!(
        busy.cpus > idle.cpus && busy.cpus > 0.1,
        "{idle:?} {busy:?}"
    );
    assert_eq!(busy.memory_limit_bytes, Some(memory_bytes));
    assert!(
        busy.memory_bytes > 0 && busy.memory_bytes < memory_bytes,
        "{busy:?}"
    );
    assert!(busy.pids > idle.pids, "{idle:?} {busy:?}");
    remove(&backend, sandbox).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_contain_the_output_of_the_server() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let sandbox = create_sandbox(&backend).await;
    let name = sandbox.lease().sandbox_id.clone();
    // The supervisor is process 1 and logs that its server was killed.
    run(&*sandbox, 1, "(sleep 0.1; kill -9 $PPID) &").await;
    let mut logs = String::new();
    for _ in 0..100 {
        logs = backend
            .provider()
            .monitoring()
            .unwrap()
            .logs(&name)
            .await
            .unwrap();
        if !logs.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(
        logs.contains("the server was terminated by SIGKILL"),
        "{logs:?}"
    );
    remove(&backend, sandbox).await;
}

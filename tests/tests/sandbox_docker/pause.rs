//! Paused sandboxes are not lost.

use std::time::Duration;

use engine::sandbox::{SandboxError, SandboxState, SnapshotPurpose};
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::{
    Backend, OutputRecorder, command, command_result, create_sandbox, error, id, remove, run,
};
use tokio::time::{sleep, timeout};

/// Longer than the ping timeouts of both sides.
const LONG_PAUSE: Duration = Duration::from_secs(17);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shell_processes_and_connection_survive_a_pause() {
    let Some(backend) = DockerBackend::debian() else {
        return;
    };
    let provider = backend.provider();
    let sandbox = create_sandbox(&backend).await;
    let name = sandbox.lease().sandbox_id.clone();
    run(&*sandbox, 1, "kept=value").await;
    let (output, second) = (OutputRecorder::default(), id(2));
    let (request, listener) = (
        command("echo star''ted; sleep 2; echo $kept"),
        output.listener(),
    );
    let pausing = async {
        output.wait_for("started").await;
        provider.pausing().unwrap().pause(&name).await.unwrap();
        provider.pausing().unwrap().pause(&name).await.unwrap(); // idempotent
        let found = provider
            .list()
            .await
            .unwrap()
            .into_iter()
            .find(|summary| summary.sandbox == name);
        assert_eq!(found.unwrap().condition, SandboxState::Paused);
        sleep(LONG_PAUSE).await;
        provider.pausing().unwrap().resume(&name).await.unwrap();
        provider.pausing().unwrap().resume(&name).await.unwrap();
    };
    let (ended, ()) = tokio::join!(sandbox.execute(&second, &request, &listener), pausing);
    let ran = command_result(ended.unwrap(), &output);
    assert!(ran.content.contains("value"), "{}", ran.content);

    // A request to a paused sandbox is answered after it resumes.
    provider.pausing().unwrap().pause(&name).await.unwrap();
    let asking = run(&*sandbox, 3, "echo $kept");
    let resuming = async {
        sleep(Duration::from_secs(1)).await;
        provider.pausing().unwrap().resume(&name).await.unwrap();
    };
    assert_eq!(tokio::join!(asking, resuming).0.content.trim(), "value");
    remove(&backend, sandbox).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attach_resumes_a_paused_sandbox() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let sandbox = create_sandbox(&backend).await;
    run(&*sandbox, 1, "kept=value").await;
    let lease = sandbox.lease().clone();
    drop(sandbox);
    backend
        .provider()
        .pausing()
        .unwrap()
        .pause(&lease.sandbox_id)
        .await
        .unwrap();
    let sandbox = timeout(Duration::from_secs(10), backend.provider().attach(&lease))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        run(&*sandbox, 2, "echo $kept").await.content.trim(),
        "value"
    );
    remove(&backend, sandbox).await;

    for failed in [
        error(
            backend
                .provider()
                .pausing()
                .unwrap()
                .pause(&lease.sandbox_id)
                .await,
        ),
        error(
            backend
                .provider()
                .pausing()
                .unwrap()
                .resume(&lease.sandbox_id)
                .await,
        ),
        error(
            backend
                .provider()
                .monitoring()
                .unwrap()
                .usage(&lease.sandbox_id)
                .await,
        ),
        error(
            backend
                .provider()
                .monitoring()
                .unwrap()
                .logs(&lease.sandbox_id)
                .await,
        ),
        error(
            backend
                .provider()
                .snapshots()
                .unwrap()
                .create_snapshot(&lease.sandbox_id, SnapshotPurpose::Keep(None))
                .await,
        ),
    ] {
        assert!(matches!(failed, SandboxError::Lost { .. }), "{failed:?}");
    }
}

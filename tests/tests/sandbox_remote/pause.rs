//! Pauses of sandboxes that are leased from a sandbox-host.

use std::time::Duration;

use engine::sandbox::{SandboxError, SandboxProvider, SandboxState};
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::faults::FaultInjection as _;
use tests::sandbox_contract::remote::{
    OTHER_SECRET, SECRET, SandboxHostBackend, client_for, leased_id,
};
use tests::sandbox_contract::{
    Backend, OutputRecorder, command, command_result, create_sandbox, error, id, remove, run,
};
use tokio::time::{sleep, timeout};

async fn condition(provider: &dyn SandboxProvider, sandbox: &protocol::SandboxId) -> SandboxState {
    let all = provider.list().await.unwrap();
    all.into_iter()
        .find(|summary| summary.sandbox == *sandbox)
        .unwrap()
        .condition
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leased_sandbox_is_paused_and_resumed() {
    let Some(backend) = SandboxHostBackend::<DockerBackend>::over_busybox() else {
        return;
    };
    let provider = backend.provider();
    let sandbox = create_sandbox(&backend).await;
    let name = sandbox.lease().sandbox_id.clone();
    run(&*sandbox, 1, "kept=value").await;
    let (output, second) = (OutputRecorder::default(), id(2));
    let (request, listener) = (
        command("echo star''ted; sleep 1; echo $kept"),
        output.listener(),
    );
    let pausing = async {
        output.wait_for("started").await;
        for _ in 0..2 {
            provider.pausing().unwrap().pause(&name).await.unwrap(); // idempotent
            assert_eq!(condition(&*provider, &name).await, SandboxState::Paused);
            assert_eq!(
                condition(&*backend.below().provider(), &leased_id(&name)).await,
                SandboxState::Paused
            );
        }
        // Neither an inspection nor a reconnect resumes it.
        assert!(backend.cut_connection(&name).await > 0);
        sleep(Duration::from_secs(3)).await;
        assert_eq!(
            condition(&*backend.below().provider(), &leased_id(&name)).await,
            SandboxState::Paused
        );
        for _ in 0..2 {
            provider.pausing().unwrap().resume(&name).await.unwrap();
            assert_eq!(condition(&*provider, &name).await, SandboxState::Running);
        }
    };
    let (ended, ()) = tokio::join!(sandbox.execute(&second, &request, &listener), pausing);
    assert!(
        command_result(ended.unwrap(), &output)
            .content
            .contains("value")
    );

    // An attach resumes it, as with a local sandbox.
    let lease = sandbox.lease().clone();
    provider.pausing().unwrap().pause(&name).await.unwrap();
    let again = timeout(Duration::from_secs(10), backend.provider().attach(&lease))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(run(&*again, 3, "echo $kept").await.content.trim(), "value");
    drop(again);
    // A paused sandbox can be removed.
    provider.pausing().unwrap().pause(&name).await.unwrap();
    remove(&backend, sandbox).await;
    for failed in [
        error(provider.pausing().unwrap().pause(&name).await),
        error(provider.pausing().unwrap().resume(&name).await),
    ] {
        assert!(matches!(failed, SandboxError::Lost { .. }), "{failed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sandbox_of_another_key_cannot_be_paused() {
    let Some(backend) = SandboxHostBackend::<DockerBackend>::over_busybox() else {
        return;
    };
    let address = backend.start_host(SandboxHostBackend::<DockerBackend>::host_config());
    let [ann, bob] = [SECRET, OTHER_SECRET].map(|secret| client_for(address, secret));
    let sandbox = ann
        .create(&tests::sandbox_contract::spec(&backend), &|_| {})
        .await
        .unwrap();
    let name = sandbox.lease().sandbox_id.clone();
    assert!(matches!(
        error(bob.pausing().unwrap().pause(&name).await),
        SandboxError::Lost { .. }
    ));
    assert_eq!(condition(&ann, &name).await, SandboxState::Running);
    ann.destroy(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_is_unsupported_when_the_host_cannot_pause() {
    let backend = SandboxHostBackend::over_local().unwrap();
    let sandbox = create_sandbox(&backend).await;
    let failed = error(
        backend
            .provider()
            .pausing()
            .unwrap()
            .pause(&sandbox.lease().sandbox_id)
            .await,
    );
    assert!(
        matches!(failed, SandboxError::Unsupported { .. }),
        "{failed:?}"
    );
    remove(&backend, sandbox).await;
}

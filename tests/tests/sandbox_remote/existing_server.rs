//! An action server that another party runs: what is removed, what is kept, and errors.

use std::time::{Duration, Instant};

use engine::sandbox::{SandboxError, SandboxProvider, SandboxSpec};
use sandbox_remote::{RemoteServerConfig, RemoteServerProvider};
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::remote::{DirectServerBackend, SERVER_KEY, SandboxHostBackend};
use tests::sandbox_contract::{OutputRecorder, command, error, id, run, spec};
use tokio::net::TcpListener;

fn server_at(url: &str, key: &str) -> RemoteServerProvider {
    RemoteServerProvider::new(RemoteServerConfig {
        url: url.parse().unwrap(),
        key: key.to_owned().into(),
        additional_ca: None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_server_survives_and_our_processes_end_on_removal() {
    let backend = DirectServerBackend::new().unwrap();
    let server = backend.start().await;
    let (provider, spec) = (server.client(), spec(&backend));
    let sandbox = provider.create(&spec, &|_| {}).await.unwrap();
    let received = OutputRecorder::default();
    {
        let (first, request, listener) = (
            id(1),
            command("touch here; echo star''ted; sleep 1046"),
            received.listener(),
        );
        tokio::select! {
            ended = sandbox.execute(&first, &request, &listener) => panic!("ended too early: {ended:?}"),
            () = received.wait_for("started") => {}
        }
    }
    let lease = sandbox.lease().clone();
    drop(sandbox);
    assert_eq!(provider.list().await.unwrap(), []);
    provider.destroy(&lease.sandbox_id).await.unwrap();
    provider.destroy(&lease.sandbox_id).await.unwrap();

    let sandbox = provider.attach(&lease).await.unwrap();
    // The brackets keep the search from finding itself.
    let search = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 104[6]'; ls";
    let deadline = Instant::now() + Duration::from_secs(10);
    for number in 2.. {
        let found = run(&*sandbox, number, search).await.content;
        if found.replace("\r\n", "\n").trim() == "0\nhere" {
            break;
        }
        assert!(Instant::now() < deadline, "{found}");
    }
    assert!(server.folder().join("here").exists());
}

#[tokio::test]
async fn wrong_key_error_has_a_hint() {
    let backend = DirectServerBackend::new().unwrap();
    let server = backend.start().await;
    let provider = server_at(&format!("http://{}", server.address), "another key");
    let failed = error(provider.create(&spec(&backend), &|_| {}).await);
    assert!(matches!(failed, SandboxError::Refused { .. }), "{failed:?}");
    let text = failed.to_string();
    assert!(
        text.contains("rejects the key") && !text.contains("another key") && !text.contains('\n'),
        "{text}"
    );
}

#[tokio::test]
async fn missing_server_is_reported_immediately() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let started = Instant::now();
    let failed = error(
        server_at(&format!("http://{address}"), SERVER_KEY)
            .create(&unplaced(), &|_| {})
            .await,
    );
    assert!(
        matches!(failed, SandboxError::RuntimeUnavailable { .. }),
        "{failed:?}"
    );
    assert!(
        failed
            .to_string()
            .contains(&format!("cannot reach {address}")),
        "{failed}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn server_that_is_no_action_server_is_rejected() {
    let backend = SandboxHostBackend::<LocalBackend>::over_local().unwrap();
    let something_else = backend.start_host(SandboxHostBackend::<LocalBackend>::host_config());
    let failed = error(
        server_at(&format!("http://{something_else}"), SERVER_KEY)
            .create(&unplaced(), &|_| {})
            .await,
    );
    assert!(
        matches!(failed, SandboxError::RuntimeUnavailable { .. }),
        "{failed:?}"
    );
    assert!(
        failed
            .to_string()
            .contains("no action server responds at http://127.0.0.1"),
        "{failed}"
    );
}

#[tokio::test]
async fn workspace_of_this_machine_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let spec = SandboxSpec {
        workspace: Some(folder.path().into()),
        ..unplaced()
    };
    let failed = error(
        server_at("http://127.0.0.1:9", SERVER_KEY)
            .create(&spec, &|_| {})
            .await,
    );
    assert!(
        matches!(&failed, SandboxError::Start { detail, .. } if detail.contains("folder of this machine")),
        "{failed}"
    );
}

fn unplaced() -> SandboxSpec {
    SandboxSpec::new("never-created".parse().unwrap())
}

//! The example of a backend, as a program that embeds Glovebox uses it.

#[allow(dead_code)] // its `main`
#[path = "../../orchestrator/sandbox/client/examples/custom_backend.rs"]
mod example;

use engine::sandbox::{SandboxError, SandboxProvider, SandboxSpec};
use sandbox_client::Provider;
use tests::sandbox_contract::{command, embedded_server, error, id};
use tokio::sync::Mutex;

use example::ChildBackend;

#[tokio::test]
async fn sandbox_of_the_example_runs_commands_until_destroyed() {
    let folder = tempfile::tempdir().unwrap();
    let provider = Provider::<ChildBackend>::new(ChildBackend {
        action_server: embedded_server(folder.path()).path().await.unwrap(),
        children: Mutex::default(),
    });
    let spec = SandboxSpec {
        environment: [("COLOUR".to_owned(), "green".to_owned())].into(),
        ..SandboxSpec::new("custom-backend".parse().unwrap())
    };
    let sandbox = provider.create(&spec, &|_| {}).await.unwrap();
    let lease = sandbox.lease().clone();
    let attached = provider.attach(&lease).await.unwrap();
    let observed = attached
        .execute(&id(1), &command("echo $COLOUR"), &|_| {})
        .await
        .unwrap();
    assert_eq!(observed.content.trim(), "green");
    let listed = provider.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].conversation, Some(spec.conversation));

    provider.destroy(&lease.sandbox_id).await.unwrap();
    assert!(provider.list().await.unwrap().is_empty());
    let failed = error(provider.find(&lease.sandbox_id).await);
    assert!(matches!(failed, SandboxError::Lost { .. }), "{failed}");
}

#[tokio::test]
async fn failed_start_of_the_example_leaves_no_sandbox() {
    let provider = Provider::<ChildBackend>::new(ChildBackend {
        action_server: "/bin/false".into(),
        children: Mutex::default(),
    });
    let spec = SandboxSpec::new("custom-backend".parse().unwrap());
    let failed = error(provider.create(&spec, &|_| {}).await);
    assert!(matches!(failed, SandboxError::Start { .. }), "{failed}");
    assert!(provider.list().await.unwrap().is_empty());
}

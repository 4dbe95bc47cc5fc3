//! Sandboxes of conversations.

use conversations::ServiceErrorKind::{Conflict, NotFound};
use protocol::client_api::v2::sandbox::SandboxStatus;

use super::{ServiceBackend, asked, kind};

/// A local sandbox is described, and can be measured if its machine has control groups. It cannot
/// be paused.
pub async fn sandbox_of_a_running_conversation_is_described(backend: &dyn ServiceBackend) {
    let (service, sandboxes) = (backend.service(Some("ada")), backend.sandboxes(Some("ada")));
    let id = asked(service.as_ref()).await;
    // Waits until it is connected.
    let ports = sandboxes.sandbox_ports(&id).await.unwrap().ports;
    assert!(ports.is_sorted_by_key(|port| port.port), "{ports:?}");
    let sandbox = sandboxes.sandbox(&id).await.unwrap();
    assert_eq!(sandbox.status, SandboxStatus::Connected);
    assert_eq!(sandbox.runtime.as_deref(), Some("local"));
    assert!(sandbox.id.is_some() && sandbox.working_dir.unwrap().starts_with('/'));
    sandboxes.sandbox_logs(&id).await.unwrap();
    match sandboxes.sandbox_usage(&id).await {
        Ok(usage) => assert!(usage.memory_bytes > 0 && usage.cpus >= 0.0, "{usage:?}"),
        Err(error) => assert_eq!(error.kind, Conflict, "{error}"),
    }
    assert_eq!(kind(sandboxes.pause_sandbox(&id).await), Conflict);
    let after = sandboxes.sandbox(&id).await.unwrap();
    assert_eq!(after.status, SandboxStatus::Connected, "it was not closed");
    let ben = backend.sandboxes(Some("ben"));
    for of_others in [
        ben.sandbox(&id).await.map(drop),
        ben.sandbox_usage(&id).await.map(drop),
        ben.sandbox_ports(&id).await.map(drop),
        ben.sandbox_logs(&id).await.map(drop),
        ben.pause_sandbox(&id).await,
    ] {
        assert_eq!(kind(of_others), NotFound);
    }
    service.delete(&id).await.unwrap();
    assert_eq!(kind(sandboxes.sandbox(&id).await), NotFound);
}

//! Sandboxes on other machines, over HTTP: the runtime `remote`.
//!
//! [`RemoteServerProvider`] uses one action server that already runs. [`RemoteRuntimeProvider`]
//! creates sandboxes through the runtime API of OpenHands V0, which `glovebox sandbox-host` serves
//! from any machine. Neither can mount folders of this machine. Responses are bounded in size and
//! time.

mod api;
mod direct;
mod drive;
mod endpoint;
mod retry;
mod runtime;
mod server;
mod trust;
mod upgrade;

use engine::sandbox::{SandboxError, SandboxSpec};
use sandbox_client::provisioning::start_error;

pub use runtime::{
    DEFAULT_REMOTE_COMMAND, RemoteRuntimeBackend, RemoteRuntimeConfig, RemoteRuntimeProvider,
};
pub use server::{RemoteServerConfig, RemoteServerProvider};

const RUNTIME: &str = "remote";

fn unavailable(detail: String) -> SandboxError {
    SandboxError::RuntimeUnavailable {
        runtime: RUNTIME,
        detail,
    }
}

/// Rejects a workspace and volumes, which are folders of this machine.
fn reject_host_folders(spec: &SandboxSpec) -> Result<(), SandboxError> {
    let path = match (&spec.workspace, spec.volumes.first()) {
        (None, None) => return Ok(()),
        (Some(workspace), _) => workspace.display().to_string(),
        (None, Some(volume)) => volume.source.clone(),
    };
    Err(start_error(format!(
        "{path} is a folder of this machine, which a remote sandbox cannot access: omit it, and copy the files instead"
    )))
}

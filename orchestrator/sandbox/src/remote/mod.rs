//! Sandboxes on other machines, over HTTP: the runtime `remote`.
//!
//! [`RemoteServerProvider`] takes one action server that runs somewhere already. [`RemoteRuntimeProvider`] asks a runtime
//! API as OpenHands V0 knows it for sandboxes; `glovebox sandbox-host` serves that API from any machine. Neither shows a
//! folder of this machine inside, and whatever they are answered is read within bounds.

mod api;
mod direct;
mod driven;
mod endpoint;
mod lent_stream;
mod retry;
mod runtime;
mod server;
mod trust;
pub(crate) mod wire;

use engine::sandbox::{SandboxError, SandboxSpec};

pub use runtime::{DEFAULT_REMOTE_COMMAND, RemoteRuntimeConfig, RemoteRuntimeProvider};
pub use server::{RemoteServerConfig, RemoteServerProvider};

use crate::placement::start_error;

const RUNTIME: &str = "remote";

/// A folder of this machine is not seen from another one.
fn refuse_what_stays_here(spec: &SandboxSpec) -> Result<(), SandboxError> {
    let path = match (&spec.workspace, spec.volumes.first()) {
        (None, None) => return Ok(()),
        (Some(workspace), _) => workspace.display().to_string(),
        (None, Some(volume)) => volume.source.clone(),
    };
    Err(start_error(format!(
        "{path} is a folder of this machine, which a sandbox on another one does not see: name none, and copy what it needs"
    )))
}

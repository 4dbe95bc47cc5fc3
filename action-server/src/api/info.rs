//! `GET /v1/info`: version, capabilities and limits of the server. They do not change while it
//! runs.

use std::path::Path;

use axum::Json;
use axum::extract::State;
use protocol::BootId;
use protocol::sandbox_api::{Capability, ServerInfo, ServerLimits};

use super::{Api, BODY_BYTES};
use crate::ledger::{MAX_ENDED, RETAINED_OUTPUT_BYTES, RETENTION};
use crate::shell::{self, ShellKind};

#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/info",
    responses((status = 200, description = "Version, capabilities and limits", body = ServerInfo))
))]
pub(crate) async fn info(State(api): State<Api>) -> Json<ServerInfo> {
    Json(api.0.parts.info.clone())
}

/// Collects the information once, when the server starts.
pub(crate) fn describe(boot_id: BootId, working_dir: &Path) -> ServerInfo {
    let shell = match shell::kind() {
        ShellKind::Bash => Capability::Bash,
        ShellKind::Posix => Capability::PosixShell,
    };
    ServerInfo {
        version: env!("CARGO_PKG_VERSION").into(),
        boot_id,
        working_dir: working_dir.to_string_lossy().into_owned(),
        capabilities: vec![
            shell,
            Capability::Files,
            Capability::Processes,
            Capability::Terminals,
        ],
        limits: ServerLimits {
            body_bytes: BODY_BYTES as u64,
            output_bytes: RETAINED_OUTPUT_BYTES,
            ended_actions: MAX_ENDED as u64,
            retention_seconds: RETENTION.as_secs(),
        },
    }
}

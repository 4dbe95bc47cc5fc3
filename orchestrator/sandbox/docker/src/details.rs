//! Settings of a container, as its engine reports them.

use bollard::models::ContainerInspectResponse;
use engine::sandbox::{SandboxDetails, SandboxError};

use super::container::{CPU_PERIOD, WORKSPACE};
use super::engine::Engine;
use super::lifecycle::refused;

impl Engine {
    /// Returns the settings of a container. [`SandboxError::Lost`] if it does not exist.
    pub(super) async fn details(&self, container: &str) -> Result<SandboxDetails, SandboxError> {
        let found = self.docker.inspect_container(container, None).await;
        found
            .map(to_details)
            .map_err(|error| refused("inspect", container, &error))
    }
}

fn to_details(found: ContainerInspectResponse) -> SandboxDetails {
    let host = found.host_config.unwrap_or_default();
    let workspace = found.mounts.into_iter().flatten();
    let workspace = workspace.filter(|mount| mount.destination.as_deref() == Some(WORKSPACE));
    let networks = found
        .network_settings
        .and_then(|settings| settings.networks)
        .unwrap_or_default();
    let mut networks: Vec<_> = networks.into_keys().collect();
    networks.sort_unstable();
    SandboxDetails {
        workspace: workspace
            .filter_map(|mount| mount.name.or(mount.source))
            .next(),
        networks,
        memory_bytes: host.memory.and_then(positive),
        #[expect(clippy::cast_precision_loss, reason = "a number of CPUs is small")]
        cpus: host
            .cpu_quota
            .and_then(positive)
            .map(|quota| quota as f64 / CPU_PERIOD as f64),
        pids: host.pids_limit.and_then(positive),
    }
}

/// A limit. Engines report 0 and -1 for none.
fn positive(limit: i64) -> Option<u64> {
    u64::try_from(limit).ok().filter(|limit| *limit > 0)
}

#[cfg(test)]
mod tests {
    use engine::sandbox::SandboxDetails;
    use serde_json::json;

    use super::to_details;

    #[test]
    fn limits_networks_and_workspace_are_read() {
        let found = json!({
            "HostConfig": {"Memory": 1 << 30, "CpuQuota": 150_000, "PidsLimit": -1},
            "Mounts": [
                {"Source": "/bin/server", "Destination": "/glovebox/server"},
                {"Source": "/home/me/work", "Destination": "/workspace"},
            ],
            "NetworkSettings": {"Networks": {"none": {}}},
        });
        let expected = SandboxDetails {
            workspace: Some("/home/me/work".to_owned()),
            networks: vec!["none".to_owned()],
            memory_bytes: Some(1 << 30),
            cpus: Some(1.5),
            pids: None,
        };
        assert_eq!(to_details(serde_json::from_value(found).unwrap()), expected);
    }
}

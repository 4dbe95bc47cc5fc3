//! What sandboxes are, and what becomes of them.

use std::path::PathBuf;
use std::time::Duration;

use engine::conversation::Afterwards;
use engine::sandbox::{Resources, Volume};

use super::settings::Settings;

/// Where V0 mounts the folder that is worked in, unless it is told otherwise.
const WORKSPACE: &str = "/workspace";

/// Sandboxes as they are configured.
#[derive(Debug, Clone)]
pub(crate) struct SandboxSettings {
    /// The image; nothing: the runtime's default.
    pub image: Option<String>,
    /// What of the host is mounted beside the workspace.
    pub volumes: Vec<Volume>,
    /// What a sandbox may use of its host.
    pub resources: Resources,
    /// The engine's network; nothing: no network.
    pub network: Option<String>,
    /// The engine's networks that are joined too.
    pub additional_networks: Vec<String>,
    /// The image's platform, as in `linux/arm64`; nothing: the engine's own.
    pub platform: Option<String>,
    /// The graphics processors, by their ids; an empty list: all of them.
    pub gpus: Option<Vec<String>>,
    /// What becomes of a conversation's sandbox at its end.
    pub afterwards: Afterwards,
    /// How long the sandbox of a conversation that ended without a word is kept for its being resumed.
    pub close_delay: Duration,
}

impl SandboxSettings {
    /// Reads the section. A volume at the workspace's place is the folder that is worked in, the second of what is returned.
    pub(super) fn read(settings: &Settings) -> (Self, Option<PathBuf>) {
        let flag = |name| settings.flag("sandbox", name);
        let text = |name| settings.text("sandbox", name);
        let (workspaces, volumes): (Vec<Volume>, _) = settings
            .volumes("sandbox", "volumes")
            .into_iter()
            .partition(|volume| volume.target.trim_end_matches('/') == WORKSPACE && !volume.read_only);
        let ids = |text: String| text.split(',').map(|id| id.trim().to_owned()).collect();
        let default = Resources::default();
        let read = Self {
            image: text("runtime_container_image").or_else(|| text("base_container_image")),
            volumes,
            resources: Resources {
                memory_bytes: settings.size("sandbox", "memory_limit").unwrap_or(default.memory_bytes),
                disk_bytes: settings.size("sandbox", "disk_limit").unwrap_or(default.disk_bytes),
                cpus: settings.number("sandbox", "cpus").filter(|cpus| *cpus > 0.0).unwrap_or(default.cpus),
                pids: settings
                    .integer("sandbox", "pids_limit")
                    .and_then(|pids| u32::try_from(pids).ok())
                    .unwrap_or(default.pids),
            },
            network: match flag("use_host_network") {
                Some(true) => Some("host".into()),
                _ => text("network").filter(|network| network != "none"),
            },
            additional_networks: settings.list("sandbox", "additional_networks"),
            platform: text("platform"),
            gpus: flag("enable_gpu")
                .unwrap_or(false)
                .then(|| text("cuda_visible_devices").map(ids).unwrap_or_default()),
            afterwards: match (flag("keep_runtime_alive"), flag("pause_closed_runtimes")) {
                (Some(true), Some(false)) => Afterwards::Keep,
                (Some(true), _) => Afterwards::Pause,
                _ => Afterwards::Remove,
            },
            close_delay: settings
                .number("sandbox", "close_delay")
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .unwrap_or(Duration::from_secs(3600)),
        };
        (read, workspaces.into_iter().next().map(|volume| volume.source.into()))
    }
}

//! What sandboxes are, and what becomes of them.

use std::path::PathBuf;
use std::time::Duration;

use engine::conversation::Afterwards;
use engine::sandbox::{ResourceLimits, Volume};
use sandbox::ServerUrl;
use secrecy::SecretString;

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
    pub resources: ResourceLimits,
    /// A network: the engine's of that name, or for a local sandbox the host's; nothing: no network.
    pub network: Option<String>,
    /// The engine's networks that are joined too.
    pub additional_networks: Vec<String>,
    /// The image's platform, as in `linux/arm64`; nothing: the engine's own.
    pub platform: Option<String>,
    /// The graphics processors, by their ids; an empty list: all of them.
    pub gpus: Option<Vec<String>>,
    /// How many sandboxes a program that lends them makes ahead.
    pub warm_pool: usize,
    /// Whether a local sandbox may be placed where nothing can keep it in.
    pub unsafe_local: bool,
    /// The machine that sandboxes are placed on over SSH.
    pub ssh: SshSettings,
    /// Who places sandboxes elsewhere.
    pub remote: RemoteSettings,
    /// What becomes of a conversation's sandbox at its end.
    pub afterwards: Afterwards,
    /// How long the sandbox of a conversation that ended without a word is kept for its being resumed.
    pub close_delay: Duration,
}

/// The machine that sandboxes are placed on over SSH.
#[derive(Debug, Clone)]
pub(crate) struct SshSettings {
    /// `[user@]host[:port]`, or a name that `~/.ssh/config` explains.
    pub target: Option<String>,
    /// What to do about a host whose key is not known: `refuse`, `accept-new` or `ask`.
    pub unknown_hosts: Option<String>,
    /// The user's name here.
    pub user: Option<String>,
    /// The socket of an agent that holds keys, from `SSH_AUTH_SOCK`.
    pub agent: Option<PathBuf>,
}

/// Who places sandboxes elsewhere: a service that speaks V0's runtime API, or one action server that runs already.
#[derive(Debug, Clone)]
pub(crate) struct RemoteSettings {
    /// The one action server; it wins over the service.
    pub server_url: Option<ServerUrl>,
    /// Its key.
    pub server_key: Option<SecretString>,
    /// The service.
    pub api_url: Option<ServerUrl>,
    /// The service's key.
    pub api_key: Option<SecretString>,
    /// A certificate authority beside the machine's own.
    pub ca_file: Option<PathBuf>,
    /// Until a sandbox is there.
    pub init_timeout: Option<Duration>,
    /// For one request.
    pub api_timeout: Option<Duration>,
    /// Whether requests that fail are sent again.
    pub enable_retries: bool,
    /// The service's class of sandboxes.
    pub class: Option<String>,
    /// How many times the usual resources.
    pub resource_factor: Option<f64>,
}

impl SshSettings {
    fn read(settings: &Settings, environment: &impl Fn(&str) -> Option<String>) -> Self {
        Self {
            target: settings.text("sandbox", "ssh_host"),
            unknown_hosts: settings.text("sandbox", "ssh_unknown_hosts"),
            user: ["USER", "LOGNAME"]
                .into_iter()
                .find_map(|name| environment(name).filter(|user| !user.is_empty())),
            agent: environment("SSH_AUTH_SOCK").filter(|path| !path.is_empty()).map(PathBuf::from),
        }
    }
}

impl RemoteSettings {
    fn read(settings: &Settings) -> Self {
        let text = |name| settings.text("sandbox", name);
        let url = |name| text(name).and_then(|text| text.parse().ok());
        let number = |name| settings.number("sandbox", name);
        let seconds = |name| number(name).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Self {
            server_url: url("remote_server_url"),
            server_key: text("remote_server_key").map(SecretString::from),
            api_url: url("remote_runtime_api_url"),
            api_key: text("api_key").map(SecretString::from),
            ca_file: text("remote_ca_file").map(PathBuf::from),
            init_timeout: seconds("remote_runtime_init_timeout"),
            api_timeout: seconds("remote_runtime_api_timeout"),
            enable_retries: settings.flag("sandbox", "remote_runtime_enable_retries").unwrap_or(true),
            class: text("remote_runtime_class"),
            resource_factor: number("remote_runtime_resource_factor"),
        }
    }
}

impl SandboxSettings {
    /// Chooses the network; `none` is none, and `None` leaves it as it is configured.
    pub(crate) fn set_network(&mut self, network: Option<String>) {
        if let Some(network) = network {
            self.network = Some(network).filter(|network| network != "none");
        }
    }

    /// Reads the section. A volume at the workspace's place is the folder that is worked in, the second of what is returned.
    pub(super) fn read(
        settings: &Settings,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> (Self, Option<PathBuf>) {
        let flag = |name| settings.flag("sandbox", name);
        let text = |name| settings.text("sandbox", name);
        let (workspaces, volumes): (Vec<Volume>, _) = settings
            .volumes("sandbox", "volumes")
            .into_iter()
            .partition(|volume| volume.target.trim_end_matches('/') == WORKSPACE && !volume.read_only);
        let ids = |text: String| text.split(',').map(|id| id.trim().to_owned()).collect();
        let default = ResourceLimits::default();
        let read = Self {
            image: text("runtime_container_image").or_else(|| text("base_container_image")),
            volumes,
            resources: ResourceLimits {
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
            warm_pool: settings
                .integer("sandbox", "warm_pool")
                .and_then(|size| usize::try_from(size).ok())
                .unwrap_or(0),
            unsafe_local: flag("unsafe_local").unwrap_or(false),
            ssh: SshSettings::read(settings, environment),
            remote: RemoteSettings::read(settings),
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

#[cfg(test)]
mod tests {
    use super::{Settings, SshSettings};

    #[test]
    fn user_is_the_first_name_that_the_environment_has() {
        for (user, logname, expected) in
            [("me", "other", Some("me")), ("", "other", Some("other")), ("", "", None)]
        {
            let environment = |name: &str| match name {
                "USER" => Some(user.to_owned()),
                "LOGNAME" => Some(logname.to_owned()),
                _ => None,
            };
            assert_eq!(SshSettings::read(&Settings::default(), &environment).user.as_deref(), expected);
        }
    }
}

//! `[sandbox]`: the sandboxes, their backends and their end.

use std::path::PathBuf;
use std::time::Duration;

use engine::conversation::SandboxDisposition;
use engine::sandbox::{ResourceLimits, Volume};
use sandbox_client::ServerUrl;
use secrecy::SecretString;

use super::Overrides;
use super::settings::Settings;

/// V0's default mount point of the workspace.
const WORKSPACE: &str = "/workspace";

/// Sandboxes, as configured.
#[derive(Debug, Clone)]
pub(crate) struct SandboxSettings {
    /// The image. `None` for the runtime's default.
    pub image: Option<String>,
    /// Volumes in addition to the workspace.
    pub volumes: Vec<Volume>,
    /// Resource limits of a sandbox.
    pub resources: ResourceLimits,
    /// Name of the engine's network, or `host` for a local sandbox. `None` for no network.
    pub network: Option<String>,
    /// Further networks of the engine to join.
    pub additional_networks: Vec<String>,
    /// Platform of the image, as in `linux/arm64`. `None` for the engine's own.
    pub platform: Option<String>,
    /// Ids of GPUs. An empty list means all GPUs, `None` for no GPU.
    pub gpus: Option<Vec<String>>,
    /// Size of the warm pool of a sandbox host.
    pub warm_pool: usize,
    /// Whether a local sandbox may run without isolation.
    pub unsafe_local: bool,
    /// Backend `ssh`.
    pub ssh: SshSettings,
    /// Backend `remote`.
    pub remote: RemoteSettings,
    /// Whether a closed conversation's sandbox is removed, paused or kept.
    pub disposition: SandboxDisposition,
    /// Retention of the sandbox of a conversation that was not closed, so that the conversation can
    /// be resumed.
    pub close_delay: Duration,
}

/// The machine that runs sandboxes over SSH.
#[derive(Debug, Clone)]
pub(crate) struct SshSettings {
    /// `[user@]host[:port]`, or an alias of `~/.ssh/config`.
    pub target: Option<String>,
    /// Reaction to an unknown host key. `None` to ask on a terminal, and to refuse otherwise.
    pub unknown_hosts: Option<UnknownHostPolicy>,
    /// Name of the user on this machine.
    pub user: Option<String>,
    /// Socket of the SSH agent, from `SSH_AUTH_SOCK`.
    pub agent: Option<PathBuf>,
}

/// Reaction to a host whose key is not in `known_hosts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownHostPolicy {
    Refuse,
    AcceptNew,
    Ask,
}

impl UnknownHostPolicy {
    /// `None` if no policy has this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "refuse" => Some(Self::Refuse),
            "accept-new" => Some(Self::AcceptNew),
            "ask" => Some(Self::Ask),
            _ => None,
        }
    }
}

/// A service with V0's runtime API, or one running action server.
#[derive(Debug, Clone)]
pub(crate) struct RemoteSettings {
    /// Address of the action server, which wins over the service.
    pub server_url: Option<ServerUrl>,
    /// Key of the action server.
    pub server_key: Option<SecretString>,
    /// Address of the service.
    pub api_url: Option<ServerUrl>,
    /// Key of the service.
    pub api_key: Option<SecretString>,
    /// File of a certificate authority in addition to the machine's own.
    pub ca_file: Option<PathBuf>,
    /// Timeout of the creation of a sandbox.
    pub init_timeout: Option<Duration>,
    /// Timeout of one request.
    pub api_timeout: Option<Duration>,
    /// Whether failed requests are retried.
    pub enable_retries: bool,
    /// The service's class of sandboxes.
    pub class: Option<String>,
    /// Multiple of the service's default resources.
    pub resource_factor: Option<f64>,
}

impl SshSettings {
    fn read(settings: &Settings, environment: &impl Fn(&str) -> Option<String>) -> Self {
        Self {
            target: settings.text("sandbox", "ssh_host"),
            unknown_hosts: settings
                .text("sandbox", "ssh_unknown_hosts")
                .and_then(|name| UnknownHostPolicy::from_name(&name)),
            user: ["USER", "LOGNAME"]
                .into_iter()
                .find_map(|name| environment(name).filter(|user| !user.is_empty())),
            agent: environment("SSH_AUTH_SOCK")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
        }
    }
}

impl RemoteSettings {
    fn read(settings: &Settings) -> Self {
        let text = |name| settings.text("sandbox", name);
        let url = |name| text(name).and_then(|text| text.parse().ok());
        let number = |name| settings.number("sandbox", name);
        let seconds =
            |name| number(name).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Self {
            server_url: url("remote_server_url"),
            server_key: text("remote_server_key").map(SecretString::from),
            api_url: url("remote_runtime_api_url"),
            api_key: text("api_key").map(SecretString::from),
            ca_file: text("remote_ca_file").map(PathBuf::from),
            init_timeout: seconds("remote_runtime_init_timeout"),
            api_timeout: seconds("remote_runtime_api_timeout"),
            enable_retries: settings
                .flag("sandbox", "remote_runtime_enable_retries")
                .unwrap_or(true),
            class: text("remote_runtime_class"),
            resource_factor: number("remote_runtime_resource_factor"),
        }
    }
}

impl SandboxSettings {
    /// Applies the options of the command line.
    pub(super) fn apply(&mut self, overrides: &Overrides) {
        self.image = overrides.image.clone().or(self.image.take());
        self.set_network(overrides.network.clone());
        self.unsafe_local |= overrides.unsafe_local;
        self.ssh.target = overrides.ssh_host.clone().or(self.ssh.target.take());
    }

    /// Sets the network: `none` for no network, `None` to keep the configured one.
    pub(crate) fn set_network(&mut self, network: Option<String>) {
        if let Some(network) = network {
            self.network = Some(network).filter(|network| network != "none");
        }
    }

    /// Reads the section. Returns with it the source of the volume at [`WORKSPACE`], which is the
    /// workspace.
    pub(super) fn read(
        settings: &Settings,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> (Self, Option<PathBuf>) {
        let flag = |name| settings.flag("sandbox", name);
        let text = |name| settings.text("sandbox", name);
        let (workspaces, volumes): (Vec<Volume>, _) = settings
            .volumes("sandbox", "volumes")
            .into_iter()
            .partition(|volume| {
                volume.target.trim_end_matches('/') == WORKSPACE && !volume.read_only
            });
        let ids = |text: String| text.split(',').map(|id| id.trim().to_owned()).collect();
        let default = ResourceLimits::default();
        let read = Self {
            image: text("runtime_container_image").or_else(|| text("base_container_image")),
            volumes,
            resources: ResourceLimits {
                memory_bytes: settings
                    .size("sandbox", "memory_limit")
                    .unwrap_or(default.memory_bytes),
                disk_bytes: settings
                    .size("sandbox", "disk_limit")
                    .unwrap_or(default.disk_bytes),
                cpus: settings
                    .number("sandbox", "cpus")
                    .filter(|cpus| *cpus > 0.0)
                    .unwrap_or(default.cpus),
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
            disposition: match (flag("keep_runtime_alive"), flag("pause_closed_runtimes")) {
                (Some(true), Some(false)) => SandboxDisposition::Keep,
                (Some(true), _) => SandboxDisposition::Pause,
                _ => SandboxDisposition::Remove,
            },
            close_delay: settings
                .number("sandbox", "close_delay")
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .unwrap_or(Duration::from_secs(3600)),
        };
        (
            read,
            workspaces
                .into_iter()
                .next()
                .map(|volume| volume.source.into()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Settings, SshSettings};

    #[test]
    fn user_is_the_first_name_that_the_environment_has() {
        for (user, logname, expected) in [
            ("me", "other", Some("me")),
            ("", "other", Some("other")),
            ("", "", None),
        ] {
            let environment = |name: &str| match name {
                "USER" => Some(user.to_owned()),
                "LOGNAME" => Some(logname.to_owned()),
                _ => None,
            };
            assert_eq!(
                SshSettings::read(&Settings::default(), &environment)
                    .user
                    .as_deref(),
                expected
            );
        }
    }
}

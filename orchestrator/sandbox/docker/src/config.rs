//! Settings of the Docker backend.

use std::path::PathBuf;
use std::time::Duration;

use engine::sandbox::ResourceLimits;
use sandbox_client::{HostSecret, ServerBinary};

/// Default image: small, with the package manager, bash and glibc that most prebuilt programs need.
pub const DEFAULT_IMAGE: &str = "debian:bookworm-slim";

/// Settings of the Docker backend.
#[derive(Debug)]
pub struct DockerConfig {
    /// `unix://PATH` or `tcp://HOST:PORT` (without TLS), as in `DOCKER_HOST`. `None` for the first
    /// socket that responds of the default ones of Docker, rootless Docker and Podman.
    pub host: Option<String>,
    /// Value of `XDG_RUNTIME_DIR`. `None` to skip the sockets of rootless engines.
    pub runtime_dir: Option<PathBuf>,
    /// Docker's `config.json`, which holds the credentials of `docker login`. `None` to pull
    /// without credentials.
    pub client_config: Option<PathBuf>,
    /// The action server's binary.
    pub server: ServerBinary,
    /// Secret that sandbox keys are derived from.
    pub secret: HostSecret,
    /// Label value of this installation's containers. A sweep removes no others.
    pub owner: String,
    /// Identifies this process among those of the same owner. Part of the names of pool entries.
    /// Letters, digits, `.`, `_` and `-`, at most [`MAX_HOLDER_LENGTH`] of them.
    pub holder: String,
    /// Image of specs without one, usually [`DEFAULT_IMAGE`].
    pub default_image: String,
    /// Whether snapshots, and images made from them, are refused, except as the default image: a
    /// snapshot holds the files of the client whose sandbox it was made from.
    pub refuses_snapshots: bool,
    /// Platform of multi-platform images, such as `linux/arm64`. `None` for the engine's own.
    pub platform: Option<String>,
    /// Network of containers: `bridge` or a name. `None` for no network.
    pub network: Option<String>,
    /// Additional networks.
    pub additional_networks: Vec<String>,
    /// GPUs of the host that containers can use. `None` for no GPU.
    pub gpus: Option<Gpus>,
    /// Warm pool. `None` to create each sandbox on demand.
    pub pool: Option<Pool>,
    /// Time from the available image to a server that responds.
    pub start_timeout: Duration,
    /// Timeout of an image pull.
    pub pull_timeout: Duration,
}

/// Maximum length of [`DockerConfig::holder`], in bytes.
pub const MAX_HOLDER_LENGTH: usize = 64;

/// Selection of the host's GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gpus {
    /// All GPUs.
    All,
    /// GPUs with these indices or UUIDs.
    Ids(Vec<String>),
}

/// Settings of the warm pool. Its sandboxes fit specs that request only an image: no workspace, no
/// volumes, the resources of the pool, and the lifetime of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Number of sandboxes kept ready, at most [`Pool::MAX_SIZE`].
    pub size: usize,
    /// Image of the pool. `None` for the default image.
    pub image: Option<String>,
    /// Resources of its sandboxes.
    pub resources: ResourceLimits,
}

impl Pool {
    /// Each entry costs a running container with some megabytes, and a connection.
    pub const MAX_SIZE: usize = 64;
}

impl DockerConfig {
    /// Uses the default engine and image, no network, no pool, and timeouts of 60 s for a start and
    /// 30 minutes for a pull.
    pub fn new(server: ServerBinary, secret: HostSecret, owner: impl Into<String>) -> Self {
        Self {
            host: None,
            runtime_dir: None,
            client_config: None,
            server,
            secret,
            owner: owner.into(),
            holder: std::process::id().to_string(),
            default_image: DEFAULT_IMAGE.into(),
            refuses_snapshots: false,
            platform: None,
            network: None,
            additional_networks: Vec::new(),
            gpus: None,
            pool: None,
            start_timeout: Duration::from_secs(60),
            pull_timeout: Duration::from_secs(1800),
        }
    }

    /// Networks that containers join, the first one at creation. Empty for no network.
    pub(super) fn networks(&self) -> impl Iterator<Item = &str> {
        self.network
            .iter()
            .chain(&self.additional_networks)
            .map(String::as_str)
            .filter(|name| *name != "none")
    }
}

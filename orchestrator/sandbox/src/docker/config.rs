//! What the Docker backend needs of the host.

use std::path::PathBuf;
use std::time::Duration;

use crate::{HostSecret, ServerBinary};

/// What is used when no image is asked for: small, and has a package manager, bash and glibc, which most programs that
/// are not built inside expect.
pub const DEFAULT_IMAGE: &str = "debian:bookworm-slim";

/// What the Docker backend needs of the host.
#[derive(Debug)]
pub struct DockerConfig {
    /// `unix://PATH` or `tcp://HOST:PORT` (plain, no TLS), as in `DOCKER_HOST`; nothing: the first socket that answers of
    /// those where Docker, rootless Docker and Podman listen.
    pub host: Option<String>,
    /// The user's folder of sockets, as in `XDG_RUNTIME_DIR`; nothing: engines of the user's own are not looked for.
    pub runtime_dir: Option<PathBuf>,
    /// The configuration of Docker's own client, `config.json`, where `docker login` leaves what opens registries; nothing:
    /// images are pulled without a login.
    pub client_config: Option<PathBuf>,
    /// The server's program.
    pub server: ServerBinary,
    /// What keys are derived from.
    pub secret: HostSecret,
    /// Labels this installation's containers, so that a sweep leaves those of others alone.
    pub owner: String,
    /// Names this process among those of the same owner: what it makes ahead carries it. Letters, digits, `.`, `_` and
    /// `-`, at most [`MAX_HOLDER_LENGTH`] of them.
    pub holder: String,
    /// When a spec names no image; [`DEFAULT_IMAGE`] is a good one.
    pub default_image: String,
    /// As in `linux/arm64`, for images that have several; nothing: the engine's own.
    pub platform: Option<String>,
    /// The engine's network that containers join: `bridge` or a name; nothing: no network.
    pub network: Option<String>,
    /// Further networks that they join.
    pub additional_networks: Vec<String>,
    /// The host's GPUs that are seen inside; nothing: none.
    pub gpus: Option<Gpus>,
    /// What is made ahead; nothing: nothing is.
    pub pool: Option<Pool>,
    /// From the image being there to a server that answers.
    pub start_timeout: Duration,
    /// For the whole pull of an image.
    pub pull_timeout: Duration,
}

/// The longest [`DockerConfig::holder`], in bytes.
pub const MAX_HOLDER_LENGTH: usize = 64;

/// Which of the host's GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gpus {
    /// Every one.
    All,
    /// Those of these numbers or UUIDs.
    Ids(Vec<String>),
}

/// Sandboxes that are made ahead, for specs that ask for nothing but an image: no workspace, no volumes, the default
/// resources, until their conversation is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// How many are kept ready. At most [`Pool::MAX_SIZE`] are.
    pub size: usize,
    /// Their image; nothing: the default one.
    pub image: Option<String>,
}

impl Pool {
    /// Each is a container that runs: some megabytes, and a connection.
    pub const MAX_SIZE: usize = 64;
}

impl DockerConfig {
    /// The default engine and image, no network, no pool, 60 s to start and 30 minutes to pull.
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
            platform: None,
            network: None,
            additional_networks: Vec::new(),
            gpus: None,
            pool: None,
            start_timeout: Duration::from_secs(60),
            pull_timeout: Duration::from_secs(1800),
        }
    }

    /// The networks that containers join, the first as they are created. None: no network.
    pub(super) fn networks(&self) -> impl Iterator<Item = &str> {
        self.network
            .iter()
            .chain(&self.additional_networks)
            .map(String::as_str)
            .filter(|name| *name != "none")
    }
}

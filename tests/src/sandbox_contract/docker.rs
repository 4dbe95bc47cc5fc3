//! The Docker backend under test, on the engine and with the images that `cargo ci test` provides.

use std::time::Duration;

use async_trait::async_trait;
use bollard::Docker;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::query_parameters::KillContainerOptionsBuilder;
use engine::sandbox::{SandboxProvider, SandboxSpec};
use futures_util::StreamExt as _;
use protocol::SandboxId;
use protocol::record::SandboxLeased;
use sandbox_client::{HostSecret, ServerBinary};
use sandbox_docker::{DockerConfig, DockerProvider};
use tempfile::TempDir;
use tokio::net::{TcpListener, UnixStream};

use super::faults::FaultInjection;
use super::{Backend, embedded_server};
use crate::skip::{Requirement, skip};

/// Sandboxes as containers of one image.
pub struct DockerBackend {
    cache: TempDir,
    image: String,
    host: Option<String>,
}

impl DockerBackend {
    /// Creates a backend with the image that `variable` names; `cargo ci test` sets it. `None`, and
    /// the test is skipped, if it is not set.
    pub fn of(variable: &str) -> Option<Self> {
        let Ok(image) = std::env::var(variable) else {
            skip(
                Requirement::ContainerEngine,
                format!("{variable} is not set"),
            );
            return None;
        };
        Some(Self {
            cache: tempfile::tempdir().unwrap(),
            image,
            host: std::env::var("DOCKER_HOST").ok(),
        })
    }

    /// The smallest image: a static busybox and nothing else.
    pub fn busybox() -> Option<Self> {
        Self::of("GLOVEBOX_TEST_BUSYBOX_IMAGE")
    }

    /// An ordinary image: bash, glibc, apt.
    pub fn debian() -> Option<Self> {
        Self::of("GLOVEBOX_TEST_DEBIAN_IMAGE")
    }

    /// Returns the name of the Debian image.
    pub fn debian_image() -> Option<String> {
        Self::debian().map(|backend| backend.image)
    }

    /// An image with musl and busybox.
    pub fn alpine() -> Option<Self> {
        Self::of("GLOVEBOX_TEST_ALPINE_IMAGE")
    }

    /// Returns this backend with another engine address.
    pub fn with_host(self, host: impl Into<String>) -> Self {
        Self {
            host: Some(host.into()),
            ..self
        }
    }

    /// Returns this backend behind a TCP proxy on loopback, so that the engine appears to be
    /// remote. The proxy ends with the runtime.
    pub async fn behind_tcp(self) -> Self {
        let socket = self
            .host()
            .unwrap_or("unix:///var/run/docker.sock")
            .trim_start_matches("unix://")
            .to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut far = UnixStream::connect(&socket).await.unwrap();
                tokio::spawn(
                    async move { tokio::io::copy_bidirectional(&mut near, &mut far).await },
                );
            }
        });
        self.with_host(format!("tcp://{address}"))
    }

    /// Whether a sandbox comes from the warm pool. Its key then belongs to another name.
    pub async fn is_from_pool(&self, sandbox: &SandboxId) -> bool {
        let found = self
            .engine()
            .await
            .inspect_container(sandbox.as_str(), None)
            .await
            .unwrap();
        found.config.unwrap().labels.unwrap()["glovebox.key"] != sandbox.as_str()
    }

    /// Returns the address of the engine.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Returns a client of the engine, for inspection beyond the provider's interface.
    pub async fn engine(&self) -> Docker {
        let host = self
            .host
            .as_deref()
            .unwrap_or("unix:///var/run/docker.sock");
        Docker::connect_with_host(host)
            .unwrap()
            .negotiate_version()
            .await
            .unwrap()
    }

    /// Returns the id of the sandbox that is created for a spec.
    pub fn id_of(&self, spec: &SandboxSpec) -> SandboxId {
        format!("glovebox-{}", spec.conversation).parse().unwrap()
    }

    /// Returns the provider configuration of a host program.
    pub fn config(&self) -> DockerConfig {
        self.config_of(embedded_server(self.cache.path()))
    }

    /// Runs a command in a container, outside of its server, and returns the output.
    pub async fn exec(&self, container: &str, command: &str) -> String {
        let docker = self.engine().await;
        let options = CreateExecOptions {
            attach_stdout: Some(true),
            cmd: Some(vec!["/bin/sh", "-c", command]),
            ..CreateExecOptions::default()
        };
        let exec = docker.create_exec(container, options).await.unwrap().id;
        let StartExecResults::Attached { mut output, .. } =
            docker.start_exec(&exec, None).await.unwrap()
        else {
            panic!("detached")
        };
        let mut text = Vec::new();
        while let Some(piece) = output.next().await {
            text.extend(piece.unwrap().into_bytes());
        }
        String::from_utf8(text).unwrap()
    }

    fn config_of(&self, server: ServerBinary) -> DockerConfig {
        DockerConfig {
            host: self.host.clone(),
            start_timeout: Duration::from_secs(30),
            default_image: self.image.clone(),
            ..DockerConfig::new(
                server,
                HostSecret::new([7; 32]),
                format!("test-{}", std::process::id()),
            )
        }
    }
}

#[async_trait]
impl Backend for DockerBackend {
    fn provider(&self) -> Box<dyn SandboxProvider> {
        Box::new(DockerProvider::new(self.config()))
    }

    fn provider_with(&self, server: ServerBinary) -> Box<dyn SandboxProvider> {
        Box::new(DockerProvider::new(self.config_of(server)))
    }

    fn image(&self) -> Option<String> {
        Some(self.image.clone())
    }

    async fn remains(&self, sandbox: &SandboxId) -> Vec<String> {
        match self
            .engine()
            .await
            .inspect_container(sandbox.as_str(), None)
            .await
        {
            Ok(found) => vec![format!("container {:?}", found.name)],
            Err(bollard::errors::Error::DockerResponseServerError {
                status_code: 404, ..
            }) => Vec::new(),
            Err(error) => panic!("looking for {sandbox}: {error}"),
        }
    }
}

/// Kills every `action-server dial` of a container and returns their number.
const KILL_DIALS: &str = "n=0; for p in /proc/[0-9]*; do \
    case \"$(tr '\\0' ' ' < $p/cmdline 2>/dev/null)\" in \
    */action-server\\ dial\\ *) kill -9 ${p#/proc/} && n=$((n+1));; esac; done; echo $n";

#[async_trait]
impl FaultInjection for DockerBackend {
    async fn cut_connection(&self, sandbox: &SandboxId) -> usize {
        self.exec(sandbox.as_str(), KILL_DIALS)
            .await
            .trim()
            .parse()
            .unwrap()
    }

    async fn kill(&self, sandbox: &SandboxId) {
        let options = KillContainerOptionsBuilder::default()
            .signal("SIGKILL")
            .build();
        self.engine()
            .await
            .kill_container(sandbox.as_str(), Some(options))
            .await
            .unwrap();
    }

    async fn freeze(&self, sandbox: &SandboxId) {
        self.engine()
            .await
            .pause_container(sandbox.as_str())
            .await
            .unwrap();
    }

    async fn thaw(&self, sandbox: &SandboxId) {
        self.engine()
            .await
            .unpause_container(sandbox.as_str())
            .await
            .unwrap();
    }

    /// `/dev/shm`, which has 64 MiB in every container.
    async fn small_folder(&self, _: &SandboxLeased) -> Option<String> {
        Some("/dev/shm".into())
    }
}

//! The Docker backend under test: the engine that `cargo ci test` provides, with images that are there.

use std::time::Duration;

use async_trait::async_trait;
use bollard::Docker;
use engine::sandbox::{SandboxProvider, SandboxSpec};
use protocol::SandboxId;
use sandbox::{DockerConfig, DockerProvider, HostSecret, ServerBinary};
use tempfile::TempDir;
use tokio::net::{TcpListener, UnixStream};

use super::Backend;

/// Sandboxes as containers of one image.
pub struct DockerBackend {
    cache: TempDir,
    image: String,
    host: Option<String>,
}

impl DockerBackend {
    /// The image is what the variable names: `cargo ci test` sets it, and says which images there are not. Nothing
    /// without it, so that the tests run on a machine without an engine; on a build machine that is a failure.
    pub fn of(variable: &str) -> Option<Self> {
        let Ok(image) = std::env::var(variable) else {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no {variable} on a build machine");
            println!("skipped: no {variable}");
            return None;
        };
        Some(Self { cache: tempfile::tempdir().unwrap(), image, host: std::env::var("DOCKER_HOST").ok() })
    }

    /// The smallest image: a static busybox and nothing else.
    pub fn busybox() -> Option<Self> {
        Self::of("GLOVEBOX_TEST_BUSYBOX_IMAGE")
    }

    /// An ordinary image: bash, glibc, apt.
    pub fn debian() -> Option<Self> {
        Self::of("GLOVEBOX_TEST_DEBIAN_IMAGE")
    }

    /// An image with musl and busybox.
    pub fn alpine() -> Option<Self> {
        Self::of("GLOVEBOX_TEST_ALPINE_IMAGE")
    }

    /// The same, reached in another way.
    pub fn reached_at(self, host: impl Into<String>) -> Self {
        Self { host: Some(host.into()), ..self }
    }

    /// The same, reached over a connection on loopback, so that the engine seems to be another machine's. What passes the
    /// bytes on ends with the runtime.
    pub async fn behind_tcp(self) -> Self {
        let socket =
            self.host().unwrap_or("unix:///var/run/docker.sock").trim_start_matches("unix://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut far = UnixStream::connect(&socket).await.unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
            }
        });
        self.reached_at(format!("tcp://{address}"))
    }

    /// Whether a sandbox was made ahead: then its key is that of another name.
    pub async fn was_made_ahead(&self, sandbox: &SandboxId) -> bool {
        let found = self.engine().await.inspect_container(sandbox.as_str(), None).await.unwrap();
        found.config.unwrap().labels.unwrap()["glovebox.key"] != sandbox.as_str()
    }

    /// How the engine is reached.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The engine itself, for what a provider does not tell.
    pub async fn engine(&self) -> Docker {
        let host = self.host.as_deref().unwrap_or("unix:///var/run/docker.sock");
        Docker::connect_with_host(host).unwrap().negotiate_version().await.unwrap()
    }

    /// The name of the sandbox that is placed for a spec.
    pub fn id_of(&self, spec: &SandboxSpec) -> SandboxId {
        format!("glovebox-{}", spec.conversation).parse().unwrap()
    }

    /// What a host program would configure.
    pub fn config(&self) -> DockerConfig {
        self.config_of(ServerBinary::embedded(self.cache.path()))
    }

    fn config_of(&self, server: ServerBinary) -> DockerConfig {
        DockerConfig {
            host: self.host.clone(),
            start_timeout: Duration::from_secs(30),
            default_image: self.image.clone(),
            ..DockerConfig::new(server, HostSecret::new([7; 32]), format!("test-{}", std::process::id()))
        }
    }
}

#[async_trait]
impl Backend for DockerBackend {
    fn provider(&self) -> Box<dyn SandboxProvider> {
        Box::new(DockerProvider::new(self.config()))
    }

    fn provider_of(&self, server: ServerBinary) -> Box<dyn SandboxProvider> {
        Box::new(DockerProvider::new(self.config_of(server)))
    }

    fn image(&self) -> Option<String> {
        Some(self.image.clone())
    }

    async fn left_of(&self, sandbox: &SandboxId) -> Vec<String> {
        match self.engine().await.inspect_container(sandbox.as_str(), None).await {
            Ok(found) => vec![format!("container {:?}", found.name)],
            Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => Vec::new(),
            Err(error) => panic!("looking for {sandbox}: {error}"),
        }
    }
}

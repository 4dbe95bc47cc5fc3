//! The remote backends under test: sandboxes leased from a sandbox-host, and action servers that
//! already run.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use engine::sandbox::{
    ProviderCapabilities, Sandbox, SandboxError, SandboxProvider, SandboxSpec, SandboxSummary,
    ServerAccess, StartProgress,
};
use protocol::SandboxId;
use protocol::record::SandboxLeased;
use rustix::process::{Pid, Signal, kill_process};
use sandbox_client::ServerBinary;
use sandbox_host::{SandboxHost, SandboxHostConfig};
use sandbox_remote::{
    RemoteRuntimeBackend, RemoteRuntimeConfig, RemoteRuntimeProvider, RemoteServerConfig,
    RemoteServerProvider,
};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::docker::DockerBackend;
use super::faults::FaultInjection;
use super::local::LocalBackend;
use super::{Backend, embedded_server, own_sockets};

/// The name and the secret of the contract's key.
const KEY: &str = "ann";
/// Secret of the contract's API key.
pub const SECRET: &str = "ann-0123456789abcdef";
/// Secret of another API key.
pub const OTHER_SECRET: &str = "bob-0123456789abcdef";

/// Sandboxes of another backend, leased over TCP from a sandbox-host in this process.
pub struct SandboxHostBackend<B> {
    below: B,
    hosts: Mutex<Vec<DropGuard>>,
    main: Mutex<Option<SocketAddr>>,
}

impl SandboxHostBackend<LocalBackend> {
    /// Leases processes of this host.
    pub fn over_local() -> Option<Self> {
        LocalBackend::new().map(Self::over)
    }
}

impl SandboxHostBackend<DockerBackend> {
    /// Leases containers of the busybox image.
    pub fn over_busybox() -> Option<Self> {
        DockerBackend::busybox().map(Self::over)
    }
}

impl<B: Backend> SandboxHostBackend<B> {
    fn over(below: B) -> Self {
        Self {
            below,
            hosts: Mutex::default(),
            main: Mutex::default(),
        }
    }

    /// Returns the configuration of the sandbox-host.
    pub fn host_config() -> SandboxHostConfig {
        let keys = format!("{KEY}:{SECRET}\nbob:{OTHER_SECRET}");
        SandboxHostConfig {
            max_sandboxes: 64,
            max_sandboxes_per_key: 64,
            ..SandboxHostConfig::new(keys.parse().unwrap())
        }
    }

    /// Starts a sandbox-host over the backend and returns its address. It is stopped on drop.
    pub fn start_host(&self, config: SandboxHostConfig) -> SocketAddr {
        self.serve(self.below.provider(), config)
    }

    /// Returns the backend of the leased sandboxes.
    pub fn below(&self) -> &B {
        &self.below
    }

    fn serve(&self, provider: Box<dyn SandboxProvider>, config: SandboxHostConfig) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let stop = CancellationToken::new();
        let host = SandboxHost::new(provider.into(), config).serve(listener, stop.clone());
        tokio::spawn(async move { host.await.unwrap() });
        self.hosts.lock().unwrap().push(stop.drop_guard());
        address
    }
}

/// Returns the client's provider for a sandbox-host, with short timeouts.
pub fn client_for(address: SocketAddr, secret: &str) -> RemoteRuntimeProvider {
    let url = format!("http://{address}").parse().unwrap();
    RemoteRuntimeProvider::new(
        RemoteRuntimeBackend::new(RemoteRuntimeConfig {
            init_timeout: Duration::from_secs(30),
            api_timeout: Duration::from_secs(20),
            ..RemoteRuntimeConfig::new(url, secret.to_owned().into())
        })
        .unwrap(),
    )
}

/// Returns the id of the sandbox on the sandbox-host.
pub fn leased_id(sandbox: &SandboxId) -> SandboxId {
    let session = sandbox.as_str().strip_prefix("glovebox-").unwrap();
    format!("glovebox-{KEY}.{session}").parse().unwrap()
}

#[async_trait]
impl<B: Backend> Backend for SandboxHostBackend<B> {
    fn provider(&self) -> Box<dyn SandboxProvider> {
        let mut main = self.main.lock().unwrap();
        let address = *main.get_or_insert_with(|| self.start_host(Self::host_config()));
        Box::new(client_for(address, SECRET))
    }

    fn provider_with(&self, server: ServerBinary) -> Box<dyn SandboxProvider> {
        let address = self.serve(self.below.provider_with(server), Self::host_config());
        Box::new(client_for(address, SECRET))
    }

    fn image(&self) -> Option<String> {
        self.below.image()
    }

    async fn remains(&self, sandbox: &SandboxId) -> Vec<String> {
        self.below.remains(&leased_id(sandbox)).await
    }
}

#[async_trait]
impl<B: FaultInjection> FaultInjection for SandboxHostBackend<B> {
    async fn cut_connection(&self, _: &SandboxId) -> usize {
        let host = *self.main.lock().unwrap();
        host.map_or(0, |host| own_sockets::cut_tcp(host.port()))
    }

    async fn kill(&self, sandbox: &SandboxId) {
        self.below.kill(&leased_id(sandbox)).await;
    }

    async fn freeze(&self, sandbox: &SandboxId) {
        self.below.freeze(&leased_id(sandbox)).await;
    }

    async fn thaw(&self, sandbox: &SandboxId) {
        self.below.thaw(&leased_id(sandbox)).await;
    }

    async fn small_folder(&self, sandbox: &SandboxLeased) -> Option<String> {
        self.below.small_folder(sandbox).await
    }
}

/// Action servers, started by the test for each sandbox, because the backend never starts them.
pub struct DirectServerBackend {
    cache: TempDir,
    servers: Arc<Mutex<HashMap<SandboxId, RunningServer>>>,
}

/// An action server on a local port and its folder, both removed on drop.
pub struct RunningServer {
    /// The address on which it listens.
    pub address: SocketAddr,
    process: Child,
    folder: TempDir,
}

impl Drop for RunningServer {
    /// Terminates the server and waits, so that it can kill its processes.
    fn drop(&mut self) {
        let pid = self
            .process
            .id()
            .and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        let deadline = Instant::now() + Duration::from_secs(10);
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Key of the servers that tests start.
pub const SERVER_KEY: &str = "the-key-of-the-server";

impl RunningServer {
    /// Starts a server and waits until it listens.
    pub async fn start(binary: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The port is free now. If another process takes it, the test fails.
        let address = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mut command = Command::new(binary);
        command.args([
            "serve",
            "--listen",
            &address.to_string(),
            "--key-stdin",
            "--working-dir",
        ]);
        command
            .arg(folder.path())
            .stdin(Stdio::piped())
            .kill_on_drop(true);
        // A home of its own, because the start-up files of the tester must not change the result of
        // a test.
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", folder.path());
        let mut process = command.spawn().unwrap();
        process
            .stdin
            .take()
            .unwrap()
            .write_all(format!("{SERVER_KEY}\n").as_bytes())
            .await
            .unwrap();
        while TcpStream::connect(address).await.is_err() {
            assert!(
                process.try_wait().unwrap().is_none(),
                "the action server has ended"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Self {
            address,
            process,
            folder,
        }
    }

    /// Returns the client's provider for this server.
    pub fn client(&self) -> RemoteServerProvider {
        RemoteServerProvider::new(RemoteServerConfig {
            url: format!("http://{}", self.address).parse().unwrap(),
            key: SERVER_KEY.to_owned().into(),
            additional_ca: None,
        })
    }

    /// Returns the working directory.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}

impl DirectServerBackend {
    /// Creates the backend without any server.
    pub fn new() -> Option<Self> {
        Some(Self {
            cache: tempfile::tempdir().unwrap(),
            servers: Arc::default(),
        })
    }

    /// Starts a further server, which is not a sandbox of the contract.
    pub async fn start(&self) -> RunningServer {
        RunningServer::start(embedded_server(self.cache.path()).path().await.unwrap()).await
    }
}

#[async_trait]
impl Backend for DirectServerBackend {
    fn provider(&self) -> Box<dyn SandboxProvider> {
        self.provider_with(embedded_server(self.cache.path()))
    }

    fn provider_with(&self, server: ServerBinary) -> Box<dyn SandboxProvider> {
        Box::new(ManualServerProvider {
            server,
            servers: Arc::clone(&self.servers),
        })
    }

    fn image(&self) -> Option<String> {
        None
    }

    async fn remains(&self, sandbox: &SandboxId) -> Vec<String> {
        let servers = self.servers.lock().unwrap();
        servers
            .get(sandbox)
            .map(|server| format!("a server at {}", server.address))
            .into_iter()
            .collect()
    }
}

/// Starts a server on `create` and stops it on `destroy`, on behalf of the user of the backend.
struct ManualServerProvider {
    server: ServerBinary,
    servers: Arc<Mutex<HashMap<SandboxId, RunningServer>>>,
}

impl ManualServerProvider {
    fn client(&self, sandbox: &SandboxId) -> Result<RemoteServerProvider, SandboxError> {
        let servers = self.servers.lock().unwrap();
        let server = servers.get(sandbox).map(RunningServer::client);
        server.ok_or_else(|| SandboxError::Lost {
            detail: "the server was not started".into(),
        })
    }
}

#[async_trait]
impl SandboxProvider for ManualServerProvider {
    fn runtime(&self) -> &'static str {
        "remote"
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        let sandbox: SandboxId = format!("glovebox-{}", spec.conversation).parse().unwrap();
        let server = RunningServer::start(self.server.path().await?).await;
        self.servers.lock().unwrap().insert(sandbox.clone(), server);
        self.client(&sandbox)?.create(spec, on_progress).await
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.client(&lease.sandbox_id)?.attach(lease).await
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.client(sandbox)?.find(sandbox).await
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        Ok(Vec::new())
    }

    fn capabilities(&self) -> ProviderCapabilities<'_> {
        ProviderCapabilities::default()
    }

    async fn server_access(&self, _: &SandboxId) -> Result<ServerAccess, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: self.runtime(),
            what: "lease a sandbox to clients",
        })
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        if let Ok(client) = self.client(sandbox) {
            client.destroy(sandbox).await?;
        }
        self.servers.lock().unwrap().remove(sandbox);
        Ok(())
    }

    async fn wait_for_cleanup(&self) {}
}

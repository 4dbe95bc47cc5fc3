//! The remote backends under test: sandboxes that a sandbox-host lends, and action servers that run somewhere already.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use engine::sandbox::{Sandbox, SandboxError, SandboxProvider, SandboxSpec, SandboxSummary, StartProgress};
use protocol::SandboxId;
use protocol::record::SandboxLeased;
use rustix::process::{Pid, Signal, kill_process};
use sandbox::{
    RemoteRuntimeConfig, RemoteRuntimeProvider, RemoteServerConfig, RemoteServerProvider, SandboxHost,
    SandboxHostConfig, ServerBinary,
};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::docker::DockerBackend;
use super::faults::Breakable;
use super::local::Local;
use super::{Backend, own_sockets};

/// The name and the secret of the contract's key.
const KEY: &str = "ann";
/// Its secret.
pub const SECRET: &str = "ann-0123456789abcdef";
/// The secret of another one.
pub const OTHER_SECRET: &str = "bob-0123456789abcdef";

/// Sandboxes of another backend, lent by a sandbox-host in this process and reached over TCP.
pub struct Lent<B> {
    below: B,
    hosts: Mutex<Vec<DropGuard>>,
    main: Mutex<Option<SocketAddr>>,
}

impl Lent<Local> {
    /// Processes of this host, lent.
    pub fn over_local() -> Option<Self> {
        Local::new().map(Self::over)
    }
}

impl Lent<DockerBackend> {
    /// Containers of the smallest image, lent.
    pub fn over_busybox() -> Option<Self> {
        DockerBackend::busybox().map(Self::over)
    }
}

impl<B: Backend> Lent<B> {
    fn over(below: B) -> Self {
        Self { below, hosts: Mutex::default(), main: Mutex::default() }
    }

    /// What a host program would configure.
    pub fn host_config() -> SandboxHostConfig {
        let keys = format!("{KEY}:{SECRET}\nbob:{OTHER_SECRET}");
        SandboxHostConfig {
            max_sandboxes: 64,
            max_sandboxes_per_key: 64,
            ..SandboxHostConfig::new(keys.parse().unwrap())
        }
    }

    /// A sandbox-host over the backend, which ends with this.
    pub fn lend(&self, config: SandboxHostConfig) -> SocketAddr {
        self.serve(self.below.provider(), config)
    }

    /// What is lent from.
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

/// An orchestrator's provider for a sandbox-host, with short times.
pub fn client_of(address: SocketAddr, secret: &str) -> RemoteRuntimeProvider {
    let url = format!("http://{address}").parse().unwrap();
    RemoteRuntimeProvider::new(RemoteRuntimeConfig {
        init_timeout: Duration::from_secs(30),
        api_timeout: Duration::from_secs(20),
        ..RemoteRuntimeConfig::new(url, secret.to_owned().into())
    })
    .unwrap()
}

/// The sandbox as the machine that lends it knows it.
pub fn lent_name(sandbox: &SandboxId) -> SandboxId {
    let session = sandbox.as_str().strip_prefix("glovebox-").unwrap();
    format!("glovebox-{KEY}.{session}").parse().unwrap()
}

#[async_trait]
impl<B: Backend> Backend for Lent<B> {
    fn provider(&self) -> Box<dyn SandboxProvider> {
        let mut main = self.main.lock().unwrap();
        let address = *main.get_or_insert_with(|| self.lend(Self::host_config()));
        Box::new(client_of(address, SECRET))
    }

    fn provider_of(&self, server: ServerBinary) -> Box<dyn SandboxProvider> {
        let address = self.serve(self.below.provider_of(server), Self::host_config());
        Box::new(client_of(address, SECRET))
    }

    fn image(&self) -> Option<String> {
        self.below.image()
    }

    async fn left_of(&self, sandbox: &SandboxId) -> Vec<String> {
        self.below.left_of(&lent_name(sandbox)).await
    }
}

#[async_trait]
impl<B: Breakable> Breakable for Lent<B> {
    async fn cut_connection(&self, _: &SandboxId) -> usize {
        let host = *self.main.lock().unwrap();
        host.map_or(0, |host| own_sockets::cut_tcp(host.port()))
    }

    async fn kill(&self, sandbox: &SandboxId) {
        self.below.kill(&lent_name(sandbox)).await;
    }

    async fn freeze(&self, sandbox: &SandboxId) {
        self.below.freeze(&lent_name(sandbox)).await;
    }

    async fn thaw(&self, sandbox: &SandboxId) {
        self.below.thaw(&lent_name(sandbox)).await;
    }

    async fn small_folder(&self, sandbox: &SandboxLeased) -> Option<String> {
        self.below.small_folder(sandbox).await
    }
}

/// Action servers that were started by hand, one for each sandbox: what the backend itself never does.
pub struct ByHand {
    cache: TempDir,
    servers: Arc<Mutex<HashMap<SandboxId, RunningServer>>>,
}

/// An action server on a port of this machine, and its folder; both end with this.
pub struct RunningServer {
    /// Where it listens.
    pub address: SocketAddr,
    process: Child,
    folder: TempDir,
}

impl Drop for RunningServer {
    /// Gently, and waited for: it ends what it runs, which a test would leave behind otherwise.
    fn drop(&mut self) {
        let pid = self.process.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        let deadline = Instant::now() + Duration::from_secs(10);
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The key of servers that are started by hand.
pub const SERVER_KEY: &str = "the-key-of-the-server";

impl RunningServer {
    /// Starts one, and waits until it listens.
    pub async fn start(binary: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Free now; who takes it meanwhile makes the test fail.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", &address.to_string(), "--key-stdin", "--working-dir"]);
        command.arg(folder.path()).stdin(Stdio::piped()).kill_on_drop(true);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        let mut process = command.spawn().unwrap();
        process.stdin.take().unwrap().write_all(format!("{SERVER_KEY}\n").as_bytes()).await.unwrap();
        while TcpStream::connect(address).await.is_err() {
            assert!(process.try_wait().unwrap().is_none(), "the action server has ended");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Self { address, process, folder }
    }

    /// An orchestrator's provider for it.
    pub fn client(&self) -> RemoteServerProvider {
        RemoteServerProvider::new(RemoteServerConfig {
            url: format!("http://{}", self.address).parse().unwrap(),
            key: SERVER_KEY.to_owned().into(),
            additional_ca: None,
        })
    }

    /// Where it works.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}

impl ByHand {
    /// None yet.
    pub fn new() -> Option<Self> {
        Some(Self { cache: tempfile::tempdir().unwrap(), servers: Arc::default() })
    }

    /// Another server, which is no sandbox of the contract's.
    pub async fn start(&self) -> RunningServer {
        RunningServer::start(ServerBinary::embedded(self.cache.path()).path().await.unwrap()).await
    }
}

#[async_trait]
impl Backend for ByHand {
    fn provider(&self) -> Box<dyn SandboxProvider> {
        self.provider_of(ServerBinary::embedded(self.cache.path()))
    }

    fn provider_of(&self, server: ServerBinary) -> Box<dyn SandboxProvider> {
        Box::new(StartedByHand { server, servers: Arc::clone(&self.servers) })
    }

    fn image(&self) -> Option<String> {
        None
    }

    async fn left_of(&self, sandbox: &SandboxId) -> Vec<String> {
        let servers = self.servers.lock().unwrap();
        servers.get(sandbox).map(|server| format!("a server at {}", server.address)).into_iter().collect()
    }
}

/// Whoever uses the backend starts a server first and ends it afterwards; here that stands in for both.
struct StartedByHand {
    server: ServerBinary,
    servers: Arc<Mutex<HashMap<SandboxId, RunningServer>>>,
}

impl StartedByHand {
    fn client(&self, sandbox: &SandboxId) -> Result<RemoteServerProvider, SandboxError> {
        let servers = self.servers.lock().unwrap();
        let server = servers.get(sandbox).map(RunningServer::client);
        server.ok_or_else(|| SandboxError::Lost { detail: "nobody started it".into() })
    }
}

#[async_trait]
impl SandboxProvider for StartedByHand {
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

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        if let Ok(client) = self.client(sandbox) {
            client.destroy(sandbox).await?;
        }
        self.servers.lock().unwrap().remove(sandbox);
        Ok(())
    }

    async fn wait_for_cleanup(&self) {}
}

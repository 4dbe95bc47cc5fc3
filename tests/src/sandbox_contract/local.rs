//! The local backend under test: a state folder that lives as long as the test.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::SandboxProvider;
use protocol::SandboxId;
use sandbox::{
    BUBBLEWRAP_PROGRAMS, HostSecret, IsolationChoice, IsolationKind, LocalConfig, LocalProvider, ServerBinary,
};
use tempfile::TempDir;

use super::Backend;
use crate::glovebox;

/// Sandboxes as processes of this host.
pub struct Local {
    state: TempDir,
    isolation: IsolationChoice,
}

impl Local {
    /// A backend with a state folder of its own, that keeps nothing in.
    pub fn new() -> Option<Self> {
        Some(Self::of(IsolationChoice::Unsafe))
    }

    /// The same, with whatever isolation is chosen.
    pub fn of(isolation: IsolationChoice) -> Self {
        // In /tmp whatever TMPDIR says: a socket's path must be short.
        Self { state: tempfile::Builder::new().prefix("gb").tempdir_in("/tmp").unwrap(), isolation }
    }

    /// Sandboxes that are kept in this way. Nothing where that does not work; on a build machine that is a failure.
    pub async fn isolated(kind: IsolationKind) -> Option<Self> {
        let backend = Self::of(IsolationChoice::Only(kind));
        let found = backend.local_provider(ServerBinary::at("/nowhere")).isolation().await.cloned();
        match found {
            Ok(_) => Some(backend),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "on a build machine: {error}");
                println!("skipped: {error}");
                None
            }
        }
    }

    /// Where it keeps what no sandbox may see.
    pub fn state_dir(&self) -> &Path {
        self.state.path()
    }

    /// The server's program, in the state folder as a host program has it.
    pub fn server(&self) -> ServerBinary {
        ServerBinary::embedded(self.state.path().join("bin"))
    }

    /// The provider itself, for what only it can do.
    pub fn local_provider(&self, server: ServerBinary) -> LocalProvider {
        LocalProvider::new(self.config(server))
    }

    /// What a host program would configure.
    pub fn config(&self, server: ServerBinary) -> LocalConfig {
        LocalConfig {
            state_dir: self.state.path().into(),
            server,
            secret: HostSecret::new([7; 32]),
            environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            idle_timeout: Duration::from_secs(60),
            isolation: self.isolation,
            network: false,
            hidden: Vec::new(),
            launcher: glovebox::binary().into(),
            bubblewrap: BUBBLEWRAP_PROGRAMS.map(PathBuf::from).into(),
        }
    }

    fn folder(&self, sandbox: &SandboxId) -> PathBuf {
        self.state.path().join("sandboxes").join(sandbox.as_str())
    }
}

#[async_trait]
impl Backend for Local {
    fn provider(&self) -> Box<dyn SandboxProvider> {
        self.provider_of(self.server())
    }

    fn provider_of(&self, server: ServerBinary) -> Box<dyn SandboxProvider> {
        Box::new(self.local_provider(server))
    }

    fn image(&self) -> Option<String> {
        None
    }

    async fn left_of(&self, sandbox: &SandboxId) -> Vec<String> {
        let folder = self.folder(sandbox);
        let mut left: Vec<String> =
            folder.exists().then(|| folder.display().to_string()).into_iter().collect();
        for process in std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()) {
            let arguments = std::fs::read(process.join("cmdline")).unwrap_or_default();
            let working_dir = std::fs::read_link(process.join("cwd")).unwrap_or_default();
            let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
            if arguments.contains(&*folder.to_string_lossy()) || working_dir.starts_with(&folder) {
                left.push(format!("{}: {arguments}", process.display()));
            }
        }
        left
    }
}

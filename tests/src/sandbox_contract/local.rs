//! The local backend under test: a state folder that lives as long as the test.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::SandboxProvider;
use protocol::SandboxId;
use sandbox::{HostSecret, LocalConfig, LocalProvider, ServerBinary};
use tempfile::TempDir;

use super::Backend;

/// Sandboxes as processes of this host.
pub struct Local {
    state: TempDir,
}

impl Local {
    /// A backend with a state folder of its own.
    pub fn new() -> Option<Self> {
        // In /tmp whatever TMPDIR says: a socket's path must be short.
        Some(Self { state: tempfile::Builder::new().prefix("gb").tempdir_in("/tmp").unwrap() })
    }

    /// The provider itself, for what only it can do.
    pub fn local_provider(&self, server: ServerBinary) -> LocalProvider {
        LocalProvider::new(LocalConfig {
            state_dir: self.state.path().into(),
            server,
            secret: HostSecret::new([7; 32]),
            environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            idle_timeout: Duration::from_secs(60),
        })
    }

    fn folder(&self, sandbox: &SandboxId) -> PathBuf {
        self.state.path().join("sandboxes").join(sandbox.as_str())
    }
}

#[async_trait]
impl Backend for Local {
    fn provider(&self) -> Box<dyn SandboxProvider> {
        self.provider_of(ServerBinary::embedded(self.state.path().join("bin")))
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

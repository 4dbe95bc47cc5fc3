//! The SSH backend under test: an account on an OpenSSH server of this machine that lives as long as the test.

use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::SandboxProvider;
use protocol::SandboxId;
use sandbox::{HostSecret, ServerBinary, SshConfig, SshProvider};
use tempfile::TempDir;

use super::Backend;
use crate::sshd::{Options, Sshd, USER};

/// Sandboxes in the account of one server.
pub struct Ssh {
    /// The other side.
    pub sshd: Sshd,
    cache: TempDir,
}

impl Ssh {
    /// An ordinary server; nothing where there cannot be one.
    pub fn new() -> Option<Self> {
        Self::with(&Options::default())
    }

    /// A server that differs.
    pub fn with(options: &Options) -> Option<Self> {
        let sshd = Sshd::start(options)?;
        sshd.make_known();
        let ssh = Self { sshd, cache: tempfile::tempdir().unwrap() };
        ssh.configure(&format!("Host far\n HostName 127.0.0.1\n Port {}\n User {USER}\n", ssh.sshd.port()));
        Some(ssh)
    }

    /// The whole text of the client's configuration file. The target is `far`.
    pub fn configure(&self, text: &str) {
        std::fs::write(self.sshd.client_home().join(".ssh/config"), text).unwrap();
    }

    /// What a host program would configure.
    pub fn config(&self, server: ServerBinary) -> SshConfig {
        let home = self.sshd.client_home();
        SshConfig {
            config_files: vec![home.join(".ssh/config")],
            global_known_hosts: Vec::new(),
            idle_timeout: Duration::from_secs(60),
            ..SshConfig::new("far", home, "nobody-of-this-name", server, HostSecret::new([7; 32]))
        }
    }

    /// The program that is placed.
    pub fn server(&self) -> ServerBinary {
        ServerBinary::embedded(self.cache.path())
    }
}

#[async_trait]
impl Backend for Ssh {
    fn provider(&self) -> Box<dyn SandboxProvider> {
        self.provider_of(self.server())
    }

    fn provider_of(&self, server: ServerBinary) -> Box<dyn SandboxProvider> {
        Box::new(SshProvider::new(self.config(server)))
    }

    fn image(&self) -> Option<String> {
        None
    }

    async fn left_of(&self, sandbox: &SandboxId) -> Vec<String> {
        let folder = self.sshd.home().join(".glovebox/sandboxes").join(sandbox.as_str());
        let mut left: Vec<String> =
            folder.exists().then(|| folder.display().to_string()).into_iter().collect();
        for process in std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()) {
            let arguments = std::fs::read(process.join("cmdline")).unwrap_or_default();
            let working_dir = std::fs::read_link(process.join("cwd")).unwrap_or_default();
            let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
            // With its end: another sandbox's name may begin with this one's.
            let is_server = arguments.contains(&format!("{}/", folder.display()));
            if is_server || working_dir.starts_with(&folder) {
                left.push(format!("{}: {arguments}", process.display()));
            }
        }
        left
    }
}

//! The SSH backend under test: an account on a local OpenSSH server that is stopped after the test.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::SandboxProvider;
use protocol::SandboxId;
use protocol::record::SandboxLeased;
use rustix::process::{Pid, Signal, kill_process};
use sandbox_client::{HostSecret, ServerBinary};
use sandbox_ssh::{SshConfig, SshProvider};
use tempfile::TempDir;

use super::faults::FaultInjection;
use super::{Backend, embedded_server, own_sockets};
use crate::sshd::{Sshd, SshdOptions, USER};

/// Sandboxes in an account of one server.
pub struct SshBackend {
    /// The SSH server.
    pub sshd: Sshd,
    cache: TempDir,
    is_small: bool,
}

impl SshBackend {
    /// Starts a server with default options. `None` if this user cannot run one.
    pub fn new() -> Option<Self> {
        Self::with(&SshdOptions::default())
    }

    /// Starts a server with these options. `None` if this user cannot run one.
    pub fn with(options: &SshdOptions) -> Option<Self> {
        let sshd = Sshd::start(options)?;
        sshd.make_known();
        let ssh = Self {
            sshd,
            cache: tempfile::tempdir().unwrap(),
            is_small: options.home_kib.is_some(),
        };
        ssh.configure(&format!(
            "Host far\n HostName 127.0.0.1\n Port {}\n User {USER}\n",
            ssh.sshd.port()
        ));
        Some(ssh)
    }

    /// Writes the client's configuration file. The target host is `far`.
    pub fn configure(&self, text: &str) {
        std::fs::write(self.sshd.client_home().join(".ssh/config"), text).unwrap();
    }

    /// Returns the provider configuration of a host program.
    pub fn config(&self, server: ServerBinary) -> SshConfig {
        let home = self.sshd.client_home();
        SshConfig {
            config_files: vec![home.join(".ssh/config")],
            global_known_hosts: Vec::new(),
            idle_timeout: Duration::from_secs(60),
            ..SshConfig::new(
                "far".parse().unwrap(),
                home,
                "unused-user",
                server,
                HostSecret::new([7; 32]),
            )
        }
    }

    fn folder(&self, sandbox: &SandboxId) -> PathBuf {
        self.sshd
            .home()
            .join(".glovebox/sandboxes")
            .join(sandbox.as_str())
    }

    fn signal_processes(&self, sandbox: &SandboxId, signal: Signal) {
        let processes = processes_of(&self.folder(sandbox));
        assert!(
            processes.len() >= 3,
            "a supervisor, a server and a shell: {processes:?}"
        );
        for (process, _) in processes {
            // Fails only if the process has already exited.
            let _ = kill_process(Pid::from_raw(process).unwrap(), signal);
        }
    }

    /// Returns the action server's program.
    pub fn server(&self) -> ServerBinary {
        embedded_server(self.cache.path())
    }
}

#[async_trait]
impl Backend for SshBackend {
    fn provider(&self) -> Box<dyn SandboxProvider> {
        self.provider_with(self.server())
    }

    fn provider_with(&self, server: ServerBinary) -> Box<dyn SandboxProvider> {
        Box::new(SshProvider::new(self.config(server)))
    }

    fn image(&self) -> Option<String> {
        None
    }

    async fn remains(&self, sandbox: &SandboxId) -> Vec<String> {
        let folder = self.folder(sandbox);
        let mut left: Vec<String> = folder
            .exists()
            .then(|| folder.display().to_string())
            .into_iter()
            .collect();
        left.extend(
            processes_of(&folder)
                .into_iter()
                .map(|(pid, arguments)| format!("{pid}: {arguments}")),
        );
        left
    }
}

/// Returns the processes of the sandbox in this folder and their descendants.
fn processes_of(folder: &Path) -> Vec<(i32, String)> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let belongs = |process: std::fs::DirEntry| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let working_dir = std::fs::read_link(process.path().join("cwd")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        // Includes the separator, because the name may be a prefix of another sandbox's name.
        let is_server = arguments.contains(&format!("{}/", folder.display()));
        (is_server || working_dir.starts_with(folder)).then_some((pid, arguments))
    };
    processes.filter_map(belongs).collect()
}

#[async_trait]
impl FaultInjection for SshBackend {
    async fn cut_connection(&self, _: &SandboxId) -> usize {
        own_sockets::cut_tcp(self.sshd.port())
    }

    async fn kill(&self, sandbox: &SandboxId) {
        // Stops all processes first: a server that survives its shell would report the completion
        // of the action.
        self.signal_processes(sandbox, Signal::STOP);
        self.signal_processes(sandbox, Signal::KILL);
    }

    async fn freeze(&self, sandbox: &SandboxId) {
        self.signal_processes(sandbox, Signal::STOP);
    }

    async fn thaw(&self, sandbox: &SandboxId) {
        self.signal_processes(sandbox, Signal::CONT);
    }

    async fn small_folder(&self, sandbox: &SandboxLeased) -> Option<String> {
        self.is_small.then(|| sandbox.working_dir.clone())
    }
}

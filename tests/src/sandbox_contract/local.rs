//! The local backend under test, with a state folder that is removed after the test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::SandboxProvider;
use protocol::SandboxId;
use protocol::record::SandboxLeased;
use rustix::process::{Pid, Signal, kill_process};
use sandbox_client::{HostSecret, ServerBinary};
use sandbox_local::{
    BUBBLEWRAP_PROGRAMS, CONTROL_GROUPS, IsolationChoice, IsolationKind, LocalConfig, LocalProvider,
};
use tempfile::TempDir;

use super::faults::FaultInjection;
use super::{Backend, embedded_server, own_sockets};
use crate::glovebox;
use crate::skip::{Requirement, skip};

/// Sandboxes as processes of this host.
pub struct LocalBackend {
    small: SmallFolder,
    state: TempDir,
    isolation: IsolationChoice,
}

/// A folder for the temporary files of servers. A test can mount a file system of 4 MiB on it, if
/// the user may mount.
struct SmallFolder {
    path: PathBuf,
    is_mounted: AtomicBool,
}

impl SmallFolder {
    fn in_folder(parent: &Path) -> Self {
        let path = parent.join("small");
        std::fs::create_dir(&path).unwrap();
        Self {
            path,
            is_mounted: AtomicBool::new(false),
        }
    }

    fn mount(&self) -> bool {
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=4m", "small"])
            .arg(&self.path);
        let is_root = rustix::process::geteuid().is_root();
        let is_mounted = is_root && mount.status().is_ok_and(|status| status.success());
        self.is_mounted.store(is_mounted, Ordering::Relaxed);
        is_mounted
    }
}

impl Drop for SmallFolder {
    fn drop(&mut self) {
        if self.is_mounted.load(Ordering::Relaxed) {
            // A lazy unmount, because a server that a failed test left may have open files in it.
            let ended = Command::new("umount")
                .arg("--lazy")
                .arg(&self.path)
                .status();
            println!("unmounting: {ended:?}");
        }
    }
}

impl LocalBackend {
    /// Creates a backend with its own state folder and without isolation.
    pub fn new() -> Option<Self> {
        Some(Self::of(IsolationChoice::Unsafe))
    }

    /// Creates a backend with the given isolation.
    pub fn of(isolation: IsolationChoice) -> Self {
        // In /tmp and not in TMPDIR, because the path of a socket must be short.
        let state = tempfile::Builder::new()
            .prefix("gb")
            .tempdir_in("/tmp")
            .unwrap();
        Self {
            small: SmallFolder::in_folder(state.path()),
            state,
            isolation,
        }
    }

    /// Creates a backend with this kind of isolation. `None`, and the test is skipped, if it is
    /// unavailable.
    pub async fn isolated(kind: IsolationKind) -> Option<Self> {
        let backend = Self::of(IsolationChoice::Only(kind));
        let found = backend
            .local_provider(ServerBinary::from_file("/nowhere"))
            .backend()
            .isolation()
            .await;
        match found {
            Ok(_) => Some(backend),
            Err(error) => {
                let needed = match kind {
                    IsolationKind::Bubblewrap => Requirement::Bubblewrap,
                    IsolationKind::Landlock => Requirement::Landlock,
                };
                skip(needed, error);
                None
            }
        }
    }

    /// Returns this backend if control groups limit each sandbox as a whole. `None`, and the test
    /// is skipped, if they are unavailable.
    pub async fn with_control_groups(self) -> Option<Self> {
        let bounds = self
            .local_provider(ServerBinary::from_file("/nowhere"))
            .backend()
            .bounds()
            .await
            .unwrap()
            .to_string();
        if bounds.starts_with("memory, processors and processes") {
            return Some(self);
        }
        skip(Requirement::ControlGroups, format!("bounded is {bounds}"));
        None
    }

    /// Whether sandboxes are isolated.
    pub fn is_isolated(&self) -> bool {
        self.isolation != IsolationChoice::Unsafe
    }

    /// Returns the control groups of a sandbox.
    pub fn groups(&self, sandbox: &SandboxId) -> Vec<PathBuf> {
        let parents = ["", "memory", "cpu", "pids"]
            .map(|tree| Path::new(CONTROL_GROUPS).join(tree).join("glovebox"));
        let name = self
            .config(ServerBinary::from_file("/nowhere"))
            .secret
            .group_name(sandbox);
        parents
            .iter()
            .map(|parent| parent.join(&name))
            .filter(|group| group.exists())
            .collect()
    }

    /// Returns the state folder, which sandboxes must not see.
    pub fn state_dir(&self) -> &Path {
        self.state.path()
    }

    /// Returns the action server's program in the state folder.
    pub fn server(&self) -> ServerBinary {
        embedded_server(self.state.path().join("bin"))
    }

    /// Returns the provider as its concrete type.
    pub fn local_provider(&self, server: ServerBinary) -> LocalProvider {
        LocalProvider::new(self.config(server))
    }

    /// Returns the provider configuration of a host program.
    pub fn config(&self, server: ServerBinary) -> LocalConfig {
        // The start-up files of the tester must not change the result of a test. Isolated sandboxes
        // do not see them.
        let home = (!self.is_isolated()).then(|| ("HOME".into(), self.state.path().into()));
        let environment = [
            ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
            ("TMPDIR".into(), self.small.path.clone().into()),
        ];
        LocalConfig {
            state_dir: self.state.path().into(),
            server,
            secret: HostSecret::new([7; 32]),
            environment: environment.into_iter().chain(home).collect(),
            idle_timeout: Duration::from_secs(60),
            isolation: self.isolation,
            network: false,
            hidden: Vec::new(),
            launcher: glovebox::binary().into(),
            bubblewrap: BUBBLEWRAP_PROGRAMS.map(PathBuf::from).into(),
            control_groups: CONTROL_GROUPS.into(),
            runtime_dir: None,
            user: None,
            probes: Arc::default(),
        }
    }

    /// Returns the processes of a sandbox and their descendants.
    fn processes(&self, sandbox: &SandboxId) -> Vec<Pid> {
        let folder = self.folder(sandbox);
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let processes = processes.filter(|entry| belongs_to(&entry.path(), &folder));
        processes
            .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .collect()
    }

    fn signal_processes(&self, sandbox: &SandboxId, signal: Signal) {
        let processes = self.processes(sandbox);
        assert!(
            processes.len() >= 3,
            "a supervisor, a server and a shell: {processes:?}"
        );
        for process in processes {
            // Fails only if the process has already exited.
            let _ = kill_process(process, signal);
        }
    }

    fn folder(&self, sandbox: &SandboxId) -> PathBuf {
        self.state.path().join("sandboxes").join(sandbox.as_str())
    }
}

#[async_trait]
impl Backend for LocalBackend {
    fn provider(&self) -> Box<dyn SandboxProvider> {
        self.provider_with(self.server())
    }

    fn provider_with(&self, server: ServerBinary) -> Box<dyn SandboxProvider> {
        Box::new(self.local_provider(server))
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
            self.groups(sandbox)
                .iter()
                .map(|group| group.display().to_string()),
        );
        for process in std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
        {
            if belongs_to(&process, &folder) {
                left.push(format!("{}: {}", process.display(), arguments(&process)));
            }
        }
        left
    }
}

/// Whether a process names a sandbox's folder or is in it.
fn belongs_to(process: &Path, folder: &Path) -> bool {
    let working_dir = std::fs::read_link(process.join("cwd")).unwrap_or_default();
    arguments(process).contains(&*folder.to_string_lossy()) || working_dir.starts_with(folder)
}

fn arguments(process: &Path) -> String {
    let arguments = std::fs::read(process.join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&arguments).replace('\0', " ")
}

#[async_trait]
impl FaultInjection for LocalBackend {
    async fn cut_connection(&self, sandbox: &SandboxId) -> usize {
        own_sockets::cut_unix(&self.folder(sandbox).join("r/s"))
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

    async fn small_folder(&self, _: &SandboxLeased) -> Option<String> {
        self.small
            .mount()
            .then(|| self.small.path.to_str().unwrap().to_owned())
    }
}

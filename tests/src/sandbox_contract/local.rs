//! The local backend under test: a state folder that lives as long as the test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::SandboxProvider;
use protocol::SandboxId;
use protocol::record::SandboxLeased;
use rustix::process::{Pid, Signal, kill_process};
use sandbox::{
    BUBBLEWRAP_PROGRAMS, CONTROL_GROUPS, HostSecret, IsolationChoice, IsolationKind, LocalConfig,
    LocalProvider, ServerBinary,
};
use tempfile::TempDir;

use super::faults::Breakable;
use super::{Backend, own_sockets};
use crate::glovebox;

/// Sandboxes as processes of this host.
pub struct Local {
    small: SmallFolder,
    state: TempDir,
    isolation: IsolationChoice,
}

/// A folder that is made a file system of 4 MiB when a test wants it, where the user may. Servers put there what is
/// temporary.
struct SmallFolder {
    path: PathBuf,
    is_mounted: AtomicBool,
}

impl SmallFolder {
    fn in_folder(parent: &Path) -> Self {
        let path = parent.join("small");
        std::fs::create_dir(&path).unwrap();
        Self { path, is_mounted: AtomicBool::new(false) }
    }

    fn mount(&self) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m", "small"]).arg(&self.path);
        let is_root = rustix::process::geteuid().is_root();
        let is_mounted = is_root && mount.status().is_ok_and(|status| status.success());
        assert!(
            is_mounted || std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "no mount on a build machine"
        );
        self.is_mounted.store(is_mounted, Ordering::Relaxed);
        is_mounted
    }
}

impl Drop for SmallFolder {
    fn drop(&mut self) {
        if self.is_mounted.load(Ordering::Relaxed) {
            // Lazily: a server that a failed test has left may have files open in it.
            let ended = Command::new("umount").arg("--lazy").arg(&self.path).status();
            println!("unmounting: {ended:?}");
        }
    }
}

impl Local {
    /// A backend with a state folder of its own, that keeps nothing in.
    pub fn new() -> Option<Self> {
        Some(Self::of(IsolationChoice::Unsafe))
    }

    /// The same, with whatever isolation is chosen.
    pub fn of(isolation: IsolationChoice) -> Self {
        // In /tmp whatever TMPDIR says: a socket's path must be short.
        let state = tempfile::Builder::new().prefix("gb").tempdir_in("/tmp").unwrap();
        Self { small: SmallFolder::in_folder(state.path()), state, isolation }
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

    /// The same, where a sandbox is bounded as a whole. Nothing where that does not work; on a build machine that is a
    /// failure.
    pub async fn grouped(self) -> Option<Self> {
        let bounds = self.local_provider(ServerBinary::at("/nowhere")).bounds().await.unwrap().to_string();
        if bounds.starts_with("memory, processors and processes") {
            return Some(self);
        }
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "on a build machine: {bounds}");
        println!("skipped: bounded is {bounds}");
        None
    }

    /// Whether anything keeps its sandboxes in.
    pub fn is_isolated(&self) -> bool {
        self.isolation != IsolationChoice::Unsafe
    }

    /// The control groups of a sandbox.
    pub fn groups(&self, sandbox: &SandboxId) -> Vec<PathBuf> {
        let parents =
            ["", "memory", "cpu", "pids"].map(|tree| Path::new(CONTROL_GROUPS).join(tree).join("glovebox"));
        let groups =
            parents.iter().flat_map(|parent| std::fs::read_dir(parent).into_iter().flatten().flatten());
        let name = format!(".{sandbox}");
        groups.map(|group| group.path()).filter(|path| path.to_string_lossy().ends_with(&name)).collect()
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
            environment: vec![
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                ("TMPDIR".into(), self.small.path.clone().into()),
            ],
            idle_timeout: Duration::from_secs(60),
            isolation: self.isolation,
            network: false,
            hidden: Vec::new(),
            launcher: glovebox::binary().into(),
            bubblewrap: BUBBLEWRAP_PROGRAMS.map(PathBuf::from).into(),
            control_groups: CONTROL_GROUPS.into(),
            runtime_dir: None,
            user: None,
        }
    }

    /// The processes that were started for a sandbox, and all that came of them.
    fn processes(&self, sandbox: &SandboxId) -> Vec<Pid> {
        let folder = self.folder(sandbox);
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let processes = processes.filter(|entry| belongs_to(&entry.path(), &folder));
        processes.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
    }

    fn send(&self, sandbox: &SandboxId, signal: Signal) {
        let processes = self.processes(sandbox);
        assert!(processes.len() >= 3, "a supervisor, a server and a shell: {processes:?}");
        for process in processes {
            // One that has ended meanwhile is where it is to be.
            let _ = kill_process(process, signal);
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
        left.extend(self.groups(sandbox).iter().map(|group| group.display().to_string()));
        for process in std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()) {
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
impl Breakable for Local {
    async fn cut_connection(&self, sandbox: &SandboxId) -> usize {
        own_sockets::cut_unix(&self.folder(sandbox).join("r/s"))
    }

    async fn kill(&self, sandbox: &SandboxId) {
        // As one: a server that sees its shell die before it does has an ending to tell.
        self.send(sandbox, Signal::STOP);
        self.send(sandbox, Signal::KILL);
    }

    async fn freeze(&self, sandbox: &SandboxId) {
        self.send(sandbox, Signal::STOP);
    }

    async fn thaw(&self, sandbox: &SandboxId) {
        self.send(sandbox, Signal::CONT);
    }

    async fn small_folder(&self, _: &SandboxLeased) -> Option<String> {
        self.small.mount().then(|| self.small.path.to_str().unwrap().to_owned())
    }
}

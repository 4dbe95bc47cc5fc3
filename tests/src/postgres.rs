//! A PostgreSQL server on a unix socket in a temporary folder: of one test process, or of all
//! processes of `cargo ci test`.
//!
//! Runs as the user `nobody` if the tests run as root, which PostgreSQL refuses. Stopped and
//! removed on drop.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::skip::{Requirement, skip};

/// User and group id of `nobody`, who has a name on every system. PostgreSQL requires one.
const NOBODY: u32 = 65_534;

/// Starting takes less than a second on an idle machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Variable with the folder of a server that `cargo ci test` has started for all tests.
pub const SHARED_SERVER_VARIABLE: &str = "GLOVEBOX_TEST_POSTGRES";

/// Connections to a server for all tests.
const SHARED_SERVER_CONNECTIONS: &str = "max_connections=500";

/// Name of the superuser.
pub const USER: &str = "glovebox";

/// Port of which the socket's name is derived.
const DEFAULT_PORT: u16 = 5432;

/// Where Debian has the programs of each version.
const DEBIAN_FOLDER: &str = "/usr/lib/postgresql";

/// A running server.
pub struct PostgresServer {
    folder: PathBuf,
    /// Removes the folder. `None` if another process started the server.
    own_folder: Option<TempDir>,
    programs: PathBuf,
    port: u16,
    settings: Vec<String>,
    process: Mutex<Option<Child>>,
}

impl PostgresServer {
    /// Returns the server that all tests share, or those of this process without `cargo ci test`.
    /// `None`, and the test is skipped, if PostgreSQL is not installed.
    pub fn shared() -> Option<Arc<Self>> {
        static SHARED: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap();
        if let Some(server) = shared.upgrade() {
            return Some(server);
        }
        let server = Arc::new(match std::env::var_os(SHARED_SERVER_VARIABLE) {
            Some(folder) => Self {
                folder: folder.into(),
                own_folder: None,
                programs: installed_programs()?,
                port: DEFAULT_PORT,
                settings: Vec::new(),
                process: Mutex::new(None),
            },
            None => Self::start()?,
        });
        *shared = Arc::downgrade(&server);
        Some(server)
    }

    /// Starts a server that a test can stop. `None` as for [`shared`](Self::shared).
    pub fn start() -> Option<Self> {
        Self::start_with(DEFAULT_PORT, |_| Vec::new())
    }

    /// Starts a server for the tests of many processes. `None` if PostgreSQL is not installed.
    pub fn start_for_many() -> Option<Self> {
        find_programs()?;
        Self::start_with(DEFAULT_PORT, |_| vec![SHARED_SERVER_CONNECTIONS.into()])
    }

    /// Starts a server with additional settings. They may refer to files that `settings` creates in
    /// the server's folder. Without them the port is only part of the name of its socket.
    pub fn start_with(port: u16, settings: impl FnOnce(&Path) -> Vec<String>) -> Option<Self> {
        let programs = installed_programs()?;
        // In /tmp and not in TMPDIR, because the path of a socket must be short.
        let folder = tempfile::Builder::new()
            .prefix("gbp")
            .tempdir_in("/tmp")
            .unwrap();
        if rustix::process::geteuid().is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let settings = settings(folder.path());
        let process = Mutex::new(None);
        let (folder, own_folder) = (folder.path().to_owned(), Some(folder));
        let server = Self {
            folder,
            own_folder,
            programs,
            port,
            settings,
            process,
        };
        server.initialize();
        server.restart();
        Some(server)
    }

    fn initialize(&self) {
        let mut initdb = self.program("initdb");
        initdb
            .arg("--pgdata")
            .arg(self.path("data"))
            .args(["--username", USER, "--auth", "trust"]);
        initdb.args([
            "--encoding",
            "UTF8",
            "--locale",
            "C",
            "--no-sync",
            "--no-instructions",
        ]);
        let output = initdb.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Starts the stopped server and waits until it accepts connections.
    pub fn restart(&self) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        let mut postgres = self.program("postgres");
        postgres
            .arg("-D")
            .arg(self.path("data"))
            .arg("-k")
            .arg(&self.folder);
        postgres.args(["-p", &self.port.to_string()]);
        // Nothing that it writes has to survive a power failure.
        for setting in [
            "listen_addresses=",
            "fsync=off",
            "shared_buffers=32MB",
            "max_connections=60",
        ] {
            postgres.args(["-c", setting]);
        }
        for setting in &self.settings {
            postgres.args(["-c", setting]);
        }
        postgres
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        *self.process.lock().unwrap() = Some(postgres.spawn().unwrap());
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.psql("postgres", "SELECT 1").status.success() {
            let has_exited = self
                .process
                .lock()
                .unwrap()
                .as_mut()
                .unwrap()
                .try_wait()
                .unwrap()
                .is_some();
            assert!(
                !has_exited && Instant::now() < deadline,
                "PostgreSQL does not start: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the server: with `INT` it disconnects all clients, with `QUIT` it leaves recovery to
    /// the next start.
    pub fn stop(&self, signal: Signal) {
        let mut process = self.process.lock().unwrap().take().unwrap();
        kill_process(Pid::from_child(&process), signal).unwrap();
        let deadline = Instant::now() + STOP_TIMEOUT;
        while process.try_wait().unwrap().is_none() {
            assert!(
                Instant::now() < deadline,
                "PostgreSQL does not stop: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Suspends the server with all of its sessions, or lets it continue.
    pub fn hang(&self, hangs: bool) {
        let server = Pid::from_child(self.process.lock().unwrap().as_ref().unwrap());
        let signal = if hangs { Signal::STOP } else { Signal::CONT };
        // The server first, so that it starts no further session.
        kill_process(server, signal).unwrap();
        let children = format!("/proc/{server}/task/{server}/children");
        for child in std::fs::read_to_string(children)
            .unwrap()
            .split_whitespace()
        {
            // One that has ended meanwhile needs no signal.
            let _ = kill_process(Pid::from_raw(child.parse().unwrap()).unwrap(), signal);
        }
    }

    /// Creates an empty database and returns its name.
    pub fn create_database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "test_{}_{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        self.execute("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    /// Returns the address of a database.
    pub fn address(&self, database: &str) -> String {
        let (folder, port) = (self.folder.display(), self.port);
        format!("postgres:///{database}?host={folder}&port={port}&user={USER}")
    }

    /// Returns the folder of its socket and files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.path(&format!(".s.PGSQL.{}", self.port))
    }

    /// Executes SQL and returns the values of the result, a row per line.
    pub fn execute(&self, database: &str, sql: &str) -> String {
        let output = self.psql(database, sql);
        assert!(
            output.status.success(),
            "{sql}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }

    fn psql(&self, database: &str, sql: &str) -> std::process::Output {
        let mut psql = self.program("psql");
        psql.args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set",
            "ON_ERROR_STOP=1",
        ]);
        psql.args(["--username", USER, "--dbname", database, "--command", sql]);
        psql.args(["--port", &self.port.to_string()])
            .arg("--host")
            .arg(&self.folder)
            .output()
            .unwrap()
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command
            .current_dir(&self.folder)
            .env_clear()
            .env("LC_ALL", "C");
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let Some(process) = self.process.get_mut().ok().and_then(Option::as_mut) else {
            return;
        };
        // Its children exit when it does. A test that failed may have suspended it.
        let _ = kill_process(Pid::from_child(process), Signal::QUIT);
        let _ = kill_process(Pid::from_child(process), Signal::CONT);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while process.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// Returns the folder with the programs. `None`, and the test is skipped, if PostgreSQL is not
/// installed.
fn installed_programs() -> Option<PathBuf> {
    let programs = find_programs();
    if programs.is_none() {
        skip(
            Requirement::PostgreSql,
            format!("not found in {DEBIAN_FOLDER}"),
        );
    }
    programs
}

/// Returns the folder with the programs of the newest installed version.
fn find_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(DEBIAN_FOLDER).ok()?.flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    programs
        .filter(|programs| programs.join("postgres").exists())
        .max_by_key(|programs| version_of(programs))
}

fn version_of(programs: &Path) -> Option<u32> {
    programs.parent()?.file_name()?.to_str()?.parse().ok()
}

/// A database of its own on the shared server.
pub struct TestDatabase {
    server: Arc<PostgresServer>,
    name: String,
}

impl TestDatabase {
    /// Creates an empty database. `None` as for [`PostgresServer::shared`].
    pub fn create() -> Option<Self> {
        PostgresServer::shared().map(Self::on)
    }

    /// Creates an empty database on a server.
    pub fn on(server: Arc<PostgresServer>) -> Self {
        let name = server.create_database();
        Self { server, name }
    }

    /// Returns its address.
    pub fn address(&self) -> String {
        self.server.address(&self.name)
    }

    /// Executes SQL, unnoticed by the stores.
    pub fn execute(&self, sql: &str) -> String {
        self.server.execute(&self.name, sql)
    }

    /// Returns its server.
    pub fn server(&self) -> &PostgresServer {
        &self.server
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Removes the database from a server that continues to run.
impl Drop for TestDatabase {
    fn drop(&mut self) {
        if self.server.own_folder.is_none() {
            self.server.psql(
                "postgres",
                &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name),
            );
        }
    }
}

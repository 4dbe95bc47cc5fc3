//! An OpenSSH server on a loopback port with one unprivileged account of its own.
//!
//! Requires root: the server runs in its own mount namespace, where `/etc/passwd` has one more
//! line. The accounts and the SSH server of the machine are not affected. The server and its
//! sessions are stopped on drop.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::skip::{Requirement, skip};

/// User id of the account, not used by any other.
pub const UID: u32 = 54_321;
/// Name of the account.
pub const USER: &str = "agent";

/// Deviations from the default server.
#[derive(Debug, Clone, Default)]
pub struct SshdOptions {
    /// Lines that precede the default ones in `sshd_config`.
    pub settings: &'static str,
    /// Disables `sftp`.
    pub without_sftp: bool,
    /// Shell of the account. `None` for `/bin/sh`.
    pub shell: Option<&'static str>,
    /// Size in KiB of a separate file system for the home folder.
    pub home_kib: Option<u32>,
    /// Refuses to execute programs of that file system.
    pub noexec_home: bool,
    /// Makes root the owner of the home folder.
    pub locked_home: bool,
    /// Last component of the home folder's path.
    pub home_name: Option<&'static str>,
    /// Output of a replaced program `uname`.
    pub uname: Option<&'static str>,
}

impl SshdOptions {
    /// Returns the mount options of the file system for the home folder.
    fn home_mount(&self) -> Option<String> {
        let noexec = if self.noexec_home { ",noexec" } else { "" };
        self.home_kib
            .map(|kib| format!("size={kib}k,uid={UID},mode=755{noexec}"))
    }
}

/// A running server.
pub struct Sshd {
    folder: TempDir,
    port: u16,
    home: PathBuf,
    process: Mutex<Option<Child>>,
}

impl Sshd {
    /// Starts a server. `None`, and the test is skipped, if this user cannot run one.
    pub fn start(options: &SshdOptions) -> Option<Self> {
        let missing = [
            "/usr/sbin/sshd",
            "/usr/bin/ssh-keygen",
            "/usr/bin/unshare",
            "/bin/mount",
        ]
        .into_iter()
        .find(|program| !Path::new(program).exists());
        if let Some(program) = missing {
            skip(Requirement::Program("sshd"), format!("no {program}"));
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            skip(Requirement::Root, "only root can add an account");
            return None;
        }
        Some(Self::start_as_root(options))
    }

    fn start_as_root(options: &SshdOptions) -> Self {
        // In /tmp and not in TMPDIR, because the path of a socket must be short.
        let folder = tempfile::Builder::new()
            .prefix("gb")
            .tempdir_in("/tmp")
            .unwrap();
        let path = folder.path();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let home = path.join(options.home_name.unwrap_or("home"));
        std::fs::create_dir_all(&home).unwrap();
        if !options.locked_home {
            chown(&home, Some(UID), Some(UID)).unwrap();
        }
        std::fs::create_dir_all(path.join("client/.ssh")).unwrap();
        new_key(&path.join("host_key"), "ed25519", "");
        let client_key = path.join("client/.ssh/id_ed25519");
        new_key(&client_key, "ed25519", "");
        std::fs::copy(
            client_key.with_extension("pub"),
            path.join("authorized_keys"),
        )
        .unwrap();
        std::fs::set_permissions(
            path.join("authorized_keys"),
            std::fs::Permissions::from_mode(0o644),
        )
        .unwrap();

        let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
        let shell = options.shell.unwrap_or("/bin/sh");
        let account = format!("{USER}:*:{UID}:{UID}::{}:{shell}\n", home.display());
        std::fs::write(
            path.join("passwd"),
            format!("{}\n{account}", accounts.trim_end()),
        )
        .unwrap();
        if let Some(words) = options.uname {
            let program = path.join("bin/uname");
            std::fs::create_dir(path.join("bin")).unwrap();
            std::fs::write(
                &program,
                format!(
                    "#!/bin/sh\ncase $1 in -s) set -- {words}; echo $1;; *) set -- {words}; echo $2;; esac\n"
                ),
            )
            .unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut server = Self {
            port: 0,
            home,
            process: Mutex::new(None),
            folder,
        };
        // Another process may take a free port before the server does. Then the next one is tried.
        for _ in 0..20 {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            server.port = free.local_addr().unwrap().port();
            drop(free);
            server.write_settings(options);
            if server.run(options.home_mount()) {
                return server;
            }
        }
        panic!("sshd does not start: {}", server.log());
    }

    fn write_settings(&self, options: &SshdOptions) {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let sftp = if options.without_sftp {
            ""
        } else {
            "Subsystem sftp internal-sftp\n"
        };
        let path = options
            .uname
            .map(|_| format!("SetEnv PATH={}:/usr/bin:/bin\n", at("bin")))
            .unwrap_or_default();
        let text = format!(
            "{}\nPort {}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\nLogLevel VERBOSE\n{sftp}{path}",
            options.settings,
            self.port,
            at("host_key"),
            at("authorized_keys"),
        );
        std::fs::write(at("sshd_config"), text).unwrap();
    }

    /// Starts the server. Returns whether it listens according to its log, since another process
    /// may have taken the port.
    fn run(&self, home_mount: Option<String>) -> bool {
        let small = home_mount.map(|options| format!("mount -t tmpfs -o {options} none \"$3\" &&"));
        let script = format!(
            "mount --bind \"$1\" /etc/passwd && mount -t tmpfs none /run && mkdir -p /run/sshd && {} \
             exec /usr/sbin/sshd -D -e -f \"$2\"",
            small.unwrap_or_default()
        );
        let logged = self.log().len();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .unwrap();
        let child = Command::new("/usr/bin/unshare")
            .args(["--mount", "/bin/sh", "-c", &script, "sh"])
            .arg(self.folder.path().join("passwd"))
            .arg(self.folder.path().join("sshd_config"))
            .arg(&self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut process = self.process.lock().unwrap();
        let child = process.insert(child);
        let deadline = Instant::now() + Duration::from_secs(20);
        let listens = format!("Server listening on 127.0.0.1 port {}.", self.port);
        loop {
            if self
                .log()
                .get(logged..)
                .is_some_and(|log| log.contains(&listens))
            {
                return true;
            }
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(
                Instant::now() < deadline,
                "sshd does not listen: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the server and its sessions, but not the processes that sessions detached.
    pub fn stop(&self) {
        let Some(mut child) = self.process.lock().unwrap().take() else {
            return;
        };
        let mut pids = vec![child.id()];
        while let Some(pid) = pids.pop() {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
                .unwrap_or_default();
            pids.extend(
                children
                    .split_whitespace()
                    .filter_map(|child| child.parse::<u32>().ok()),
            );
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL); // may have exited already
        }
        child.wait().unwrap();
    }

    /// Restarts the server on the same port and with the same keys.
    pub fn restart(&self) {
        assert!(self.run(None), "{}", self.log());
    }

    /// Returns the port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the account's home folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Returns the client's home folder. It contains only `.ssh` with an accepted key.
    pub fn client_home(&self) -> PathBuf {
        self.folder.path().join("client")
    }

    /// Adds the server to the client's known hosts, for every port.
    pub fn make_known(&self) {
        let key = std::fs::read_to_string(self.folder.path().join("host_key.pub")).unwrap();
        self.write_known_hosts(&format!("[127.0.0.1]:* {key}"));
    }

    /// Writes the client's file of known hosts.
    pub fn write_known_hosts(&self, text: &str) {
        std::fs::write(self.client_home().join(".ssh/known_hosts"), text).unwrap();
    }

    /// Writes the public keys that the account accepts, one per line.
    pub fn accept_keys(&self, text: &str) {
        std::fs::write(self.folder.path().join("authorized_keys"), text).unwrap();
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!("sshd logged:\n{}", self.log());
        }
    }
}

/// Creates a key pair.
pub fn new_key(path: &Path, kind: &str, passphrase: &str) {
    let _ = std::fs::remove_file(path);
    // russh cannot read 1 of 256 ECDSA keys in OpenSSH's own format: see `docs/limits.md`.
    let format: &[&str] = if kind == "ecdsa" { &["-m", "PEM"] } else { &[] };
    let made = Command::new("/usr/bin/ssh-keygen")
        .args(format)
        .args(["-q", "-t", kind, "-N", passphrase, "-C", "test", "-f"])
        .arg(path)
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success());
}

//! OpenSSH's own server on a loopback port, with one ordinary account that only it knows.
//!
//! It needs root: the server runs in a mount namespace of its own, in which the list of accounts has one more line. So
//! the machine's accounts and its own SSH server are left alone. It ends, with every session, when it is dropped.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The account's number; nobody else's.
pub const UID: u32 = 54_321;
/// The account's name.
pub const USER: &str = "agent";

/// What differs from an ordinary server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Lines of `sshd_config`, which go before the others.
    pub settings: &'static str,
    /// No `sftp`.
    pub without_sftp: bool,
    /// The account's shell; nothing: `/bin/sh`.
    pub shell: Option<&'static str>,
    /// The home folder is a file system of so many KiB.
    pub home_kib: Option<u32>,
    /// The home folder is root's.
    pub locked_home: bool,
    /// What the home folder's path ends with.
    pub home_name: Option<&'static str>,
    /// A program `uname` that prints this.
    pub uname: Option<&'static str>,
}

/// A running server.
pub struct Sshd {
    folder: TempDir,
    port: u16,
    home: PathBuf,
    process: Mutex<Option<Child>>,
}

impl Sshd {
    /// Starts one; nothing where there cannot be one, which on a build machine is a failure.
    pub fn start(options: &Options) -> Option<Self> {
        let missing = ["/usr/sbin/sshd", "/usr/bin/ssh-keygen", "/usr/bin/unshare", "/bin/mount"]
            .into_iter()
            .find(|program| !Path::new(program).exists());
        let is_root = rustix::process::geteuid().is_root();
        let reason = match (missing, is_root) {
            (None, true) => return Some(Self::start_as_root(options)),
            (Some(program), _) => format!("no {program}"),
            (None, false) => "not root: its account would be another's".into(),
        };
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "no SSH server on a build machine: {reason}"
        );
        println!("skipped: {reason}");
        None
    }

    fn start_as_root(options: &Options) -> Self {
        // In /tmp whatever TMPDIR says: a socket's path must be short.
        let folder = tempfile::Builder::new().prefix("gb").tempdir_in("/tmp").unwrap();
        let path = folder.path();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let home = path.join(options.home_name.unwrap_or("home"));
        std::fs::create_dir_all(&home).unwrap();
        if !options.locked_home {
            chown(&home, Some(UID), Some(UID)).unwrap();
        }
        std::fs::create_dir_all(path.join("client/.ssh")).unwrap();
        new_key(&path.join("host_key"), "ed25519", "");
        let own = path.join("client/.ssh/id_ed25519");
        new_key(&own, "ed25519", "");
        std::fs::copy(own.with_extension("pub"), path.join("authorized_keys")).unwrap();
        std::fs::set_permissions(path.join("authorized_keys"), std::fs::Permissions::from_mode(0o644))
            .unwrap();

        let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
        let shell = options.shell.unwrap_or("/bin/sh");
        let own = format!("{USER}:*:{UID}:{UID}::{}:{shell}\n", home.display());
        std::fs::write(path.join("passwd"), format!("{}\n{own}", accounts.trim_end())).unwrap();
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
        let mut server = Self { port: 0, home, process: Mutex::new(None), folder };
        // A port that is free now may be another's in a moment: then the next one.
        for _ in 0..20 {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            server.port = free.local_addr().unwrap().port();
            drop(free);
            server.write_settings(options);
            if server.run(options.home_kib) {
                return server;
            }
        }
        panic!("sshd does not start: {}", server.log());
    }

    fn write_settings(&self, options: &Options) {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let sftp = if options.without_sftp { "" } else { "Subsystem sftp internal-sftp\n" };
        let path =
            options.uname.map(|_| format!("SetEnv PATH={}:/usr/bin:/bin\n", at("bin"))).unwrap_or_default();
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

    /// Whether it listens: by its own word, since at its port there may be another by now.
    fn run(&self, home_kib: Option<u32>) -> bool {
        let small =
            home_kib.map(|kib| format!("mount -t tmpfs -o size={kib}k,uid={UID},mode=755 none \"$3\" &&"));
        let script = format!(
            "mount --bind \"$1\" /etc/passwd && mount -t tmpfs none /run && mkdir -p /run/sshd && {} \
             exec /usr/sbin/sshd -D -e -f \"$2\"",
            small.unwrap_or_default()
        );
        let logged = self.log().len();
        let log =
            std::fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
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
        let give_up = Instant::now() + Duration::from_secs(20);
        let listens = format!("Server listening on 127.0.0.1 port {}.", self.port);
        loop {
            if self.log().get(logged..).is_some_and(|log| log.contains(&listens)) {
                return true;
            }
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(Instant::now() < give_up, "sshd does not listen: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the server and every session of it: not what the sessions have detached.
    pub fn stop(&self) {
        let Some(mut child) = self.process.lock().unwrap().take() else { return };
        let mut ending = vec![child.id()];
        while let Some(pid) = ending.pop() {
            let children =
                std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            ending.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL); // ended already
        }
        child.wait().unwrap();
    }

    /// Starts it again, on the same port and with the same keys.
    pub fn start_again(&self) {
        assert!(self.run(None), "{}", self.log());
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The account's home folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The home folder of whoever connects: `.ssh` with a key that is accepted, and nothing else.
    pub fn client_home(&self) -> PathBuf {
        self.folder.path().join("client")
    }

    /// Makes this server known to whoever connects, at whatever port it is reached.
    pub fn make_known(&self) {
        let key = std::fs::read_to_string(self.folder.path().join("host_key.pub")).unwrap();
        self.write_known_hosts(&format!("[127.0.0.1]:* {key}"));
    }

    /// The whole text of the client's known hosts.
    pub fn write_known_hosts(&self, text: &str) {
        std::fs::write(self.client_home().join(".ssh/known_hosts"), text).unwrap();
    }

    /// Which keys the account accepts: lines of public keys.
    pub fn accept_keys(&self, text: &str) {
        std::fs::write(self.folder.path().join("authorized_keys"), text).unwrap();
    }

    /// What the server logged.
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

/// Makes a pair of keys.
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

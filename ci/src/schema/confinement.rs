//! A program among nothing but its own, as nobody: whatever it is told to do, it changes nothing of the machine.
//!
//! Needs root, and a system that lets root make namespaces. What is confined has ended when its [`Server`] is dropped,
//! and also when this program is killed.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::command::{self, GLANCE};
use crate::interrupt;

/// Makes the tree and runs a program in it; says what it needs.
const SCRIPT: &str = include_str!("confine.sh");

/// No secret: only what is confined can be reached with it.
pub(super) const KEY: &str = "schema";
pub(super) const KEY_HEADER: &str = "x-session-api-key";

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(20);

/// A way to confine programs that works on this machine.
#[derive(Debug)]
pub(super) struct Confinement {
    /// Where the tree of each is mounted, which nobody outside sees.
    root: PathBuf,
}

impl Confinement {
    /// Makes `root`, and tries it.
    pub(super) fn new(root: &Path) -> Result<Self> {
        fs::create_dir(root).with_context(|| format!("making {}", root.display()))?;
        let confinement = Self { root: root.to_owned() };
        command::capture(
            &mut confinement.command(Path::new("/bin/sh"), &["-c", ":"]),
            "confining a program",
        )?;
        Ok(confinement)
    }

    /// Nothing of our environment is told: there may be secrets in it.
    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"]);
        command.args(["sh", "-c", SCRIPT, "confine"]).arg(&self.root).arg(KEY).arg(program).args(arguments);
        command
    }
}

/// A confined action server.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Returns when it answers requests that have the key.
    pub(super) fn start(confinement: &Confinement, program: &Path) -> Result<Self> {
        let address = free_address().context("looking for a free port")?;
        let listen = address.to_string();
        let mut command = confinement.command(
            program,
            // Nothing that is run there has anything to wait for.
            &[
                "serve",
                "--listen",
                &listen,
                "--working-dir",
                "/space",
                "--key-stdin",
                "--no-change-timeout",
                "0.1",
            ],
        );
        command.stdout(Stdio::from(io::stderr()));
        let mut server = Self { child: command::spawn(&mut command, "starting the action server")?, address };
        let deadline = Instant::now() + START;
        while !server.answers() {
            interrupt::check()?;
            server.check_alive()?;
            if Instant::now() >= deadline {
                bail!("the action server did not answer within {} s", START.as_secs());
            }
            thread::sleep(GLANCE);
        }
        Ok(server)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// An error if it has ended.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait().context("looking at the action server")? {
            None => Ok(()),
            Some(status) => bail!("the action server has ended: {status}"),
        }
    }

    /// A server that refuses every key would pass every test.
    fn answers(&self) -> bool {
        let ask = || -> io::Result<bool> {
            let mut stream = TcpStream::connect_timeout(&self.address, START)?;
            stream.set_read_timeout(Some(START))?;
            write!(
                stream,
                "GET /v1/info HTTP/1.1\r\nhost: x\r\n{KEY_HEADER}: {KEY}\r\nconnection: close\r\n\r\n"
            )?;
            let mut status = [0; 12];
            stream.read_exact(&mut status)?;
            Ok(&status == b"HTTP/1.1 200")
        };
        ask().unwrap_or(false)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only when it has ended.
        let _ = command::end(&mut self.child);
    }
}

/// Free until somebody else takes it, who would have to be quick.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `script` prints in there; nothing where nothing can be confined, which the step tells.
    fn said(script: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let confinement = Confinement::new(&folder.path().join("root")).ok()?;
        let shell = Path::new("/bin/sh");
        Some(command::capture(&mut confinement.command(shell, &["-c", script]), "speaking").unwrap())
    }

    #[test]
    fn what_is_confined_is_nobody_and_alone() {
        let script = "while read -r name value; do case $name in Uid:|Gid:|CapEff:|NoNewPrivs:) echo $value; esac; \
                      done </proc/self/status; set -- /proc/[0-9]*; echo $#; \
                      for other in /etc /home /root /usr /var; do [ ! -e $other ] || echo $other; done";
        let Some(said) = said(script) else { return };
        let nobody = "65534 65534 65534 65534";
        let expected = format!("{nobody}\n{nobody}\n0000000000000000\n1\n2\n");
        assert_eq!(said, expected);
    }

    #[test]
    fn it_changes_nothing_but_its_work() {
        let script = "for file in /x /bin/x /dev/x /proc/sys/kernel/hostname /space/x; do \
                      (echo x >$file) 2>/dev/null && echo $file; done; :";
        assert!(said(script).is_none_or(|said| said == "/space/x\n"));
    }

    #[test]
    fn it_reads_the_key_and_knows_nothing_of_our_environment() {
        let script = "read -r key; echo $key; set | grep -c CARGO 2>/dev/null; while read -r line; do case $line in \
                      *CARGO*) echo $line; esac; done </proc/self/environ; :";
        assert!(said(script).is_none_or(|said| said == "schema\n"));
    }
}

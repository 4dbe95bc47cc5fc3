//! Isolation of a program as user `nobody` in its own mount and process namespaces, so that it
//! cannot change the machine.
//!
//! Requires root and permission to create namespaces. The isolated program is killed when its
//! [`IsolatedServer`] is dropped, and when this program is killed.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::command::{self, POLL_INTERVAL};
use crate::interrupt;

/// Creates the isolated file tree and runs a program in it. Its comments list what it needs.
const SCRIPT: &str = include_str!("confine.sh");

/// Key of the server. It is not secret: it gives access only to the isolated program.
pub(super) const KEY: &str = "schema";
pub(super) const KEY_HEADER: &str = "x-session-api-key";

/// Time for the server to start listening.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Isolation of programs that was tested on this machine.
#[derive(Debug)]
pub(super) struct Confinement {
    /// Mount point of each file tree, visible only in its namespace.
    root: PathBuf,
}

impl Confinement {
    /// Creates `root` and runs a program in it as a test.
    pub(super) fn new(root: &Path) -> Result<Self> {
        fs::create_dir(root).with_context(|| format!("cannot create {}", root.display()))?;
        let confinement = Self {
            root: root.to_owned(),
        };
        command::capture(
            &mut confinement.command(Path::new("/bin/sh"), &["-c", ":"]),
            "confining a program",
        )?;
        Ok(confinement)
    }

    /// Returns the isolated command. Its environment is empty, because ours may contain secrets.
    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.env_clear().env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        );
        command.args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
        ]);
        command
            .args(["sh", "-c", SCRIPT, "confine"])
            .arg(&self.root)
            .arg(KEY)
            .arg(program)
            .args(arguments);
        command
    }
}

/// An isolated action server.
#[derive(Debug)]
pub(super) struct IsolatedServer {
    child: Child,
    address: SocketAddr,
}

impl IsolatedServer {
    /// Starts the server and waits until it accepts requests with the key.
    pub(super) fn start(confinement: &Confinement, program: &Path) -> Result<Self> {
        let address = free_address().context("cannot find a free port")?;
        let listen = address.to_string();
        let mut command = confinement.command(
            program,
            // Generated commands finish immediately, so a short timeout suffices.
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
        let mut server = Self {
            child: command::spawn(&mut command, "starting the action server")?,
            address,
        };
        let deadline = Instant::now() + START_TIMEOUT;
        while !server.accepts_key() {
            interrupt::check()?;
            server.check_alive()?;
            if Instant::now() >= deadline {
                bail!(
                    "the action server did not answer within {} s",
                    START_TIMEOUT.as_secs()
                );
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(server)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns an error if the server has exited.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        match self
            .child
            .try_wait()
            .context("cannot inspect the action server")?
        {
            None => Ok(()),
            Some(status) => bail!("the action server has exited: {status}"),
        }
    }

    /// Whether the server accepts the key. One that rejects every key would pass every test.
    fn accepts_key(&self) -> bool {
        let request = || -> io::Result<bool> {
            let mut stream = TcpStream::connect_timeout(&self.address, START_TIMEOUT)?;
            stream.set_read_timeout(Some(START_TIMEOUT))?;
            write!(
                stream,
                "GET /v1/info HTTP/1.1\r\nhost: x\r\n{KEY_HEADER}: {KEY}\r\nconnection: close\r\n\r\n"
            )?;
            let mut status = [0; 12];
            stream.read_exact(&mut status)?;
            Ok(&status == b"HTTP/1.1 200")
        };
        request().unwrap_or(false)
    }
}

impl Drop for IsolatedServer {
    fn drop(&mut self) {
        // Fails only if the server has already exited.
        let _ = command::terminate(&mut self.child);
    }
}

/// Returns a free address. Another process could take it before the server does; the race is
/// accepted.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;

#[cfg(test)]
mod tests {
    use super::skip::{Requirement, skip};
    use super::*;

    /// Returns the output of `script` in the isolation. `None`, and the test is skipped, if this
    /// machine cannot isolate.
    fn output(script: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let confinement = match Confinement::new(&folder.path().join("root")) {
            Ok(confinement) => confinement,
            Err(error) => {
                skip(Requirement::Mount, format!("{error:#}"));
                return None;
            }
        };
        let shell = Path::new("/bin/sh");
        Some(
            command::capture(
                &mut confinement.command(shell, &["-c", script]),
                "running the script",
            )
            .unwrap(),
        )
    }

    #[test]
    fn confined_program_is_user_nobody_and_sees_no_processes() {
        let script = "while read -r name value; do case $name in Uid:|Gid:|CapEff:|NoNewPrivs:) echo $value; esac; \
                      done </proc/self/status; set -- /proc/[0-9]*; echo $#; \
                      for other in /etc /home /root /usr /var; do [ ! -e $other ] || echo $other; done";
        let Some(output) = output(script) else { return };
        let nobody = "65534 65534 65534 65534";
        let expected = format!("{nobody}\n{nobody}\n0000000000000000\n1\n2\n");
        assert_eq!(output, expected);
    }

    #[test]
    fn confined_program_changes_only_its_own_files() {
        let script = "for file in /x /bin/x /dev/x /proc/sys/kernel/hostname /space/x; do \
                      (echo x >$file) 2>/dev/null && echo $file; done; :";
        let Some(output) = output(script) else { return };
        assert_eq!(output, "/space/x\n");
    }

    #[test]
    fn confined_program_reads_the_key_but_not_our_environment() {
        let script = "read -r key; echo $key; set | grep -c CARGO 2>/dev/null; while read -r line; do case $line in \
                      *CARGO*) echo $line; esac; done </proc/self/environ; :";
        let Some(output) = output(script) else { return };
        assert_eq!(output, "schema\n");
    }
}

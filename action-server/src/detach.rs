//! `serve --detach`: starts the supervisor in its own session, waits until the server listens,
//! prints its address, and exits. The started processes keep none of our streams, so that the
//! channel that ran this command can close.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use crate::auth::ServerKey;
use crate::config::{self, ListenAddress, ServeConfig};
use crate::this_program;

/// A server starts in milliseconds. The timeout allows for an overloaded machine.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of the error output of a server that does not start.
const MAX_ERROR_BYTES: u64 = 64 << 10;

/// Starts a server that outlives this process.
pub(crate) fn run(config: &ServeConfig) -> anyhow::Result<ExitCode> {
    let ListenAddress::Unix(socket) = &config.address else {
        bail!("--detach requires --socket")
    };
    let key = config.has_key.then(ServerKey::from_stdin).transpose()?;
    let mut supervisor = start(key.as_ref())?;
    let started = wait_until_started(&mut supervisor, socket);
    // If the address cannot be printed, the caller would not know the server: it is stopped.
    let result = started.and_then(|()| print_address(&supervisor, socket));
    if result.is_err() {
        kill(supervisor);
    }
    result
}

fn start(key: Option<&ServerKey>) -> anyhow::Result<Child> {
    let mut supervisor = this_program::command()
        .args(config::arguments_with(&["--detached"]))
        .stdin(if key.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the supervisor")?;
    if let (Some(key), Some(mut input)) = (key, supervisor.stdin.take()) {
        key.write_to(&mut input)
            .context("cannot pass the key to the supervisor")?;
    }
    Ok(supervisor)
}

/// The server and its supervisor release standard error once the socket listens. So the end of the
/// stream means that they have started or have exited; its contents are the error.
fn wait_until_started(supervisor: &mut Child, socket: &Path) -> anyhow::Result<()> {
    let errors = read_errors(supervisor)?;
    if UnixStream::connect(socket)
        .is_ok_and(|connection| is_listened_on_by(supervisor, &connection))
    {
        return Ok(());
    }
    match errors.lines().last() {
        Some(line) => bail!("{}", line.strip_prefix("action-server: ").unwrap_or(line)),
        None => bail!("the server exited without an error message"),
    }
}

/// Returns whether the connection is to this supervisor, and not to one that was started before.
fn is_listened_on_by(supervisor: &Child, connection: &UnixStream) -> bool {
    let peer = getsockopt(connection, PeerCredentials);
    peer.is_ok_and(|peer| u32::try_from(peer.pid()) == Ok(supervisor.id()))
}

fn read_errors(supervisor: &mut Child) -> anyhow::Result<String> {
    let stderr = supervisor
        .stderr
        .take()
        .context("cannot read the server's standard error")?;
    let (sender, errors) = mpsc::channel();
    // The thread ends with the stream, or with this process.
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // After a failed read, what was read before is reported.
        _ = stderr.take(MAX_ERROR_BYTES).read_to_end(&mut bytes);
        _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    errors.recv_timeout(START_TIMEOUT).with_context(|| {
        format!(
            "the server does not listen after {} s",
            START_TIMEOUT.as_secs()
        )
    })
}

fn print_address(supervisor: &Child, socket: &Path) -> anyhow::Result<ExitCode> {
    let line = serde_json::json!({"pid": supervisor.id(), "socket": socket.to_string_lossy()});
    writeln!(io::stdout(), "{line}").context("cannot print the server's address")?;
    Ok(ExitCode::SUCCESS)
}

fn kill(mut supervisor: Child) {
    // The kernel terminates the server when its supervisor is killed. An error here cannot be
    // handled better.
    _ = supervisor.kill();
    _ = supervisor.wait();
}

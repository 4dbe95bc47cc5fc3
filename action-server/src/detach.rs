//! `serve --detach`: starts the supervisor in a session of its own, waits until the server listens, says where, and
//! goes. The started processes keep none of our streams, so that a channel that ran us can close.

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

use crate::auth::Key;
use crate::config::{self, Address, ServeConfig};
use crate::this_program;

/// A server starts in milliseconds; this is for a machine that has no time at all.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Of what a server says that does not start.
const MAX_COMPLAINT_BYTES: u64 = 64 << 10;

/// Starts a server that outlives this process.
pub(crate) fn run(config: &ServeConfig) -> anyhow::Result<ExitCode> {
    let Address::Unix(socket) = &config.address else { bail!("--detach needs --socket") };
    let key = config.has_key.then(Key::from_stdin).transpose()?;
    let mut supervisor = start(key.as_ref())?;
    let started = wait_until_started(&mut supervisor, socket);
    // A server that nobody was told of is nobody's.
    let told = started.and_then(|()| announce(&supervisor, socket));
    if told.is_err() {
        end(supervisor);
    }
    told
}

fn start(key: Option<&Key>) -> anyhow::Result<Child> {
    let mut supervisor = this_program::again()
        .args(config::arguments_with(&["--detached"]))
        .stdin(if key.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting the supervisor")?;
    if let (Some(key), Some(mut input)) = (key, supervisor.stdin.take()) {
        key.write_to(&mut input).context("handing the key on")?;
    }
    Ok(supervisor)
}

/// The server and its supervisor let go of the error stream when the socket listens. So the stream's end says that
/// they have started, or have ended; what was on it says why.
fn wait_until_started(supervisor: &mut Child, socket: &Path) -> anyhow::Result<()> {
    let complaint = read_complaint(supervisor)?;
    if UnixStream::connect(socket).is_ok_and(|connection| is_listened_on_by(supervisor, &connection)) {
        return Ok(());
    }
    match complaint.lines().last() {
        Some(line) => bail!("{}", line.strip_prefix("action-server: ").unwrap_or(line)),
        None => bail!("the server ended without a word"),
    }
}

/// Whether the connection is to this supervisor, and not to one that was started before.
fn is_listened_on_by(supervisor: &Child, connection: &UnixStream) -> bool {
    let peer = getsockopt(connection, PeerCredentials);
    peer.is_ok_and(|peer| u32::try_from(peer.pid()) == Ok(supervisor.id()))
}

fn read_complaint(supervisor: &mut Child) -> anyhow::Result<String> {
    let errors = supervisor.stderr.take().context("reading what the server says")?;
    let (read, complaint) = mpsc::channel();
    // Ends with its stream, or with this process.
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before a failure is what there is.
        _ = errors.take(MAX_COMPLAINT_BYTES).read_to_end(&mut bytes);
        _ = read.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    complaint
        .recv_timeout(START_TIMEOUT)
        .with_context(|| format!("waiting {} s for the server to listen", START_TIMEOUT.as_secs()))
}

fn announce(supervisor: &Child, socket: &Path) -> anyhow::Result<ExitCode> {
    let line = serde_json::json!({"pid": supervisor.id(), "socket": socket.to_string_lossy()});
    writeln!(io::stdout(), "{line}").context("saying where the server is")?;
    Ok(ExitCode::SUCCESS)
}

fn end(mut supervisor: Child) {
    // SIGKILL is enough: the server hears of it from the kernel. Failing here leaves nothing better to do.
    _ = supervisor.kill();
    _ = supervisor.wait();
}

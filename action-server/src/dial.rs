//! Joins standard input and output to a server's socket, so that any channel that can run a command reaches it.
//!
//! Two blocking threads: tokio's standard streams cost two to six times the throughput. Bytes are never looked at. Ends
//! at the socket's end at once, after the end of input within [`LAST_ANSWER`]; a thread that still blocks then ends
//! with the process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::prctl;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::Pid;
use protocol::sandbox_api::DIAL_GREETING;

/// How long an answer may take after the end of input. Not longer: an engine whose client has died closes our input
/// and nothing else, and such dials must not pile up.
const LAST_ANSWER: Duration = Duration::from_secs(2);

/// A pipe's capacity, and what container engines pass on at once.
const BUFFER_BYTES: usize = 64 << 10;

enum Ended {
    Input,
    Socket,
}

/// Runs until one side has ended. Not a byte passes, and no greeting is written, if another process than `server` listens.
pub(crate) fn run(socket: &Path, server: Option<Pid>) -> anyhow::Result<ExitCode> {
    // The host's key passes through: what runs under the same user must not open our descriptors.
    prctl::set_dumpable(false).context("hiding what passes through")?;
    let from_socket =
        UnixStream::connect(socket).with_context(|| format!("connecting to {}", socket.display()))?;
    if let Some(server) = server {
        check_peer(&from_socket, server).with_context(|| format!("connecting to {}", socket.display()))?;
    }
    let to_socket = from_socket.try_clone().context("sharing the socket")?;
    // Files, because the library's own standard streams keep buffers between.
    let input = file_of(io::stdin())?;
    let mut output = file_of(io::stdout())?;
    output.write_all(DIAL_GREETING).context("writing the greeting")?;
    let (ended, ends) = mpsc::channel();
    let input_ended = ended.clone();
    thread::spawn(move || carry_input(input, to_socket, &input_ended));
    thread::spawn(move || carry_output(from_socket, output, &ended));
    if let Ok(Ended::Input) = ends.recv() {
        // Either the answer's end or the time's: both end us.
        _ = ends.recv_timeout(LAST_ANSWER);
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks that the server listens on the socket. What runs under the same user can give the socket's name to its own; the
/// kernel's record of the process that called `listen` it cannot change.
fn check_peer(stream: &UnixStream, server: Pid) -> anyhow::Result<()> {
    let peer = getsockopt(stream, PeerCredentials).context("reading its peer")?.pid();
    if peer != server.as_raw() {
        bail!("process {peer} listens there instead of the server, process {server}");
    }
    Ok(())
}

fn carry_input(input: File, socket: UnixStream, ended: &Sender<Ended>) {
    carry(input, &socket);
    // The server sees the end of the request and may still answer.
    _ = socket.shutdown(Shutdown::Write);
    _ = ended.send(Ended::Input);
}

fn carry_output(socket: UnixStream, output: File, ended: &Sender<Ended>) {
    carry(socket, output);
    _ = ended.send(Ended::Socket);
}

/// Until either side has ended; that a side failed tells no more than that.
fn carry(mut from: impl Read, mut to: impl Write) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                if to.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn file_of(stream: impl AsFd) -> anyhow::Result<File> {
    Ok(File::from(stream.as_fd().try_clone_to_owned().context("taking a standard stream")?))
}

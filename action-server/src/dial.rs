//! Connects standard input and output to the server's socket, so that any channel that can run a
//! command reaches it.
//!
//! Uses two blocking threads: tokio's standard streams cost two to six times the throughput. Bytes
//! are not inspected. Returns immediately at the end of the socket, and within [`RESPONSE_TIMEOUT`]
//! after the end of input. A thread that is still blocked then ends with the process.

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

/// Maximum time for a response after the end of input. It is short, because a container engine
/// whose client has died only closes our input, and such processes must not accumulate.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The capacity of a pipe, and the size of the chunks that container engines forward.
const BUFFER_BYTES: usize = 64 << 10;

enum ClosedSide {
    Input,
    Socket,
}

/// Copies until one side has closed. If another process than `server` listens, no byte is copied
/// and no greeting written.
pub(crate) fn run(socket: &Path, server: Option<Pid>) -> anyhow::Result<ExitCode> {
    // The host's key passes through: other processes of the same user must not open our
    // descriptors.
    prctl::set_dumpable(false).context("cannot protect the process memory")?;
    let from_socket = UnixStream::connect(socket)
        .with_context(|| format!("cannot connect to {}", socket.display()))?;
    if let Some(server) = server {
        check_peer(&from_socket, server)
            .with_context(|| format!("cannot connect to {}", socket.display()))?;
    }
    let to_socket = from_socket
        .try_clone()
        .context("cannot duplicate the socket")?;
    // Files, because the standard library buffers its own standard streams.
    let input = to_file(io::stdin())?;
    let mut output = to_file(io::stdout())?;
    output
        .write_all(DIAL_GREETING)
        .context("cannot write the greeting")?;
    let (closed, closed_sides) = mpsc::channel();
    let input_closed = closed.clone();
    thread::spawn(move || copy_input(input, to_socket, &input_closed));
    thread::spawn(move || copy_output(from_socket, output, &closed));
    if let Ok(ClosedSide::Input) = closed_sides.recv() {
        // The process exits both after the response and after the timeout.
        _ = closed_sides.recv_timeout(RESPONSE_TIMEOUT);
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks that the server listens on the socket. Another process of the same user can replace the
/// socket's file, but not the kernel's record of the process that called `listen`.
fn check_peer(stream: &UnixStream, server: Pid) -> anyhow::Result<()> {
    let peer = getsockopt(stream, PeerCredentials)
        .context("cannot read the peer's credentials")?
        .pid();
    if peer != server.as_raw() {
        bail!("process {peer} listens there instead of the server, process {server}");
    }
    Ok(())
}

fn copy_input(input: File, socket: UnixStream, closed: &Sender<ClosedSide>) {
    copy(input, &socket);
    // The server sees the end of the request and may still respond.
    _ = socket.shutdown(Shutdown::Write);
    _ = closed.send(ClosedSide::Input);
}

fn copy_output(socket: UnixStream, output: File, closed: &Sender<ClosedSide>) {
    copy(socket, output);
    _ = closed.send(ClosedSide::Socket);
}

/// Copies until one side is closed or has failed.
fn copy(mut from: impl Read, mut to: impl Write) {
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

fn to_file(stream: impl AsFd) -> anyhow::Result<File> {
    Ok(File::from(
        stream
            .as_fd()
            .try_clone_to_owned()
            .context("cannot duplicate a standard stream")?,
    ))
}

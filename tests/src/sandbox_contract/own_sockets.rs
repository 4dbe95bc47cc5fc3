//! Shutdown of this process's sockets, to simulate a broken connection: both ends see its end.

use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Cuts every connection of this process to the unix socket at `path` and returns their number.
pub fn cut_unix(path: &Path) -> usize {
    cut(|socket| {
        let socket = UnixStream::from(socket);
        let is_it = socket
            .peer_addr()
            .is_ok_and(|peer| peer.as_pathname() == Some(path));
        is_it && socket.shutdown(Shutdown::Both).is_ok()
    })
}

/// Cuts every connection of this process to a remote port and returns their number.
pub fn cut_tcp(port: u16) -> usize {
    cut(|socket| {
        let socket = TcpStream::from(socket);
        let is_it = socket.peer_addr().is_ok_and(|peer| peer.port() == port);
        is_it && socket.shutdown(Shutdown::Both).is_ok()
    })
}

fn cut(cuts: impl Fn(OwnedFd) -> bool) -> usize {
    own_sockets(getpid())
        .into_iter()
        .filter_map(|socket| cuts(socket).then_some(()))
        .count()
}

/// Returns duplicates of all sockets of a process. A shutdown of a duplicate shuts down the socket.
fn own_sockets(process: Pid) -> Vec<OwnedFd> {
    let handle = pidfd_open(process, PidfdFlags::empty()).unwrap();
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let sockets = entries.filter(|entry| {
        std::fs::read_link(entry.path())
            .is_ok_and(|link| link.to_string_lossy().starts_with("socket:"))
    });
    let numbers = sockets.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // A socket that was closed in between needs no cut.
    numbers
        .filter_map(|number| pidfd_getfd(&handle, number, PidfdGetfdFlags::empty()).ok())
        .collect()
}

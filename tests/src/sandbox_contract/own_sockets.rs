//! Sockets of this process, to be cut under whoever uses them: both ends see an end, as when a line breaks.

use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Cuts every connection of this process to the unix socket at `path`; how many there were.
pub fn cut_unix(path: &Path) -> usize {
    cut(|socket| {
        let socket = UnixStream::from(socket);
        let is_it = socket.peer_addr().is_ok_and(|peer| peer.as_pathname() == Some(path));
        is_it && socket.shutdown(Shutdown::Both).is_ok()
    })
}

/// Cuts every connection of this process to this port of a host; how many there were.
pub fn cut_tcp(port: u16) -> usize {
    cut(|socket| {
        let socket = TcpStream::from(socket);
        let is_it = socket.peer_addr().is_ok_and(|peer| peer.port() == port);
        is_it && socket.shutdown(Shutdown::Both).is_ok()
    })
}

fn cut(cuts: impl Fn(OwnedFd) -> bool) -> usize {
    own_sockets(getpid()).into_iter().filter_map(|socket| cuts(socket).then_some(())).count()
}

/// Handles of our own on all sockets of a process: what is done to one is done to the socket.
fn own_sockets(process: Pid) -> Vec<OwnedFd> {
    let handle = pidfd_open(process, PidfdFlags::empty()).unwrap();
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let sockets = entries.filter(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"))
    });
    let numbers = sockets.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // One that is closed meanwhile is cut already.
    numbers.filter_map(|number| pidfd_getfd(&handle, number, PidfdGetfdFlags::empty()).ok()).collect()
}

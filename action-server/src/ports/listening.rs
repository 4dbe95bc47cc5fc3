//! Lists listening sockets from `/proc/net`. A test connection would disturb the listener.
//!
//! Reads a few small files. Finding the owner of a port reads all processes and must run in a
//! blocking thread.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use protocol::sandbox_api::{ListeningPort, PortProcess};

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Maximum number of listed ports. A hostile program can open all of them.
const MAX_PORTS: usize = 1024;

/// A listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ListeningSocket {
    address: SocketAddr,
    inode: u64,
}

/// Returns whether a process listens on the port.
pub(crate) fn is_listening(port: u16) -> bool {
    sockets().iter().any(|socket| socket.address.port() == port)
}

/// Returns the addresses on which the port can be reached, loopback first.
pub(super) fn addresses(port: u16) -> Vec<SocketAddr> {
    let mut addresses: Vec<_> = sockets()
        .into_iter()
        .filter(|socket| socket.address.port() == port)
        .flat_map(|socket| reachable(socket.address))
        .collect();
    addresses.sort_by_key(|address| (!address.ip().is_loopback(), *address));
    addresses.dedup();
    addresses
}

/// Lists all ports with their processes. Blocks.
pub(crate) fn listening() -> Vec<ListeningPort> {
    let mut ports: BTreeMap<u16, Vec<ListeningSocket>> = BTreeMap::new();
    for socket in sockets() {
        ports.entry(socket.address.port()).or_default().push(socket);
    }
    let owners = owners();
    ports
        .into_iter()
        .take(MAX_PORTS)
        .map(|(port, sockets)| describe(port, &sockets, &owners))
        .collect()
}

fn describe(
    port: u16,
    sockets: &[ListeningSocket],
    owners: &HashMap<u64, Vec<i32>>,
) -> ListeningPort {
    let mut addresses: Vec<_> = sockets
        .iter()
        .map(|socket| socket.address.ip().to_string())
        .collect();
    addresses.sort();
    addresses.dedup();
    let mut pids: Vec<_> = sockets
        .iter()
        .filter_map(|socket| owners.get(&socket.inode))
        .flatten()
        .collect();
    pids.sort();
    pids.dedup();
    let process = |&pid: &i32| PortProcess {
        pid,
        name: process_name(pid),
    };
    ListeningPort {
        port,
        addresses,
        processes: pids.into_iter().map(process).collect(),
    }
}

fn process_name(pid: i32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

fn sockets() -> Vec<ListeningSocket> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|path| fs::read_to_string(path).unwrap_or_default());
    tables
        .iter()
        .flat_map(|table| table.lines())
        .filter_map(parse)
        .collect()
}

/// Parses `N: ADDRESS:PORT REMOTE STATE QUEUES TIMER RETRANSMITS UID TIMEOUT INODE …`, with
/// addresses as hexadecimal words.
fn parse(line: &str) -> Option<ListeningSocket> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    if fields.nth(1)? != LISTEN {
        return None;
    }
    let inode = fields.nth(5)?.parse().ok()?;
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(ListeningSocket {
        address: SocketAddr::new(parse_address(address)?, port),
        inode,
    })
}

/// Parses words of 32 bits in native byte order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        u32::from_str_radix(text.get(at..at + 8)?, 16)
            .ok()
            .map(u32::to_ne_bytes)
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let bytes = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical())
        }
        _ => None,
    }
}

/// Returns the addresses to connect to for a listening address. An unspecified one includes
/// loopback. An unspecified IPv6 address usually includes IPv4, which is the only one that works
/// where IPv6 is disabled.
fn reachable(address: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    let (ip, other) = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST.into(), None),
        IpAddr::V6(ip) if ip.is_unspecified() => {
            (Ipv6Addr::LOCALHOST.into(), Some(Ipv4Addr::LOCALHOST.into()))
        }
        ip => (ip, None),
    };
    [Some(ip), other]
        .into_iter()
        .flatten()
        .map(move |ip| SocketAddr::new(ip, address.port()))
}

/// Maps the inode of each socket to the processes that have it open.
fn owners() -> HashMap<u64, Vec<i32>> {
    let mut owners: HashMap<u64, Vec<i32>> = HashMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        for inode in
            descriptors.filter_map(|entry| socket_inode(&fs::read_link(entry.path()).ok()?))
        {
            owners.entry(inode).or_default().push(pid);
        }
    }
    owners
}

fn socket_inode(link: &std::path::Path) -> Option<u64> {
    link.to_str()?
        .strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_is_parsed_from_the_kernel_table() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1";
        let socket = parse(line).unwrap();
        assert_eq!(
            (socket.address.to_string().as_str(), socket.inode),
            ("127.0.0.1:8080", 4711)
        );
        assert_eq!(parse(&line.replace(" 0A ", " 01 ")), None);
        assert_eq!(parse("  sl  local_address rem_address   st"), None);
        let six = line.replace("0100007F", "00000000000000000000000001000000");
        assert_eq!(parse(&six).unwrap().address.to_string(), "[::1]:8080");
    }

    #[test]
    fn listener_of_this_process_is_listed() {
        for address in ["127.0.0.1:0", "[::]:0"] {
            let listener = std::net::TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(is_listening(port));
            assert!(
                addresses(port)
                    .iter()
                    .all(|address| address.ip().is_loopback())
            );
            assert!(addresses(port).iter().any(SocketAddr::is_ipv4));
            let found = listening()
                .into_iter()
                .find(|found| found.port == port)
                .unwrap();
            assert!(
                found
                    .processes
                    .iter()
                    .any(|process| process.pid == std::process::id() as i32),
                "{found:?}"
            );
            drop(listener);
            assert!(!is_listening(port));
        }
    }
}

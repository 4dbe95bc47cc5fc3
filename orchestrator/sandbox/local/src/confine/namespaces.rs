//! New namespaces for this process and its children: users (not needed for root), mounts,
//! processes, IPC objects, control groups and, without a network, network interfaces.

use std::fs;
use std::io;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, socket};
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, UnshareFlags, capabilities, configure_capability_in_ambient_set,
    set_capabilities,
};

use super::ConfineError;

/// Enters the namespaces. The next child is the first process in the process namespace; it keeps
/// the capability to mount, and no other, when it executes a program.
pub(super) fn enter(network: bool) -> Result<(), ConfineError> {
    let (user, group) = (geteuid(), getegid());
    let can_mount =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    let mut namespaces =
        UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWIPC | UnshareFlags::NEWCGROUP;
    namespaces.set(UnshareFlags::NEWNET, !network);
    namespaces.set(UnshareFlags::NEWUSER, !can_mount);
    #[expect(
        deprecated,
        reason = "it is unsafe only for descriptor tables, which are not unshared here"
    )]
    rustix::thread::unshare(namespaces).map_err(failed("unshare namespaces"))?;
    if !can_mount {
        let write = |file, text: String| fs::write(file, text).map_err(failed("map the user"));
        write("/proc/self/setgroups", "deny".into())?;
        write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    if !network {
        enable_loopback().map_err(failed("enable the loopback interface"))?;
    }
    keep_across_exec(CapabilitySet::SYS_ADMIN).map_err(failed("keep the capability to mount"))
}

fn keep_across_exec(capability: CapabilitySet) -> rustix::io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.inheritable |= capability;
    set_capabilities(None, sets)?;
    configure_capability_in_ambient_set(capability, true)
}

/// Sets the flag `IFF_UP` of the first interface, which is the only one. Uses netlink: no library
/// wraps the older ioctl safely.
fn enable_loopback() -> io::Result<()> {
    const LENGTH: u32 = 32;
    let (interface, up) = (1_i32, libc::IFF_UP.unsigned_abs());
    let request = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_ACK).unwrap_or_default();
    let mut message = Vec::new();
    message.extend(LENGTH.to_ne_bytes());
    message.extend(libc::RTM_NEWLINK.to_ne_bytes());
    message.extend(request.to_ne_bytes());
    message.extend([0; 8]); // sequence number and sender
    message.extend([0; 4]); // any family, any type
    message.extend(interface.to_ne_bytes());
    message.extend(up.to_ne_bytes()); // the flags
    message.extend(up.to_ne_bytes()); // those that change
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None)?; // protocol 0: routes and links
    send(&socket, &message, SendFlags::empty())?;
    let mut response = [0; 64];
    let (_, length) = recv(&socket, &mut response, RecvFlags::empty())?;
    // An acknowledgement: a header of 16 bytes, then the error number.
    let error = response
        .get(16..20)
        .filter(|_| length >= 20)
        .and_then(|error| error.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn failed<E: Into<io::Error>>(operation: &str) -> impl FnOnce(E) -> ConfineError {
    move |error| ConfineError::Namespaces {
        operation: operation.into(),
        source: error.into(),
    }
}

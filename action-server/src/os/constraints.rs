//! Changes the identity and the resource limits of a child before its program starts.

// The standard library can set neither supplementary groups nor limits between fork and exec,
// except through `pre_exec`.
#![allow(unsafe_code)]

use std::io;

use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use tokio::process::Command;

/// Identity and limits of a child.
#[derive(Debug, Clone, Default)]
pub(crate) struct Constraints {
    /// User, group and supplementary groups. `None` keeps the server's. Changing them requires
    /// root.
    pub(crate) identity: Option<(Uid, Gid, Vec<Gid>)>,
    /// Each value becomes both the soft and the hard limit.
    pub(crate) limits: Vec<(Resource, u64)>,
}

/// Applies `constraints` before exec. Applying them to a running process would be too late for the
/// children it has already started.
pub(crate) fn constrain(command: &mut Command, constraints: Constraints) {
    // SAFETY: the closure runs between fork and exec and only makes system calls: no allocation, no
    // lock. The vectors are in the parent's memory, of which the child has a copy.
    unsafe { command.pre_exec(move || apply(&constraints)) };
}

/// Runs in the child.
fn apply(constraints: &Constraints) -> io::Result<()> {
    if let Some((user, group, groups)) = &constraints.identity {
        setgroups(groups)?;
        setresgid(*group, *group, *group)?;
        setresuid(*user, *user, *user)?;
    }
    for &(resource, limit) in &constraints.limits {
        setrlimit(resource, limit, limit)?;
    }
    Ok(())
}

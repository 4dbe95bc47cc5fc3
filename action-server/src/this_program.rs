//! This program, started again in another role.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;
use nix::sys::prctl;

/// By the kernel's link, not by its name: a host may have put another file there since, the same server once more even.
pub(crate) fn again() -> Command {
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    command
}

/// Has the system list this process as what it is, not as the link it was started by.
pub(crate) fn take_name() -> anyhow::Result<()> {
    prctl::set_name(c"action-server").context("taking the program's name")
}

//! Starts this program again in another role.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;
use nix::sys::prctl;

/// Returns a command that starts this binary. It uses the kernel's link, because the file at the
/// original path may have been replaced since, even by another server.
pub(crate) fn command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    command
}

/// Sets the process name to the program's name. Otherwise tools like `ps` would show `exe`, the
/// name of the link.
pub(crate) fn set_process_name() -> anyhow::Result<()> {
    prctl::set_name(c"action-server").context("cannot set the process name")
}

//! Letting go of standard streams: a stream that is kept open keeps whoever waits for its end waiting. They go to
//! `/dev/null` and are not closed, because the next file that is opened would get their number.

use std::fs::{File, OpenOptions};

use anyhow::Context as _;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

/// Nothing reads input here again. Nothing but `dial` and `serve --detach` ever writes to standard output.
pub(crate) fn leave_stdin_and_stdout() -> anyhow::Result<()> {
    let null = null()?;
    dup2_stdin(&null).context("leaving standard input")?;
    dup2_stdout(&null).context("leaving standard output")
}

/// Logs and errors are dropped from here on.
pub(crate) fn leave_stderr() -> anyhow::Result<()> {
    dup2_stderr(&null()?).context("leaving standard error")
}

fn null() -> anyhow::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/null").context("opening /dev/null")
}

//! Releases standard streams. A peer that waits for the end of a stream would otherwise wait until
//! this process exits. They are redirected to `/dev/null` and not closed, because the next file to
//! be opened would get their number.

use std::fs::{File, OpenOptions};

use anyhow::Context as _;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

/// Nothing reads standard input afterwards. Only `dial` and `serve --detach` ever write to standard
/// output.
pub(crate) fn release_stdin_and_stdout() -> anyhow::Result<()> {
    let null = null()?;
    dup2_stdin(&null).context("cannot release standard input")?;
    dup2_stdout(&null).context("cannot release standard output")
}

/// Logs and errors are dropped afterwards.
pub(crate) fn release_stderr() -> anyhow::Result<()> {
    dup2_stderr(&null()?).context("cannot release standard error")
}

fn null() -> anyhow::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .context("cannot open /dev/null")
}

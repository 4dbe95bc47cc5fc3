//! The first process of `action-server v0`: removes the key from the environment, becomes the
//! requested user, and executes the program again.
//!
//! Others can read the initial environment of a process while it runs, even after the process has
//! changed its copy. Only `exec` replaces it. The key is passed through a pipe, as standard input.
//! The pid does not change, so that the parent process still knows it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, bail};
use nix::unistd::pipe;

use super::user;
use crate::auth::ServerKey;
use crate::config::{self, LaunchConfig};
use crate::this_program;

/// V0's name.
const KEY_VARIABLE: &str = "SESSION_API_KEY";

/// Returns only on an error.
pub(crate) fn run(config: &LaunchConfig) -> anyhow::Result<ExitCode> {
    let key = std::env::var_os(KEY_VARIABLE).filter(|key| !key.is_empty());
    let key = key
        .as_deref()
        .map(OsStr::as_bytes)
        .map(ServerKey::from_line);
    let key = key
        .transpose()
        .with_context(|| format!("cannot read {KEY_VARIABLE}"))?;
    if key.is_none() && !config.address.ip().is_loopback() {
        bail!(
            "listening on {} requires a key: set {KEY_VARIABLE}",
            config.address.ip()
        );
    }
    let mut command = this_program::command();
    command.args(config::arguments_with(&[if key.is_some() {
        "--key-stdin"
    } else {
        "--without-key"
    }]));
    command.env_remove(KEY_VARIABLE);
    if let Some(user) = user::requested(config)? {
        user::prepare(&user, &config.working_dir)?;
        command.envs(user.environment());
        user::become_user(&user)?;
    }
    command.stdin(match &key {
        Some(key) => piped(key).context("cannot pass the key to the server")?,
        None => Stdio::null(),
    });
    Err(command.exec()).context("cannot start the server")
}

/// Writes the key to a pipe. It fits, so that no reader is needed yet.
fn piped(key: &ServerKey) -> io::Result<Stdio> {
    let (read, write) = pipe()?;
    key.write_to(&mut File::from(write))?;
    Ok(Stdio::from(read))
}

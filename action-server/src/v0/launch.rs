//! `action-server v0`, its first process: takes the key out of the environment, becomes the user that is asked for, and
//! starts the program over in its own place.
//!
//! A process's environment can be read by others as long as the process lives, whatever it does to its copy; only a new
//! program has a new one. The key goes over in a pipe, as standard input. The process stays the same one, so whoever
//! started it still has its pid.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, bail};
use nix::unistd::pipe;

use super::user;
use crate::auth::Key;
use crate::config::{self, LaunchConfig};
use crate::this_program;

/// As V0 names it.
const KEY_VARIABLE: &str = "SESSION_API_KEY";

/// Returns only when it fails.
pub(crate) fn run(config: &LaunchConfig) -> anyhow::Result<ExitCode> {
    let key = std::env::var_os(KEY_VARIABLE).filter(|key| !key.is_empty());
    let key = key.as_deref().map(OsStr::as_bytes).map(Key::from_line);
    let key = key.transpose().with_context(|| format!("reading {KEY_VARIABLE}"))?;
    if key.is_none() && !config.address.ip().is_loopback() {
        bail!("listening on {} needs a key: set {KEY_VARIABLE}", config.address.ip());
    }
    let mut command = this_program::command();
    command.args(config::arguments_with(&[if key.is_some() { "--key-stdin" } else { "--without-key" }]));
    command.env_remove(KEY_VARIABLE);
    if let Some(user) = user::wanted(config)? {
        user::prepare(&user, &config.working_dir)?;
        command.envs(user.environment());
        user::become_user(&user)?;
    }
    command.stdin(match &key {
        Some(key) => piped(key).context("handing the key on")?,
        None => Stdio::null(),
    });
    Err(command.exec()).context("starting the server")
}

/// A key fits in a pipe that nobody reads yet.
fn piped(key: &Key) -> io::Result<Stdio> {
    let (read, write) = pipe()?;
    key.write_to(&mut File::from(write))?;
    Ok(Stdio::from(read))
}

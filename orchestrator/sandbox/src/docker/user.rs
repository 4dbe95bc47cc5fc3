//! Whom a container runs as when it works in a folder of the host: whoever owns what it makes there.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use engine::sandbox::SandboxError;

use super::engine::{Engine, failed};
use crate::placement::{check_workspace, unusable_workspace};

/// A user and a group of the host, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl User {
    const ROOT: Self = Self { uid: 0, gid: 0 };

    /// Who runs this program.
    fn of_this_process() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }
}

/// Whom to run as in this workspace, which is checked as far as it can be seen from here.
pub(super) async fn for_workspace(engine: &Engine, workspace: &Path) -> Result<User, SandboxError> {
    let caller = User::of_this_process();
    if !engine.is_local {
        return Ok(caller); // the folder is the engine's host's: the engine refuses one that is missing
    }
    let path = check_workspace(workspace)?;
    if is_rootless(engine).await? {
        return Ok(User::ROOT); // of a rootless engine's containers: outside of them, that is the caller
    }
    if caller != User::ROOT {
        return Ok(caller);
    }
    // Root works for others: what it makes in a user's folder must be that user's.
    let found = path.metadata().map_err(|error| unusable_workspace(workspace, error))?;
    let owner = User { uid: found.uid(), gid: found.gid() };
    if owner.uid != 0 && found.mode() & 0o300 != 0o300 {
        return Err(unusable_workspace(workspace, format!("its owner {owner} has no right to")));
    }
    Ok(owner)
}

async fn is_rootless(engine: &Engine) -> Result<bool, SandboxError> {
    let info = engine.docker.info().await.map_err(|error| failed("asking the engine how it runs", &error))?;
    Ok(info.security_options.iter().flatten().any(|option| option == "name=rootless"))
}

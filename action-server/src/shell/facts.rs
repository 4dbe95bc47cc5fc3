//! What every observation says about the machine: who, where, which Python. Read once when a session starts.

use std::ffi::{OsStr, OsString};

use nix::unistd::{gethostname, getuid};

use super::program::find_executable;
use crate::os::accounts::Accounts;

/// The facts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) username: Option<String>,
    pub(super) hostname: Option<String>,
    pub(super) python: Option<String>,
}

impl Facts {
    /// The facts of a shell with this environment.
    pub(super) fn gather(environment: &[(OsString, OsString)]) -> Self {
        let search = search_path(environment);
        let python = ["python3", "python"].into_iter().find_map(|name| find_executable(name, search));
        Self {
            username: Accounts::read().find_by_uid(getuid()).map(|account| account.name),
            hostname: gethostname().ok().map(|name| name.to_string_lossy().into_owned()),
            python: python.map(|path| path.to_string_lossy().into_owned()),
        }
    }
}

/// `PATH` of an environment.
pub(super) fn search_path(environment: &[(OsString, OsString)]) -> Option<&OsStr> {
    environment.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str())
}

//! Information about the machine that every observation contains. Collected once per session.

use std::ffi::{OsStr, OsString};

use nix::unistd::{gethostname, getuid};

use super::program::find_executable;
use crate::os::accounts::Accounts;

/// User, host and Python interpreter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MachineInfo {
    pub(super) username: Option<String>,
    pub(super) hostname: Option<String>,
    pub(super) python: Option<String>,
}

impl MachineInfo {
    /// Collects the information for a shell with this environment.
    pub(super) fn collect(environment: &[(OsString, OsString)]) -> Self {
        let search = search_path(environment);
        let python = ["python3", "python"]
            .into_iter()
            .find_map(|name| find_executable(name, search));
        Self {
            username: Accounts::read()
                .find_by_uid(getuid())
                .map(|account| account.name),
            hostname: gethostname()
                .ok()
                .map(|name| name.to_string_lossy().into_owned()),
            python: python.map(|path| path.to_string_lossy().into_owned()),
        }
    }
}

/// Returns the `PATH` of an environment.
pub(super) fn search_path(environment: &[(OsString, OsString)]) -> Option<&OsStr> {
    environment
        .iter()
        .rev()
        .find(|(name, _)| name == "PATH")
        .map(|(_, value)| value.as_os_str())
}

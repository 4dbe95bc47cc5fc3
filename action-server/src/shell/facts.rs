//! What every observation says about the machine: who, where, which Python. Read once when a session starts.
//!
//! Never through the C library's name services: a static glibc aborts in images that have an older one
//! (`reference/shell.md`), so `/etc/passwd` is read here.

use std::ffi::{OsStr, OsString};
use std::fs;

use nix::unistd::{gethostname, getuid};

use super::program::find_executable;

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
        // Bytes, because an account's comment may be in any encoding.
        let accounts = fs::read("/etc/passwd").unwrap_or_default();
        Self {
            username: name_of(getuid().as_raw(), &String::from_utf8_lossy(&accounts)),
            hostname: gethostname().ok().map(|name| name.to_string_lossy().into_owned()),
            python: python.map(|path| path.to_string_lossy().into_owned()),
        }
    }
}

/// `PATH` of an environment.
pub(super) fn search_path(environment: &[(OsString, OsString)]) -> Option<&OsStr> {
    environment.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str())
}

/// The account with this number in a file like `/etc/passwd`.
fn name_of(uid: u32, accounts: &str) -> Option<String> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_number() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\n+::::::\nbroken\nme:x:1000:1000::/home/me:\n";
        assert_eq!(name_of(1000, accounts).as_deref(), Some("me"));
        assert_eq!(name_of(7, accounts), None);
    }
}

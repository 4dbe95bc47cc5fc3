//! What commands get as their environment: the server's own, without what is ours, with what every command needs.

use std::ffi::{OsStr, OsString};

use nix::unistd::geteuid;

use crate::accounts::{Account, Accounts};

/// The usual one, for containers that set none.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// V0's variables that its clients set for its server; the first is a key.
const NOT_FOR_COMMANDS: [&str; 2] = ["SESSION_API_KEY", "NO_CHANGE_TIMEOUT_SECONDS"];

/// The C library's allocator keeps memory apart for every thread that comes and goes, and those that block for files do.
/// What one thread gives back serves another where there is one arena.
const ARENAS: &str = "MALLOC_ARENA_MAX";

/// Where the value for commands is meanwhile, if there is one.
const KEPT_ARENAS: &str = "GLOVEBOX_KEPT_MALLOC_ARENA_MAX";

/// What the supervisor sets for the server, over its own.
pub(crate) fn for_the_server() -> Vec<(&'static str, OsString)> {
    let kept = std::env::var_os(ARENAS).map(|value| (KEPT_ARENAS, value));
    [(ARENAS, "1".into())].into_iter().chain(kept).collect()
}

/// The environment of shells and processes.
pub(crate) fn for_commands() -> Vec<(OsString, OsString)> {
    complete(std::env::vars_os(), Accounts::read().of(geteuid()))
}

fn complete(
    own: impl Iterator<Item = (OsString, OsString)>,
    user: Option<Account>,
) -> Vec<(OsString, OsString)> {
    let is_theirs =
        |name: &OsStr| name != ARENAS && !NOT_FOR_COMMANDS.iter().any(|not| name == OsStr::new(not));
    let mut environment: Vec<_> = own
        .filter(|(name, _)| is_theirs(name))
        .map(|(name, value)| (if name == KEPT_ARENAS { ARENAS.into() } else { name }, value))
        .collect();
    let mut default = |name: &str, value: OsString| {
        if !environment.iter().any(|(present, value)| present == OsStr::new(name) && !value.is_empty()) {
            environment.retain(|(present, _)| present != OsStr::new(name));
            environment.push((name.into(), value));
        }
    };
    default("PATH", DEFAULT_PATH.into());
    default("HOME", user.and_then(|account| account.home).unwrap_or_else(|| "/".into()));
    environment
}

#[cfg(test)]
mod tests {
    use nix::unistd::{Gid, Uid};

    use super::*;

    fn completed(own: &[(&str, &str)], home: Option<&str>) -> Vec<(String, String)> {
        let own = own.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let account = Account {
            name: "agent".into(),
            uid: Uid::from_raw(1000),
            gid: Gid::from_raw(1000),
            home: home.map(Into::into),
        };
        let environment = complete(own, Some(account)).into_iter();
        environment.map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap())).collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.into(), value.into())
    }

    #[test]
    fn the_servers_allocator_is_not_the_commands() {
        let home = pair("HOME", "/h");
        let ours = completed(&[("PATH", "/p"), ("HOME", "/h"), (ARENAS, "1")], None);
        assert_eq!(ours, [pair("PATH", "/p"), home.clone()]);
        let theirs = completed(&[("PATH", "/p"), (ARENAS, "1"), (KEPT_ARENAS, "4"), ("HOME", "/h")], None);
        assert_eq!(theirs, [pair("PATH", "/p"), pair(ARENAS, "4"), home]);
    }

    #[test]
    fn what_is_missing_is_added() {
        assert_eq!(
            completed(&[], Some("/home/agent")),
            [pair("PATH", DEFAULT_PATH), pair("HOME", "/home/agent")]
        );
        assert_eq!(completed(&[("HOME", "")], None), [pair("PATH", DEFAULT_PATH), pair("HOME", "/")]);
    }

    #[test]
    fn what_is_there_stays_except_keys() {
        let own = [("PATH", "/opt"), ("HOME", "/h"), ("LANG", "C"), ("SESSION_API_KEY", "secret")];
        assert_eq!(
            completed(&own, Some("/root")),
            [pair("PATH", "/opt"), pair("HOME", "/h"), pair("LANG", "C")]
        );
    }
}

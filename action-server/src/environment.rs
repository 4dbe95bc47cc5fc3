//! What commands get as their environment: the server's own, without what is ours, with what every command needs, and
//! over it what the host has set.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, PoisonError};

use nix::unistd::geteuid;
use protocol::sandbox_api::{CommandEnvironment, MAX_ENVIRONMENT_BYTES, MAX_VARIABLE_BYTES};

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

/// Names and their values.
pub(crate) type Variables = Vec<(OsString, OsString)>;

/// What whoever is started next gets. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Environment {
    /// What there is without the host's word.
    own: Arc<Variables>,
    /// Locked only to take or to replace what it holds.
    current: Arc<Mutex<Arc<Variables>>>,
}

/// Why an environment is not taken. Never shows a value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvironmentError {
    #[error("{0:?} is no variable's name")]
    Name(String),
    #[error("the value of {0:?} holds a NUL")]
    Value(String),
    #[error("{0:?} and its value have more than {MAX_VARIABLE_BYTES} bytes")]
    TooLong(String),
    #[error("names and values have more than {MAX_ENVIRONMENT_BYTES} bytes")]
    TooMuch,
}

impl Environment {
    /// With nothing of the host's yet.
    pub(crate) fn of(own: Variables) -> Self {
        let own = Arc::new(own);
        Self { current: Arc::new(Mutex::new(Arc::clone(&own))), own }
    }

    /// As it is now.
    pub(crate) fn current(&self) -> Arc<Variables> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts these over our own, in the place of those that were there before. All or none.
    pub(crate) fn set(&self, variables: BTreeMap<String, String>) -> Result<(), EnvironmentError> {
        check(&variables)?;
        let is_replaced = |name: &OsStr| name.to_str().is_some_and(|name| variables.contains_key(name));
        let kept = self.own.iter().filter(|(name, _)| !is_replaced(name)).cloned();
        let set = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let all: Variables = kept.chain(set).collect();
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
        Ok(())
    }
}

/// It holds secrets.
impl std::fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Environment(…)")
    }
}

/// Whether a command can have these for itself. A shell is told their names.
pub(crate) fn check_for_a_command(variables: &CommandEnvironment) -> Result<(), EnvironmentError> {
    let is_of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_name = |name: &String| {
        name.bytes().all(is_of_a_name) && !name.starts_with(|first: char| first.is_ascii_digit())
    };
    match variables.0.keys().find(|name| !is_name(name)) {
        Some(name) => Err(EnvironmentError::Name(name.chars().take(64).collect())),
        None => check(&variables.0),
    }
}

fn check(variables: &BTreeMap<String, String>) -> Result<(), EnvironmentError> {
    let mut left = MAX_ENVIRONMENT_BYTES;
    for (name, value) in variables {
        let shown = || name.chars().take(64).collect();
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(EnvironmentError::Name(shown()));
        }
        if value.contains('\0') {
            return Err(EnvironmentError::Value(shown()));
        }
        let length = name.len() + value.len();
        if length > MAX_VARIABLE_BYTES {
            return Err(EnvironmentError::TooLong(shown()));
        }
        left = left.checked_sub(length).ok_or(EnvironmentError::TooMuch)?;
    }
    Ok(())
}

/// The environment of shells and processes, before the host has set any.
pub(crate) fn for_commands() -> Variables {
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
    fn what_is_set_goes_over_our_own_and_takes_the_place_of_what_was_set() {
        let of = |pairs: &[(&str, &str)]| -> Variables {
            pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
        };
        let set = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let environment = Environment::of(of(&[("PATH", "/p"), ("HOME", "/h")]));
        environment.set(set(&[("A", "1"), ("HOME", "/other")])).unwrap();
        assert_eq!(*environment.current(), of(&[("PATH", "/p"), ("A", "1"), ("HOME", "/other")]));
        environment.set(set(&[("B", "2")])).unwrap();
        assert_eq!(*environment.current(), of(&[("PATH", "/p"), ("HOME", "/h"), ("B", "2")]));
        for name in ["", "a=b", "a\0b"] {
            assert!(environment.set(set(&[(name, "x")])).is_err(), "{name:?}");
        }
        let fits = "x".repeat(MAX_VARIABLE_BYTES - 1);
        environment.set(set(&[("A", &fits)])).unwrap();
        assert!(environment.set(set(&[("AB", &fits)])).is_err());
        let many: BTreeMap<_, _> = (0..9).map(|number| (number.to_string(), fits.clone())).collect();
        let error = environment.set(many).unwrap_err().to_string();
        assert!(error.contains("1048576"), "{error}");
        assert_eq!(environment.current().len(), 3, "what is refused changes nothing");
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

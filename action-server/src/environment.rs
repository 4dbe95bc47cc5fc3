//! The environment of commands: the server's own without its private variables, defaults for what
//! is missing, and the variables that the host has set.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::unistd::{AccessFlags, access, geteuid};
use protocol::sandbox_api::{CommandEnvironment, MAX_ENVIRONMENT_BYTES, MAX_VARIABLE_BYTES};

use crate::os::accounts::{Account, Accounts};

/// The `PATH` of containers that set none.
pub(crate) const DEFAULT_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables of V0 that are meant for the server; the first is a key.
const PRIVATE_VARIABLES: [&str; 2] = ["SESSION_API_KEY", "NO_CHANGE_TIMEOUT_SECONDS"];

/// Number of memory pools of the C library's allocator. By default it keeps one for each thread,
/// including the many short-lived threads that block on files. With a single one, memory that one
/// thread has freed is reused by the others.
const ARENAS: &str = "MALLOC_ARENA_MAX";

/// Saves the original value of [`ARENAS`] for commands.
const SAVED_ARENAS: &str = "GLOVEBOX_KEPT_MALLOC_ARENA_MAX";

/// Variables that the supervisor adds to the environment of the server.
pub(crate) fn for_the_server() -> Vec<(&'static str, OsString)> {
    let saved = std::env::var_os(ARENAS).map(|value| (SAVED_ARENAS, value));
    [(ARENAS, "1".into())].into_iter().chain(saved).collect()
}

/// Names and values of variables.
pub(crate) type Variables = Vec<(OsString, OsString)>;

/// The environment that the next command gets. Clones share it.
#[derive(Clone)]
pub(crate) struct Environment {
    /// The environment before the host has set any variable.
    own: Arc<Variables>,
    /// Locked only to clone or to replace the `Arc`.
    current: Arc<Mutex<Arc<Variables>>>,
}

/// Reason why variables are rejected. Never contains a value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvironmentError {
    #[error("{0:?} is not a valid variable name")]
    Name(String),
    #[error("the value of {0:?} contains a NUL byte")]
    Value(String),
    #[error("{0:?} and its value have more than {MAX_VARIABLE_BYTES} bytes")]
    TooLong(String),
    #[error("names and values have more than {MAX_ENVIRONMENT_BYTES} bytes")]
    TooMuch,
}

impl Environment {
    /// Creates an environment without variables of the host.
    pub(crate) fn new(own: Variables) -> Self {
        let own = Arc::new(own);
        Self {
            current: Arc::new(Mutex::new(Arc::clone(&own))),
            own,
        }
    }

    /// Returns a snapshot of all variables.
    pub(crate) fn current(&self) -> Arc<Variables> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the home of commands.
    pub(crate) fn home(&self) -> PathBuf {
        let variables = self.current();
        let home = variables
            .iter()
            .rev()
            .find(|(name, value)| name == "HOME" && !value.is_empty());
        home.map_or_else(|| "/".into(), |(_, home)| home.into())
    }

    /// Replaces the variables of the host, which override our own. Changes nothing on an error.
    pub(crate) fn set(&self, variables: BTreeMap<String, String>) -> Result<(), EnvironmentError> {
        check(&variables)?;
        let is_replaced = |name: &OsStr| {
            name.to_str()
                .is_some_and(|name| variables.contains_key(name))
        };
        let kept = self
            .own
            .iter()
            .filter(|(name, _)| !is_replaced(name))
            .cloned();
        let set = variables
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        let all: Variables = kept.chain(set).collect();
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
        Ok(())
    }
}

/// Prints no values, because they may be secrets.
impl std::fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Environment(…)")
    }
}

/// Checks the variables of a single command. Their names must be valid in a shell script.
pub(crate) fn check_command_environment(
    variables: &CommandEnvironment,
) -> Result<(), EnvironmentError> {
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

/// Returns the environment of shells and processes before the host has set any variable.
/// `fallback_home` replaces a home that is of no use.
pub(crate) fn for_commands(fallback_home: Option<&Path>) -> Variables {
    complete(
        std::env::vars_os(),
        Accounts::read().find_by_uid(geteuid()),
        fallback_home,
    )
}

fn complete(
    own: impl Iterator<Item = (OsString, OsString)>,
    user: Option<Account>,
    fallback_home: Option<&Path>,
) -> Vec<(OsString, OsString)> {
    let is_public = |name: &OsStr| {
        name != ARENAS
            && !PRIVATE_VARIABLES
                .iter()
                .any(|private| name == OsStr::new(private))
    };
    let mut environment: Vec<_> = own
        .filter(|(name, _)| is_public(name))
        .map(|(name, value)| {
            (
                if name == SAVED_ARENAS {
                    ARENAS.into()
                } else {
                    name
                },
                value,
            )
        })
        .collect();
    let mut default = |name: &str, value: OsString| {
        if !environment
            .iter()
            .any(|(present, value)| present == OsStr::new(name) && !value.is_empty())
        {
            environment.retain(|(present, _)| present != OsStr::new(name));
            environment.push((name.into(), value));
        }
    };
    default("PATH", DEFAULT_PATH.into());
    default(
        "HOME",
        user.and_then(|account| account.home)
            .unwrap_or_else(|| "/".into()),
    );
    if let Some(fallback) = fallback_home {
        let home = environment.iter_mut().find(|(name, _)| name == "HOME");
        if let Some((_, home)) = home.filter(|(_, home)| !is_useful_home(Path::new(home))) {
            *home = fallback.into();
        }
    }
    environment
}

/// Returns whether programs can keep their files in this home. `/` is the home of users without an
/// account.
fn is_useful_home(home: &Path) -> bool {
    home.parent().is_some()
        && home.is_dir()
        && access(home, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use nix::unistd::{Gid, Uid};

    use super::*;

    fn completed(own: &[(&str, &str)], home: Option<&str>) -> Vec<(String, String)> {
        completed_with(own, home, None)
    }

    fn completed_with(
        own: &[(&str, &str)],
        home: Option<&str>,
        fallback: Option<&str>,
    ) -> Vec<(String, String)> {
        let own = own
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let account = Account {
            name: "agent".into(),
            uid: Uid::from_raw(1000),
            gid: Gid::from_raw(1000),
            home: home.map(Into::into),
        };
        let environment = complete(own, Some(account), fallback.map(Path::new)).into_iter();
        environment
            .map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap()))
            .collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.into(), value.into())
    }

    #[test]
    fn host_variables_override_our_own_until_replaced() {
        let variables = |pairs: &[(&str, &str)]| -> Variables {
            pairs
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect()
        };
        let set = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        let environment = Environment::new(variables(&[("PATH", "/p"), ("HOME", "/h")]));
        environment
            .set(set(&[("A", "1"), ("HOME", "/other")]))
            .unwrap();
        assert_eq!(
            *environment.current(),
            variables(&[("PATH", "/p"), ("A", "1"), ("HOME", "/other")])
        );
        environment.set(set(&[("B", "2")])).unwrap();
        assert_eq!(
            *environment.current(),
            variables(&[("PATH", "/p"), ("HOME", "/h"), ("B", "2")])
        );
        for name in ["", "a=b", "a\0b"] {
            assert!(environment.set(set(&[(name, "x")])).is_err(), "{name:?}");
        }
        let fits = "x".repeat(MAX_VARIABLE_BYTES - 1);
        environment.set(set(&[("A", &fits)])).unwrap();
        assert!(environment.set(set(&[("AB", &fits)])).is_err());
        let many: BTreeMap<_, _> = (0..9)
            .map(|number| (number.to_string(), fits.clone()))
            .collect();
        let error = environment.set(many).unwrap_err().to_string();
        assert!(error.contains("1048576"), "{error}");
        assert_eq!(
            environment.current().len(),
            3,
            "a rejected call changes nothing"
        );
    }

    #[test]
    fn allocator_setting_of_the_server_is_hidden_from_commands() {
        let home = pair("HOME", "/h");
        let without = completed(&[("PATH", "/p"), ("HOME", "/h"), (ARENAS, "1")], None);
        assert_eq!(without, [pair("PATH", "/p"), home.clone()]);
        let with = completed(
            &[
                ("PATH", "/p"),
                (ARENAS, "1"),
                (SAVED_ARENAS, "4"),
                ("HOME", "/h"),
            ],
            None,
        );
        assert_eq!(with, [pair("PATH", "/p"), pair(ARENAS, "4"), home]);
    }

    #[test]
    fn path_and_home_are_added_when_missing() {
        assert_eq!(
            completed(&[], Some("/home/agent")),
            [pair("PATH", DEFAULT_PATH), pair("HOME", "/home/agent")]
        );
        assert_eq!(
            completed(&[("HOME", "")], None),
            [pair("PATH", DEFAULT_PATH), pair("HOME", "/")]
        );
    }

    #[test]
    fn home_is_the_fallback_when_it_is_of_no_use() {
        let home = |own: &[(&str, &str)], of_user| {
            let all = completed_with(own, of_user, Some("/fallback"));
            all.into_iter()
                .find_map(|(name, value)| (name == "HOME").then_some(value))
                .unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        let useful = folder.path().to_str().unwrap();
        assert_eq!(home(&[], Some(useful)), useful);
        assert_eq!(home(&[("HOME", useful)], Some("/missing")), useful);
        for useless in ["/", "/missing", "/proc/self/status"] {
            assert_eq!(home(&[("HOME", useless)], Some(useful)), "/fallback");
            assert_eq!(home(&[], Some(useless)), "/fallback");
        }
    }

    #[test]
    fn own_variables_are_kept_except_keys() {
        let own = [
            ("PATH", "/opt"),
            ("HOME", "/h"),
            ("LANG", "C"),
            ("SESSION_API_KEY", "secret"),
        ];
        assert_eq!(
            completed(&own, Some("/root")),
            [pair("PATH", "/opt"), pair("HOME", "/h"), pair("LANG", "C")]
        );
    }
}

//! Paths and variables of this machine that the host program's own environment names.

use std::path::PathBuf;

use super::settings::ConfigError;

/// Variables that a local sandbox inherits. None of them can hold a key.
const LOCAL_ENVIRONMENT: [&str; 9] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR",
];

/// Paths and variables of this machine.
#[derive(Debug, Clone)]
pub(crate) struct HostEnvironment {
    /// Home directory of the user. `None` if `HOME` is not set.
    pub home: Option<PathBuf>,
    /// Folder of this user's sockets, from `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    /// Address of the Docker engine, from `DOCKER_HOST`. `None` for the default one.
    pub docker_host: Option<String>,
    /// Folder of the Docker client's configuration: `DOCKER_CONFIG`, else `~/.docker`.
    pub docker_config: Option<PathBuf>,
    /// Action server to use instead of the embedded one, from `GLOVEBOX_ACTION_SERVER`.
    pub action_server: Option<PathBuf>,
    /// Variables that a local sandbox inherits.
    pub local_environment: Vec<(String, String)>,
}

impl HostEnvironment {
    pub(super) fn read(environment: &impl Fn(&str) -> Option<String>) -> Self {
        let path = |name| variable(environment, name).map(PathBuf::from);
        let home = path("HOME");
        Self {
            runtime_dir: path("XDG_RUNTIME_DIR"),
            docker_host: variable(environment, "DOCKER_HOST"),
            docker_config: path("DOCKER_CONFIG").or_else(|| Some(home.as_ref()?.join(".docker"))),
            action_server: path("GLOVEBOX_ACTION_SERVER"),
            local_environment: LOCAL_ENVIRONMENT
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), environment(name)?)))
                .collect(),
            home,
        }
    }
}

/// Value of a variable. `None` if it is not set or empty.
pub(super) fn variable(
    environment: &impl Fn(&str) -> Option<String>,
    name: &str,
) -> Option<String> {
    environment(name).filter(|value| !value.is_empty())
}

/// Home directory of the user.
pub(super) fn home(environment: &impl Fn(&str) -> Option<String>) -> Result<PathBuf, ConfigError> {
    variable(environment, "HOME")
        .map(PathBuf::from)
        .ok_or(ConfigError::NoHome)
}

/// Replaces a leading `~` with the home directory.
pub(super) fn expand_home(
    path: PathBuf,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<PathBuf, ConfigError> {
    match path.strip_prefix("~") {
        Ok(rest) => Ok(home(environment)?.join(rest)),
        Err(_) => Ok(path),
    }
}

//! The subset of OpenSSH's client configuration that selects address, user, keys and jump hosts.
//!
//! The first value wins; `IdentityFile` accumulates. `Match` supports `all`, `host`, `originalhost`
//! and `user`. A block with another condition, such as `exec`, is skipped with a warning.
//!
//! russh-config 0.58 was tried: it rejects settings before the first `Host`, supports neither
//! `Match`, `Include`, `Port = 22` nor comments after a value, and lacks `IdentitiesOnly`,
//! `HostKeyAlias` and `ConnectTimeout`. ssh2-config 0.9 has no `Match`, and its errors name neither
//! file nor line.

mod lines;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use lines::{Line, read_lines};

use super::pattern;

/// Maximum depth of `Include`, as in OpenSSH.
const MAX_DEPTH: usize = 16;
/// Maximum number of key files, `known_hosts` files, and files of one `Include`.
const MAX_VALUES: usize = 64;

/// A configuration file that cannot be read or parsed.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}: {problem}", file = .file.display())]
pub(super) struct ConfigError {
    file: PathBuf,
    line: usize,
    problem: String,
}

/// Settings of one host. Paths and names are unexpanded: they may contain `~` and `%h`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HostSettings {
    pub(super) host_name: Option<String>,
    pub(super) user: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) identity_files: Vec<String>,
    pub(super) identities_only: Option<bool>,
    /// `none`, `SSH_AUTH_SOCK` or a path.
    pub(super) identity_agent: Option<String>,
    /// `none`, or hosts separated by commas.
    pub(super) proxy_jump: Option<String>,
    pub(super) proxy_command: Option<String>,
    pub(super) user_known_hosts: Option<Vec<String>>,
    pub(super) strict_host_key_checking: Option<String>,
    pub(super) host_key_alias: Option<String>,
    pub(super) connect_timeout: Option<Duration>,
}

impl HostSettings {
    /// Reads the settings of a host by the name that the user gave. Missing files are skipped.
    pub(super) fn for_host(
        host: &str,
        user: &str,
        files: &[PathBuf],
        home: &Path,
    ) -> Result<Self, ConfigError> {
        let mut reader = ConfigReader {
            host,
            user,
            home,
            settings: Self::default(),
        };
        for file in files {
            reader.read(file, 0)?;
        }
        Ok(reader.settings)
    }
}

struct ConfigReader<'a> {
    host: &'a str,
    user: &'a str,
    home: &'a Path,
    settings: HostSettings,
}

impl ConfigReader<'_> {
    fn read(&mut self, file: &Path, depth: usize) -> Result<(), ConfigError> {
        let failed = |line: usize, problem: String| ConfigError {
            file: file.to_owned(),
            line,
            problem,
        };
        let mut applies = true;
        for (number, line) in read_lines(file).map_err(|error| failed(0, error.to_string()))? {
            let line = line.map_err(|problem| failed(number, problem.to_owned()))?;
            match line.keyword.as_str() {
                "host" => {
                    applies =
                        pattern::list_matches(line.words.iter().map(String::as_str), self.host);
                }
                "match" => applies = self.is_match(file, &line),
                _ if !applies => {}
                "include" if depth < MAX_DEPTH => {
                    let files: Vec<PathBuf> = line
                        .words
                        .iter()
                        .flat_map(|path| self.expand_include(path))
                        .collect();
                    for included in files {
                        self.read(&included, depth + 1)?;
                    }
                }
                "include" => {
                    return Err(failed(
                        number,
                        format!("files include files {MAX_DEPTH} times over"),
                    ));
                }
                _ => self
                    .apply(&line)
                    .map_err(|problem| failed(number, problem))?,
            }
        }
        Ok(())
    }

    /// Applies a line. Keywords that are already set, or that are not supported, are ignored.
    fn apply(&mut self, line: &Line) -> Result<(), String> {
        let settings = &mut self.settings;
        let first = || {
            line.words
                .first()
                .cloned()
                .ok_or_else(|| format!("{} has no value", line.keyword))
        };
        let set = |setting: &mut Option<String>| {
            first().map(|value| {
                setting.get_or_insert(value);
            })
        };
        match line.keyword.as_str() {
            "hostname" => set(&mut settings.host_name),
            "user" => set(&mut settings.user),
            "identityagent" => set(&mut settings.identity_agent),
            "proxyjump" => set(&mut settings.proxy_jump),
            "proxycommand" => {
                settings.proxy_command.get_or_insert(line.words.join(" "));
                Ok(())
            }
            "stricthostkeychecking" => set(&mut settings.strict_host_key_checking),
            "hostkeyalias" => set(&mut settings.host_key_alias),
            "port" => {
                let port = first()?.parse().map_err(|_| "this is no port".to_owned())?;
                settings.port.get_or_insert(port);
                Ok(())
            }
            "connecttimeout" => {
                if let Ok(seconds) = first()?.parse() {
                    settings
                        .connect_timeout
                        .get_or_insert(Duration::from_secs(seconds));
                }
                Ok(())
            }
            "identitiesonly" => {
                settings
                    .identities_only
                    .get_or_insert(first()?.eq_ignore_ascii_case("yes"));
                Ok(())
            }
            "identityfile" if settings.identity_files.len() < MAX_VALUES => {
                settings.identity_files.push(first()?);
                Ok(())
            }
            "userknownhostsfile" => {
                let files = line.words.iter().take(MAX_VALUES).cloned().collect();
                settings.user_known_hosts.get_or_insert(files);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether all conditions of a `Match` line hold.
    fn is_match(&self, file: &Path, line: &Line) -> bool {
        let host_name = self.settings.host_name.as_deref().unwrap_or(self.host);
        let user = self.settings.user.as_deref().unwrap_or(self.user);
        let mut words = line.words.iter().map(|word| word.to_lowercase());
        while let Some(condition) = words.next() {
            let name = match condition.as_str() {
                "all" => continue,
                "host" => host_name,
                "originalhost" => self.host,
                "user" => user,
                other => {
                    tracing::warn!(file = %file.display(), condition = other, "a Match block is passed over");
                    return false;
                }
            };
            if !words
                .next()
                .is_some_and(|patterns| pattern::list_matches(patterns.split(','), name))
            {
                return false;
            }
        }
        true
    }

    /// Expands an `Include`. Relative paths start at `~/.ssh`; only the file name may contain `*`
    /// and `?`.
    fn expand_include(&self, path: &str) -> Vec<PathBuf> {
        let path = match path.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => self.home.join(".ssh").join(path),
        };
        let (Some(folder), Some(name)) = (
            path.parent(),
            path.file_name().and_then(|name| name.to_str()),
        ) else {
            return Vec::new();
        };
        if !name.contains(['*', '?']) {
            return vec![path];
        }
        let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| {
                let found = entry.file_name().to_string_lossy().into_owned();
                !found.starts_with('.') && pattern::list_matches([name], &found)
            })
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found.truncate(MAX_VALUES);
        found
    }
}

//! Resolution of the target: the user's text and OpenSSH's configuration files give a chain of
//! hosts.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use super::client_config::HostSettings;
use super::config::{SshConfig, UnknownHosts};
use super::error::SshError;

/// Maximum number of hosts in a chain. Also ends a cycle of `ProxyJump`.
const MAX_HOPS: usize = 8;
/// Used if no configuration file sets `ConnectTimeout`.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_PORT: u16 = 22;
/// Tried in this order if no `IdentityFile` is configured.
const DEFAULT_KEYS: [&str; 3] = ["~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"];
const DEFAULT_KNOWN_HOSTS: [&str; 2] = ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"];

/// A host to log in to: `[user@]host[:port]`, `ssh://[user@]host[:port]`, or a `Host` alias of a
/// configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshTarget {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

/// A text that names no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid SSH host: {problem}; write [user@]host[:port]")]
pub struct InvalidSshTarget {
    text: String,
    problem: &'static str,
}

/// Parameters of the login to one host.
#[derive(Debug, Clone)]
pub(super) struct Hop {
    pub(super) user: String,
    /// Host name or IP address.
    pub(super) address: String,
    pub(super) port: u16,
    /// Name in `known_hosts` files.
    pub(super) known_as: String,
    pub(super) known_hosts: Vec<PathBuf>,
    /// File to which a new host key is added. `None` to add it to none.
    pub(super) new_host_keys: Option<PathBuf>,
    pub(super) unknown_hosts: UnknownHosts,
    pub(super) key_files: Vec<PathBuf>,
    pub(super) only_key_files: bool,
    pub(super) agent: Option<PathBuf>,
    pub(super) connect_timeout: Duration,
    /// The host behind this jump host, for messages. `None` for the last host.
    pub(super) leads_to: Option<String>,
}

impl Hop {
    /// Returns `user@host[:port]`.
    pub(super) fn destination(&self) -> String {
        match self.port {
            DEFAULT_PORT => format!("{}@{}", self.user, self.address),
            port => format!("{}@{}:{port}", self.user, self.address),
        }
    }

    /// Returns the destination for messages about this login: of a jump host also what is behind
    /// it.
    pub(super) fn description(&self) -> String {
        let destination = self.destination();
        match &self.leads_to {
            Some(behind) => format!("{destination} (the jump host for {behind})"),
            None => destination,
        }
    }
}

/// Returns the hosts to log in to, each through the one before it. Never empty.
pub(super) fn resolve_hops(config: &SshConfig) -> Result<Vec<Hop>, SshError> {
    let mut hops = Vec::new();
    push_hops(config, &config.target, &mut hops, 0)?;
    let destination = hops.last().map(Hop::destination).unwrap_or_default();
    for jump in hops.iter_mut().rev().skip(1) {
        jump.leads_to = Some(destination.clone());
    }
    Ok(hops)
}

fn push_hops(
    config: &SshConfig,
    target: &SshTarget,
    hops: &mut Vec<Hop>,
    depth: usize,
) -> Result<(), SshError> {
    if depth > MAX_HOPS || hops.len() >= MAX_HOPS {
        return Err(SshError::Permanent(format!(
            "{} is behind more than {MAX_HOPS} hosts: see ProxyJump",
            target.host
        )));
    }
    let user = target.user.as_deref().unwrap_or(&config.user);
    let settings = HostSettings::for_host(&target.host, user, &config.config_files, &config.home)
        .map_err(|error| SshError::Permanent(error.to_string()))?;
    let jump = settings
        .proxy_jump
        .as_deref()
        .filter(|jump| !jump.eq_ignore_ascii_case("none"));
    match (jump, settings.proxy_command.as_deref()) {
        (Some(jump), _) => {
            for (number, through) in jump.split(',').enumerate() {
                let through = through.trim().parse::<SshTarget>().map_err(|error| {
                    SshError::Permanent(format!("ProxyJump of {}: {error}", target.host))
                })?;
                if number == 0 {
                    push_hops(config, &through, hops, depth + 1)?; // the first jump host may have jump hosts itself
                } else {
                    hops.push(hop(config, &through, &settings_of(config, &through)?));
                }
            }
        }
        (None, Some(command)) if !command.eq_ignore_ascii_case("none") => {
            return Err(SshError::Permanent(format!(
                "{} has a ProxyCommand, which is not run here: use ProxyJump",
                target.host
            )));
        }
        (None, _) => {}
    }
    hops.push(hop(config, target, &settings));
    Ok(())
}

fn settings_of(config: &SshConfig, target: &SshTarget) -> Result<HostSettings, SshError> {
    let user = target.user.as_deref().unwrap_or(&config.user);
    HostSettings::for_host(&target.host, user, &config.config_files, &config.home)
        .map_err(|error| SshError::Permanent(error.to_string()))
}

fn hop(config: &SshConfig, target: &SshTarget, settings: &HostSettings) -> Hop {
    let address = match &settings.host_name {
        Some(name) => name.replace("%h", &target.host).replace("%%", "%"),
        None => target.host.clone(),
    };
    let user = target
        .user
        .as_ref()
        .or(settings.user.as_ref())
        .unwrap_or(&config.user)
        .clone();
    let port = target.port.or(settings.port).unwrap_or(DEFAULT_PORT);
    let known_as = match (&settings.host_key_alias, port) {
        (Some(alias), _) => alias.clone(),
        (None, DEFAULT_PORT) => address.to_lowercase(),
        (None, port) => format!("[{}]:{port}", address.to_lowercase()),
    };
    let expand = |path: &str| {
        expand_path(
            path,
            &config.home,
            &[("%h", &address), ("%r", &user), ("%u", &config.user)],
        )
    };
    let expand_all = |paths: &[&str]| {
        paths
            .iter()
            .map(|path| expand(path))
            .collect::<Vec<PathBuf>>()
    };
    let without_none = |files: &[String]| {
        let files = files.iter().map(String::as_str);
        let files = files.filter(|file| !file.eq_ignore_ascii_case("none"));
        expand_all(&files.collect::<Vec<_>>())
    };
    let mut known_hosts = match &settings.user_known_hosts {
        Some(files) => without_none(files),
        None => expand_all(&DEFAULT_KNOWN_HOSTS),
    };
    let new_host_keys = known_hosts.first().cloned();
    known_hosts.extend(config.global_known_hosts.iter().cloned());
    let key_files = match settings.identity_files.as_slice() {
        [] => expand_all(&DEFAULT_KEYS),
        files => without_none(files),
    };
    let agent = match settings.identity_agent.as_deref() {
        None | Some("SSH_AUTH_SOCK") => config.agent.clone(),
        Some(none) if none.eq_ignore_ascii_case("none") => None,
        Some(path) => Some(expand(path)),
    };
    Hop {
        unknown_hosts: unknown_hosts(config, settings),
        only_key_files: settings.identities_only.unwrap_or(false),
        connect_timeout: settings
            .connect_timeout
            .filter(|wait| !wait.is_zero())
            .unwrap_or(DEFAULT_CONNECT_TIMEOUT),
        user,
        address,
        port,
        known_as,
        known_hosts,
        new_host_keys,
        key_files,
        agent,
        leads_to: None,
    }
}

/// A host's `StrictHostKeyChecking` overrides the general policy. Even with `no`, a changed key is
/// refused.
fn unknown_hosts(config: &SshConfig, settings: &HostSettings) -> UnknownHosts {
    let said = settings
        .strict_host_key_checking
        .as_deref()
        .map(str::to_lowercase);
    match (said.as_deref(), &config.unknown_hosts) {
        (Some("yes" | "true"), _) => UnknownHosts::Refuse,
        (Some("accept-new" | "no" | "off" | "false"), _) => UnknownHosts::AcceptNew,
        (_, general) => general.clone(),
    }
}

fn expand_path(path: &str, home: &Path, tokens: &[(&str, &str)]) -> PathBuf {
    let path = path.replace("%d", &home.to_string_lossy());
    let path = tokens
        .iter()
        .fold(path, |path, (token, value)| path.replace(token, value))
        .replace("%%", "%");
    match path.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => PathBuf::from(path),
    }
}

impl FromStr for SshTarget {
    type Err = InvalidSshTarget;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = |problem| {
            Err(InvalidSshTarget {
                text: text.to_owned(),
                problem,
            })
        };
        let written = text
            .strip_prefix("ssh://")
            .unwrap_or(text)
            .trim_end_matches('/');
        let (user, address) = match written.rsplit_once('@') {
            Some((user, address)) => (Some(user.to_owned()), address),
            None => (None, written),
        };
        let (host, port) = match (address.strip_prefix('['), address.split_once(':')) {
            (Some(bracketed), _) => match bracketed.split_once(']') {
                Some((host, rest)) => (host, rest.strip_prefix(':')),
                None => return refuse("a bracket is not closed"),
            },
            (None, _) if address.parse::<IpAddr>().is_ok() => (address, None),
            (None, Some((host, port))) => (host, Some(port)),
            (None, None) => (address, None),
        };
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port > 0 => Some(port),
            Some(_) => return refuse("the port must be a number from 1 to 65535"),
        };
        let is_strange = |letter: char| {
            letter.is_control() || letter.is_whitespace() || "/'\"\\$`;&|<>(){}".contains(letter)
        };
        if host.is_empty() {
            return refuse("the host is missing");
        }
        if host.starts_with('-') || host.contains(is_strange) {
            return refuse("the host has a character that host names do not have");
        }
        if user
            .as_deref()
            .is_some_and(|user| user.is_empty() || user.contains(char::is_control))
        {
            return refuse("the user is empty or has a control character");
        }
        Ok(Self {
            user,
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for SshTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match (self.port, self.host.contains(':')) {
            (None, _) => f.write_str(&self.host),
            (Some(port), true) => write!(f, "[{}]:{port}", self.host),
            (Some(port), false) => write!(f, "{}:{port}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use sandbox_client::{HostSecret, ServerBinary};

    use super::{SshTarget, resolve_hops};
    use crate::config::{SshConfig, UnknownHosts};

    fn config(target: &str, text: &str) -> (tempfile::TempDir, SshConfig) {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".ssh")).unwrap();
        std::fs::write(home.path().join(".ssh/config"), text).unwrap();
        let (server, secret) = (
            ServerBinary::from_file("/nowhere"),
            HostSecret::new([7; 32]),
        );
        let mut config = SshConfig::new(target.parse().unwrap(), home.path(), "me", server, secret);
        config.config_files.truncate(1);
        (home, config)
    }

    #[test]
    fn target_is_parsed_into_user_host_and_port() {
        let parts = |text: &str| {
            let target: SshTarget = text.parse().unwrap();
            assert_eq!(target.to_string().parse().as_ref(), Ok(&target));
            (target.user, target.host, target.port)
        };
        let user = |name: &str| Some(name.to_owned());
        assert_eq!(parts("host"), (None, "host".into(), None));
        assert_eq!(parts("me@host:7"), (user("me"), "host".into(), Some(7)));
        assert_eq!(
            parts("ssh://a@b@[::1]:22/"),
            (user("a@b"), "::1".into(), Some(22))
        );
        assert_eq!(parts("::1"), (None, "::1".into(), None));
        for text in [
            "",
            "me@",
            "@host",
            "host:",
            "host:0",
            "host:x",
            "[::1",
            "-oProxyCommand=x",
            "a b",
            "h;id",
        ] {
            assert!(text.parse::<SshTarget>().is_err(), "{text}");
        }
    }

    #[test]
    fn hops_are_ordered_and_configured_when_proxy_jump_is_set() {
        let text = "
            Host far\n HostName far.example.org\n ProxyJump near,u@middle:23\n IdentityFile ~/%h.key
            Host near\n Port 2222\n ProxyJump first\n StrictHostKeyChecking no
            Host first\n HostKeyAlias Alias\n IdentityAgent none\n IdentityFile none\n UserKnownHostsFile none\n";
        let (home, config) = config("far", text);
        let found = resolve_hops(&config).unwrap();
        let destinations: Vec<String> = found.iter().map(super::Hop::destination).collect();
        assert_eq!(
            destinations,
            [
                "me@first",
                "me@near:2222",
                "u@middle:23",
                "me@far.example.org"
            ]
        );
        let names: Vec<&str> = found.iter().map(|hop| hop.known_as.as_str()).collect();
        assert_eq!(
            names,
            ["Alias", "[near]:2222", "[middle]:23", "far.example.org"]
        );
        assert_eq!(
            found[3].key_files,
            [home.path().join("far.example.org.key")]
        );
        assert!(matches!(found[1].unknown_hosts, UnknownHosts::AcceptNew));
        assert!(matches!(found[3].unknown_hosts, UnknownHosts::Refuse));
        assert_eq!(
            found[1].known_hosts[0],
            home.path().join(".ssh/known_hosts")
        );
        let global = PathBuf::from("/etc/ssh/ssh_known_hosts");
        assert_eq!(found[1].known_hosts[2], global);
        assert_eq!(found[0].known_hosts, [global]);
        assert_eq!(found[0].new_host_keys, None);
        assert_eq!(found[0].key_files, Vec::<PathBuf>::new());
    }

    #[test]
    fn target_is_refused_when_jumps_cycle_or_need_a_program() {
        let (_home, circle) = config("a", "Host a\n ProxyJump b\nHost b\n ProxyJump a\n");
        assert!(
            resolve_hops(&circle)
                .unwrap_err()
                .to_string()
                .contains("more than 8 hosts")
        );
        let (_home, program) = config("a", "ProxyCommand nc %h %p\n");
        assert!(
            resolve_hops(&program)
                .unwrap_err()
                .to_string()
                .contains("use ProxyJump")
        );
    }
}

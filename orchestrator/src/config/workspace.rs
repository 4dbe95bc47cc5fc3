//! The folder that an agent works in, and the repository that is cloned into it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use protocol::UserId;
use secrecy::SecretString;

use super::host::{expand_home, variable};
use super::settings::{ConfigError, Settings};
use super::{Overrides, startup_environment};

/// Repository hosts, each with V0's variable for its token.
const GIT_TOKENS: [(&str, &str); 3] = [
    ("github.com", "GITHUB_TOKEN"),
    ("gitlab.com", "GITLAB_TOKEN"),
    ("bitbucket.org", "BITBUCKET_TOKEN"),
];

/// Returns the variable with the token for a host. `None` for a host without one.
pub(crate) fn token_variable(host: &str) -> Option<&'static str> {
    GIT_TOKENS
        .iter()
        .find(|(own, _)| *own == host)
        .map(|(_, variable)| *variable)
}

/// The workspace and the environment of commands in it, as configured.
#[derive(Debug, Clone)]
pub(crate) struct WorkspaceSettings {
    /// Folder to work in if the command line names none. `None` for a new one per conversation.
    pub base: Option<PathBuf>,
    /// The user of a server whose folder below `base` it is. `None` for the operator, who works in
    /// `base` itself.
    pub user: Option<UserId>,
    /// Repository to clone, as the user wrote it. A URL may hold credentials.
    pub selected_repository: Option<SecretString>,
    /// Tokens for repositories, or `USER:TOKEN`, by host.
    pub git_tokens: BTreeMap<String, SecretString>,
    /// Whether an empty workspace becomes a git repository.
    pub init_git: bool,
    /// Author of commits. `None` for the one that git in the sandbox is configured with.
    pub git_user_name: Option<String>,
    /// E-mail address of the author.
    pub git_user_email: Option<String>,
    /// Environment variables of every process in a sandbox.
    pub startup_environment: BTreeMap<String, SecretString>,
}

impl WorkspaceSettings {
    /// Reads the keys of `[core]` and `[sandbox]`. `mounted` is the volume that is mounted at
    /// `/workspace`.
    pub(super) fn read(
        settings: &Settings,
        overrides: &Overrides,
        mounted: Option<PathBuf>,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let base = settings.path("core", "workspace_mount_path");
        let base = base
            .or_else(|| settings.path("core", "workspace_base"))
            .or(mounted);
        let selected = overrides.selected_repository.clone();
        let selected = selected.or_else(|| settings.text("sandbox", "selected_repo"));
        Ok(Self {
            base: base
                .map(|path| expand_home(path, environment))
                .transpose()?,
            user: None,
            selected_repository: selected.map(SecretString::from),
            git_tokens: GIT_TOKENS
                .iter()
                .filter_map(|(host, name)| {
                    Some(((*host).to_owned(), variable(environment, name)?.into()))
                })
                .collect(),
            init_git: settings
                .flag("core", "init_git_in_empty_workspace")
                .unwrap_or(false),
            git_user_name: settings.text("core", "git_user_name"),
            git_user_email: settings.text("core", "git_user_email"),
            startup_environment: startup_environment::read(settings)?,
        })
    }
}

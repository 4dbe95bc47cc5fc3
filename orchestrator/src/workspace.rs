//! Set-up of a conversation's workspace: the part in its log, and the part that may be secret.
//!
//! The log names the repository to clone, so that every new sandbox can be set up. Credentials and
//! variables come from the configuration, at the start and at each resume, and reach the sandbox
//! only through its environment.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use protocol::record::{ConversationStarted, WorkspaceSetup};
use protocol::{ConversationId, UserId};
use rustix::fs::{Access, access};
use secrecy::{ExposeSecret as _, SecretString};

use crate::compose::StateDir;
use crate::config::{Config, Runtime, WorkspaceSettings};
use crate::exit::UsageError;

/// Scripts that an existing workspace is set up with.
const SETUP_SCRIPTS: [&str; 4] = [
    ".glovebox/setup.sh",
    ".openhands/setup.sh",
    ".glovebox/pre-commit.sh",
    ".openhands/pre-commit.sh",
];

/// Host of a repository that is named `owner/name`, as in V0.
const DEFAULT_HOST: &str = "https://github.com/";

/// The folder that a conversation works in.
pub(crate) enum WorkspaceFolder {
    /// On this machine, mounted in the sandbox.
    Local(PathBuf),
    /// On the sandbox's machine, as the user named it.
    Remote(PathBuf),
    /// Created and removed with the sandbox.
    Ephemeral,
}

impl WorkspaceFolder {
    /// The named folder, else the configured one, else a new one.
    pub(crate) fn choose(
        config: &Config,
        state_dir: &StateDir,
        conversation: &ConversationId,
        named: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let is_elsewhere = config.runtime.is_on_other_machine();
        let configured = config.workspace.base.as_deref().filter(|_| !is_elsewhere);
        match (named, configured) {
            (Some(path), _) => Self::named(config, path),
            (None, Some(path)) => {
                let path = create_configured(path, config.workspace.user.as_ref())?;
                Self::named(config, &path)
            }
            (None, None) if is_elsewhere => Ok(Self::Ephemeral),
            (None, None) => Ok(Self::Local(state_dir.workspace(conversation)?)),
        }
    }

    /// A folder that the user named.
    fn named(config: &Config, path: &Path) -> anyhow::Result<Self> {
        match config.runtime {
            Runtime::Ssh => Ok(Self::Remote(path.to_owned())),
            Runtime::Remote => {
                let text = "a sandbox elsewhere does not see this machine's folders: leave -d out, and have a \
                            repository cloned with --selected-repo";
                Err(UsageError(text.to_owned()).into())
            }
            Runtime::Auto | Runtime::Docker => Ok(Self::Local(existing_folder(path)?)),
            Runtime::Local => {
                let folder = existing_folder(path)?;
                // An engine has its own rights, a local sandbox has the rights of this account.
                access(&folder, Access::READ_OK | Access::EXEC_OK).map_err(|error| {
                    let folder = folder.display();
                    UsageError(format!(
                        "this account cannot use the folder {folder}: {error}; name another one with -d"
                    ))
                })?;
                Ok(Self::Local(folder))
            }
        }
    }

    /// The workspace of a [`SandboxSpec`](engine::sandbox::SandboxSpec). `None` if the user named
    /// no folder.
    pub(crate) fn for_spec(
        config: &Config,
        named: Option<&Path>,
    ) -> anyhow::Result<Option<PathBuf>> {
        Ok(
            match named.map(|path| Self::named(config, path)).transpose()? {
                Some(Self::Local(path) | Self::Remote(path)) => Some(path),
                Some(Self::Ephemeral) | None => None,
            },
        )
    }

    /// The folder in the conversation's log. `None` if it is removed with the sandbox.
    pub(crate) fn for_log(&self) -> Result<Option<String>, UsageError> {
        match self {
            Self::Local(path) | Self::Remote(path) => match path.to_str() {
                Some(text) => Ok(Some(text.to_owned())),
                None => Err(UsageError(format!(
                    "the path {} is not UTF-8",
                    path.display()
                ))),
            },
            Self::Ephemeral => Ok(None),
        }
    }
}

/// Replaces the default workspace in the settings of a conversation by the one in this state
/// folder, if its log was copied from another state folder, where the workspace stayed.
pub(crate) fn locate_copied(
    started: &mut ConversationStarted,
    config: &Config,
    state_dir: &StateDir,
    conversation: &ConversationId,
) {
    let named = started
        .workspace
        .as_deref()
        .filter(|_| !config.runtime.is_on_other_machine());
    if let Some(own) = state_dir.workspace_in_log(conversation, named) {
        started.workspace = Some(own.to_string_lossy().into_owned());
    }
}

/// Creates the configured folder, as V0 does, and below it that of a user: users must not see each
/// other's files.
fn create_configured(base: &Path, user: Option<&UserId>) -> anyhow::Result<PathBuf> {
    let create = |path: &Path| {
        let unusable = |error| {
            UsageError(format!(
                "cannot create the folder {}: {error}",
                path.display()
            ))
        };
        std::fs::create_dir_all(path).map_err(unusable)
    };
    create(base)?;
    let Some(user) = user else {
        return Ok(base.to_owned());
    };
    let folder = base.canonicalize()?.join(user.as_str());
    create(&folder)?;
    // An agent of the operator may have put a link there.
    check_not_replaced("workspace", &folder)?;
    Ok(folder)
}

/// The absolute path of a folder that the user named.
fn existing_folder(path: &Path) -> anyhow::Result<PathBuf> {
    let found = path.canonicalize().map_err(|error| {
        let path = path.display();
        UsageError(match error.kind() {
            io::ErrorKind::NotFound => format!("there is no folder {path}"),
            _ => format!("cannot open the folder {path}: {error}"),
        })
    })?;
    if !found.is_dir() {
        return Err(UsageError(format!("{} is not a folder", path.display())).into());
    }
    Ok(found)
}

/// Fails if a path of a conversation's log contains a link. Logs hold resolved paths, so an earlier
/// sandbox may have created the link to get another folder mounted or another file read.
pub(crate) fn check_not_replaced(what: &str, path: &Path) -> Result<(), UsageError> {
    match path.canonicalize() {
        Ok(resolved) if resolved != path => Err(UsageError(format!(
            "the {what} {} has been replaced by a link to {}: start a new conversation",
            path.display(),
            resolved.display()
        ))),
        _ => Ok(()),
    }
}

/// A repository that the user chose.
struct SelectedRepository {
    /// Without credentials.
    url: String,
    branch: Option<String>,
    credentials: Option<Credentials>,
}

/// Two URL prefixes, of which git replaces the first by the second.
struct Credentials {
    without: String,
    with: SecretString,
    secrets: Vec<SecretString>,
}

/// Set-up of a new conversation's workspace. `None` if it needs none.
pub(crate) fn setup(
    settings: &WorkspaceSettings,
    workspace: &WorkspaceFolder,
) -> Result<Option<WorkspaceSetup>, UsageError> {
    if let Some(selected) = &settings.selected_repository {
        let SelectedRepository { url, branch, .. } = SelectedRepository::parse(selected)?;
        return Ok(Some(WorkspaceSetup::Repository { url, branch }));
    }
    let (is_empty, may_have_scripts) = match workspace {
        // A folder without scripts is not set up, so that it costs no time.
        WorkspaceFolder::Local(path) => (
            path.read_dir()
                .is_ok_and(|mut entries| entries.next().is_none()),
            SETUP_SCRIPTS
                .iter()
                .any(|script| path.join(script).is_file()),
        ),
        WorkspaceFolder::Remote(_) => (false, true),
        WorkspaceFolder::Ephemeral => (true, false),
    };
    Ok(match settings.init_git && is_empty {
        true => Some(WorkspaceSetup::EmptyRepository),
        false => may_have_scripts.then_some(WorkspaceSetup::Folder),
    })
}

/// Environment variables of every process in the sandbox. They may be secret.
pub(crate) fn environment(
    settings: &WorkspaceSettings,
    setup: Option<&WorkspaceSetup>,
) -> BTreeMap<String, String> {
    let own = settings.startup_environment.iter();
    let mut environment: BTreeMap<_, _> = own
        .map(|(name, value)| (name.clone(), value.expose_secret().to_owned()))
        .collect();
    // Variables instead of git's configuration file, which is the user's own if the sandbox is not
    // isolated.
    for (names, value) in [
        (
            ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"],
            &settings.git_user_name,
        ),
        (
            ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"],
            &settings.git_user_email,
        ),
    ] {
        for (name, value) in names.iter().zip(value.iter().cycle()) {
            environment
                .entry((*name).to_owned())
                .or_insert_with(|| value.clone());
        }
    }
    if let Some(WorkspaceSetup::Repository { url, .. }) = setup {
        let selected = selected(settings).filter(|selected| selected.url == *url);
        let own = selected.and_then(|selected| selected.credentials);
        if let Some(credentials) = own.or_else(|| Credentials::for_host(settings, url)) {
            credentials.add_to(&mut environment);
        }
    }
    environment
}

/// Whether the selected repository has credentials in its URL.
pub(crate) fn selects_with_credentials(settings: &WorkspaceSettings) -> bool {
    selected(settings).is_some_and(|selected| selected.credentials.is_some())
}

/// Secret parts of the credentials for repositories, to be redacted.
pub(crate) fn credentials(settings: &WorkspaceSettings) -> Vec<SecretString> {
    let in_url = selected(settings)
        .and_then(|selected| selected.credentials)
        .map(|own| own.secrets);
    settings
        .git_tokens
        .values()
        .cloned()
        .chain(in_url.into_iter().flatten())
        .collect()
}

/// Returns the secret parts of `USER[:PASSWORD]`, as in the URL and decoded: the password, and a
/// user name that is a token.
fn secrets_of(user: &str) -> Vec<SecretString> {
    /// Few names of people and organizations are as long.
    const MIN_TOKEN_LENGTH: usize = 16;
    /// GitHub's password of a token that is the name.
    const NO_PASSWORD: &str = "x-oauth-basic";
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let has_password = password != NO_PASSWORD;
    let is_token = !has_password || name.len() >= MIN_TOKEN_LENGTH;
    let parts = [
        if has_password { password } else { "" },
        if is_token { name } else { "" },
    ];
    let spellings = parts.into_iter().flat_map(|part| {
        let decoded = percent_decode_str(part).decode_utf8_lossy().into_owned();
        [part.to_owned(), decoded]
    });
    spellings
        .filter(|secret| !secret.is_empty())
        .map(SecretString::from)
        .collect()
}

fn selected(settings: &WorkspaceSettings) -> Option<SelectedRepository> {
    SelectedRepository::parse(settings.selected_repository.as_ref()?).ok()
}

impl SelectedRepository {
    /// Reads `URL[#BRANCH]`. No error quotes it: it may hold credentials.
    fn parse(selected: &SecretString) -> Result<Self, UsageError> {
        let refuse = |problem: &str| Err(UsageError(format!("the selected repository {problem}")));
        let text = selected.expose_secret().trim();
        if text.chars().any(char::is_control) {
            return refuse("holds a control character");
        }
        let (place, branch) = match text.rsplit_once('#') {
            Some((place, branch)) => (
                place,
                Some(branch.to_owned()).filter(|branch| !branch.is_empty()),
            ),
            None => (text, None),
        };
        if is_owner_and_name(place) {
            return Ok(Self {
                url: format!("{DEFAULT_HOST}{place}.git"),
                branch,
                credentials: None,
            });
        }
        let Some((scheme, rest)) = place.split_once("://") else {
            let is_path = place.starts_with('/');
            // As ssh's own: HOST:PATH, with the colon before any slash.
            let is_ssh = !place.starts_with('-')
                && place.split_once(':').is_some_and(|(host, path)| {
                    !host.is_empty()
                        && !host.contains('/')
                        && !path.is_empty()
                        && !path.starts_with(':')
                });
            if is_path || is_ssh {
                return Ok(Self {
                    url: place.to_owned(),
                    branch,
                    credentials: None,
                });
            }
            return refuse("is neither a URL, nor OWNER/NAME, nor an absolute path in the sandbox");
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let is_http = matches!(scheme, "http" | "https");
        match user {
            // Over HTTP a name alone may be a token.
            Some(user) if is_http || user.contains(':') => {
                let without = format!("{scheme}://{host}/");
                let with = SecretString::from(format!("{scheme}://{user}@{host}/"));
                let url = format!("{scheme}://{host}{path}");
                let secrets = secrets_of(user);
                Ok(Self {
                    url,
                    branch,
                    credentials: Some(Credentials {
                        without,
                        with,
                        secrets,
                    }),
                })
            }
            _ => Ok(Self {
                url: place.to_owned(),
                branch,
                credentials: None,
            }),
        }
    }
}

impl Credentials {
    /// The token of the repository's host. `None` without a token or without TLS.
    fn for_host(settings: &WorkspaceSettings, url: &str) -> Option<Self> {
        let (host, _) = url.strip_prefix("https://")?.split_once('/')?;
        let (host, token) = settings.git_tokens.get_key_value(host)?;
        let secret = token.expose_secret();
        let user = match host.as_str() {
            // An app password includes the user name.
            _ if secret.contains(':') => "",
            "gitlab.com" => "oauth2",
            "bitbucket.org" => "x-token-auth",
            _ => "x-access-token",
        };
        let colon = if user.is_empty() { "" } else { ":" };
        let with = SecretString::from(format!("https://{user}{colon}{secret}@{host}/"));
        Some(Self {
            without: format!("https://{host}/"),
            with,
            secrets: vec![token.clone()],
        })
    }

    /// Adds an entry of git's configuration to the environment.
    fn add_to(self, environment: &mut BTreeMap<String, String>) {
        let count = environment
            .get("GIT_CONFIG_COUNT")
            .and_then(|count| count.parse::<u32>().ok())
            .unwrap_or(0);
        let key = format!("url.{}.insteadOf", self.with.expose_secret());
        environment.insert(format!("GIT_CONFIG_KEY_{count}"), key);
        environment.insert(format!("GIT_CONFIG_VALUE_{count}"), self.without);
        environment.insert(
            "GIT_CONFIG_COUNT".to_owned(),
            count.saturating_add(1).to_string(),
        );
    }
}

fn is_owner_and_name(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty()
            && !word.starts_with(['.', '-'])
            && word
                .chars()
                .all(|character| character.is_ascii_alphanumeric() || "._-".contains(character))
    };
    text.split_once('/')
        .is_some_and(|(owner, name)| is_word(owner) && is_word(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn config(selected: Option<&str>, file: &str) -> Config {
        let named = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(named.path(), file).unwrap();
        let overrides = Overrides {
            config_file: Some(named.path().to_owned()),
            selected_repository: selected.map(Into::into),
            ..Default::default()
        };
        Config::load(&overrides, |name| {
            (name == "HOME").then(|| "/home/u".to_owned())
        })
        .unwrap()
    }

    fn repository(url: &str, branch: Option<&str>) -> WorkspaceSetup {
        WorkspaceSetup::Repository {
            url: url.into(),
            branch: branch.map(Into::into),
        }
    }

    fn here(path: &Path) -> WorkspaceFolder {
        WorkspaceFolder::Local(path.to_owned())
    }

    #[test]
    fn user_of_a_server_works_below_the_configured_folder() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap().join("base");
        let mut config = config(
            None,
            &format!("[core]\nworkspace_base = '{}'\n", base.display()),
        );
        let state_dir = StateDir::open(&folder.path().join("state")).unwrap();
        let mut choose = |user: Option<&str>| {
            config.workspace.user = user.map(|user| user.parse().unwrap());
            let id = "conversation".parse().unwrap();
            WorkspaceFolder::choose(&config, &state_dir, &id, None)?
                .for_log()
                .map_err(anyhow::Error::from)
        };
        let text = |path: PathBuf| Some(path.to_str().unwrap().to_owned());
        assert_eq!(choose(None).unwrap(), text(base.clone()));
        assert_eq!(choose(Some("ada")).unwrap(), text(base.join("ada")));
        assert!(base.join("ada").is_dir());
        // Made by an agent of the operator.
        std::os::unix::fs::symlink("/etc", base.join("ben")).unwrap();
        let error = choose(Some("ben")).unwrap_err().to_string();
        assert!(error.contains("replaced by a link"), "{error}");
    }

    #[test]
    fn selected_repository_is_parsed_in_every_usual_notation() {
        let folder = tempfile::tempdir().unwrap();
        for (text, url, branch) in [
            (
                "octo/hello.rs",
                "https://github.com/octo/hello.rs.git",
                None,
            ),
            (
                "octo/hello#next",
                "https://github.com/octo/hello.git",
                Some("next"),
            ),
            (
                "https://h/o/p.git#feature/x",
                "https://h/o/p.git",
                Some("feature/x"),
            ),
            ("https://user:pass@h:8443/o/p", "https://h:8443/o/p", None),
            ("https://token@h/o/p#", "https://h/o/p", None),
            ("https://us@er:p@ss@h/o/p", "https://h/o/p", None),
            ("ssh://git@h/o/p", "ssh://git@h/o/p", None),
            ("ssh://git:pass@h/o/p", "ssh://h/o/p", None),
            ("git@h:o/p.git", "git@h:o/p.git", None),
            ("/srv/p", "/srv/p", None),
            ("file:///srv/p#b", "file:///srv/p", Some("b")),
        ] {
            let setup = setup(&config(Some(text), "").workspace, &here(folder.path())).unwrap();
            assert_eq!(setup, Some(repository(url, branch)), "{text}");
        }
        for text in [
            "p",
            "./p",
            "a/b/c",
            "../p",
            "https://h/\u{7}",
            "-x:y",
            "ext::sh",
        ] {
            assert!(
                setup(&config(Some(text), "").workspace, &here(folder.path())).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn credentials_are_only_in_the_environment() {
        let config = config(Some("https://me:hunter2@h/o/p#b"), "");
        let setup = setup(&config.workspace, &here(Path::new("/nowhere"))).unwrap();
        assert!(
            !format!("{config:?} {}", serde_json::to_string(&setup).unwrap()).contains("hunter2")
        );
        let given = environment(&config.workspace, setup.as_ref());
        assert_eq!(given["GIT_CONFIG_COUNT"], "1");
        assert_eq!(
            given["GIT_CONFIG_KEY_0"],
            "url.https://me:hunter2@h/.insteadOf"
        );
        assert_eq!(given["GIT_CONFIG_VALUE_0"], "https://h/");
        // Another conversation's repository does not get them.
        assert!(
            environment(
                &config.workspace,
                Some(&repository("https://h/o/other", None))
            )
            .is_empty()
        );
        assert!(environment(&config.workspace, None).is_empty());
    }

    #[test]
    fn token_is_used_when_the_repository_is_on_its_host() {
        let tokens = [
            ("GITHUB_TOKEN", "ghp_x"),
            ("GITLAB_TOKEN", "glpat-x"),
            ("BITBUCKET_TOKEN", "u:x"),
        ];
        let load = |selected: Option<&str>| {
            let overrides = Overrides {
                selected_repository: selected.map(Into::into),
                ..Default::default()
            };
            let variable = |name: &str| {
                let known = tokens.iter().find(|(known, _)| *known == name);
                known
                    .map(|(_, value)| (*value).to_owned())
                    .or_else(|| (name == "HOME").then(|| "/home/u".to_owned()))
            };
            Config::load(&overrides, variable).unwrap()
        };
        let given = |selected: Option<&str>, url: &str| {
            environment(&load(selected).workspace, Some(&repository(url, None)))
                .remove("GIT_CONFIG_KEY_0")
        };
        for (url, key) in [
            (
                "https://github.com/o/p.git",
                "url.https://x-access-token:ghp_x@github.com/.insteadOf",
            ),
            (
                "https://gitlab.com/o/p",
                "url.https://oauth2:glpat-x@gitlab.com/.insteadOf",
            ),
            (
                "https://bitbucket.org/o/p",
                "url.https://u:x@bitbucket.org/.insteadOf",
            ),
        ] {
            // Also when the conversation is resumed, which names no repository.
            assert_eq!(given(None, url).as_deref(), Some(key));
        }
        for url in [
            "http://github.com/o/p",
            "https://github.com.evil/o/p",
            "https://evil/github.com/p",
            "/srv/p",
        ] {
            assert_eq!(given(None, url), None, "{url}");
        }
        // The user's own credentials win.
        let own = given(
            Some("https://me:hunter2@github.com/o/p"),
            "https://github.com/o/p",
        );
        assert_eq!(
            own.as_deref(),
            Some("url.https://me:hunter2@github.com/.insteadOf")
        );
        let secrets = credentials(&load(Some("https://me:hunter2@h/o/p")).workspace);
        let mut secrets: Vec<_> = secrets
            .iter()
            .map(|secret| secret.expose_secret())
            .collect();
        secrets.sort_unstable();
        assert_eq!(secrets, ["ghp_x", "glpat-x", "hunter2", "hunter2", "u:x"]);
    }

    #[test]
    fn secrets_of_a_url_are_found_in_each_spelling() {
        let token = "ghp_0123456789abcdef0123";
        for (user, expected) in [
            ("ada:L%40ng", &["L%40ng", "L@ng"][..]),
            ("ada", &[]),
            (token, &[token, token]),
            ("tok:x-oauth-basic", &["tok", "tok"]),
            (&format!("{token}:pw"), &["pw", "pw", token, token]),
        ] {
            let secrets = secrets_of(user);
            let secrets: Vec<_> = secrets
                .iter()
                .map(|secret| secret.expose_secret())
                .collect();
            assert_eq!(secrets, expected, "{user}");
        }
    }

    #[test]
    fn variable_is_kept_when_the_user_has_set_it() {
        let file = "[core]\ngit_user_name = \"G\"\ngit_user_email = \"g@h\"\n[sandbox]\nruntime_startup_env_vars = \
                    { A = \"b\", GIT_AUTHOR_NAME = \"Me\", GIT_CONFIG_COUNT = \"2\" }\n";
        let config = config(Some("https://t@h/o/p"), file);
        let given = environment(&config.workspace, Some(&repository("https://h/o/p", None)));
        let given: Vec<_> = given
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            given,
            [
                ("A", "b"),
                ("GIT_AUTHOR_EMAIL", "g@h"),
                ("GIT_AUTHOR_NAME", "Me"),
                ("GIT_COMMITTER_EMAIL", "g@h"),
                ("GIT_COMMITTER_NAME", "G"),
                ("GIT_CONFIG_COUNT", "3"),
                ("GIT_CONFIG_KEY_2", "url.https://t@h/.insteadOf"),
                ("GIT_CONFIG_VALUE_2", "https://h/"),
            ]
        );
    }

    #[test]
    fn folder_is_set_up_only_when_it_has_scripts_or_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let init = config(None, "[core]\ninit_git_in_empty_workspace = true\n");
        assert_eq!(
            setup(&config(None, "").workspace, &here(folder.path())).unwrap(),
            None
        );
        assert_eq!(
            setup(&init.workspace, &here(folder.path())).unwrap(),
            Some(WorkspaceSetup::EmptyRepository)
        );
        std::fs::create_dir(folder.path().join(".openhands")).unwrap();
        assert_eq!(setup(&init.workspace, &here(folder.path())).unwrap(), None);
        std::fs::write(folder.path().join(".openhands/setup.sh"), "").unwrap();
        assert_eq!(
            setup(&init.workspace, &here(folder.path())).unwrap(),
            Some(WorkspaceSetup::Folder)
        );
    }
}

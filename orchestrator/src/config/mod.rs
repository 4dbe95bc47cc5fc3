//! Configuration: data, read once, handed to each part as its part.
//!
//! Flags win over the environment, that over files, those over defaults. Names and defaults are V0's, so that its users
//! bring their files along. An unknown key is a warning with the nearest known one; a bad value is an error that names
//! file, line and key. A file of the current folder may only narrow what the user's own file says, unless the user trusts
//! it: see [`crate::trust`].

mod agent;
mod condenser;
#[cfg(test)]
mod documentation;
mod environment;
mod file;
mod keys;
mod layers;
mod mcp;
mod policy_file;
mod python_literal;
mod routing;
mod runtime;
mod sandbox;
mod secrets;
mod settings;
mod startup_environment;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;

use engine::agent::AgentDefinition;
use engine::secrets::Secret;
use secrecy::SecretString;
use storage::Durability;

use crate::trust::{Fingerprint, TrustStore};

pub(crate) use agent::AgentSettings;
use agent::Folders;
pub(crate) use condenser::CondenserSettings;
use layers::Layers;
pub(crate) use layers::RestrictedFile;
pub(crate) use runtime::{Runtime, UnknownRuntime};
pub(crate) use sandbox::SandboxSettings;
pub(crate) use settings::{ConfigError, Settings, size_in_bytes};

const LOCAL_ENVIRONMENT: [&str; 9] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Hosts of repositories, each with the variable that V0 takes its token from.
const GIT_TOKENS: [(&str, &str); 3] =
    [("github.com", "GITHUB_TOKEN"), ("gitlab.com", "GITLAB_TOKEN"), ("bitbucket.org", "BITBUCKET_TOKEN")];

/// The longest answer to who asks for a title, in tokens, thoughts included: what it may cost is set aside of a budget.
const LONGEST_TITLE: u32 = 4000;

/// V0's group of the model that writes out what the agent drafts.
const DRAFT_EDITOR: &str = "draft_editor";

/// What the command line says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    /// `--config-file`. `None`: the user's own file, and over it `config.toml` of the current folder.
    pub config_file: Option<PathBuf>,
    /// Whether `config.toml` of the current folder is not read.
    pub without_folder_file: bool,
    /// `--model`: the name of an `[llm.NAME]` group, or of a model.
    pub model: Option<String>,
    /// `--agent`: a name or a file.
    pub agent: Option<String>,
    /// `--max-iterations`.
    pub max_iterations: Option<u32>,
    /// `--max-budget-per-task`, in US dollars.
    pub max_budget: Option<f64>,
    /// `--runtime`.
    pub runtime: Option<Runtime>,
    /// `--image`.
    pub image: Option<String>,
    /// `--network`.
    pub network: Option<String>,
    /// `--unsafe-local`.
    pub unsafe_local: bool,
    /// `--unsafe-directory`.
    pub unsafe_directory: bool,
    /// `--host`.
    pub ssh_host: Option<String>,
    /// `--save-trajectory`.
    pub save_trajectory: Option<PathBuf>,
    /// `--selected-repo`.
    pub selected_repository: Option<String>,
    /// `--secret`, each as `NAME`, `NAME=VALUE` or `NAME=@FILE`.
    pub secrets: Vec<String>,
}

/// Everything that can be configured, with its value.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The agent.
    pub agent: AgentSettings,
    /// The same for each agent that a task can be handed on to, by name; empty in these.
    pub team: BTreeMap<String, Config>,
    /// Steps that an agent may take.
    pub max_iterations: u32,
    /// What a task's calls to the model may cost, in US dollars; nothing: any sum.
    pub max_budget: Option<f64>,
    /// What creates sandboxes.
    pub runtime: Runtime,
    /// What sandboxes are.
    pub sandbox: SandboxSettings,
    /// How long a command may take when the agent does not say, in seconds.
    pub command_timeout: f64,
    /// Where conversations, workspaces and keys are kept.
    pub state_dir: PathBuf,
    /// What an event that counts survives.
    pub durability: Durability,
    /// The folder that the agent works in when none is named; nothing: a fresh one a conversation.
    pub workspace_base: Option<PathBuf>,
    /// Where the trajectory is saved at the end.
    pub save_trajectory: Option<PathBuf>,
    /// Whether it has the pictures of pages too.
    pub saves_screenshots: bool,
    /// Whether there is a browser in the sandbox, if its image has one.
    pub enable_browser: bool,
    /// Whether the agent is shown pages with marks on what can be operated: by default only `VisualBrowsingAgent`, in V0
    /// every agent.
    pub marks_pages: bool,
    /// The trajectory that is done again instead of a task.
    pub replay_trajectory: Option<PathBuf>,
    /// The model.
    pub llm: LlmSettings,
    /// The model that is asked first, if another one answers what that cannot.
    pub secondary_llm: Option<LlmSettings>,
    /// The model that finds titles for conversations; nothing: none does.
    pub title_llm: Option<LlmSettings>,
    /// The model that writes out edits which the agent drafts; nothing: the agent's own does.
    pub draft_editor_llm: Option<LlmSettings>,
    /// How long histories are kept short.
    pub condenser: CondenserSettings,
    /// Whether a history that does not fit the model's window stays as it is.
    pub history_truncation_disabled: bool,
    /// Whether an agent that goes in circles is let be.
    pub stuck_detection_disabled: bool,
    /// Where this user's sockets are, from `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// The files that take effect with all that they say, but for those of agents. They may hold keys.
    pub files: Vec<Fingerprint>,
    /// Files of which not all takes effect.
    pub restricted: Vec<RestrictedFile>,
    /// The user's decisions about files.
    pub trust: TrustStore,
    /// Whether a sandbox may write a folder that holds the user's home or the state folder.
    pub allows_broad_folders: bool,
    /// Where the Docker engine is, as in `DOCKER_HOST`; nothing: where it usually is.
    pub docker_host: Option<String>,
    /// The folder of Docker's own client, as in `DOCKER_CONFIG`, else `.docker` at home.
    pub docker_config: Option<PathBuf>,
    /// An action server to use instead of the one that is carried, from `GLOVEBOX_ACTION_SERVER`.
    pub action_server: Option<PathBuf>,
    /// What of this program's environment a local sandbox gets: nothing that could be a key.
    pub local_environment: Vec<(String, String)>,
    /// The repository that the agent works on, as the user wrote it: a URL may hold credentials.
    pub selected_repository: Option<SecretString>,
    /// Tokens for repositories, by host, from `GITHUB_TOKEN` and the like.
    pub git_tokens: BTreeMap<&'static str, SecretString>,
    /// Whether an empty workspace becomes a repository.
    pub init_git: bool,
    /// Who commits in the sandbox; nothing: whoever its git says.
    pub git_user_name: Option<String>,
    /// Their address.
    pub git_user_email: Option<String>,
    /// What everything that runs in a sandbox finds in its environment.
    pub startup_environment: BTreeMap<String, SecretString>,
    /// Servers whose tools the agent may call; none where it may not.
    pub mcp_servers: Vec<::mcp::McpServer>,
    /// What nobody may see, by name.
    pub secrets: BTreeMap<String, Secret>,
    /// Who judges actions, and which are asked about.
    pub security: SecuritySettings,
    /// What is worth telling the user.
    pub warnings: Vec<String>,
}

/// Agents that tasks can be handed on to.
const MOST_AGENTS: usize = 32;

/// Who judges actions and which are asked about, as configured.
#[derive(Debug, Clone)]
pub(crate) struct SecuritySettings {
    /// V0's switch.
    pub confirmation_mode: bool,
    /// `never`, `low`, `medium`, `high` or `always`; nothing: what the switch says.
    pub policy: Option<String>,
    /// `none`, `llm`, `invariant`, `grayswan`, a policy file or a URL.
    pub analyzer: Option<String>,
    /// The content of the policy file that `analyzer` names. `None` if it names none.
    pub rules: Option<Result<String, String>>,
    /// Where the analyzer of that name is.
    pub analyzer_url: Option<String>,
    /// What the analyzer behind a URL is shown.
    pub analyzer_key: Option<SecretString>,
    /// How long that one may take, in seconds.
    pub analyzer_timeout: Option<f64>,
    /// V0's `GRAYSWAN_POLICY_ID`.
    pub grayswan_policy: Option<String>,
}

/// A model and how it is called, as configured.
#[derive(Debug, Clone)]
pub(crate) struct LlmSettings {
    /// The model; nothing: none was named.
    pub model: Option<String>,
    /// The key.
    pub api_key: Option<SecretString>,
    /// Every key of its section.
    pub settings: Settings,
}

impl LlmSettings {
    /// The model that a section describes.
    fn of(settings: Settings) -> Self {
        Self {
            model: settings.text("llm", "model"),
            api_key: settings.text("llm", "api_key").map(SecretString::from),
            settings,
        }
    }

    /// Whether it is the same model, called in the same way.
    fn is_like(&self, other: &Self) -> bool {
        self.model == other.model && self.settings.section("llm") == other.settings.section("llm")
    }

    /// The model of a group, which inherits from its section.
    fn of_group(settings: &Settings, group: &Settings) -> Self {
        let mut of_group = settings.clone();
        of_group.overlay(group.clone());
        Self::of(of_group)
    }
}

impl Config {
    /// Every model that is asked: the agent's first.
    pub(crate) fn llms(&self) -> impl Iterator<Item = &LlmSettings> {
        std::iter::once(self).chain(self.team.values()).flat_map(Self::llms_of_agent)
    }

    /// The files that take effect with all that they say.
    pub(crate) fn effective_files(&self) -> impl Iterator<Item = &Fingerprint> {
        let agents = std::iter::once(self).chain(self.team.values());
        self.files.iter().chain(agents.filter_map(|config| config.agent.file.as_ref()))
    }

    /// Whether the same models are asked, in the same way.
    pub(crate) fn is_routed_like(&self, other: &Self) -> bool {
        let second = match (&self.secondary_llm, &other.secondary_llm) {
            (Some(own), Some(theirs)) => own.is_like(theirs),
            (own, theirs) => own.is_none() && theirs.is_none(),
        };
        self.llm.is_like(&other.llm) && second
    }

    fn llms_of_agent(&self) -> impl Iterator<Item = &LlmSettings> {
        let beside = self.secondary_llm.iter().chain(&self.title_llm).chain(&self.draft_editor_llm);
        std::iter::once(&self.llm).chain(beside).chain(self.condenser.llms.values())
    }

    /// Reads file and environment, and lets the command line win.
    ///
    /// # Errors
    /// A file that cannot be read, is not TOML, or holds a bad value; a bad value in the environment.
    pub(crate) fn load(
        overrides: &Overrides,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let layers = Layers::read(overrides, &environment)?;
        let mut config = Self::load_alone(overrides, &environment, &layers)?;
        let mut names = config.agent.delegates.clone();
        // Who is left out is told to whoever wants to hand on to them.
        while let Some(name) = names.pop().filter(|_| config.team.len() < MOST_AGENTS) {
            let Entry::Vacant(place) = config.team.entry(name) else { continue };
            let overrides = Overrides { agent: Some(place.key().clone()), ..overrides.clone() };
            let mut member = Self::load_alone(&overrides, &environment, &layers)?;
            let new = member.restricted.drain(..).filter(|file| !config.restricted.contains(file));
            let new: Vec<_> = new.collect();
            config.restricted.extend(new);
            if !member.agent.has_own_delegates {
                member.agent.delegates.clear();
            }
            names.extend(member.agent.delegates.iter().cloned());
            place.insert(member);
        }
        agent::introduce(&mut config);
        Ok(config)
    }

    /// The same without those that a task can be handed on to.
    fn load_alone(
        overrides: &Overrides,
        environment: &impl Fn(&str) -> Option<String>,
        layers: &Layers,
    ) -> Result<Self, ConfigError> {
        let (mut file, mut warnings) = (layers.file.clone(), layers.warnings.clone());
        let groups = file.groups.clone();
        let mut settings = std::mem::take(&mut file.base);
        settings.overlay(environment::read(environment)?);
        let state_dir = layers::state_dir(&settings, environment)?;
        let named = overrides.agent.clone().or_else(|| settings.text("core", "default_agent"));
        let named = named.unwrap_or_else(|| AgentDefinition::CODE_ACT.into());
        let section = file.take_group("agent", agent::section_of(&named));
        settings.overlay(section.clone().unwrap_or_default());
        let untrusted = layers.untrusted_folder.as_deref();
        let has_own_section = layers.own_agents.contains(agent::section_of(&named));
        let folders = Folders { state_dir: &state_dir, untrusted, trust: &layers.trust, has_own_section };
        let mut agent = AgentSettings::read(&named, &settings, section.as_ref(), &folders);
        let mut files = layers.files.clone();
        let restricted = layers.restricted.clone();
        let mut restricted: Vec<_> = restricted.into_iter().chain(agent.restricted.take()).collect();
        let analyzer = settings.text("security", "security_analyzer");
        let home_dir = home(environment).ok();
        let rules = analyzer.as_deref().and_then(|analyzer| {
            let policy = policy_file::read(analyzer, home_dir.as_deref(), &layers.trust)?;
            Some(policy.map(|policy| {
                restricted.extend(policy.restricted);
                files.push(policy.fingerprint);
                policy.text
            }))
        });
        let condenser = CondenserSettings::read(&settings, &groups)?;
        let secondary_llm = routing::read(&settings, &groups)?;
        let title_llm = title_llm(&settings, &groups)?;
        let draft_editor = groups.get(&("llm".to_owned(), DRAFT_EDITOR.to_owned()));
        let mut draft_editor_llm = draft_editor.map(|group| LlmSettings::of_group(&settings, group));
        let named = overrides.model.clone().or_else(|| agent.model.clone());
        let group = named.as_deref().and_then(|name| file.take_group("llm", name));
        // As in V0, a group that does not exist is the default one; of a file's agent the name may be a model's.
        let is_missing = |name: &String| {
            group.is_none()
                && overrides.model.is_none()
                && agent.definition.is_ok()
                && settings.text("agent", "llm_config").as_ref() == Some(name)
        };
        let named = match named {
            Some(name) if is_missing(&name) => {
                warnings.push(format!("agent.llm_config: there is no [llm.{name}]: [llm] is used"));
                None
            }
            named => named,
        };
        let model = named.filter(|_| group.is_none());
        settings.overlay(group.unwrap_or_default());
        let model = model.or_else(|| settings.text("llm", "model"));
        warnings.extend(settings.without_effect());
        let is_visual = agent.lasting_name == AgentDefinition::VISUAL_BROWSING;
        let marks_pages = settings.flag("agent", "enable_som_visual_browsing").unwrap_or(is_visual);
        let (mut sandbox, mounted_workspace) = SandboxSettings::read(&settings, environment);
        sandbox.image = overrides.image.clone().or(sandbox.image);
        sandbox.set_network(overrides.network.clone());
        sandbox.unsafe_local |= overrides.unsafe_local;
        sandbox.ssh.target = overrides.ssh_host.clone().or(sandbox.ssh.target);
        let configured_iterations = settings.integer("core", "max_iterations");
        if let Some(llm) = draft_editor_llm.as_mut().filter(|llm| llm.model.is_none()) {
            llm.model = model.clone().or_else(|| settings.text("llm", "model"));
        }
        Ok(Self {
            agent,
            team: BTreeMap::new(),
            max_iterations: overrides
                .max_iterations
                .or_else(|| configured_iterations.and_then(|number| u32::try_from(number).ok()))
                .unwrap_or(500),
            // V0's 0 is no limit.
            max_budget: overrides
                .max_budget
                .or_else(|| settings.number("core", "max_budget_per_task"))
                .filter(|most| *most > 0.0),
            runtime: overrides
                .runtime
                .or_else(|| settings.text("core", "runtime")?.parse().ok())
                .unwrap_or(Runtime::Docker),
            sandbox,
            command_timeout: settings.number("sandbox", "timeout").unwrap_or(120.0),
            workspace_base: settings
                .path("core", "workspace_mount_path")
                .or_else(|| settings.path("core", "workspace_base"))
                .or(mounted_workspace)
                .map(|path| expand_home(path, environment))
                .transpose()?,
            save_trajectory: overrides
                .save_trajectory
                .clone()
                .or_else(|| settings.path("core", "save_trajectory_path")),
            saves_screenshots: settings.flag("core", "save_screenshots_in_trajectory").unwrap_or(false),
            enable_browser: settings.flag("core", "enable_browser").unwrap_or(true),
            marks_pages,
            replay_trajectory: settings
                .path("core", "replay_trajectory_path")
                .map(|path| expand_home(path, environment))
                .transpose()?,
            selected_repository: overrides
                .selected_repository
                .clone()
                .or_else(|| settings.text("sandbox", "selected_repo"))
                .map(SecretString::from),
            git_tokens: GIT_TOKENS
                .iter()
                .filter_map(|(host, name)| Some((*host, variable(environment, name)?.into())))
                .collect(),
            init_git: settings.flag("core", "init_git_in_empty_workspace").unwrap_or(false),
            git_user_name: settings.text("core", "git_user_name"),
            git_user_email: settings.text("core", "git_user_email"),
            startup_environment: startup_environment::read(&settings)?,
            mcp_servers: match settings.flag("agent", "enable_mcp") {
                Some(false) => Vec::new(),
                _ => mcp::read(&settings),
            },
            secrets: secrets::read(file.secrets, &overrides.secrets, environment)?,
            security: SecuritySettings {
                confirmation_mode: settings.flag("security", "confirmation_mode").unwrap_or(false),
                policy: settings.text("security", "confirmation_policy"),
                analyzer_url: settings.text("security", "security_analyzer_url"),
                analyzer_key: settings
                    .text("security", "security_analyzer_key")
                    .or_else(|| {
                        let is_grayswan = analyzer.as_deref() == Some("grayswan");
                        variable(environment, "GRAYSWAN_API_KEY").filter(|_| is_grayswan)
                    })
                    .map(SecretString::from),
                analyzer,
                rules,
                analyzer_timeout: settings.number("security", "security_analyzer_timeout"),
                grayswan_policy: variable(environment, "GRAYSWAN_POLICY_ID"),
            },
            state_dir,
            durability: match settings.flag("core", "sync_events") {
                Some(true) => Durability::PowerCut,
                _ => Durability::ProcessDeath,
            },
            condenser,
            secondary_llm,
            title_llm,
            draft_editor_llm,
            stuck_detection_disabled: !settings.flag("agent", "enable_stuck_detection").unwrap_or(true),
            history_truncation_disabled: !settings.flag("agent", "enable_history_truncation").unwrap_or(true),
            llm: LlmSettings { model, ..LlmSettings::of(settings) },
            runtime_dir: variable(&environment, "XDG_RUNTIME_DIR").map(PathBuf::from),
            home: home_dir,
            files,
            restricted,
            trust: layers.trust.clone(),
            allows_broad_folders: overrides.unsafe_directory,
            docker_host: variable(&environment, "DOCKER_HOST"),
            docker_config: variable(&environment, "DOCKER_CONFIG")
                .map(PathBuf::from)
                .or_else(|| Some(home(environment).ok()?.join(".docker"))),
            action_server: variable(&environment, "GLOVEBOX_ACTION_SERVER").map(PathBuf::from),
            local_environment: LOCAL_ENVIRONMENT
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), environment(name)?)))
                .collect(),
            warnings,
        })
    }
}

fn title_llm(
    settings: &Settings,
    groups: &BTreeMap<(String, String), Settings>,
) -> Result<Option<LlmSettings>, ConfigError> {
    let Some(name) = settings.text("core", "title_llm_config") else { return Ok(None) };
    let Some(group) = groups.get(&("llm".to_owned(), name.clone())) else {
        return Err(ConfigError::NoTitleModel(name));
    };
    let mut llm = LlmSettings::of_group(settings, group);
    llm.settings.or_integer("llm", "max_output_tokens", LONGEST_TITLE);
    Ok(Some(llm))
}

fn variable(environment: &impl Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    environment(name).filter(|value| !value.is_empty())
}

fn home(environment: &impl Fn(&str) -> Option<String>) -> Result<PathBuf, ConfigError> {
    variable(environment, "HOME").map(PathBuf::from).ok_or(ConfigError::NoHome)
}

fn expand_home(path: PathBuf, environment: &impl Fn(&str) -> Option<String>) -> Result<PathBuf, ConfigError> {
    match path.strip_prefix("~") {
        Ok(rest) => Ok(home(environment)?.join(rest)),
        Err(_) => Ok(path),
    }
}

//! Configuration: read once from files, environment and command line, and validated into one typed
//! part per subsystem.
//!
//! Flags win over the environment, the environment over files, files over defaults. Names and
//! defaults are V0's, so that its users can keep their files. An unknown key is a warning with the
//! nearest known one. A bad value is an error that names file, line and key. A file of the current
//! folder can only narrow the user's own file, unless the user trusts it: see [`crate::trust`].

mod agent;
mod condenser;
#[cfg(test)]
mod documentation;
mod environment;
mod file;
mod host;
mod keys;
mod layers;
mod llm;
mod mcp;
mod policy_file;
mod routing;
mod runtime;
mod sandbox;
mod secrets;
mod security;
mod settings;
mod shown;
mod startup_environment;
mod store;
#[cfg(test)]
mod tests;
mod workspace;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use engine::agent::AgentDefinition;
use engine::secrets::Secret;
use storage::Durability;

use crate::trust::{Fingerprint, TrustStore};

use agent::AgentFolders;
pub(crate) use agent::AgentSettings;
pub(crate) use condenser::CondenserSettings;
pub(crate) use host::HostEnvironment;
use host::expand_home;
use layers::Layers;
pub(crate) use layers::RestrictedFile;
pub(crate) use llm::{LlmSettings, ModelPrice};
pub(crate) use mcp::McpSettings;
pub(crate) use runtime::{Runtime, UnknownRuntime};
pub(crate) use sandbox::{SandboxSettings, SshSettings, UnknownHostPolicy};
pub(crate) use security::{AnalyzerChoice, SecuritySettings};
pub(crate) use settings::{ConfigError, Origin, Settings, size_in_bytes};
pub(crate) use shown::{ShownValue, shown_values};
pub(crate) use store::{BlobPlace, StoreSettings, is_postgres};
pub(crate) use workspace::{WorkspaceSettings, token_variable};

/// Returns the section and the name of each key that has an effect.
#[cfg(test)]
pub(crate) fn effective_keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    keys::all()
        .filter(|key| key.has_effect)
        .map(|key| (key.section, key.name))
}

/// Maximum number of agents that tasks can be delegated to.
const MAX_DELEGATES: usize = 32;

/// Default limit of an agent's steps, as in V0.
const DEFAULT_MAX_ITERATIONS: u32 = 500;

/// Default timeout of a command, in seconds.
const DEFAULT_COMMAND_TIMEOUT: f64 = 120.0;

/// Options of the command line, which win over the environment and the files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    /// `--config-file`. `None` for the user's own file, overlaid with `config.toml` of the current
    /// folder.
    pub config_file: Option<PathBuf>,
    /// Whether to ignore `config.toml` of the current folder.
    pub without_folder_file: bool,
    /// `--model`: the name of an `[llm.NAME]` group, or of a model.
    pub model: Option<String>,
    /// `--agent`: a name or a file.
    pub agent: Option<String>,
    /// `--max-iterations`.
    pub max_iterations: Option<u32>,
    /// `--max-budget-per-task`, in US dollars.
    pub max_budget: Option<f64>,
    /// `--store`: the address of a database.
    pub store: Option<String>,
    /// `--blobs`: the place of large events.
    pub blobs: Option<String>,
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

/// Number of conversations of a user that V0 runs at once.
const DEFAULT_MAX_CONCURRENT_CONVERSATIONS: usize = 3;

/// The whole configuration.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The agent.
    pub agent: AgentSettings,
    /// Configuration of each agent that tasks can be delegated to, by name. Empty within these.
    pub team: BTreeMap<String, Config>,
    /// Folders of the user's own microagents, which may not exist. Later ones win.
    pub microagent_folders: Vec<PathBuf>,
    /// Maximum number of steps of the agent.
    pub max_iterations: u32,
    /// Maximum cost of a task's model calls, in US dollars. `None` for no limit.
    pub max_budget: Option<f64>,
    /// Maximum number of conversations of each user that a server runs at once.
    pub max_concurrent_conversations: usize,
    /// Backend that provisions sandboxes.
    pub runtime: Runtime,
    /// Sandboxes and their backends.
    pub sandbox: SandboxSettings,
    /// Timeout of a command if the agent names none, in seconds.
    pub command_timeout: f64,
    /// Folder of conversations, workspaces and keys.
    pub state_dir: PathBuf,
    /// Failures that a stored event survives.
    pub durability: Durability,
    /// Where event logs are kept.
    pub store: StoreSettings,
    /// The folder and repository that the agent works on.
    pub workspace: WorkspaceSettings,
    /// File for the trajectory of a finished conversation.
    pub save_trajectory: Option<PathBuf>,
    /// Whether trajectories include screenshots of pages.
    pub saves_screenshots: bool,
    /// Whether sandboxes have a browser, if their image has one.
    pub enable_browser: bool,
    /// Whether screenshots mark the elements that can be operated. By default only
    /// `VisualBrowsingAgent` gets the marks; in V0 every agent does.
    pub marks_pages: bool,
    /// Trajectory to replay instead of starting a task.
    pub replay_trajectory: Option<PathBuf>,
    /// The agent's model.
    pub llm: LlmSettings,
    /// Prices that `[llm]` and its groups set, by model. Also of groups that no agent uses.
    pub model_prices: BTreeMap<String, ModelPrice>,
    /// Model that a router asks first, and that `llm` replaces where it lacks a capability.
    pub secondary_llm: Option<LlmSettings>,
    /// Model that generates titles. `None` if titles are not generated.
    pub title_llm: Option<LlmSettings>,
    /// Model that applies the edits that the agent drafts. `None` for the agent's own.
    pub draft_editor_llm: Option<LlmSettings>,
    /// The condenser.
    pub condenser: CondenserSettings,
    /// Whether a history that exceeds the context window is left untruncated.
    pub history_truncation_disabled: bool,
    /// Whether an agent in a loop is not stopped.
    pub stuck_detection_disabled: bool,
    /// Paths and variables of this machine.
    pub host: HostEnvironment,
    /// Files that take full effect, except those of agents. They may hold keys.
    pub files: Vec<Fingerprint>,
    /// Files of which some keys have no effect.
    pub restricted: Vec<RestrictedFile>,
    /// The user's decisions about files.
    pub trust: TrustStore,
    /// Whether a sandbox may write a folder that contains the user's home or the state folder.
    pub allows_broad_folders: bool,
    /// MCP servers whose tools the agent may call.
    pub mcp: McpSettings,
    /// Secrets that commands can use, by name.
    pub secrets: BTreeMap<String, Secret>,
    /// Names of what users of a server get of the operator's: secrets, variables, tokens, tool
    /// servers.
    pub shared_with_users: BTreeSet<String>,
    /// The security analyzer and the confirmation policy.
    pub security: SecuritySettings,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

impl Config {
    /// Every configured model, the agent's first.
    pub(crate) fn llms(&self) -> impl Iterator<Item = &LlmSettings> {
        self.agents().flat_map(|config| {
            let others = config
                .secondary_llm
                .iter()
                .chain(&config.title_llm)
                .chain(&config.draft_editor_llm);
            std::iter::once(&config.llm)
                .chain(others)
                .chain(config.condenser.llms.values())
        })
    }

    /// This configuration, then that of each agent that tasks can be delegated to.
    pub(crate) fn agents(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.team.values())
    }

    /// The files that take full effect.
    pub(crate) fn effective_files(&self) -> impl Iterator<Item = &Fingerprint> {
        self.files.iter().chain(
            self.agents()
                .filter_map(|config| config.agent.file.as_ref()),
        )
    }

    /// Whether both route calls to the same models, with the same settings.
    pub(crate) fn is_routed_like(&self, other: &Self) -> bool {
        let has_same_secondary = match (&self.secondary_llm, &other.secondary_llm) {
            (Some(own), Some(theirs)) => own.is_same_model(theirs),
            (own, theirs) => own.is_none() && theirs.is_none(),
        };
        self.llm.is_same_model(&other.llm) && has_same_secondary
    }

    /// Reads files and environment, and applies the options of the command line.
    ///
    /// # Errors
    /// A file that cannot be read, is not TOML, or holds a bad value; a bad value in the
    /// environment.
    pub(crate) fn load(
        overrides: &Overrides,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let layers = Layers::read(overrides, &environment)?;
        let mut config = Self::load_agent(overrides, &environment, &layers)?;
        let mut names = config.agent.delegates.clone();
        // An agent beyond the limit is an error of those that delegate to it: see
        // `resolve_delegates`.
        while let Some(name) = names.pop().filter(|_| config.team.len() < MAX_DELEGATES) {
            let Entry::Vacant(entry) = config.team.entry(name) else {
                continue;
            };
            let overrides = Overrides {
                agent: Some(entry.key().clone()),
                ..overrides.clone()
            };
            let mut member = Self::load_agent(&overrides, &environment, &layers)?;
            member
                .restricted
                .retain(|file| !config.restricted.contains(file));
            config.restricted.append(&mut member.restricted);
            if !member.agent.has_own_delegates {
                member.agent.delegates.clear();
            }
            names.extend(member.agent.delegates.iter().cloned());
            entry.insert(member);
        }
        agent::resolve_delegates(&mut config);
        Ok(config)
    }

    /// Loads the configuration of one agent, with an empty team.
    fn load_agent(
        overrides: &Overrides,
        environment: &impl Fn(&str) -> Option<String>,
        layers: &Layers,
    ) -> Result<Self, ConfigError> {
        let (file, mut warnings) = (&layers.file, layers.warnings.clone());
        let mut settings = file.base.clone();
        settings.overlay(environment::read(environment)?);
        let state_dir = layers::state_dir(&settings, environment)?;
        let name = overrides
            .agent
            .clone()
            .or_else(|| settings.text("core", "default_agent"));
        let name = name.unwrap_or_else(|| AgentDefinition::CODE_ACT.into());
        let section = file.group("agent", agent::section_name(&name));
        settings.overlay(section.cloned().unwrap_or_default());
        let folders = AgentFolders {
            state_dir: &state_dir,
            untrusted: layers.untrusted_folder.as_deref(),
            trust: &layers.trust,
            has_own_section: layers.own_agents.contains(agent::section_name(&name)),
        };
        let mut agent = AgentSettings::read(&name, &settings, section, &folders);
        let host = HostEnvironment::read(environment);
        let security =
            SecuritySettings::read(&settings, environment, host.home.as_deref(), &layers.trust);
        let policy = security.policy_file();
        let files = layers
            .files
            .iter()
            .chain(policy.map(|policy| &policy.fingerprint))
            .cloned()
            .collect();
        let policy = policy.and_then(|policy| policy.restricted.clone());
        let restricted = layers
            .restricted
            .clone()
            .into_iter()
            .chain(agent.restricted.take())
            .chain(policy);
        let (mut sandbox, mounted_workspace) = SandboxSettings::read(&settings, environment);
        sandbox.apply(overrides);
        let llm = LlmSettings::read_agent(settings.clone(), file, overrides, &agent, &mut warnings);
        let mut draft_editor_llm = LlmSettings::read_draft_editor(&settings, file);
        if let Some(editor) = &mut draft_editor_llm {
            editor.model = editor.model.take().or_else(|| llm.model.clone());
        }
        let is_visual = agent.stored_name == AgentDefinition::VISUAL_BROWSING;
        let flag = |section, name, default| settings.flag(section, name).unwrap_or(default);
        let max_iterations = || u32::try_from(settings.integer("core", "max_iterations")?).ok();
        let runtime = || settings.text("core", "runtime")?.parse().ok();
        let host_runtime = || overrides.ssh_host.as_ref().map(|_| Runtime::Ssh);
        let save_trajectory = || settings.path("core", "save_trajectory_path");
        let replay_trajectory = settings.path("core", "replay_trajectory_path");
        Ok(Self {
            team: BTreeMap::new(),
            max_concurrent_conversations: settings
                .integer("core", "max_concurrent_conversations")
                .and_then(|number| usize::try_from(number).ok())
                .unwrap_or(DEFAULT_MAX_CONCURRENT_CONVERSATIONS),
            max_iterations: overrides
                .max_iterations
                .or_else(max_iterations)
                .unwrap_or(DEFAULT_MAX_ITERATIONS),
            // 0 is V0's notation for no limit.
            max_budget: overrides
                .max_budget
                .or_else(|| settings.number("core", "max_budget_per_task"))
                .filter(|limit| *limit > 0.0),
            runtime: overrides
                .runtime
                .or_else(host_runtime)
                .or_else(runtime)
                .unwrap_or(Runtime::Auto),
            sandbox,
            command_timeout: settings
                .number("sandbox", "timeout")
                .unwrap_or(DEFAULT_COMMAND_TIMEOUT),
            microagent_folders: agent::microagent_folders(host.home.as_deref(), &state_dir),
            state_dir,
            durability: match flag("core", "sync_events", false) {
                true => Durability::PowerCut,
                false => Durability::ProcessDeath,
            },
            store: StoreSettings::read(&settings, overrides, environment)?,
            workspace: WorkspaceSettings::read(
                &settings,
                overrides,
                mounted_workspace,
                environment,
            )?,
            save_trajectory: overrides.save_trajectory.clone().or_else(save_trajectory),
            saves_screenshots: flag("core", "save_screenshots_in_trajectory", false),
            enable_browser: flag("core", "enable_browser", true),
            marks_pages: flag("agent", "enable_som_visual_browsing", is_visual),
            replay_trajectory: replay_trajectory
                .map(|path| expand_home(path, environment))
                .transpose()?,
            llm,
            model_prices: LlmSettings::read_prices(&settings, file),
            secondary_llm: routing::read(&settings, file)?,
            title_llm: LlmSettings::read_title(&settings, file)?,
            draft_editor_llm,
            condenser: CondenserSettings::read(&settings, file)?,
            history_truncation_disabled: !flag("agent", "enable_history_truncation", true),
            stuck_detection_disabled: !flag("agent", "enable_stuck_detection", true),
            host,
            files,
            restricted: restricted.collect(),
            trust: layers.trust.clone(),
            allows_broad_folders: overrides.unsafe_directory,
            mcp: McpSettings::read(&settings),
            shared_with_users: settings
                .list("core", "share_with_users")
                .into_iter()
                .collect(),
            secrets: secrets::read(file.secrets.clone(), &overrides.secrets, environment)?,
            security,
            agent,
            warnings,
        })
    }
}

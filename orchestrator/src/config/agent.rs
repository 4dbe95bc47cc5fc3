//! The agent: a built-in one, a section `[agent.NAME]`, or a Markdown file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use engine::agent::tools::ToolName;
use engine::agent::{AgentDefinition, AgentFile, DelegateAgent, MAX_AGENT_FILE_BYTES, Prompt};

use super::layers::RestrictedFile;
use super::settings::Settings;
use super::{Config, MAX_DELEGATES};
use crate::input_file;
use crate::trust::{Fingerprint, TrustStore, Verdict};

/// Tools of CodeActAgent, each with its key and whether it is enabled by default.
const TOOLS: [(ToolName, &str, bool); 9] = [
    (ToolName::ExecuteBash, "enable_cmd", true),
    (ToolName::ExecuteIpythonCell, "enable_jupyter", true),
    (ToolName::Browser, "enable_browsing", true),
    (ToolName::EditFile, "enable_llm_editor", false),
    (ToolName::StrReplaceEditor, "enable_editor", true),
    (ToolName::Think, "enable_think", true),
    (ToolName::TaskTracker, "enable_plan_mode", true),
    (
        ToolName::RequestCondensation,
        "enable_condensation_request",
        false,
    ),
    (ToolName::Finish, "enable_finish", true),
];

/// Agents that need no section and no file.
const BUILT_IN_AGENTS: [&str; 6] = [
    AgentDefinition::CODE_ACT,
    AgentDefinition::READ_ONLY,
    AgentDefinition::BROWSING,
    AgentDefinition::VISUAL_BROWSING,
    AgentDefinition::LOC,
    AgentDefinition::DUMMY,
];

/// An agent as configured.
#[derive(Debug, Clone)]
pub(crate) struct AgentSettings {
    /// Name in a conversation's log, which is valid in any folder: its name, or the absolute path
    /// of its file.
    pub stored_name: String,
    /// The agent, or why it cannot be used. The error is reported when the agent is used, not when
    /// it is configured.
    pub definition: Result<AgentDefinition, String>,
    /// Description for agents that delegate tasks.
    pub description: String,
    /// Names of agents that it may delegate tasks to.
    pub delegates: Vec<String>,
    /// Whether its own section or file sets `delegates`, instead of `[agent]`.
    pub has_own_delegates: bool,
    /// Its model, or the name of a group `[llm.NAME]`.
    pub model: Option<String>,
    /// Whether its prompt includes facts about the workspace and microagents.
    pub has_prompt_extensions: bool,
    /// Names of microagents that its prompt never includes.
    pub disabled_microagents: BTreeSet<String>,
    /// Its file, if that takes full effect.
    pub file: Option<Fingerprint>,
    /// Its file, if some fields of it need the user's trust.
    pub restricted: Option<RestrictedFile>,
}

/// Folders of agents and prompts, and the trust in them.
pub(super) struct AgentFolders<'a> {
    /// Holds the user's own agents.
    pub(super) state_dir: &'a Path,
    /// Folder of an untrusted configuration file. Paths of prompts in it cannot leave it.
    pub(super) untrusted: Option<&'a Path>,
    /// The user's decisions about other files.
    pub(super) trust: &'a TrustStore,
    /// Whether the user's own configuration has a section for the agent, which no file of the
    /// current folder replaces.
    pub(super) has_own_section: bool,
}

impl AgentSettings {
    /// Whether it is V0's scripted agent, not a file of the same name.
    pub(crate) fn is_dummy(&self) -> bool {
        self.stored_name == AgentDefinition::DUMMY
    }

    /// Reads the agent of this name. A name with a slash or the suffix `.md` is the path of a file.
    /// `settings` include the keys of its `section`.
    pub(super) fn read(
        name: &str,
        settings: &Settings,
        section: Option<&Settings>,
        folders: &AgentFolders<'_>,
    ) -> Self {
        let enabled = TOOLS
            .iter()
            .filter(|(_, key, default)| settings.flag("agent", key).unwrap_or(*default));
        let mut tools: Vec<_> = enabled.map(|(tool, ..)| *tool).collect();
        // The two editors exclude each other.
        if tools.contains(&ToolName::EditFile) {
            tools.retain(|tool| *tool != ToolName::StrReplaceEditor);
        }
        let mut read = Self {
            stored_name: name.to_owned(),
            definition: Err(String::new()),
            description: settings.text("agent", "description").unwrap_or_default(),
            delegates: settings.list("agent", "delegates"),
            has_own_delegates: section.is_some_and(|section| section.has("agent", "delegates")),
            model: settings.text("agent", "llm_config"),
            has_prompt_extensions: settings
                .flag("agent", "enable_prompt_extensions")
                .unwrap_or(true),
            disabled_microagents: settings
                .list("agent", "disabled_microagents")
                .into_iter()
                .collect(),
            file: None,
            restricted: None,
        };
        let is_built_in = BUILT_IN_AGENTS.contains(&name);
        if let Some(path) = find_file(name, folders).filter(|_| !is_built_in) {
            read.stored_name = path
                .canonicalize()
                .unwrap_or_else(|_| path.clone())
                .display()
                .to_string();
            read.definition =
                read_file(&path, &tools, settings, folders).map(|(file, trusted, restricted)| {
                    (read.file, read.restricted) = (trusted, restricted);
                    read.model = file.model.or(read.model.take());
                    if !file.description.is_empty() {
                        read.description = file.description;
                    }
                    if let Some(delegates) = file.delegates {
                        (read.delegates, read.has_own_delegates) = (delegates, true);
                    }
                    file.definition
                });
        } else if is_built_in || section.is_some() {
            read.definition = from_section(name, tools, settings, folders);
        } else {
            read.definition = Err(format!(
                "there is no agent {name}: there are {}, sections [agent.NAME], and files in .glovebox/agents and {}",
                BUILT_IN_AGENTS.join(", "),
                own_agents(folders).display()
            ));
        }
        if let (Ok(definition), Some(false)) = (
            &mut read.definition,
            settings.flag("core", "enable_browser"),
        ) {
            definition.tools.retain(|tool| *tool != ToolName::Browser);
            if definition.required.contains(&ToolName::Browser) {
                let text = format!(
                    "the agent {name} works in a browser, which core.enable_browser = false forbids"
                );
                read.definition = Err(text);
            }
        }
        read
    }
}

/// Resolves the names of delegates in every agent's definition.
pub(super) fn resolve_delegates(config: &mut Config) {
    let candidates: BTreeMap<String, Result<DelegateAgent, String>> = config
        .team
        .iter()
        .map(|(name, member)| {
            let AgentSettings {
                definition,
                description,
                ..
            } = &member.agent;
            let delegate = DelegateAgent {
                name: name.clone(),
                description: description.clone(),
            };
            (
                name.clone(),
                definition.as_ref().map(|_| delegate).map_err(String::clone),
            )
        })
        .collect();
    let too_many = || Err(format!("tasks go to at most {MAX_DELEGATES} agents"));
    for agent in config
        .team
        .values_mut()
        .map(|member| &mut member.agent)
        .chain([&mut config.agent])
    {
        let delegates: Result<_, String> = agent
            .delegates
            .iter()
            .map(|name| candidates.get(name).cloned().unwrap_or_else(too_many))
            .collect();
        match (&mut agent.definition, delegates) {
            (Ok(definition), Ok(delegates)) => definition.delegates = delegates,
            (definition @ Ok(_), Err(error)) => {
                *definition = Err(format!("agent.delegates: {error}"));
            }
            (Err(_), _) => {}
        }
    }
}

/// Name of the section that configures an agent: its name, or its file's name without `.md`.
pub(super) fn section_name(name: &str) -> &str {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.strip_suffix(".md").unwrap_or(file)
}

/// The file of an agent: the named one, else the user's own, else that of the current folder unless
/// the user's own configuration has a section for the agent. `None` if there is no file.
fn find_file(name: &str, folders: &AgentFolders<'_>) -> Option<PathBuf> {
    if name.contains('/') || name.ends_with(".md") {
        return Some(name.into());
    }
    let file = format!("{name}.md");
    let folder_agents = (!folders.has_own_section).then(|| FOLDER_AGENTS.into());
    let candidates = std::iter::once(own_agents(folders)).chain(folder_agents);
    candidates
        .map(|folder| folder.join(&file))
        .find(|path| path.is_file())
}

/// Agents of the current folder.
const FOLDER_AGENTS: &str = ".glovebox/agents";

/// The user's own folders of microagents: V0's, and Glovebox's.
pub(super) fn microagent_folders(home: Option<&Path>, state_dir: &Path) -> Vec<PathBuf> {
    let v0 = home.map(|home| home.join(".openhands/microagents"));
    v0.into_iter()
        .chain([state_dir.join("microagents")])
        .collect()
}

fn own_agents(folders: &AgentFolders<'_>) -> PathBuf {
    folders.state_dir.join("agents")
}

/// Reads a file. Drops the fields that need trust, unless the file is the user's own or trusted.
/// Returns the agent, the file if it takes full effect, and the file if it does not.
fn read_file(
    path: &Path,
    tools: &[ToolName],
    settings: &Settings,
    folders: &AgentFolders<'_>,
) -> Result<(AgentFile, Option<Fingerprint>, Option<RestrictedFile>), String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let own = own_agents(folders);
    // A link in a repository must not turn another file of the host into a prompt.
    let content = match () {
        () if path.starts_with(FOLDER_AGENTS) => {
            input_file::read_beneath(Path::new("."), path, MAX_AGENT_FILE_BYTES)
        }
        // Perhaps of a conversation's log.
        () if path.is_absolute() && !path.starts_with(&own) => {
            input_file::read_recorded(path, MAX_AGENT_FILE_BYTES)
        }
        () => input_file::read_found(path, MAX_AGENT_FILE_BYTES),
    };
    let content = content.map_err(failed)?;
    let fingerprint = Fingerprint::new(path, &content).map_err(failed)?;
    let text = input_file::to_text(content).map_err(failed)?;
    let shown = path.display().to_string();
    let mut file = AgentFile::parse(&shown, &text, tools).map_err(|error| error.to_string())?;
    // Both paths must be in the folder: a link in a repository may point to one of the user's own
    // agents.
    let is_own = path.starts_with(&own)
        && own
            .canonicalize()
            .is_ok_and(|folder| fingerprint.path.starts_with(folder));
    let verdict = if is_own {
        Some(Verdict::Trusted)
    } else {
        folders.trust.verdict(&fingerprint)
    };
    if verdict == Some(Verdict::Trusted) {
        return Ok((file, Some(fingerprint), None));
    }
    let removed = retain_untrusted(&mut file, settings);
    Ok((
        file,
        None,
        RestrictedFile::new(fingerprint, removed, verdict),
    ))
}

/// Removes the fields that an untrusted file may not set. Returns their names.
fn retain_untrusted(file: &mut AgentFile, settings: &Settings) -> Vec<String> {
    let mut removed = Vec::new();
    if file.model.take().is_some() {
        removed.push("model".to_owned());
    }
    // Delegates may use models that cost more.
    if file
        .delegates
        .take()
        .is_some_and(|delegates| !delegates.is_empty())
    {
        removed.push("delegates".to_owned());
    }
    let is_disabled = |tool: &ToolName| is_disabled(*tool, settings);
    let definition = &mut file.definition;
    if definition.tools.iter().any(is_disabled) {
        definition.tools.retain(|tool| !is_disabled(tool));
        definition.required.retain(|tool| !is_disabled(tool));
        removed.push("tools".to_owned());
    }
    removed
}

/// Whether the configuration turns a tool off. Tools without a key of their own, such as `grep`,
/// run commands.
fn is_disabled(tool: ToolName, settings: &Settings) -> bool {
    let key = TOOLS.iter().find(|(known, ..)| *known == tool);
    let (key, default) = key.map_or(("enable_cmd", true), |(_, key, default)| (*key, *default));
    !settings.flag("agent", key).unwrap_or(default)
}

/// Whether a built-in agent has no tools that these settings turn off.
pub(super) fn is_narrower(name: &str, settings: &Settings) -> bool {
    let has_disabled =
        |agent: AgentDefinition| agent.tools.iter().any(|tool| is_disabled(*tool, settings));
    match name {
        AgentDefinition::CODE_ACT => true,
        // Its script runs commands even if they are turned off.
        AgentDefinition::DUMMY => false,
        _ => built_in(name).is_some_and(|agent| !has_disabled(agent)),
    }
}

/// Definition of a built-in agent. `None` for CodeActAgent, which is configurable, and for unknown
/// names.
fn built_in(name: &str) -> Option<AgentDefinition> {
    Some(match name {
        AgentDefinition::READ_ONLY => AgentDefinition::read_only(),
        AgentDefinition::BROWSING => AgentDefinition::browsing(),
        AgentDefinition::VISUAL_BROWSING => AgentDefinition::visual_browsing(),
        AgentDefinition::LOC => AgentDefinition::loc(),
        AgentDefinition::DUMMY => AgentDefinition::dummy(),
        _ => return None,
    })
}

/// A built-in agent, or CodeActAgent with the settings of a section.
fn from_section(
    name: &str,
    tools: Vec<ToolName>,
    settings: &Settings,
    folders: &AgentFolders<'_>,
) -> Result<AgentDefinition, String> {
    let prompt_file = settings.text("agent", "system_prompt_filename");
    let prompt = prompt_file
        .as_deref()
        .map_or(Some(Prompt::Unattended), Prompt::by_v0_name);
    let mut definition = built_in(name)
        .unwrap_or_else(|| AgentDefinition::code_act(prompt.unwrap_or_default(), tools));
    name.clone_into(&mut definition.name);
    if let (None, Some(file)) = (prompt, prompt_file) {
        let text = read_prompt(Path::new(&file), folders.untrusted);
        definition.prompt =
            text.map_err(|error| format!("agent.system_prompt_filename: {error}"))?;
    }
    Ok(definition)
}

fn read_prompt(path: &Path, untrusted: Option<&Path>) -> Result<String, String> {
    let beneath = untrusted.and_then(|folder| Some((folder, path.strip_prefix(folder).ok()?)));
    let content = match beneath {
        Some((folder, path)) => input_file::read_beneath(folder, path, MAX_AGENT_FILE_BYTES),
        None => input_file::read_named(path, MAX_AGENT_FILE_BYTES),
    };
    content
        .and_then(input_file::to_text)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

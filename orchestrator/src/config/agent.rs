//! Which agent works, and with what: one of ours, a section `[agent.NAME]`, or a Markdown file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use engine::agent::tools::ToolName;
use engine::agent::{AgentDefinition, AgentFile, DelegateAgent, MAX_AGENT_FILE_BYTES, Prompt};

use super::layers::RestrictedFile;
use super::settings::Settings;
use super::{Config, MOST_AGENTS};
use crate::input_file;
use crate::trust::{Fingerprint, TrustStore, Verdict};

/// CodeAct's tools, each with its key and whether it is there without a word.
const TOOLS: [(ToolName, &str, bool); 9] = [
    (ToolName::ExecuteBash, "enable_cmd", true),
    (ToolName::ExecuteIpythonCell, "enable_jupyter", true),
    (ToolName::Browser, "enable_browsing", true),
    (ToolName::EditFile, "enable_llm_editor", false),
    (ToolName::StrReplaceEditor, "enable_editor", true),
    (ToolName::Think, "enable_think", true),
    (ToolName::TaskTracker, "enable_plan_mode", true),
    (ToolName::RequestCondensation, "enable_condensation_request", false),
    (ToolName::Finish, "enable_finish", true),
];

/// Agents that need no configuration.
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
    /// What a conversation keeps of it, to find it again from any folder: its name, or its file's absolute path.
    pub lasting_name: String,
    /// What it is, or why there is no such agent. Only who needs one is told.
    pub definition: Result<AgentDefinition, String>,
    /// What it is for, for agents that hand tasks on.
    pub description: String,
    /// Whom it may hand tasks on to, by name.
    pub delegates: Vec<String>,
    /// Whether that is said of this agent, not of all.
    pub has_own_delegates: bool,
    /// The model that it is for, or a group of the configuration.
    pub model: Option<String>,
    /// Whether it is told of the workspace, and of what is known.
    pub is_told: bool,
    /// Knowledge that it is never told, by name.
    pub disabled_microagents: BTreeSet<String>,
    /// Its file, if all that it says takes effect.
    pub file: Option<Fingerprint>,
    /// Its file, if that says more than an untrusted file may.
    pub restricted: Option<RestrictedFile>,
}

/// Where agents and prompts are looked for.
pub(super) struct Folders<'a> {
    /// Where the user's own agents are.
    pub(super) state_dir: &'a Path,
    /// Where prompts of an untrusted file are. No path to one of them leads elsewhere.
    pub(super) untrusted: Option<&'a Path>,
    /// The user's decisions about other files.
    pub(super) trust: &'a TrustStore,
    /// Whether the user's own configuration has a section for the agent. No file of the current folder replaces that.
    pub(super) has_own_section: bool,
}

impl AgentSettings {
    /// Whether it is V0's agent that plays a script, and no file's of that name.
    pub(crate) fn is_dummy(&self) -> bool {
        self.lasting_name == AgentDefinition::DUMMY
    }

    /// The agent of that name; a name with a slash, or that ends in `.md`, is a file's. `settings` hold the keys of its
    /// `section` too, if it has one.
    pub(super) fn read(
        name: &str,
        settings: &Settings,
        section: Option<&Settings>,
        folders: &Folders<'_>,
    ) -> Self {
        let enabled = TOOLS.iter().filter(|(_, key, usual)| settings.flag("agent", key).unwrap_or(*usual));
        let mut tools: Vec<_> = enabled.map(|(tool, ..)| *tool).collect();
        // It takes the other editor's place.
        if tools.contains(&ToolName::EditFile) {
            tools.retain(|tool| *tool != ToolName::StrReplaceEditor);
        }
        let mut read = Self {
            lasting_name: name.to_owned(),
            definition: Err(String::new()),
            description: settings.text("agent", "description").unwrap_or_default(),
            delegates: settings.list("agent", "delegates"),
            has_own_delegates: section.is_some_and(|section| section.has("agent", "delegates")),
            model: settings.text("agent", "llm_config"),
            is_told: settings.flag("agent", "enable_prompt_extensions").unwrap_or(true),
            disabled_microagents: settings.list("agent", "disabled_microagents").into_iter().collect(),
            file: None,
            restricted: None,
        };
        let of_ours = BUILT_IN_AGENTS.contains(&name);
        if let Some(path) = find(name, folders).filter(|_| !of_ours) {
            read.lasting_name = path.canonicalize().unwrap_or_else(|_| path.clone()).display().to_string();
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
        } else if of_ours || section.is_some() {
            read.definition = configured(name, tools, settings, folders);
        } else {
            read.definition = Err(format!(
                "there is no agent {name}: there are {}, sections [agent.NAME], and files in .glovebox/agents and {}",
                BUILT_IN_AGENTS.join(", "),
                own_agents(folders).display()
            ));
        }
        if let (Ok(definition), Some(false)) = (&mut read.definition, settings.flag("core", "enable_browser"))
        {
            definition.tools.retain(|tool| *tool != ToolName::Browser);
            if definition.required.contains(&ToolName::Browser) {
                let text =
                    format!("the agent {name} works in a browser, which core.enable_browser = false forbids");
                read.definition = Err(text);
            }
        }
        read
    }
}

/// Tells the agents of those that they may hand tasks on to.
pub(super) fn introduce(config: &mut Config) {
    let told: BTreeMap<String, Result<DelegateAgent, String>> = config
        .team
        .iter()
        .map(|(name, member)| {
            let AgentSettings { definition, description, .. } = &member.agent;
            let delegate = DelegateAgent { name: name.clone(), description: description.clone() };
            (name.clone(), definition.as_ref().map(|_| delegate).map_err(String::clone))
        })
        .collect();
    let too_many = || Err(format!("tasks go to at most {MOST_AGENTS} agents"));
    for agent in config.team.values_mut().map(|member| &mut member.agent).chain([&mut config.agent]) {
        let delegates: Result<_, String> =
            agent.delegates.iter().map(|name| told.get(name).cloned().unwrap_or_else(too_many)).collect();
        match (&mut agent.definition, delegates) {
            (Ok(definition), Ok(delegates)) => definition.delegates = delegates,
            (definition @ Ok(_), Err(error)) => *definition = Err(format!("agent.delegates: {error}")),
            (Err(_), _) => {}
        }
    }
}

/// The section that configures an agent: of its name, or its file's.
pub(super) fn section_of(name: &str) -> &str {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.strip_suffix(".md").unwrap_or(file)
}

/// The file of an agent: the one that is named, else the user's own, else this folder's, which must not take the place of
/// what is the user's own.
fn find(name: &str, folders: &Folders<'_>) -> Option<PathBuf> {
    if name.contains('/') || name.ends_with(".md") {
        return Some(name.into());
    }
    let file = format!("{name}.md");
    let of_folder = (!folders.has_own_section).then(|| FOLDER_AGENTS.into());
    let places = std::iter::once(own_agents(folders)).chain(of_folder);
    places.map(|place| place.join(&file)).find(|path| path.is_file())
}

/// Where a folder has its agents.
const FOLDER_AGENTS: &str = ".glovebox/agents";

fn own_agents(folders: &Folders<'_>) -> PathBuf {
    folders.state_dir.join("agents")
}

/// Reads a file. Of one that is neither the user's own nor trusted, only what cannot widen anything. Returns the agent, then
/// the file if it is trusted, or if it says more than that.
fn read_file(
    path: &Path,
    tools: &[ToolName],
    settings: &Settings,
    folders: &Folders<'_>,
) -> Result<(AgentFile, Option<Fingerprint>, Option<RestrictedFile>), String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    // A repository's link must not make another file of the host a prompt.
    let content = match path.starts_with(FOLDER_AGENTS) {
        true => input_file::read_beneath(Path::new("."), path, MAX_AGENT_FILE_BYTES),
        false => input_file::read_found(path, MAX_AGENT_FILE_BYTES),
    };
    let content = content.map_err(failed)?;
    let fingerprint = Fingerprint::new(path, &content).map_err(failed)?;
    let text = input_file::to_text(content).map_err(failed)?;
    let shown = path.display().to_string();
    let mut file = AgentFile::parse(&shown, &text, tools).map_err(|error| error.to_string())?;
    // By both: a link in a repository may lead to one of the user's own.
    let own = own_agents(folders);
    let is_own =
        path.starts_with(&own) && own.canonicalize().is_ok_and(|folder| fingerprint.path.starts_with(folder));
    let verdict = if is_own { Some(Verdict::Trusted) } else { folders.trust.verdict(&fingerprint) };
    if verdict == Some(Verdict::Trusted) {
        return Ok((file, Some(fingerprint), None));
    }
    let removed = retain_untrusted(&mut file, settings);
    Ok((file, None, RestrictedFile::new(fingerprint, removed, verdict)))
}

/// Removes what an untrusted file may not say. Returns the removed fields.
fn retain_untrusted(file: &mut AgentFile, settings: &Settings) -> Vec<String> {
    let mut removed = Vec::new();
    if file.model.take().is_some() {
        removed.push("model".to_owned());
    }
    // Other agents may have other models.
    if file.delegates.take().is_some_and(|delegates| !delegates.is_empty()) {
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

/// Whether the configuration turns a tool off. Tools without a key of their own, such as `grep`, run commands.
fn is_disabled(tool: ToolName, settings: &Settings) -> bool {
    let key = TOOLS.iter().find(|(of_key, ..)| *of_key == tool);
    let (key, default) = key.map_or(("enable_cmd", true), |(_, key, default)| (*key, *default));
    !settings.flag("agent", key).unwrap_or(default)
}

/// Whether a built-in agent has only tools that CodeActAgent has with these settings.
pub(super) fn is_narrower(name: &str, settings: &Settings) -> bool {
    let has_disabled = |agent: AgentDefinition| agent.tools.iter().any(|tool| is_disabled(*tool, settings));
    match name {
        AgentDefinition::CODE_ACT => true,
        // Its script runs commands whatever is turned off.
        AgentDefinition::DUMMY => false,
        _ => built_in(name).is_some_and(|agent| !has_disabled(agent)),
    }
}

/// The built-in agents but for CodeActAgent, which is as configured.
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

/// One of ours, or what a section makes of CodeAct.
fn configured(
    name: &str,
    tools: Vec<ToolName>,
    settings: &Settings,
    folders: &Folders<'_>,
) -> Result<AgentDefinition, String> {
    let prompt_file = settings.text("agent", "system_prompt_filename");
    let prompt = prompt_file.as_deref().map_or(Some(Prompt::Unattended), Prompt::by_v0_name);
    let mut definition =
        built_in(name).unwrap_or_else(|| AgentDefinition::code_act(prompt.unwrap_or_default(), tools));
    name.clone_into(&mut definition.name);
    if let (None, Some(file)) = (prompt, prompt_file) {
        let text = read_prompt(Path::new(&file), folders.untrusted);
        definition.prompt = text.map_err(|error| format!("agent.system_prompt_filename: {error}"))?;
    }
    Ok(definition)
}

fn read_prompt(path: &Path, untrusted: Option<&Path>) -> Result<String, String> {
    let beneath = untrusted.and_then(|folder| Some((folder, path.strip_prefix(folder).ok()?)));
    let content = match beneath {
        Some((folder, path)) => input_file::read_beneath(folder, path, MAX_AGENT_FILE_BYTES),
        None => input_file::read_named(path, MAX_AGENT_FILE_BYTES),
    };
    content.and_then(input_file::to_text).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

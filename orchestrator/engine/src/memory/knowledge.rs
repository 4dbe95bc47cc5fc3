//! Parses a knowledge file: its name, its activation and its content.

use crate::front_matter::{FieldMap, FrontMatterError, MarkdownDocument};
use crate::tool_servers::SandboxToolServer;

/// Maximum length of a file, in bytes: about 16,000 tokens, more than one topic should take.
pub const MAX_KNOWLEDGE_FILE_BYTES: usize = 64 << 10;

/// Maximum number of triggers of a file, and maximum length of a trigger in bytes. Every message is
/// searched for all.
const MAX_TRIGGERS: usize = 64;
const MAX_TRIGGER_BYTES: usize = 256;

/// Maximum number of servers of a file.
const MAX_SERVERS: usize = 8;

/// Maximum length of a skill's description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1024;

/// Files that are always instructions, with V0's names.
pub(super) const INSTRUCTIONS: [(&str, &str); 6] = [
    (".openhands_instructions", "repo_legacy"),
    (".cursorrules", "cursorrules"),
    ("agent.md", "agents"),
    ("AGENT.md", "agents"),
    ("agents.md", "agents"),
    ("AGENTS.md", "agents"),
];

/// An unparsed knowledge file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnowledgeFile {
    /// Its path, for users and agents.
    pub path: String,
    /// Its path relative to the knowledge folder; the file name of an instructions file.
    pub relative_path: String,
    /// Its content, of which only the first 64 KiB are used.
    pub content: Vec<u8>,
}

/// A problem with a knowledge file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct KnowledgeProblem {
    /// The file or folder, with the line where there is one.
    pub path: String,
    /// The problem and its consequence.
    pub problem: String,
}

/// A piece of knowledge, for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnowledgeEntry {
    /// Its name.
    pub name: String,
    /// Its text.
    pub content: String,
    /// Whether it is included at the start of a conversation.
    pub is_always_included: bool,
    /// The words in a message that include it.
    pub triggers: Vec<String>,
    /// Names of the values that a task needs.
    pub inputs: Vec<String>,
    /// Names of the tool servers that it requires.
    pub servers: Vec<String>,
}

impl From<&Knowledge> for KnowledgeEntry {
    fn from(knowledge: &Knowledge) -> Self {
        Self {
            name: knowledge.name.clone(),
            content: knowledge.content.clone(),
            is_always_included: knowledge.activation == Activation::Always,
            triggers: match &knowledge.activation {
                Activation::OnTrigger(triggers) => triggers.clone(),
                Activation::Always | Activation::OnDemand { .. } => Vec::new(),
            },
            inputs: knowledge.inputs.clone(),
            servers: knowledge
                .servers
                .iter()
                .map(|server| server.name.clone())
                .collect(),
        }
    }
}

impl KnowledgeEntry {
    /// Parses a file of a repository. Problems that leave it usable are ignored.
    ///
    /// # Errors
    /// A problem that makes the file unusable.
    pub fn parse(file: KnowledgeFile) -> Result<Self, KnowledgeProblem> {
        let knowledge = parse(file, KnowledgeSource::Workspace, &mut Vec::new())?;
        Ok(Self::from(&knowledge))
    }
}

impl KnowledgeFile {
    /// Whether a file of that name is a knowledge file: Markdown, but not the README of the folder.
    pub fn is_knowledge_file(relative_path: &str) -> bool {
        let name = relative_path.rsplit('/').next().unwrap_or(relative_path);
        name.ends_with(".md") && name != "README.md"
    }
}

/// The origin of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KnowledgeSource {
    /// The workspace, where the agent can read it too.
    Workspace,
    /// The host.
    Home,
}

/// A piece of knowledge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Knowledge {
    pub(super) name: String,
    pub(super) activation: Activation,
    pub(super) content: String,
    /// Names of the values that a task needs.
    pub(super) inputs: Vec<String>,
    /// Servers whose tools the agent may call.
    pub(super) servers: Vec<SandboxToolServer>,
}

/// When knowledge is included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Activation {
    /// At the start of a conversation.
    Always,
    /// When a trigger occurs in a message.
    OnTrigger(Vec<String>),
    /// At the start only with its description and path. The agent reads the file when it needs it.
    OnDemand { description: String, path: String },
}

/// Parses a file. Adds non-fatal problems to `problems`.
///
/// # Errors
/// A problem that makes the file unusable.
pub(super) fn parse(
    mut file: KnowledgeFile,
    source: KnowledgeSource,
    problems: &mut Vec<KnowledgeProblem>,
) -> Result<Knowledge, KnowledgeProblem> {
    let path = file.path.clone();
    let is_truncated = file.content.len() > MAX_KNOWLEDGE_FILE_BYTES;
    file.content.truncate(MAX_KNOWLEDGE_FILE_BYTES);
    if let Err(error) = std::str::from_utf8(&file.content)
        && (error.error_len().is_some() || !is_truncated)
    {
        let problem = format!(
            "byte {} is no UTF-8: it is read with \u{fffd} there",
            error.valid_up_to()
        );
        problems.push(KnowledgeProblem {
            path: path.clone(),
            problem,
        });
    }
    if is_truncated {
        let problem =
            format!("it is longer than {MAX_KNOWLEDGE_FILE_BYTES} bytes: the rest is ignored");
        problems.push(KnowledgeProblem {
            path: path.clone(),
            problem,
        });
    }
    let text = String::from_utf8_lossy(&file.content);
    if let Some((_, name)) = INSTRUCTIONS
        .iter()
        .find(|(known, _)| *known == file.relative_path)
    {
        return Ok(Knowledge {
            name: (*name).to_owned(),
            activation: Activation::Always,
            content: text.trim().to_owned(),
            inputs: Vec::new(),
            servers: Vec::new(),
        });
    }
    let unusable = |error: FrontMatterError| KnowledgeProblem {
        path: format!("{}:{}", file.path, error.line),
        problem: format!("{}: it is ignored", error.problem),
    };
    let document = MarkdownDocument::parse(&text).map_err(unusable)?;
    let name = knowledge_name(
        &file.relative_path,
        document.text("name").map_err(unusable)?,
    );
    let mut triggers = document.texts("triggers").map_err(unusable)?;
    let count = triggers.len();
    triggers.retain(|trigger| trigger.len() <= MAX_TRIGGER_BYTES && !trigger.trim().is_empty());
    triggers.truncate(MAX_TRIGGERS);
    if triggers.len() < count {
        let problem = format!(
            "only {} of {count} triggers count: at most {MAX_TRIGGERS} of {MAX_TRIGGER_BYTES} bytes",
            triggers.len()
        );
        problems.push(KnowledgeProblem {
            path: format!("{path}:{}", document.line("triggers")),
            problem,
        });
    }
    let inputs = document.names_in("inputs", "name");
    if !inputs.is_empty() {
        triggers.push(format!(
            "/{}",
            document.text("name").map_err(unusable)?.unwrap_or(&name)
        ));
    }
    let description = document.text("description").map_err(unusable)?;
    let servers = servers(&document).map_err(unusable)?;
    let activation = match (is_skill(&file.relative_path), source, description) {
        _ if !triggers.is_empty() => Activation::OnTrigger(triggers),
        (true, KnowledgeSource::Workspace, Some(description)) => Activation::OnDemand {
            description: description.chars().take(MAX_DESCRIPTION_CHARS).collect(),
            path: file.path,
        },
        _ => Activation::Always,
    };
    // As in V0, only always-included knowledge may require tools.
    let servers = if activation == Activation::Always {
        servers
    } else {
        Vec::new()
    };
    Ok(Knowledge {
        name,
        activation,
        content: with_inputs(document.body.trim(), &inputs),
        inputs: inputs.into_iter().map(str::to_owned).collect(),
        servers,
    })
}

/// Parses the stdio servers of V0's `mcp_tools`.
fn servers(document: &MarkdownDocument<'_>) -> Result<Vec<SandboxToolServer>, FrontMatterError> {
    let wrong = || {
        document.malformed(
            "mcp_tools",
            "must hold servers with `name`, `command`, `args` and `env`",
        )
    };
    let servers = document.maps_in("mcp_tools", "stdio_servers")?;
    if servers.len() > MAX_SERVERS {
        return Err(document.malformed("mcp_tools", &format!("may hold {MAX_SERVERS} servers")));
    }
    let server = |fields: FieldMap<'_>| {
        Some(SandboxToolServer {
            name: fields.text("name")?.to_owned(),
            command: fields.text("command")?.to_owned(),
            args: fields.words("args")?,
            env: fields.texts_by_name("env")?,
        })
    };
    servers
        .into_iter()
        .map(|fields| server(fields).ok_or_else(wrong))
        .collect()
}

/// Whether a file is the main file of a skill, which is a folder.
fn is_skill(relative_path: &str) -> bool {
    relative_path == "SKILL.md" || relative_path.ends_with("/SKILL.md")
}

/// Returns the name as in V0: the path relative to the folder without its extension. The name of a
/// skill is the one that it declares, or that of its folder.
fn knowledge_name(relative_path: &str, declared: Option<&str>) -> String {
    match relative_path
        .strip_suffix("SKILL.md")
        .filter(|_| is_skill(relative_path))
    {
        Some(folder) => declared.unwrap_or(folder.trim_end_matches('/')).to_owned(),
        None => relative_path
            .strip_suffix(".md")
            .unwrap_or(relative_path)
            .to_owned(),
    }
}

/// Adds the required inputs to the text of a task, as in V0.
fn with_inputs(body: &str, inputs: &[&str]) -> String {
    if inputs.is_empty() {
        return body.to_owned();
    }
    let names = inputs.join(", ");
    format!(
        "{body}\n\nThis requires values for: {names}. Ask the user for those that the conversation does not have."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(relative_path: &str, content: impl Into<Vec<u8>>) -> KnowledgeFile {
        KnowledgeFile {
            path: format!("at/{relative_path}"),
            relative_path: relative_path.into(),
            content: content.into(),
        }
    }

    fn read(relative_path: &str, content: &str) -> Knowledge {
        let mut problems = Vec::new();
        let knowledge = parse(
            file(relative_path, content),
            KnowledgeSource::Workspace,
            &mut problems,
        )
        .unwrap();
        assert_eq!(problems, []);
        knowledge
    }

    #[test]
    fn triggers_decide_when_knowledge_is_included() {
        let head = "---\nname: declared\ntype: knowledge\nagent: CodeActAgent\nmcp_tools:\n  stdio_servers: []\n";
        let triggered = read(
            "git/hub.md",
            &format!("{head}triggers:\n- github\n- git\n---\nUse it.\n"),
        );
        assert_eq!(
            (triggered.name.as_str(), triggered.content.as_str()),
            ("git/hub", "Use it.")
        );
        assert_eq!(
            triggered.activation,
            Activation::OnTrigger(vec!["github".into(), "git".into()])
        );
        assert_eq!(
            read("repo.md", &format!("{head}---\nBuild.")).activation,
            Activation::Always
        );
        assert_eq!(read("repo.md", "Build.").content, "Build.");
        let instructions = read("AGENTS.md", "---\nkept: as it is\n---\nx");
        assert_eq!(
            (instructions.name.as_str(), instructions.activation),
            ("agents", Activation::Always)
        );
        assert!(instructions.content.starts_with("---\nkept"));
        assert_eq!(
            (
                read("agent.md", "x").name.as_str(),
                read("AGENT.md", "x").activation
            ),
            ("agents", Activation::Always)
        );
    }

    #[test]
    fn quoted_null_is_a_trigger() {
        for triggers in [
            "[\"null\", null]",
            "\n- 'null'\n- ~\n- Null",
            "\"null\"",
            "null, ",
        ] {
            let triggered = read("a.md", &format!("---\ntriggers: {triggers}\n---\nx"));
            assert_eq!(
                triggered.activation,
                Activation::OnTrigger(vec!["null".into()]),
                "{triggers}"
            );
        }
        for triggers in ["null", "~", "[null]", "\n- null"] {
            let always = read("a.md", &format!("---\ntriggers: {triggers}\n---\nx"));
            assert_eq!(always.activation, Activation::Always, "{triggers}");
        }
    }

    #[test]
    fn mcp_tools_of_always_included_knowledge_are_parsed() {
        let tools = "mcp_tools:\n  stdio_servers:\n    - name: fetch\n      command: uvx\n      args: [\"mcp-server-fetch\"]\n      env:\n        A: b\n";
        let fetch = SandboxToolServer {
            name: "fetch".into(),
            command: "uvx".into(),
            args: vec!["mcp-server-fetch".into()],
            env: [("A".into(), "b".into())].into(),
        };
        assert_eq!(
            read("repo.md", &format!("---\n{tools}---\n")).servers,
            [fetch]
        );
        assert_eq!(
            read("repo.md", &format!("---\n{tools}triggers: [a]\n---\n")).servers,
            []
        );
        for wrong in [
            "mcp_tools: x",
            "mcp_tools:\n  stdio_servers: x",
            "mcp_tools:\n  stdio_servers:\n  - name: x",
        ] {
            let error = parse(
                file("a.md", format!("---\n{wrong}\n---\n")),
                KnowledgeSource::Workspace,
                &mut Vec::new(),
            );
            assert!(error.unwrap_err().to_string().contains(" must "), "{wrong}");
        }
    }

    #[test]
    fn task_is_triggered_by_its_name_and_lists_its_inputs() {
        let task = read(
            "fix.md",
            "---\nname: fix_ci\ninputs:\n- name: REPO\n- name: BRANCH\n---\nFix ${REPO}.",
        );
        assert_eq!(
            task.activation,
            Activation::OnTrigger(vec!["/fix_ci".into()])
        );
        assert!(
            task.content
                .starts_with("Fix ${REPO}.\n\nThis requires values for: REPO, BRANCH.")
        );
    }

    #[test]
    fn skill_without_triggers_is_listed_with_its_path() {
        let skill = "---\nname: pdf\ndescription: Reads PDFs.\n---\nLong.";
        let skill_knowledge = read("tools/pdf/SKILL.md", skill);
        let expected = Activation::OnDemand {
            description: "Reads PDFs.".into(),
            path: "at/tools/pdf/SKILL.md".into(),
        };
        assert_eq!(
            (skill_knowledge.name.as_str(), skill_knowledge.activation),
            ("pdf", expected)
        );
        assert_eq!(read("pdf/SKILL.md", "Long.").name, "pdf");
        // The agent cannot read the host's files.
        let own = parse(
            file("pdf/SKILL.md", skill),
            KnowledgeSource::Home,
            &mut Vec::new(),
        )
        .unwrap();
        assert_eq!(own.activation, Activation::Always);
    }

    #[test]
    fn hostile_files_are_truncated_and_reported() {
        let report = |content: Vec<u8>| {
            let mut problems = Vec::new();
            let read = parse(
                file("a.md", content),
                KnowledgeSource::Workspace,
                &mut problems,
            );
            (
                read,
                problems
                    .into_iter()
                    .map(|problem| problem.to_string())
                    .collect::<Vec<_>>(),
            )
        };
        let (long, problems) = report("é".repeat(1 << 20).into());
        assert!(long.unwrap().content.len() <= MAX_KNOWLEDGE_FILE_BYTES);
        assert_eq!(
            problems,
            ["at/a.md: it is longer than 65536 bytes: the rest is ignored"]
        );
        let (broken, problems) = report(b"a\xffb".to_vec());
        assert_eq!(broken.unwrap().content, "a\u{fffd}b");
        assert_eq!(
            problems,
            ["at/a.md: byte 1 is no UTF-8: it is read with \u{fffd} there"]
        );
        let (malformed, _) =
            report(b"---\nname: x\n  nonsense\n- a\ntriggers: {a: 1}\n---\n".to_vec());
        assert_eq!(
            malformed.unwrap_err().to_string(),
            "at/a.md:5: `triggers` must be a list of texts: it is ignored"
        );
        let many: String = (0..100).map(|number| format!("- {number}\n")).collect();
        let (many, problems) =
            report(format!("---\ntriggers:\n- \"\"\n- \" \"\n{many}---\n").into());
        assert!(
            matches!(many.unwrap().activation, Activation::OnTrigger(triggers) if triggers.len() == MAX_TRIGGERS)
        );
        assert_eq!(
            problems,
            ["at/a.md:2: only 64 of 101 triggers count: at most 64 of 256 bytes"]
        );
    }
}

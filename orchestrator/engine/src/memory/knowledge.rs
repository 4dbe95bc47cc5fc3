//! A file with knowledge: what it is called, when it is told, and what it says.

use crate::front_matter::{Document, Fields, Malformed};
use crate::tool_servers::SandboxToolServer;

/// How much of a file is read, in bytes: about sixteen thousand tokens, more than a model should be told of one thing.
pub const MAX_KNOWLEDGE_FILE_BYTES: usize = 64 << 10;

/// How many triggers a file may have, and how long each may be, in bytes: every message is searched for all of them.
const MOST_TRIGGERS: usize = 64;
const LONGEST_TRIGGER: usize = 256;

/// How many servers a file may ask for.
const MOST_SERVERS: usize = 8;

/// How many characters of a skill's description are told.
const DESCRIPTION_CHARACTERS: usize = 1024;

/// Files that are instructions wherever they stand, by what V0 calls them.
pub(super) const INSTRUCTIONS: [(&str, &str); 6] = [
    (".openhands_instructions", "repo_legacy"),
    (".cursorrules", "cursorrules"),
    ("agent.md", "agents"),
    ("AGENT.md", "agents"),
    ("agents.md", "agents"),
    ("AGENTS.md", "agents"),
];

/// A file as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnowledgeFile {
    /// Where it is, for people and agents.
    pub path: String,
    /// Its path below the folder of knowledge that it was found in; an instructions file's own name.
    pub below: String,
    /// What it holds; more than 64 KiB of it are not looked at.
    pub content: Vec<u8>,
}

/// A file that could not be read as it was meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct KnowledgeProblem {
    /// The file or folder, with the line where there is one.
    pub path: String,
    /// What is wrong, and what became of it.
    pub problem: String,
}

impl KnowledgeFile {
    /// Whether a file of that name below a folder of knowledge is one: Markdown, but none that describes the folder.
    pub fn is_one(below: &str) -> bool {
        let name = below.rsplit('/').next().unwrap_or(below);
        name.ends_with(".md") && name != "README.md"
    }
}

/// Where a file was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Where the agent can read it too.
    Workspace,
    /// On the host.
    Home,
}

/// A piece of knowledge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Knowledge {
    pub(super) name: String,
    pub(super) told: Told,
    pub(super) content: String,
    /// Servers whose tools the agent may call.
    pub(super) servers: Vec<SandboxToolServer>,
}

/// When knowledge is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// Once at the beginning.
    AtFirst,
    /// When a trigger stands in a message.
    When(Vec<String>),
    /// At the beginning it is told what it is for and where it is; the agent reads it when it needs it.
    OnDemand { description: String, path: String },
}

/// Reads a file. What is wrong and does no harm goes to the problems.
///
/// # Errors
/// What makes the file useless.
pub(super) fn parse(
    mut file: KnowledgeFile,
    place: Place,
    problems: &mut Vec<KnowledgeProblem>,
) -> Result<Knowledge, KnowledgeProblem> {
    let path = file.path.clone();
    let is_cut = file.content.len() > MAX_KNOWLEDGE_FILE_BYTES;
    file.content.truncate(MAX_KNOWLEDGE_FILE_BYTES);
    if let Err(error) = std::str::from_utf8(&file.content)
        && (error.error_len().is_some() || !is_cut)
    {
        let problem = format!("byte {} is no UTF-8: it is read with \u{fffd} there", error.valid_up_to());
        problems.push(KnowledgeProblem { path: path.clone(), problem });
    }
    if is_cut {
        let problem = format!("it is longer than {MAX_KNOWLEDGE_FILE_BYTES} bytes: the rest is not told");
        problems.push(KnowledgeProblem { path: path.clone(), problem });
    }
    let text = String::from_utf8_lossy(&file.content);
    if let Some((_, name)) = INSTRUCTIONS.iter().find(|(known, _)| *known == file.below) {
        return Ok(Knowledge {
            name: (*name).to_owned(),
            told: Told::AtFirst,
            content: text.trim().to_owned(),
            servers: Vec::new(),
        });
    }
    let useless = |error: Malformed| KnowledgeProblem {
        path: format!("{}:{}", file.path, error.line),
        problem: format!("{}: it is not told", error.problem),
    };
    let document = Document::parse(&text).map_err(useless)?;
    let name = name_of(&file.below, document.text("name").map_err(useless)?);
    let mut triggers = document.texts("triggers").map_err(useless)?;
    let count = triggers.len();
    triggers.retain(|trigger| trigger.len() <= LONGEST_TRIGGER && !trigger.trim().is_empty());
    triggers.truncate(MOST_TRIGGERS);
    if triggers.len() < count {
        let problem = format!(
            "only {} of {count} triggers count: at most {MOST_TRIGGERS} of {LONGEST_TRIGGER} bytes",
            triggers.len()
        );
        problems.push(KnowledgeProblem { path: format!("{path}:{}", document.line("triggers")), problem });
    }
    let inputs = document.names_in("inputs", "name");
    if !inputs.is_empty() {
        triggers.push(format!("/{}", document.text("name").map_err(useless)?.unwrap_or(&name)));
    }
    let description = document.text("description").map_err(useless)?;
    let servers = servers(&document).map_err(useless)?;
    let told = match (is_skill(&file.below), place, description) {
        _ if !triggers.is_empty() => Told::When(triggers),
        (true, Place::Workspace, Some(description)) => Told::OnDemand {
            description: description.chars().take(DESCRIPTION_CHARACTERS).collect(),
            path: file.path,
        },
        _ => Told::AtFirst,
    };
    // V0's rule: only knowledge that always applies brings tools.
    let servers = if told == Told::AtFirst { servers } else { Vec::new() };
    Ok(Knowledge { name, told, content: with_inputs(document.body.trim(), &inputs), servers })
}

/// V0's `mcp_tools`, of which it takes the servers that are programs.
fn servers(document: &Document<'_>) -> Result<Vec<SandboxToolServer>, Malformed> {
    let wrong =
        || document.malformed("mcp_tools", "must hold servers with `name`, `command`, `args` and `env`");
    let servers = document.maps_in("mcp_tools", "stdio_servers")?;
    if servers.len() > MOST_SERVERS {
        return Err(document.malformed("mcp_tools", &format!("may hold {MOST_SERVERS} servers")));
    }
    let server = |fields: Fields<'_>| {
        Some(SandboxToolServer {
            name: fields.text("name")?.to_owned(),
            command: fields.text("command")?.to_owned(),
            args: fields.words("args")?,
            env: fields.texts_by_name("env")?,
        })
    };
    servers.into_iter().map(|fields| server(fields).ok_or_else(wrong)).collect()
}

/// A skill is a folder whose file is called so.
fn is_skill(below: &str) -> bool {
    below == "SKILL.md" || below.ends_with("/SKILL.md")
}

/// V0's: the path below the folder without its ending. A skill is called what it says, or as its folder.
fn name_of(below: &str, said: Option<&str>) -> String {
    match below.strip_suffix("SKILL.md").filter(|_| is_skill(below)) {
        Some(folder) => said.unwrap_or(folder.trim_end_matches('/')).to_owned(),
        None => below.strip_suffix(".md").unwrap_or(below).to_owned(),
    }
}

/// A task of V0's: what the user must have said before it can be begun.
fn with_inputs(body: &str, inputs: &[&str]) -> String {
    if inputs.is_empty() {
        return body.to_owned();
    }
    let names = inputs.join(", ");
    format!(
        "{body}\n\nThis needs values for: {names}. Ask the user for those that you cannot take from what was said."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(below: &str, content: impl Into<Vec<u8>>) -> KnowledgeFile {
        KnowledgeFile { path: format!("at/{below}"), below: below.into(), content: content.into() }
    }

    fn read(below: &str, content: &str) -> Knowledge {
        let mut problems = Vec::new();
        let knowledge = parse(file(below, content), Place::Workspace, &mut problems).unwrap();
        assert_eq!(problems, []);
        knowledge
    }

    #[test]
    fn triggers_decide_when_knowledge_is_included() {
        let head = "---\nname: said\ntype: knowledge\nagent: CodeActAgent\nmcp_tools:\n  stdio_servers: []\n";
        let triggered = read("git/hub.md", &format!("{head}triggers:\n- github\n- git\n---\nUse it.\n"));
        assert_eq!((triggered.name.as_str(), triggered.content.as_str()), ("git/hub", "Use it."));
        assert_eq!(triggered.told, Told::When(vec!["github".into(), "git".into()]));
        assert_eq!(read("repo.md", &format!("{head}---\nBuild.")).told, Told::AtFirst);
        assert_eq!(read("repo.md", "Build.").content, "Build.");
        let instructions = read("AGENTS.md", "---\nkept: as it is\n---\nx");
        assert_eq!((instructions.name.as_str(), instructions.told), ("agents", Told::AtFirst));
        assert!(instructions.content.starts_with("---\nkept"));
        assert_eq!(
            (read("agent.md", "x").name.as_str(), read("AGENT.md", "x").told),
            ("agents", Told::AtFirst)
        );
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
        assert_eq!(read("repo.md", &format!("---\n{tools}---\n")).servers, [fetch]);
        assert_eq!(read("repo.md", &format!("---\n{tools}triggers: [a]\n---\n")).servers, []);
        for wrong in
            ["mcp_tools: x", "mcp_tools:\n  stdio_servers: x", "mcp_tools:\n  stdio_servers:\n  - name: x"]
        {
            let error =
                parse(file("a.md", format!("---\n{wrong}\n---\n")), Place::Workspace, &mut Vec::new());
            assert!(error.unwrap_err().to_string().contains(" must "), "{wrong}");
        }
    }

    #[test]
    fn task_is_triggered_by_its_name_and_lists_its_inputs() {
        let task =
            read("fix.md", "---\nname: fix_ci\ninputs:\n- name: REPO\n- name: BRANCH\n---\nFix ${REPO}.");
        assert_eq!(task.told, Told::When(vec!["/fix_ci".into()]));
        assert!(task.content.starts_with("Fix ${REPO}.\n\nThis needs values for: REPO, BRANCH."));
    }

    #[test]
    fn skill_without_triggers_is_listed_with_its_path() {
        let skill = "---\nname: pdf\ndescription: Reads PDFs.\n---\nLong.";
        let told = read("tools/pdf/SKILL.md", skill);
        let expected =
            Told::OnDemand { description: "Reads PDFs.".into(), path: "at/tools/pdf/SKILL.md".into() };
        assert_eq!((told.name.as_str(), told.told), ("pdf", expected));
        assert_eq!(read("pdf/SKILL.md", "Long.").name, "pdf");
        // The agent cannot read the host's files.
        let own = parse(file("pdf/SKILL.md", skill), Place::Home, &mut Vec::new()).unwrap();
        assert_eq!(own.told, Told::AtFirst);
    }

    #[test]
    fn hostile_files_are_truncated_and_reported() {
        let report = |content: Vec<u8>| {
            let mut problems = Vec::new();
            let read = parse(file("a.md", content), Place::Workspace, &mut problems);
            (read, problems.into_iter().map(|problem| problem.to_string()).collect::<Vec<_>>())
        };
        let (long, problems) = report("é".repeat(1 << 20).into());
        assert!(long.unwrap().content.len() <= MAX_KNOWLEDGE_FILE_BYTES);
        assert_eq!(problems, ["at/a.md: it is longer than 65536 bytes: the rest is not told"]);
        let (broken, problems) = report(b"a\xffb".to_vec());
        assert_eq!(broken.unwrap().content, "a\u{fffd}b");
        assert_eq!(problems, ["at/a.md: byte 1 is no UTF-8: it is read with \u{fffd} there"]);
        let (malformed, _) = report(b"---\nname: x\n  nonsense\n- a\ntriggers: {a: 1}\n---\n".to_vec());
        assert_eq!(
            malformed.unwrap_err().to_string(),
            "at/a.md:5: `triggers` must be a list of texts: it is not told"
        );
        let many: String = (0..100).map(|number| format!("- {number}\n")).collect();
        let (many, problems) = report(format!("---\ntriggers:\n- \"\"\n- \" \"\n{many}---\n").into());
        assert!(matches!(many.unwrap().told, Told::When(triggers) if triggers.len() == MOST_TRIGGERS));
        assert_eq!(problems, ["at/a.md:2: only 64 of 101 triggers count: at most 64 of 256 bytes"]);
    }
}

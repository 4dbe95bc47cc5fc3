//! Additional context for an agent: instructions of the repository, knowledge with triggers in the
//! user's message, and facts about the workspace. V0's microagents and recall.
//!
//! The files come from the user's folders, through the caller, and from the workspace, through the
//! sandbox. They are untrusted: long text is truncated, and an unreadable file is a
//! [`KnowledgeProblem`], never a fatal error. The decision what to recall is pure; what has been
//! recalled is a fold of the log.

mod built_in;
mod format;
mod knowledge;
mod load;
mod recall;

pub use format::format_recall;
pub use knowledge::{KnowledgeEntry, KnowledgeFile, KnowledgeProblem, MAX_KNOWLEDGE_FILE_BYTES};
pub use recall::{Recall, RecallHistory, WorkspaceFacts};

use std::collections::{BTreeMap, BTreeSet};

use knowledge::{Knowledge, KnowledgeSource};

use crate::sandbox::Sandbox;
use crate::tool_servers::SandboxToolServer;

/// Maximum number of files of the user, and of a workspace.
pub const MAX_KNOWLEDGE_FILES: usize = 256;

/// Maximum number of tool servers of all knowledge.
const MAX_SERVERS: usize = 16;

/// All knowledge that may be recalled.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Names of disabled knowledge.
    disabled: BTreeSet<String>,
    own: Vec<Knowledge>,
    workspace: Vec<Knowledge>,
    problems: Vec<KnowledgeProblem>,
    /// The descriptions of secrets, by name.
    secrets: BTreeMap<String, String>,
    /// Facts about the sandbox, for the agent.
    sandbox_facts: String,
    /// The user's instructions for this conversation.
    instructions: String,
}

impl Memory {
    /// Creates a memory of the user's files, without the disabled names. Of several files with the
    /// same name the last counts.
    pub fn new(files: Vec<KnowledgeFile>, disabled: BTreeSet<String>) -> Self {
        let mut memory = Self {
            disabled,
            ..Self::default()
        };
        memory.own = memory.read(files, KnowledgeSource::Home);
        memory
    }

    /// Adds the built-in knowledge, which the user's knowledge of the same name replaces.
    #[must_use]
    pub fn with_built_in(mut self) -> Self {
        let mut built_in = self.read(built_in::files(), KnowledgeSource::Home);
        built_in.retain(|built_in| self.own.iter().all(|own| own.name != built_in.name));
        self.own.splice(0..0, built_in);
        self
    }

    /// Returns the tool servers that the knowledge requires.
    pub fn servers(&self) -> Vec<SandboxToolServer> {
        self.all()
            .flat_map(|knowledge| knowledge.servers.iter().cloned())
            .take(MAX_SERVERS)
            .collect()
    }

    /// Returns all knowledge, for users.
    pub fn entries(&self) -> Vec<KnowledgeEntry> {
        self.all().map(KnowledgeEntry::from).collect()
    }

    /// Sets the descriptions of secrets, by name.
    pub fn with_secrets(self, secrets: BTreeMap<String, String>) -> Self {
        Self { secrets, ..self }
    }

    /// Sets the facts about the sandbox.
    pub fn with_sandbox_facts(self, sandbox_facts: String) -> Self {
        Self {
            sandbox_facts,
            ..self
        }
    }

    /// Sets the user's instructions for this conversation.
    pub fn with_instructions(self, instructions: String) -> Self {
        Self {
            instructions,
            ..self
        }
    }

    /// Loads the knowledge of a workspace, and replaces that of an earlier one. `folder` is the
    /// folder of the workspace or of its repository. `organization` is the folder of an
    /// organization's knowledge, empty if there is none. Files in `folder` replace its files of the
    /// same name. Has a timeout of 30 seconds.
    pub async fn load(mut self, sandbox: &dyn Sandbox, folder: &str, organization: &str) -> Self {
        let (files, problems) = load::load_files(sandbox, folder, organization).await;
        self.problems = problems;
        self.workspace = self.read(files, KnowledgeSource::Workspace);
        self
    }

    /// Returns the problems with the workspace's files, for the user.
    pub fn problems(&self) -> &[KnowledgeProblem] {
        &self.problems
    }

    fn read(&mut self, files: Vec<KnowledgeFile>, source: KnowledgeSource) -> Vec<Knowledge> {
        if let Some(file) = files.get(MAX_KNOWLEDGE_FILES) {
            let problem = format!("there are more files: only {MAX_KNOWLEDGE_FILES} are read");
            self.problems.push(KnowledgeProblem {
                path: file.path.clone(),
                problem,
            });
        }
        let mut read: Vec<Knowledge> = Vec::new();
        for file in files.into_iter().take(MAX_KNOWLEDGE_FILES) {
            match knowledge::parse(file, source, &mut self.problems) {
                Ok(knowledge) if self.disabled.contains(&knowledge.name) => {}
                Ok(knowledge) => {
                    read.retain(|other| other.name != knowledge.name);
                    read.push(knowledge);
                }
                Err(problem) => self.problems.push(problem),
            }
        }
        read
    }

    /// Returns all knowledge. The workspace's replaces the user's of the same name.
    fn all(&self) -> impl Iterator<Item = &Knowledge> {
        let is_replaced =
            |own: &&Knowledge| self.workspace.iter().any(|other| other.name == own.name);
        self.own
            .iter()
            .filter(move |own| !is_replaced(own))
            .chain(&self.workspace)
    }
}

//! What an agent is told beside what the user says: instructions of the repository, knowledge whose triggers stand in a
//! message, and facts of the place it works in. V0's microagents and recall.
//!
//! The texts come from the user's own folders, handed in, and from the workspace, through the sandbox. They are hostile:
//! what is too long is cut, what cannot be read is a [`KnowledgeProblem`], and nothing of it is fatal. What is told to whom is
//! decided purely; what was told already is folded from the log.

mod built_in;
mod format;
mod knowledge;
mod load;
mod recall;

pub use format::format_recall;
pub use knowledge::{KnowledgeFile, KnowledgeProblem, MAX_KNOWLEDGE_FILE_BYTES};
pub use recall::{Recall, Recalled, WorkspaceFacts};

use std::collections::{BTreeMap, BTreeSet};

use knowledge::{Knowledge, Place};

use crate::sandbox::Sandbox;
use crate::tool_servers::SandboxToolServer;

/// How many files there may be of the user's own, and in a workspace.
pub const MAX_KNOWLEDGE_FILES: usize = 256;

/// How many tool servers all knowledge may ask for.
const MOST_SERVERS: usize = 16;

/// Everything that may be told.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Names that are never told.
    disabled: BTreeSet<String>,
    own: Vec<Knowledge>,
    workspace: Vec<Knowledge>,
    problems: Vec<KnowledgeProblem>,
    /// Names of secrets and what they are for.
    secrets: BTreeMap<String, String>,
    /// What the agent should know of its sandbox.
    sandbox_facts: String,
}

impl Memory {
    /// What the user's own files hold, but for the disabled names. Of files with one name the last counts.
    pub fn new(files: Vec<KnowledgeFile>, disabled: BTreeSet<String>) -> Self {
        let mut memory = Self { disabled, ..Self::default() };
        memory.own = memory.read(files, Place::Home);
        memory
    }

    /// The same memory with the knowledge that comes with the program. The user's of the same name stands in its place.
    #[must_use]
    pub fn with_built_in(mut self) -> Self {
        let mut built_in = self.read(built_in::files(), Place::Home);
        built_in.retain(|built_in| self.own.iter().all(|own| own.name != built_in.name));
        self.own.splice(0..0, built_in);
        self
    }

    /// The tool servers that the knowledge asks for.
    pub fn servers(&self) -> Vec<SandboxToolServer> {
        self.all().flat_map(|knowledge| knowledge.servers.iter().cloned()).take(MOST_SERVERS).collect()
    }

    /// The same memory, which tells of these secrets what they are for, by name.
    pub fn with_secrets(self, secrets: BTreeMap<String, String>) -> Self {
        Self { secrets, ..self }
    }

    /// The same memory, which tells what the agent should know of its sandbox.
    pub fn with_sandbox_facts(self, sandbox_facts: String) -> Self {
        Self { sandbox_facts, ..self }
    }

    /// The same memory with what the workspace in a sandbox holds; `folder` is its own, or the repository's in it.
    /// `organization` is the folder of an organization's knowledge, empty if there is none: a file in `folder` replaces its
    /// files of the same name. What was there of another workspace goes. Ends within half a minute.
    pub async fn load(mut self, sandbox: &dyn Sandbox, folder: &str, organization: &str) -> Self {
        let (files, problems) = load::files(sandbox, folder, organization).await;
        self.problems = problems;
        self.workspace = self.read(files, Place::Workspace);
        self
    }

    /// What could not be read as it was meant, for the user.
    pub fn problems(&self) -> &[KnowledgeProblem] {
        &self.problems
    }

    fn read(&mut self, files: Vec<KnowledgeFile>, place: Place) -> Vec<Knowledge> {
        if files.len() > MAX_KNOWLEDGE_FILES {
            let problem = format!("there are more files: only {MAX_KNOWLEDGE_FILES} are read");
            self.problems.extend(
                files
                    .get(MAX_KNOWLEDGE_FILES)
                    .map(|file| KnowledgeProblem { path: file.path.clone(), problem }),
            );
        }
        let mut read: Vec<Knowledge> = Vec::new();
        for file in files.into_iter().take(MAX_KNOWLEDGE_FILES) {
            match knowledge::parse(file, place, &mut self.problems) {
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

    /// All of it; what a workspace names like the user does stands in the place of the user's.
    fn all(&self) -> impl Iterator<Item = &Knowledge> {
        let is_replaced = |own: &&Knowledge| self.workspace.iter().any(|other| other.name == own.name);
        self.own.iter().filter(move |own| !is_replaced(own)).chain(&self.workspace)
    }
}

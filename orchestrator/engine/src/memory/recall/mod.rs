//! Decides what to recall for a message. Pure.

use std::collections::{BTreeMap, BTreeSet};

use protocol::action::{RecallAction, RecallType};
use protocol::observation::{MicroagentKnowledge, RecallObservation};
use protocol::{Observation, ObservationKind};

use super::Memory;
use super::format_recall;
use super::knowledge::{Activation, Knowledge};

/// Maximum length of the part of a message that is searched for triggers, in bytes, and maximum
/// number of triggers that are searched for. A workspace may have thousands.
const MAX_QUERY_BYTES: usize = 32 << 10;
const MAX_TRIGGERS: usize = 4096;

/// Maximum length of the instructions, and of the knowledge, of one recall, in bytes.
const MAX_RECALL_BYTES: usize = 128 << 10;

/// Facts about the workspace. An empty value is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceFacts {
    /// `owner/name`.
    pub repo_name: String,
    /// The path of the repository in the sandbox.
    pub repo_directory: String,
    /// The branch.
    pub repo_branch: String,
    /// URLs and their ports.
    pub runtime_hosts: BTreeMap<String, u16>,
    /// The instructions of the sandbox's plugins for agents.
    pub additional_agent_instructions: String,
    /// The date as `YYYY-MM-DD`.
    pub date: String,
    /// The user's instructions for this conversation.
    pub conversation_instructions: String,
    /// The shell's initial working directory.
    pub working_dir: String,
}

/// Recalls of a conversation so far. A fold of its log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecallHistory {
    /// Whether the facts have been recalled.
    has_context: bool,
    /// The names of triggered knowledge.
    names: BTreeSet<String>,
}

impl RecallHistory {
    /// Applies an observation of the log. Only recalls have an effect.
    pub fn apply(&mut self, observation: &Observation) {
        if let ObservationKind::Recall(recall) = &observation.kind {
            self.has_context |= recall.recall_type == RecallType::WorkspaceContext;
            self.names.extend(
                recall
                    .microagent_knowledge
                    .iter()
                    .map(|knowledge| knowledge.name.clone()),
            );
        }
    }
}

/// The two events of a recall: an action of the user, and its observation.
#[derive(Debug, Clone, PartialEq)]
pub struct Recall {
    /// V0's request.
    pub action: RecallAction,
    /// The recalled knowledge.
    pub observation: Observation,
}

impl Memory {
    /// Returns the recall for a user's message. `None` if there is nothing new. As in V0, the first
    /// message recalls the facts and instructions too. Each piece of knowledge is recalled once per
    /// conversation.
    ///
    /// As in V0, triggers match case-insensitively and also within words. Triggers are written for
    /// that (`docker` matches "dockerize"), and languages without spaces need it. An unnecessary
    /// piece costs some tokens, while a missing one would go unnoticed.
    pub fn recall(
        &self,
        query: &str,
        facts: &WorkspaceFacts,
        recalled: &RecallHistory,
    ) -> Option<Recall> {
        let triggered = self.triggered(query, recalled);
        let found = if recalled.has_context {
            RecallObservation {
                microagent_knowledge: triggered,
                ..empty_recall(RecallType::Knowledge)
            }
        } else {
            self.context(facts.clone(), triggered)
        };
        if format_recall(&found).is_empty() {
            return None;
        }
        let recall_type = found.recall_type;
        let content = match recall_type {
            RecallType::WorkspaceContext => "Recalled the workspace.",
            RecallType::Knowledge => "Recalled knowledge.",
        };
        let action = RecallAction {
            recall_type,
            query: query.to_owned(),
            thought: String::new(),
        };
        Some(Recall {
            action,
            observation: Observation::new(content, found),
        })
    }

    /// Returns the facts and instructions, with the knowledge that the first message triggers.
    fn context(
        &self,
        facts: WorkspaceFacts,
        microagent_knowledge: Vec<MicroagentKnowledge>,
    ) -> RecallObservation {
        let WorkspaceFacts {
            repo_name,
            repo_directory,
            repo_branch,
            runtime_hosts,
            additional_agent_instructions,
            date,
            conversation_instructions,
            working_dir,
        } = facts;
        let additional_agent_instructions = match additional_agent_instructions.is_empty() {
            true => self.sandbox_facts.clone(),
            false => additional_agent_instructions,
        };
        let conversation_instructions = match conversation_instructions.is_empty() {
            true => self.instructions.clone(),
            false => conversation_instructions,
        };
        RecallObservation {
            recall_type: RecallType::WorkspaceContext,
            repo_name,
            repo_directory,
            repo_branch,
            repo_instructions: self.instructions(),
            runtime_hosts,
            additional_agent_instructions,
            date,
            custom_secrets_descriptions: self.secrets.clone(),
            conversation_instructions,
            working_dir,
            microagent_knowledge,
        }
    }

    /// Returns new knowledge with a trigger in the message. Knowledge beyond the maximum length can
    /// be triggered again.
    fn triggered(&self, query: &str, recalled: &RecallHistory) -> Vec<MicroagentKnowledge> {
        let query = truncate(query, MAX_QUERY_BYTES).to_lowercase();
        let new = self
            .all()
            .filter(|knowledge| !recalled.names.contains(&knowledge.name));
        let mut remaining_triggers = MAX_TRIGGERS;
        let matching = new.filter_map(|knowledge| {
            let Activation::OnTrigger(triggers) = &knowledge.activation else {
                return None;
            };
            let allowed = remaining_triggers;
            remaining_triggers = allowed.saturating_sub(triggers.len());
            let trigger = triggers
                .iter()
                .take(allowed)
                .find(|trigger| query.contains(&trigger.to_lowercase()))?;
            Some(MicroagentKnowledge {
                name: knowledge.name.clone(),
                trigger: trigger.clone(),
                content: knowledge.content.clone(),
            })
        });
        let mut length = 0;
        matching
            .take_while(|knowledge| {
                length += knowledge.content.len();
                length <= MAX_RECALL_BYTES
            })
            .collect()
    }

    /// Returns all instructions: the user's, then the workspace's, then the list of skills.
    fn instructions(&self) -> String {
        let always = self
            .all()
            .filter(|knowledge| knowledge.activation == Activation::Always);
        let texts = always
            .map(|knowledge| knowledge.content.as_str())
            .filter(|text| !text.is_empty());
        let texts = texts.map(str::to_owned).chain(self.skills());
        let all = texts.collect::<Vec<_>>().join("\n\n");
        match truncate(&all, MAX_RECALL_BYTES) {
            whole if whole.len() == all.len() => all,
            part => format!("{part}\n[The rest of the instructions is omitted.]"),
        }
    }

    /// Lists the files that the agent reads on demand.
    fn skills(&self) -> Option<String> {
        let line = |knowledge: &Knowledge| match &knowledge.activation {
            Activation::OnDemand { description, path } => {
                Some(format!("- {}: {description} ({path})", knowledge.name))
            }
            Activation::Always | Activation::OnTrigger(_) => None,
        };
        let lines: Vec<_> = self.all().filter_map(line).collect();
        let head = "Instructions for special tasks. Read the file before such a task:";
        (!lines.is_empty()).then(|| format!("{head}\n{}", lines.join("\n")))
    }
}

/// Creates an empty recall of that kind.
fn empty_recall(recall_type: RecallType) -> RecallObservation {
    RecallObservation {
        recall_type,
        repo_name: String::new(),
        repo_directory: String::new(),
        repo_branch: String::new(),
        repo_instructions: String::new(),
        runtime_hosts: BTreeMap::new(),
        additional_agent_instructions: String::new(),
        date: String::new(),
        custom_secrets_descriptions: BTreeMap::new(),
        conversation_instructions: String::new(),
        working_dir: String::new(),
        microagent_knowledge: Vec::new(),
    }
}

/// Truncates a text to at most `bytes` bytes, at a character boundary.
fn truncate(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

#[cfg(test)]
mod tests;

//! What is recalled for a message: pure.

use std::collections::{BTreeMap, BTreeSet};

use protocol::action::{RecallAction, RecallType};
use protocol::observation::{MicroagentKnowledge, RecallObservation};
use protocol::{Observation, ObservationKind};

use super::Memory;
use super::format_recall;
use super::knowledge::{Knowledge, Told};

/// How much of a message is searched for triggers, in bytes.
const LONGEST_QUERY: usize = 256 << 10;

/// How much is told at once, in bytes: of instructions, and of knowledge.
const MOST_TOLD: usize = 128 << 10;

/// What the agent should know of the place it works in; empty: unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceFacts {
    /// `owner/name`.
    pub repo_name: String,
    /// Where the repository lies in the sandbox.
    pub repo_directory: String,
    /// The branch.
    pub repo_branch: String,
    /// URLs and their ports.
    pub runtime_hosts: BTreeMap<String, u16>,
    /// What the sandbox's plugins tell agents.
    pub additional_agent_instructions: String,
    /// `YYYY-MM-DD`.
    pub date: String,
    /// What this conversation's user tells the agent.
    pub conversation_instructions: String,
    /// Where the shell begins.
    pub working_dir: String,
}

/// What a conversation was told already: the fold of its log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recalled {
    /// The facts were told.
    has_context: bool,
    /// Knowledge that was triggered, by name.
    names: BTreeSet<String>,
}

impl Recalled {
    /// Takes up an observation of the log; only recalls change anything.
    pub fn apply(&mut self, observation: &Observation) {
        if let ObservationKind::Recall(recall) = &observation.kind {
            self.has_context |= recall.recall_type == RecallType::WorkspaceContext;
            self.names.extend(recall.microagent_knowledge.iter().map(|knowledge| knowledge.name.clone()));
        }
    }
}

/// Two events: the action is the user's, the observation its ending.
#[derive(Debug, Clone, PartialEq)]
pub struct Recall {
    /// V0's request.
    pub action: RecallAction,
    /// What was found.
    pub observation: Observation,
}

impl Memory {
    /// What is to be told for a message of the user's. Once, for the first message, the facts with the instructions and what
    /// the message triggers, as in V0; after that what a message triggers, each piece once a conversation. Nothing:
    /// nothing new.
    ///
    /// Triggers are V0's: they stand anywhere in the message, in any case, also inside of a word. They are written with
    /// that in mind (`docker` for "dockerize"), languages without spaces need it, and a piece too much costs tokens
    /// once where a piece too few is a silent fault.
    pub fn recall(&self, query: &str, facts: &WorkspaceFacts, recalled: &Recalled) -> Option<Recall> {
        let triggered = self.triggered(query, recalled);
        let found = if recalled.has_context {
            RecallObservation { microagent_knowledge: triggered, ..of(RecallType::Knowledge) }
        } else {
            self.context(facts.clone(), triggered)
        };
        if format_recall(&found).is_empty() {
            return None;
        }
        let recall_type = found.recall_type;
        let content = match recall_type {
            RecallType::WorkspaceContext => "The workspace was looked at.",
            RecallType::Knowledge => "Knowledge was found.",
        };
        let action = RecallAction { recall_type, query: query.to_owned(), thought: String::new() };
        Some(Recall { action, observation: Observation::new(content, found) })
    }

    /// WorkspaceFacts and instructions, with what the first message triggers.
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

    /// What stands in the message and was not told yet. What is too much now can be triggered again.
    fn triggered(&self, query: &str, recalled: &Recalled) -> Vec<MicroagentKnowledge> {
        let query = cut(query, LONGEST_QUERY).to_lowercase();
        let new = self.all().filter(|knowledge| !recalled.names.contains(&knowledge.name));
        let matching = new.filter_map(|knowledge| {
            let Told::When(triggers) = &knowledge.told else { return None };
            let trigger = triggers.iter().find(|trigger| query.contains(&trigger.to_lowercase()))?;
            Some(MicroagentKnowledge {
                name: knowledge.name.clone(),
                trigger: trigger.clone(),
                content: knowledge.content.clone(),
            })
        });
        let mut told = 0;
        matching
            .take_while(|knowledge| {
                told += knowledge.content.len();
                told <= MOST_TOLD
            })
            .collect()
    }

    /// What is told at first, in one text: the user's own, then the workspace's, then what there is to read on demand.
    fn instructions(&self) -> String {
        let at_first = self.all().filter(|knowledge| knowledge.told == Told::AtFirst);
        let texts = at_first.map(|knowledge| knowledge.content.as_str()).filter(|text| !text.is_empty());
        let texts = texts.map(str::to_owned).chain(self.skills());
        let all = texts.collect::<Vec<_>>().join("\n\n");
        match cut(&all, MOST_TOLD) {
            whole if whole.len() == all.len() => all,
            part => format!("{part}\n[The instructions are longer; the rest is left out.]"),
        }
    }

    /// The files that the agent reads by itself.
    fn skills(&self) -> Option<String> {
        let line = |knowledge: &Knowledge| match &knowledge.told {
            Told::OnDemand { description, path } => {
                Some(format!("- {}: {description} ({path})", knowledge.name))
            }
            Told::AtFirst | Told::When(_) => None,
        };
        let lines: Vec<_> = self.all().filter_map(line).collect();
        let head = "Instructions for special work. Read the file before you do what it is for:";
        (!lines.is_empty()).then(|| format!("{head}\n{}", lines.join("\n")))
    }
}

/// Nothing of that kind.
fn of(recall_type: RecallType) -> RecallObservation {
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

/// The beginning of a text, in whole letters.
fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

#[cfg(test)]
mod tests;

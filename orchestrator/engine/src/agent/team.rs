//! The agents of a conversation, with their models and tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Agent;
use crate::condenser::Condenser;
use crate::llm::Llm;
use crate::tool_servers::ToolServers;

/// The agents that tasks can be delegated to, by name.
pub type Team = BTreeMap<String, TeamMember>;

/// An agent with its collaborators.
#[derive(Clone)]
pub struct TeamMember {
    /// The agent.
    pub agent: Arc<dyn Agent>,
    /// Its model.
    pub llm: Arc<dyn Llm>,
    /// The model that turns its drafts into edits.
    pub draft_editor: Arc<dyn Llm>,
    /// Reduces its history.
    pub condenser: Arc<dyn Condenser>,
    /// The servers of additional tools.
    pub tool_servers: Arc<dyn ToolServers>,
}

/// All agents of a conversation.
#[derive(Clone)]
pub struct Agents {
    /// The conversation's own agent.
    pub own: TeamMember,
    /// Agents that tasks can be delegated to.
    pub team: Arc<Team>,
}

impl TeamMember {
    /// Takes over the models of another member. The agent and its tools stay.
    pub(crate) fn use_models_of(&mut self, other: &Self) {
        let Self {
            llm,
            draft_editor,
            condenser,
            ..
        } = other.clone();
        self.llm = llm;
        self.draft_editor = draft_editor;
        self.condenser = condenser;
    }
}

impl From<TeamMember> for Agents {
    fn from(own: TeamMember) -> Self {
        Self {
            own,
            team: Arc::default(),
        }
    }
}

impl Agents {
    /// Takes over the models of other agents with the same names.
    pub(crate) fn use_models_of(&mut self, others: &Self) {
        self.own.use_models_of(&others.own);
        for (name, member) in Arc::make_mut(&mut self.team) {
            if let Some(other) = others.team.get(name) {
                member.use_models_of(other);
            }
        }
    }
}

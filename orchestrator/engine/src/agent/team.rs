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

//! The agents of a conversation, with what each works with.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Agent;
use crate::condenser::Condenser;
use crate::llm::Llm;
use crate::tool_servers::ToolServers;

/// Those that tasks can be handed on to, by name.
pub type Team = BTreeMap<String, TeamMember>;

/// One agent.
#[derive(Clone)]
pub struct TeamMember {
    /// The agent.
    pub agent: Arc<dyn Agent>,
    /// Its model.
    pub llm: Arc<dyn Llm>,
    /// What writes out the edits that it drafts.
    pub draft_editor: Arc<dyn Llm>,
    /// What of its history it is shown.
    pub condenser: Arc<dyn Condenser>,
    /// Servers whose tools it may call beside its own.
    pub tool_servers: Arc<dyn ToolServers>,
}

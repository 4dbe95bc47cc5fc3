//! What a conversation works with. Between these parts and the secrets that they use stands redaction.

use std::sync::Arc;

use engine::agent::{Team, TeamMember};
use engine::conversation::{Afterwards, Parts};
use engine::events::EventStore;
use engine::llm::Llm;
use engine::memory::Memory;
use engine::sandbox::{SandboxProvider, SandboxSpec};
use engine::secrets::{GuardedProvider, GuardedStore, GuardedToolServers, Redactor, SecretRegistry};
use engine::security::SecurityAnalyzer;

use crate::claim::Claim;

/// What one conversation works with, as the composition root builds it.
pub struct ConversationParts {
    /// The conversation's own agent.
    pub own: TeamMember,
    /// The agents that it can delegate to.
    pub team: Team,
    /// Creates the sandbox.
    pub provider: Arc<dyn SandboxProvider>,
    /// The sandbox to create.
    pub spec: SandboxSpec,
    /// Assesses actions. `None` leaves each the risk that the agent declares.
    pub analyzer: Option<Arc<dyn SecurityAnalyzer>>,
    /// The user's own knowledge, to which the workspace's is added. `None` disables both.
    pub memory: Option<Memory>,
    /// Redacts secrets in everything that is stored, shown or sent to tool servers.
    pub redactor: Redactor,
    /// The secrets that commands can use by name.
    pub secrets: SecretRegistry,
    /// Finds a title for a conversation that has none. `None` disables that.
    pub title_model: Option<Arc<dyn Llm>>,
    /// What becomes of the sandbox when the conversation is closed.
    pub afterwards: Afterwards,
}

impl ConversationParts {
    /// The parts as the engine takes them. No secret gets past them into the log.
    pub(crate) fn guarded(&self, store: Arc<dyn EventStore>, claim: &Claim) -> Parts {
        let redactor = &self.redactor;
        let guard = |member: &TeamMember| TeamMember {
            tool_servers: Arc::new(GuardedToolServers::new(
                Arc::clone(&member.tool_servers),
                redactor.clone(),
            )),
            ..member.clone()
        };
        let provider = Arc::clone(&self.provider);
        Parts {
            store: Arc::new(GuardedStore::new(store, redactor.clone())),
            write_lock: claim.lock(),
            own: guard(&self.own),
            team: Arc::new(self.team.iter().map(|(name, member)| (name.clone(), guard(member))).collect()),
            provider: Arc::new(GuardedProvider::new(provider, redactor.clone(), self.secrets.clone())),
            spec: self.spec.clone(),
            analyzer: self.analyzer.clone(),
            memory: self.memory.clone(),
        }
    }
}

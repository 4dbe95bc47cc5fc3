//! Parts of a conversation, and the redaction of secrets around them.

use std::sync::Arc;

use engine::agent::{Agents, TeamMember};
use engine::conversation::{EngineParts, SandboxDisposition};
use engine::events::EventStore;
use engine::llm::Llm;
use engine::memory::Memory;
use engine::sandbox::{SandboxProvider, SandboxSpec};
use engine::secrets::{
    GuardedLlm, GuardedProvider, GuardedStore, GuardedToolServers, Redactor, SecretRegistry,
};
use engine::security::SecurityAnalyzer;

use crate::claim::Claim;

/// The agents of a conversation, composed for another model.
pub struct ComposedAgents {
    /// The agents.
    pub agents: Agents,
    /// Redacts the secrets of their configuration in what their models answer.
    pub redactor: Redactor,
}

impl ComposedAgents {
    /// Returns the agents, which redact secrets in answers that are streamed, in errors of models
    /// and in calls to tool servers.
    pub(crate) fn to_guarded(&self) -> Agents {
        guarded(&self.agents, &self.redactor)
    }
}

/// Parts of one conversation. Built by the composition root.
pub struct ConversationParts {
    /// Its agents.
    pub agents: Agents,
    /// Creates the sandbox.
    pub provider: Arc<dyn SandboxProvider>,
    /// The sandbox to create.
    pub spec: SandboxSpec,
    /// Assesses actions. `None` leaves each the risk that the agent declares.
    pub analyzer: Option<Arc<dyn SecurityAnalyzer>>,
    /// The user's own knowledge, to which the workspace's is added. `None` disables both.
    pub memory: Option<Memory>,
    /// Whether it runs without a user. An agent that waits for one is requested to continue.
    pub is_unattended: bool,
    /// Redacts secrets in everything that is stored, shown or sent to tool servers.
    pub redactor: Redactor,
    /// The secrets that commands can use by name.
    pub secrets: SecretRegistry,
    /// Finds a title for a conversation that has none. `None` disables that.
    pub title_model: Option<Arc<dyn Llm>>,
    /// What happens to the sandbox when the conversation is closed.
    pub disposition: SandboxDisposition,
}

impl ConversationParts {
    /// Returns the engine's parts, which redact secrets in the log, in answers that are streamed,
    /// and in calls to tool servers.
    pub(crate) fn to_guarded(&self, store: Arc<dyn EventStore>, claim: &Claim) -> EngineParts {
        let redactor = &self.redactor;
        let provider = Arc::clone(&self.provider);
        EngineParts {
            store: Arc::new(GuardedStore::new(store, redactor.clone())),
            write_lock: claim.locks(),
            agents: guarded(&self.agents, redactor),
            provider: Arc::new(GuardedProvider::new(
                provider,
                redactor.clone(),
                self.secrets.clone(),
            )),
            spec: self.spec.clone(),
            analyzer: self.analyzer.clone(),
            memory: self.memory.clone(),
            is_unattended: self.is_unattended,
            replayed_user: None,
        }
    }
}

fn guarded(agents: &Agents, redactor: &Redactor) -> Agents {
    let guard = |member: &TeamMember| TeamMember {
        llm: Arc::new(GuardedLlm::new(Arc::clone(&member.llm), redactor.clone())),
        tool_servers: Arc::new(GuardedToolServers::new(
            Arc::clone(&member.tool_servers),
            redactor.clone(),
        )),
        ..member.clone()
    };
    let team = agents.team.iter();
    Agents {
        own: guard(&agents.own),
        team: Arc::new(
            team.map(|(name, member)| (name.clone(), guard(member)))
                .collect(),
        ),
    }
}

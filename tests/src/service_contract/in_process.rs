//! The service in process, with an agent and parts of the engine's fakes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use conversations::{
    Choices, Claim, ComposedAgents, ComposedConversation, ConversationFactory, ConversationParts,
    ConversationRequest, ConversationService, Conversations, HostError, HostedConversations,
    HostingOptions, InitialTask, InvalidSetting, NewConversation, NoWorkspaces, OwnProfile,
    ProcessLocks, ProfileService, ProfileStore, SandboxService, SettingsPolicy, StoredConversation,
    StoredProfile, UserConversations, UserProfiles, WorkspaceService,
};
use engine::conversation::SandboxDisposition;
use engine::events::EventStore;
use engine::sandbox::SandboxProvider;
use engine::secrets::Redactor;
use engine::testing::{MemoryStore, ScriptedProvider, ScriptedResult};
use protocol::client_api::UserSettings;
use protocol::observation::RunObservation;
use protocol::record::ConversationStarted;
use protocol::risk::ConfirmationPolicy;
use protocol::{ConversationId, Observation, UserId};
use secrecy::{ExposeSecret as _, SecretSlice};

use super::ServiceBackend;
use crate::sandbox_contract::Backend as _;
use crate::sandbox_contract::local::LocalBackend;

#[expect(dead_code, reason = "its `main` is for the example")]
#[path = "../../../orchestrator/conversations/examples/embedded.rs"]
mod embedded;

/// The service in process.
pub struct InProcess {
    hosted: Arc<HostedConversations>,
    /// The backend of its sandboxes. `None` if they are scripted.
    _sandboxes: Option<LocalBackend>,
    profiles: Arc<UserProfiles>,
}

impl InProcess {
    /// Creates a service without conversations, in memory.
    #[expect(clippy::new_without_default, reason = "like other backends")]
    pub fn new() -> Self {
        Self::with_store(Arc::new(MemoryStore::default()))
    }

    /// Creates a service of the conversations in a store.
    pub fn with_store(store: Arc<dyn EventStore>) -> Self {
        Self::with(store, None)
    }

    /// Creates a service without conversations, whose sandboxes are processes of this machine.
    pub fn with_local_sandboxes() -> Self {
        let sandboxes = LocalBackend::new();
        Self::with(Arc::new(MemoryStore::default()), sandboxes)
    }

    fn with(store: Arc<dyn EventStore>, sandboxes: Option<LocalBackend>) -> Self {
        let locks = Arc::new(ProcessLocks::default());
        let conversations = Conversations::new(store, locks, Arc::new(NoWorkspaces));
        let options = HostingOptions {
            max_running: 10,
            max_running_per_user: 10,
            close_delay: Duration::from_secs(3600),
        };
        let factory = Arc::new(GreeterFactory {
            local: sandboxes.as_ref().map(|backend| backend.provider().into()),
        });
        Self {
            hosted: HostedConversations::new(conversations, factory, options),
            _sandboxes: sandboxes,
            profiles: Arc::new(UserProfiles::new(
                Arc::new(MemoryProfiles::default()),
                Arc::new(OneAgent),
            )),
        }
    }

    fn user_conversations(&self, user: Option<&str>) -> Arc<UserConversations> {
        let user = user.map(|name| name.parse().unwrap());
        Arc::new(UserConversations::new(Arc::clone(&self.hosted), user))
    }
}

#[async_trait]
impl ServiceBackend for InProcess {
    fn service(&self, user: Option<&str>) -> Arc<dyn ConversationService> {
        self.user_conversations(user)
    }

    fn workspaces(&self, user: Option<&str>) -> Arc<dyn WorkspaceService> {
        self.user_conversations(user)
    }

    fn sandboxes(&self, user: Option<&str>) -> Arc<dyn SandboxService> {
        self.user_conversations(user)
    }

    fn profile(&self, user: Option<&str>) -> Arc<dyn ProfileService> {
        let user = user.map(|name| name.parse().unwrap());
        let choices = Choices {
            agents: vec![AGENT.to_owned()],
            ..Choices::default()
        };
        let profiles = Arc::clone(&self.profiles);
        Arc::new(OwnProfile::new(profiles, choices, user))
    }
}

/// The agent that users can choose.
const AGENT: &str = "CodeActAgent";

/// Offers one agent.
struct OneAgent;

impl SettingsPolicy for OneAgent {
    fn check(&self, settings: &UserSettings) -> Result<(), InvalidSetting> {
        match settings.agent.as_deref() {
            None | Some(AGENT) => Ok(()),
            Some(_) => Err(InvalidSetting::new("agent", "is not offered")),
        }
    }
}

/// Revisions and contents of profiles by owner.
type Profiles = BTreeMap<Option<UserId>, (u64, Vec<u8>)>;

/// Profiles in memory.
#[derive(Default)]
struct MemoryProfiles(Mutex<Profiles>);

#[async_trait]
impl ProfileStore for MemoryProfiles {
    async fn read(&self, owner: Option<&UserId>) -> Result<Option<StoredProfile>, HostError> {
        let stored = self.0.lock().unwrap().get(&owner.cloned()).cloned();
        Ok(stored.map(|(revision, content)| StoredProfile {
            revision,
            content: content.into(),
        }))
    }

    async fn write(
        &self,
        owner: Option<&UserId>,
        revision: u64,
        content: SecretSlice<u8>,
    ) -> Result<bool, HostError> {
        let mut profiles = self.0.lock().unwrap();
        let stored = profiles.entry(owner.cloned()).or_default();
        let is_latest = stored.0 == revision;
        if is_latest {
            *stored = (revision + 1, content.expose_secret().to_vec());
        }
        Ok(is_latest)
    }

    async fn remove(&self, owner: Option<&UserId>) -> Result<(), HostError> {
        self.0.lock().unwrap().remove(&owner.cloned());
        Ok(())
    }
}

/// Composes conversations with an agent that asks for a name, and then greets.
struct GreeterFactory {
    /// Creates local sandboxes. `None` if they are scripted.
    local: Option<Arc<dyn SandboxProvider>>,
}

impl GreeterFactory {
    fn parts(&self, id: &ConversationId) -> ConversationParts {
        let scripted = embedded::parts(id.clone());
        let provider = self.local.clone();
        ConversationParts {
            provider: provider.unwrap_or_else(|| Arc::clone(&scripted.provider)),
            ..scripted
        }
    }
}

#[async_trait]
impl ConversationFactory for GreeterFactory {
    async fn compose_new(
        &self,
        claim: &mut Claim,
        request: ConversationRequest,
    ) -> Result<NewConversation, HostError> {
        let task = request.message.map(InitialTask::Message);
        Ok(NewConversation {
            started: ConversationStarted {
                max_iterations: 10,
                ..ConversationStarted::default()
            },
            parts: self.parts(claim.id()),
            title: request.title,
            task: task.unwrap_or(InitialTask::None),
        })
    }

    async fn compose_stored(
        &self,
        stored: &mut StoredConversation,
    ) -> Result<ComposedConversation, HostError> {
        Ok(ComposedConversation {
            parts: self.parts(stored.claim().id()),
            confirmation: ConfirmationPolicy::Never,
        })
    }

    async fn compose_agents(
        &self,
        _: &ConversationStarted,
        _: u32,
    ) -> Result<ComposedAgents, HostError> {
        Ok(ComposedAgents {
            agents: embedded::parts(Conversations::new_id()).agents,
            redactor: Redactor::default(),
        })
    }

    fn provider(&self, _: &str, _: Option<&str>) -> Result<Arc<dyn SandboxProvider>, HostError> {
        if let Some(local) = &self.local {
            return Ok(Arc::clone(local));
        }
        let script =
            |_: &_| ScriptedResult::Observation(Observation::new("", RunObservation::default()));
        Ok(Arc::new(ScriptedProvider::new(script)))
    }

    fn disposition(&self) -> SandboxDisposition {
        SandboxDisposition::Remove
    }
}

//! Conversations to measure, with a model and a sandbox that respond immediately.

use std::sync::Arc;

use engine::agent::tools::ToolName;
use engine::agent::{AgentDefinition, Agents, CodeActAgent, Prompt, TeamMember};
use engine::condenser::CondenserConfig;
use engine::conversation::{Conversation, EngineParts};
use engine::events::EventStore;
use engine::llm::Llm;
use engine::sandbox::SandboxSpec;
use engine::testing::{ScriptedProvider, ScriptedResult};
use engine::tool_servers::NoToolServers;
use llm::ScriptedLlm;
use protocol::observation::RunObservation;
use protocol::record::ConversationStarted;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{ConversationId, Observation, UserCommand};
use serde_json::{Value, json};

/// A command that runs until it is cancelled.
pub(crate) const WAITING_COMMAND: &str = "wait";

/// Returns a provider of sandboxes in which every command has this output.
pub(crate) fn provider(output: &str) -> ScriptedProvider {
    let output = output.to_owned();
    ScriptedProvider::new(move |request: &ActionRequest| {
        let observation = Observation::new(output.clone(), RunObservation::default());
        match &request.action {
            SandboxAction::Run(run) if run.command == WAITING_COMMAND => {
                ScriptedResult::WhenCancelled(observation)
            }
            _ => ScriptedResult::Observation(observation),
        }
    })
}

/// A model with its responses.
pub(crate) struct Script {
    llm: Arc<dyn Llm>,
    steps: u32,
}

impl Script {
    pub(crate) fn new(responses: Vec<Value>) -> Self {
        let steps = u32::try_from(responses.len()).unwrap();
        let script = json!({"responses": responses}).to_string();
        Self {
            llm: Arc::new(ScriptedLlm::from_json(&script).unwrap()),
            steps,
        }
    }
}

/// Starts a conversation with this sandbox and this model, and sends the first message.
pub(crate) async fn start(
    id: &str,
    store: Arc<dyn EventStore>,
    provider: ScriptedProvider,
    Script { llm, steps }: Script,
    condenser: CondenserConfig,
) -> Conversation {
    let id: ConversationId = id.parse().unwrap();
    let parts = EngineParts {
        store,
        agents: Agents::from(TeamMember {
            agent: Arc::new(CodeActAgent {
                definition: AgentDefinition::code_act(Prompt::Unattended, ToolName::ALL.to_vec()),
                command_timeout: 120.0,
                declares_risk: false,
            }),
            condenser: condenser.build(&|_| Ok::<_, ()>(Arc::clone(&llm))).unwrap(),
            draft_editor: Arc::clone(&llm),
            llm,
            tool_servers: Arc::new(NoToolServers),
        }),
        provider: Arc::new(provider),
        spec: SandboxSpec::new(id.clone()),
        analyzer: None,
        memory: None,
        is_unattended: false,
        replayed_user: None,
        write_lock: Arc::new(()),
    };
    let started = ConversationStarted {
        agent: "CodeActAgent".into(),
        model: "scripted".into(),
        // The limit counts the agent's steps only.
        max_iterations: steps,
        runtime: "scripted".into(),
        // All steps are identical, which would be detected as a loop.
        stuck_detection_disabled: true,
        ..Default::default()
    };
    let conversation = Conversation::start(parts, id, started).await.unwrap();
    conversation
        .apply(UserCommand::message("work"))
        .await
        .unwrap();
    conversation
}

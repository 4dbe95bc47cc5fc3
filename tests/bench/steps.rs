//! What the host itself adds to a step of the agent: a model and a sandbox that answer at once, a real store.

use std::sync::Arc;
use std::time::Instant;

use engine::agent::tools::ToolName;
use engine::agent::{AgentDefinition, CodeActAgent, Prompt};
use engine::condenser::CondenserConfig;
use engine::conversation::{Afterwards, Conversation, Parts};
use engine::llm::Llm;
use engine::sandbox::SandboxSpec;
use engine::testing::{Ending, ScriptedProvider};
use engine::tool_servers::NoToolServers;
use llm::ScriptedLlm;
use protocol::action::MessageAction;
use protocol::observation::RunObservation;
use protocol::record::ConversationStarted;
use protocol::{AgentState, ConversationId, Observation};
use serde_json::{Value, json};
use storage::SqliteStore;
use tests::glovebox::{bash, finish};

use super::figure::Figure;

pub(crate) async fn measure() -> Vec<Figure> {
    let short = host_time(200, 200, CondenserConfig::Noop {}).await;
    // Two events a step.
    let recent = CondenserConfig::Recent { keep_first: 1, max_events: 100 };
    let long = host_time(5000, 200, recent).await;
    vec![
        Figure::below("host time of an agent's step, scripted model, 200 steps", short, "ms", 5.0),
        Figure::below("host time of a step after 10,000 events, of which 100 are sent", long, "ms", 1.0),
    ]
}

/// What each of the last steps of a conversation takes, in milliseconds.
async fn host_time(steps: u32, measured: u32, condenser: CondenserConfig) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("log.db")).await.unwrap();
    let responses: Vec<Value> = (0..steps).map(|_| bash("true")).chain([finish()]).collect();
    let script = json!({"responses": responses}).to_string();
    let id: ConversationId = "bench".parse().unwrap();
    let llm: Arc<dyn Llm> = Arc::new(ScriptedLlm::from_json(&script).unwrap());
    let parts = Parts {
        store: Arc::new(store),
        agent: Arc::new(CodeActAgent {
            definition: AgentDefinition::code_act(Prompt::Usual, ToolName::ALL.to_vec()),
            command_timeout: 120.0,
            declares_risk: false,
        }),
        condenser: condenser.build(&|_| Ok::<_, ()>(Arc::clone(&llm))).unwrap(),
        llm,
        provider: Arc::new(ScriptedProvider::new(|_| {
            Ending::Observation(Observation::new("output\n".repeat(20), RunObservation::default()))
        })),
        spec: SandboxSpec::of(id.clone()),
        tool_servers: Arc::new(NoToolServers),
        analyzer: None,
        memory: None,
        team: Arc::default(),
    };
    let started = ConversationStarted {
        agent: "CodeActAgent".into(),
        model: "scripted".into(),
        max_iterations: steps + 1,
        runtime: "scripted".into(),
        ..Default::default()
    };
    let conversation = Conversation::begin(parts, id, started).await.unwrap();
    let mut begin = Instant::now();
    conversation.say(MessageAction { content: "work".into(), ..Default::default() }).unwrap();
    if steps > measured {
        conversation.wait_for(|state| state.iterations >= steps - measured).await;
        begin = Instant::now();
    }
    let state = conversation.wait_for(|state| state.agent_state == AgentState::Finished).await;
    let took = begin.elapsed();
    assert_eq!(state.iterations, steps + 1);
    conversation.close(Afterwards::Remove).await.unwrap();
    took.as_secs_f64() * 1e3 / f64::from(measured + 1)
}

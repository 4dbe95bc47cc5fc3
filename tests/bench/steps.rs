//! What the host itself adds to a step of the agent: a model and a sandbox that answer at once, a real store.

use std::sync::Arc;
use std::time::Instant;

use engine::agent::CodeActAgent;
use engine::conversation::{Afterwards, Conversation, Parts};
use engine::sandbox::SandboxSpec;
use engine::testing::{Ending, ScriptedProvider};
use llm::ScriptedLlm;
use protocol::action::MessageAction;
use protocol::observation::RunObservation;
use protocol::record::ConversationStarted;
use protocol::{AgentState, ConversationId, Observation};
use serde_json::{Value, json};
use storage::SqliteStore;
use tests::glovebox::{bash, finish};

use super::figure::Figure;

const STEPS: u32 = 200;

pub(crate) async fn measure() -> Vec<Figure> {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("log.db")).await.unwrap();
    let responses: Vec<Value> = (0..STEPS).map(|_| bash("true")).chain([finish()]).collect();
    let script = json!({"responses": responses}).to_string();
    let id: ConversationId = "bench".parse().unwrap();
    let parts = Parts {
        store: Arc::new(store),
        llm: Arc::new(ScriptedLlm::from_json(&script).unwrap()),
        agent: Arc::new(CodeActAgent { command_timeout: 120.0, declares_risk: false }),
        provider: Arc::new(ScriptedProvider::new(|_| {
            Ending::Observation(Observation::new("output\n".repeat(20), RunObservation::default()))
        })),
        spec: SandboxSpec::of(id.clone()),
    };
    let started = ConversationStarted {
        agent: "CodeActAgent".into(),
        model: "scripted".into(),
        max_iterations: STEPS + 1,
        runtime: "scripted".into(),
        image: None,
        workspace: None,
        setup: None,
    };
    let conversation = Conversation::begin(parts, id, started).await.unwrap();
    let begin = Instant::now();
    conversation.say(MessageAction { content: "work".into(), ..Default::default() }).unwrap();
    let state = conversation.wait_for(|state| state.agent_state == AgentState::Finished).await;
    let took = begin.elapsed();
    assert_eq!(state.iterations, STEPS + 1);
    conversation.close(Afterwards::Remove).await.unwrap();
    let each = took.as_secs_f64() * 1e3 / f64::from(STEPS + 1);
    vec![Figure::below("host time of an agent's step, scripted model, 200 steps", each, "ms", 5.0)]
}

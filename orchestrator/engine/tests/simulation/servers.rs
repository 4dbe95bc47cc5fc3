//! A tool server with a slow tool.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::llm::Tool;
use engine::sandbox::Sandbox;
use engine::tool_servers::{SandboxToolServer, ToolOffer, ToolServers};
use protocol::Observation;
use protocol::observation::McpObservation;
use serde_json::{Map, Value, json};

pub(crate) struct Servers;

#[async_trait]
impl ToolServers for Servers {
    async fn offer(&self, _: Option<&Arc<dyn Sandbox>>) -> ToolOffer {
        let parameters = json!({"type": "object"});
        let tool = Tool { name: "look_up".into(), description: "Looks a word up.".into(), parameters };
        ToolOffer { tools: vec![tool], ..ToolOffer::default() }
    }

    async fn call(&self, name: &str, _: &Map<String, Value>) -> Observation {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let answered = McpObservation { name: name.to_owned(), ..Default::default() };
        Observation::new("a thing for hands", answered)
    }

    async fn set_sandbox_servers(&self, _: Vec<SandboxToolServer>) {}

    async fn shut_down(&self) {}
}

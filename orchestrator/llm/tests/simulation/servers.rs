//! Tool servers with a slow tool, an image, and schemas that providers refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine::llm::Tool;
use engine::sandbox::Sandbox;
use engine::tool_servers::{SandboxToolServer, ToolOffer, ToolServers};
use llm::testing::DAMAGED_IMAGE;
use protocol::Observation;
use protocol::observation::McpObservation;
use serde_json::{Map, Value, json};

#[derive(Default)]
pub(crate) struct Servers {
    calls: AtomicU32,
}

#[async_trait]
impl ToolServers for Servers {
    async fn offer(&self, _: Option<&Arc<dyn Sandbox>>) -> ToolOffer {
        let schemas = [
            ("look_up", json!({"type": "object"})),
            (
                "any",
                json!({"oneOf": [{"properties": {"a": {"type": "array"}}}, {"required": ["b"]}]}),
            ),
            (
                "nulls",
                json!({"type": "object", "properties": null, "required": null}),
            ),
            (
                "filter",
                json!({"properties": {"$filter": {"type": "string"}}, "required": ["$filter"]}),
            ),
        ];
        let tool = |(name, parameters): (&str, Value)| Tool {
            name: name.into(),
            description: "Looks a word up.".into(),
            parameters,
        };
        ToolOffer {
            tools: schemas.map(tool).into(),
            ..ToolOffer::default()
        }
    }

    async fn call(&self, name: &str, _: &Map<String, Value>) -> Observation {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let data = if self.calls.fetch_add(1, Ordering::Relaxed) % 3 == 1 {
            DAMAGED_IMAGE
        } else {
            "AA=="
        };
        let image_urls = vec![format!("data:image/png;base64,{data}")];
        let answered = McpObservation {
            name: name.to_owned(),
            image_urls,
            ..Default::default()
        };
        Observation::new("a thing for hands", answered)
    }

    async fn set_sandbox_servers(&self, _: Vec<SandboxToolServer>) {}

    async fn shut_down(&self) {}
}

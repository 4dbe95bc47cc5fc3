//! All servers of a conversation.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use engine::sandbox::Sandbox;
use engine::tool_servers::{CALL_FAILED, Offer, ServerFailure, ToolServers};
use futures_util::future::join_all;
use protocol::Observation;
use serde_json::{Map, Value};

use crate::catalogue::Catalogue;
use crate::config::McpServer;
use crate::result;
use crate::server::Server;

/// The MCP servers of one conversation. Dropping it ends them too, without a word.
pub struct McpServers {
    servers: Vec<Server>,
    /// Names that the agent's own tools have.
    reserved: Vec<String>,
    /// As of the last offer.
    catalogue: RwLock<Arc<Catalogue>>,
}

impl McpServers {
    /// Starts nothing yet. `reserved` are the names of the agent's own tools; `environment` is what servers on this host
    /// find in theirs, beside what they are configured with.
    pub fn new(servers: Vec<McpServer>, reserved: Vec<String>, environment: &[(String, String)]) -> Self {
        let servers = servers.into_iter().map(|server| Server::new(server, environment.to_vec())).collect();
        Self { servers, reserved, catalogue: RwLock::default() }
    }
}

#[async_trait]
impl ToolServers for McpServers {
    async fn offer(&self, sandbox: Option<&Arc<dyn Sandbox>>) -> Offer {
        let offers = join_all(self.servers.iter().map(|server| server.offer(sandbox))).await;
        let mut failures = Vec::new();
        let mut lists = Vec::new();
        for (server, (tools, problem)) in self.servers.iter().zip(offers) {
            lists.push((server.name(), tools));
            failures.extend(problem.map(|reason| ServerFailure { server: server.name().to_owned(), reason }));
        }
        let (catalogue, too_many) = Catalogue::new(&self.reserved, &lists);
        failures.extend(too_many);
        let tools = catalogue.tools();
        *self.catalogue.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalogue);
        Offer { tools, failures, obstacle: None }
    }

    async fn call(&self, name: &str, arguments: &Map<String, Value>) -> Observation {
        let catalogue = Arc::clone(&self.catalogue.read().unwrap_or_else(PoisonError::into_inner));
        let found = catalogue.find(name).and_then(|(server, tool)| Some((self.servers.get(server)?, tool)));
        let Some((server, tool)) = found else {
            return Observation::error(format!("no MCP server offers the tool {name} now"), CALL_FAILED);
        };
        match server.call(tool, arguments).await {
            Ok(answer) => result::observation(name, arguments, answer),
            Err(error) => Observation::error(error.to_string(), CALL_FAILED),
        }
    }

    async fn shut_down(&self) {
        join_all(self.servers.iter().map(Server::shut_down)).await;
    }
}

//! All servers of a conversation.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::Sandbox;
use engine::tool_servers::{CALL_FAILED, SandboxToolServer, ToolOffer, ToolServerFailure, ToolServers};
use futures_util::future::join_all;
use protocol::Observation;
use secrecy::SecretString;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::catalogue::Catalogue;
use crate::config::{McpServer, Program, Transport};
use crate::result;
use crate::server::Server;

/// For servers that knowledge files ask for: V0's defaults of the configuration.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The MCP servers of one conversation. Dropping it ends them too, without a word.
pub struct McpServers {
    configured: Vec<Arc<Server>>,
    /// Those that knowledge files ask for. Tokio's mutex, held while they are replaced.
    in_sandbox: Mutex<InSandbox>,
    /// Names that the agent's own tools have.
    reserved: Vec<String>,
    /// As of the last offer.
    offered: RwLock<Arc<Offered>>,
}

#[derive(Default)]
struct InSandbox {
    asked_for: Vec<SandboxToolServer>,
    servers: Vec<Arc<Server>>,
}

/// The tools that were offered, and whose they are.
#[derive(Default)]
struct Offered {
    catalogue: Catalogue,
    servers: Vec<Arc<Server>>,
}

impl McpServers {
    /// Starts nothing yet. `reserved` are the names of the agent's own tools; `environment` is what servers on this host
    /// find in theirs, beside what they are configured with.
    pub fn new(servers: Vec<McpServer>, reserved: Vec<String>, environment: &[(String, String)]) -> Self {
        let servers = servers.into_iter().map(|server| Arc::new(Server::new(server, environment.to_vec())));
        Self {
            configured: servers.collect(),
            in_sandbox: Mutex::default(),
            reserved,
            offered: RwLock::default(),
        }
    }

    async fn servers(&self) -> Vec<Arc<Server>> {
        let in_sandbox = self.in_sandbox.lock().await;
        self.configured.iter().chain(&in_sandbox.servers).cloned().collect()
    }
}

#[async_trait]
impl ToolServers for McpServers {
    async fn offer(&self, sandbox: Option<&Arc<dyn Sandbox>>) -> ToolOffer {
        let servers = self.servers().await;
        let offers = join_all(servers.iter().map(|server| server.offer(sandbox))).await;
        let mut failures = Vec::new();
        let mut lists = Vec::new();
        for (server, (tools, problem)) in servers.iter().zip(offers) {
            lists.push((server.name(), tools));
            failures
                .extend(problem.map(|reason| ToolServerFailure { server: server.name().to_owned(), reason }));
        }
        let (catalogue, too_many) = Catalogue::new(&self.reserved, &lists);
        drop(lists);
        failures.extend(too_many);
        let tools = catalogue.tools();
        let offered = Arc::new(Offered { catalogue, servers });
        *self.offered.write().unwrap_or_else(PoisonError::into_inner) = offered;
        ToolOffer { tools, failures, obstacle: None }
    }

    async fn call(&self, name: &str, arguments: &Map<String, Value>) -> Observation {
        let offered = Arc::clone(&self.offered.read().unwrap_or_else(PoisonError::into_inner));
        let found = offered.catalogue.find(name);
        let Some((server, tool)) =
            found.and_then(|(server, tool)| Some((offered.servers.get(server)?, tool)))
        else {
            return Observation::error(format!("no MCP server offers the tool {name} now"), CALL_FAILED);
        };
        match server.call(tool, arguments).await {
            Ok(answer) => result::observation(name, arguments, answer),
            Err(error) => Observation::error(error.to_string(), CALL_FAILED),
        }
    }

    async fn set_sandbox_servers(&self, asked_for: Vec<SandboxToolServer>) {
        let mut in_sandbox = self.in_sandbox.lock().await;
        if in_sandbox.asked_for == asked_for {
            return;
        }
        join_all(in_sandbox.servers.iter().map(|server| server.shut_down())).await;
        let mut names: HashSet<&str> = self.configured.iter().map(|server| server.name()).collect();
        let new = asked_for.iter().filter(|server| names.insert(&server.name));
        in_sandbox.servers = new.map(|server| Arc::new(Server::new(config(server), Vec::new()))).collect();
        in_sandbox.asked_for = asked_for;
    }

    async fn shut_down(&self) {
        join_all(self.servers().await.iter().map(|server| server.shut_down())).await;
    }
}

fn config(SandboxToolServer { name, command, args, env }: &SandboxToolServer) -> McpServer {
    let env = env.iter().map(|(name, value)| (name.clone(), SecretString::from(value.as_str())));
    let program = Program { command: command.clone(), args: args.clone(), env: env.collect() };
    McpServer {
        name: name.clone(),
        transport: Transport::Sandbox(program),
        start_timeout: START_TIMEOUT,
        call_timeout: CALL_TIMEOUT,
    }
}

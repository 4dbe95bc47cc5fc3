//! All servers of a conversation, and the catalogue of the tools that they offer.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use engine::agent::tools::convert_arguments;
use engine::sandbox::Sandbox;
use engine::tool_servers::{
    CALL_FAILED, CALL_TOOL, SEARCH_TOOLS, SandboxToolServer, ToolOffer, ToolServerFailure,
    ToolServers,
};
use futures_util::future::join_all;
use protocol::Observation;
use protocol::observation::McpObservation;
use secrecy::SecretString;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::catalogue::{Catalogue, ToolNames};
use crate::config::{McpServer, Program, ToolBudget, Transport};
use crate::result;
use crate::server::Server;
use crate::tool_list::ToolList;

/// Timeouts of servers that knowledge files request: V0's defaults.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// MCP servers of a conversation. Dropping it kills them without a shutdown.
pub struct McpServers {
    configured: Vec<Arc<Server>>,
    /// Servers that knowledge files request. An async mutex, because it is held while they are
    /// replaced.
    in_sandbox: Mutex<SandboxServers>,
    names: std::sync::Mutex<ToolNames>,
    budget: ToolBudget,
    /// Tools of the latest offer.
    offered: RwLock<Arc<OfferedTools>>,
}

#[derive(Default)]
struct SandboxServers {
    requested: Vec<SandboxToolServer>,
    servers: Vec<Arc<Server>>,
}

/// Offered tools and their servers.
#[derive(Default)]
struct OfferedTools {
    catalogue: Catalogue,
    servers: Vec<Arc<Server>>,
}

impl McpServers {
    /// Creates the servers without starting them. `reserved` are the names of the agent's own
    /// tools. `environment` is added to the configured environment of servers on this host.
    pub fn new(
        servers: Vec<McpServer>,
        mut reserved: Vec<String>,
        budget: ToolBudget,
        environment: &[(String, String)],
    ) -> Self {
        reserved.extend([SEARCH_TOOLS, CALL_TOOL].map(str::to_owned));
        let servers = servers
            .into_iter()
            .map(|server| Arc::new(Server::new(server, environment.to_vec())));
        Self {
            configured: servers.collect(),
            in_sandbox: Mutex::default(),
            names: ToolNames::new(reserved).into(),
            budget,
            offered: RwLock::default(),
        }
    }

    async fn servers(&self) -> Vec<Arc<Server>> {
        let in_sandbox = self.in_sandbox.lock().await;
        self.configured
            .iter()
            .chain(&in_sandbox.servers)
            .cloned()
            .collect()
    }
}

#[async_trait]
impl ToolServers for McpServers {
    async fn offer(&self, sandbox: Option<&Arc<dyn Sandbox>>) -> ToolOffer {
        let servers = self.servers().await;
        let offers = join_all(servers.iter().map(|server| server.offer(sandbox))).await;
        let mut failures = Vec::new();
        let mut lists = Vec::new();
        for (server, ToolList { tools, problem }) in servers.iter().zip(offers) {
            lists.push((server.name(), tools));
            failures.extend(problem.map(|reason| ToolServerFailure {
                server: server.name().to_owned(),
                reason,
            }));
        }
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let (catalogue, too_many) = Catalogue::new(&mut names, &lists);
        drop(names);
        failures.extend(too_many);
        let tools = catalogue.tools();
        let are_too_many = !self.budget.holds(&tools);
        let offered = Arc::new(OfferedTools { catalogue, servers });
        *self.offered.write().unwrap_or_else(PoisonError::into_inner) = offered;
        ToolOffer {
            tools,
            are_too_many,
            failures,
            ..ToolOffer::default()
        }
    }

    async fn call(&self, name: &str, arguments: &Map<String, Value>) -> Observation {
        let offered = Arc::clone(&self.offered.read().unwrap_or_else(PoisonError::into_inner));
        if name == SEARCH_TOOLS {
            return search(offered, arguments).await;
        }
        let found = offered.catalogue.find(name);
        let found =
            found.and_then(|(tool, index, name)| Some((tool, offered.servers.get(index)?, name)));
        let Some((tool, server, tool_name)) = found else {
            return Observation::error(
                format!("no MCP server offers the tool {name} now"),
                CALL_FAILED,
            );
        };
        let arguments = convert_arguments(arguments.clone(), &tool.parameters);
        match server.call(tool_name, &arguments).await {
            Ok(response) => result::observation(name, &arguments, response),
            Err(error) => Observation::error(error.to_string(), CALL_FAILED),
        }
    }

    async fn set_sandbox_servers(&self, requested: Vec<SandboxToolServer>) {
        let mut in_sandbox = self.in_sandbox.lock().await;
        if in_sandbox.requested == requested {
            return;
        }
        join_all(in_sandbox.servers.iter().map(|server| server.shut_down())).await;
        let mut names: HashSet<&str> = self.configured.iter().map(|server| server.name()).collect();
        let new = requested.iter().filter(|server| names.insert(&server.name));
        in_sandbox.servers = new
            .map(|server| Arc::new(Server::new(to_config(server), Vec::new())))
            .collect();
        in_sandbox.requested = requested;
    }

    async fn shut_down(&self) {
        join_all(self.servers().await.iter().map(|server| server.shut_down())).await;
    }
}

/// Searches for tools. On a blocking thread, because the definitions are those of untrusted
/// servers.
async fn search(offered: Arc<OfferedTools>, arguments: &Map<String, Value>) -> Observation {
    let query = arguments
        .get("query")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let searching = tokio::task::spawn_blocking(move || offered.catalogue.search(&query));
    let Ok(found) = searching.await else {
        return Observation::error("the search failed", CALL_FAILED);
    };
    let (name, arguments) = (SEARCH_TOOLS.to_owned(), arguments.clone());
    Observation::new(
        found,
        McpObservation {
            name,
            arguments,
            ..Default::default()
        },
    )
}

fn to_config(
    SandboxToolServer {
        name,
        command,
        args,
        env,
    }: &SandboxToolServer,
) -> McpServer {
    let env = env
        .iter()
        .map(|(name, value)| (name.clone(), SecretString::from(value.as_str())));
    let program = Program {
        command: command.clone(),
        args: args.clone(),
        env: env.collect(),
    };
    McpServer {
        name: name.clone(),
        transport: Transport::Sandbox(program),
        start_timeout: START_TIMEOUT,
        call_timeout: CALL_TIMEOUT,
    }
}

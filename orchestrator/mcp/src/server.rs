//! The life of one server: started, asked for its tools, called, started again when it has died, given up.
//!
//! One that cannot be started is given up at once; one that dies is started again when it is called next, a few times in
//! a row without an answer. A server in the sandbox begins anew with another sandbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::sandbox::Sandbox;
use protocol::BootId;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, Implementation,
};
use rmcp::service::{NotificationContext, RunningService, ServiceError};
use rmcp::{ClientHandler, Peer, RoleClient};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::{McpServer, Transport};
use crate::tool_list::{self, ListedTool, ToolList};
use crate::transport::{self, Holding, HostEnvironment};
use crate::words::Words;

/// How often in a row a server that answers no call is started again.
const MOST_RESTARTS: u32 = 3;

/// How long a server that says that its tools have changed may take to list them.
const RELIST: Duration = Duration::from_secs(5);

/// How long the protocol may take to say its last words.
const FAREWELL: Duration = Duration::from_secs(1);

/// Why nothing is started any more.
const CLOSED: &str = "the conversation was closed";

/// Why a call has no result. The text is for the model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("the MCP server {server} does not run: {reason}")]
    NotRunning { server: String, reason: String },
    #[error(
        "the MCP server {server} did not answer within {seconds} seconds; the call was cancelled, and whether it was \
         carried out is unknown"
    )]
    Timeout { server: String, seconds: f64 },
    #[error("the MCP server {server} ended during the call; whether it was carried out is unknown{said}")]
    Died { server: String, said: String },
    #[error("the MCP server {server} refuses the call: {problem}")]
    Refused { server: String, problem: String },
    #[error("the MCP server {server} answers with what cannot be used: {problem}")]
    Unusable { server: String, problem: String },
}

/// One server, started or not.
pub(crate) struct Server {
    config: McpServer,
    environment: HostEnvironment,
    words: Words,
    /// Nothing is to be started any more.
    closing: CancellationToken,
    /// Tokio's mutex, held while the server starts: whoever asks meanwhile waits for that.
    life: Mutex<Life>,
}

#[derive(Default)]
struct Life {
    stage: Stage,
    /// As they were listed last.
    list: ToolList,
    /// Starts since it last answered a call.
    restarts: u32,
    sandbox: Option<Arc<dyn Sandbox>>,
}

#[derive(Default)]
enum Stage {
    #[default]
    Unstarted,
    Running(Box<Running>),
    /// It ran, and may again.
    Ended,
    GivenUp(String),
}

struct Running {
    service: RunningService<RoleClient, Listener>,
    holding: Holding,
}

impl Server {
    pub(crate) fn new(config: McpServer, environment: HostEnvironment) -> Self {
        let words = Words::of(&config.transport);
        Self { config, environment, words, closing: CancellationToken::new(), life: Mutex::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Its tools now, started if that has not been tried; and what is wrong with it.
    pub(crate) async fn offer(
        &self,
        sandbox: Option<&Arc<dyn Sandbox>>,
    ) -> (Vec<ListedTool>, Option<String>) {
        let mut life = self.life.lock().await;
        if matches!(self.config.transport, Transport::Sandbox(_)) {
            life.move_to(sandbox).await;
        }
        match &life.stage {
            Stage::Unstarted => self.start(&mut life).await,
            Stage::Running(running) if running.service.service().is_stale.swap(false, Ordering::Relaxed) => {
                match timeout(RELIST, tool_list::list(running.service.peer())).await {
                    Ok(Ok(list)) => life.list = list,
                    // The tools of before may do.
                    failed => tracing::debug!(server = self.name(), ?failed, "listing its tools again"),
                }
            }
            Stage::Running(_) | Stage::Ended | Stage::GivenUp(_) => {}
        }
        match &life.stage {
            Stage::Unstarted => (Vec::new(), None),
            Stage::GivenUp(reason) => (Vec::new(), Some(reason.clone())),
            Stage::Running(_) | Stage::Ended => (life.list.tools.clone(), life.list.problem.clone()),
        }
    }

    /// Calls a tool by the server's own name for it. Dropping the future cancels the call.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> Result<CallToolResult, CallError> {
        let server = || self.config.name.clone();
        let peer = self.running_peer().await?;
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.clone());
        let Ok(answered) = timeout(self.config.call_timeout, peer.call_tool_once(params)).await else {
            let seconds = self.config.call_timeout.as_secs_f64();
            return Err(CallError::Timeout { server: server(), seconds });
        };
        match answered {
            Ok(CallToolResponse::Complete(result)) => {
                self.life.lock().await.restarts = 0;
                Ok(result)
            }
            Ok(_) => {
                let problem = "it asks for more input, which nobody can give here".to_owned();
                Err(CallError::Unusable { server: server(), problem })
            }
            Err(ServiceError::McpError(error)) => {
                Err(CallError::Refused { server: server(), problem: self.words.short(&error.message) })
            }
            Err(ServiceError::TransportSend(error)) => {
                let said = self.last_words(&transport::chain(error.error.as_ref())).await;
                Err(CallError::Died { server: server(), said })
            }
            Err(ServiceError::TransportClosed) => {
                Err(CallError::Died { server: server(), said: self.last_words("").await })
            }
            Err(error) => Err(CallError::Unusable {
                server: server(),
                problem: self.words.short(&transport::chain(&error)),
            }),
        }
    }

    /// Ends it; it does not start again.
    pub(crate) async fn shut_down(&self) {
        self.closing.cancel();
        let mut life = self.life.lock().await;
        life.end().await;
        life.stage = Stage::GivenUp(CLOSED.to_owned());
    }

    async fn running_peer(&self) -> Result<Peer<RoleClient>, CallError> {
        let not_running = |reason: &str| CallError::NotRunning {
            server: self.config.name.clone(),
            reason: reason.to_owned(),
        };
        let mut life = self.life.lock().await;
        if matches!(&life.stage, Stage::Running(running) if running.is_over()) {
            life.end().await;
        }
        if matches!(life.stage, Stage::Ended) {
            if life.restarts == MOST_RESTARTS {
                let reason = format!("it died {MOST_RESTARTS} times in a row and is not started again");
                life.stage = Stage::GivenUp(reason);
            } else {
                life.restarts += 1;
                self.start(&mut life).await;
                // It may be back for the next call.
                if let (Stage::GivenUp(reason), true) = (&life.stage, life.restarts < MOST_RESTARTS) {
                    let error = not_running(reason);
                    life.stage = Stage::Ended;
                    return Err(error);
                }
            }
        }
        match &life.stage {
            Stage::Running(running) => Ok(running.service.peer().clone()),
            Stage::GivenUp(reason) => Err(not_running(reason)),
            Stage::Unstarted | Stage::Ended => Err(not_running("there is no sandbox for it yet")),
        }
    }

    /// Ends in [`Stage::Running`] or [`Stage::GivenUp`]; a server that waits for its sandbox stays as it is.
    async fn start(&self, life: &mut Life) {
        if matches!(self.config.transport, Transport::Sandbox(_)) && life.sandbox.is_none() {
            return;
        }
        let mut holding = Holding::Nothing;
        let started = timeout(self.config.start_timeout, async {
            let sandbox = life.sandbox.as_ref();
            let connected = transport::connect(
                &self.config,
                Listener::default(),
                &self.environment,
                sandbox,
                &mut holding,
            );
            let service = connected.await.map_err(|error| error.to_string())?;
            let listed = tool_list::list(service.peer()).await;
            let list = listed
                .map_err(|error| format!("it does not list its tools: {}", transport::chain(&error)))?;
            Ok::<_, String>((service, list))
        });
        let seconds = self.config.start_timeout.as_secs_f64();
        let timed_out = |_| Err(format!("it was not ready within {seconds} seconds"));
        let started = tokio::select! {
            biased;
            () = self.closing.cancelled() => Err(CLOSED.to_owned()),
            started = started => started.unwrap_or_else(timed_out),
        };
        match started {
            Ok((service, list)) => {
                life.list = list;
                life.stage = Stage::Running(Box::new(Running { service, holding }));
            }
            Err(problem) => {
                let said = self.words.said(&holding.stderr().await);
                life.stage = Stage::GivenUp(format!("{}{said}", self.words.short(&problem)));
            }
        }
    }

    /// What a server that died wrote at its end, or else how that was found.
    async fn last_words(&self, found: &str) -> String {
        let stderr = match &self.life.lock().await.stage {
            Stage::Running(running) => running.holding.stderr().await,
            Stage::Unstarted | Stage::Ended | Stage::GivenUp(_) => String::new(),
        };
        match (stderr.is_empty(), found.is_empty()) {
            (false, _) => self.words.said(&stderr),
            (true, false) => format!(": {}", self.words.short(found)),
            (true, true) => String::new(),
        }
    }
}

impl Life {
    /// Another sandbox is another life. Without one what runs goes on.
    async fn move_to(&mut self, sandbox: Option<&Arc<dyn Sandbox>>) {
        let Some(sandbox) = sandbox else { return };
        let life_of = |sandbox: &Arc<dyn Sandbox>| -> BootId { sandbox.lease().boot_id.clone() };
        if self.sandbox.as_ref().map(life_of) != Some(life_of(sandbox)) {
            self.end().await;
            self.stage = Stage::Unstarted;
            self.restarts = 0;
        }
        // Also of the same life: the connection may be another.
        self.sandbox = Some(Arc::clone(sandbox));
    }

    async fn end(&mut self) {
        if let Stage::Running(mut running) = std::mem::replace(&mut self.stage, Stage::Ended) {
            let _ = running.service.close_with_timeout(FAREWELL).await;
            running.holding.end().await;
        }
    }
}

impl Running {
    fn is_over(&self) -> bool {
        self.service.peer().is_transport_closed() || self.service.is_closed()
    }
}

/// Our side of the protocol: offers a server nothing, and notes that its tools have changed.
#[derive(Debug, Default)]
struct Listener {
    is_stale: AtomicBool,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("glovebox", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.is_stale.store(true, Ordering::Relaxed);
    }
}

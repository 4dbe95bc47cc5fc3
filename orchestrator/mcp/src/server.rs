//! Lifecycle of a server: start, tool list, calls, restarts, giving up.
//!
//! A server that cannot be started is given up immediately. One that crashes is restarted at the next call, until it has crashed
//! several times without a successful call in between. A server in the sandbox starts again in a new sandbox.

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
use crate::quote::Quoter;
use crate::tool_list::{self, ListedTool, ToolList};
use crate::transport::{self, HostEnvironment, ServerProgram};

/// Maximum number of restarts without a successful call in between.
const MAX_RESTARTS: u32 = 3;

/// Time limit for listing tools again after the server has reported a change.
const RELIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for closing the protocol.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Reason why no server is started after a shutdown.
const CLOSED: &str = "the conversation was closed";

/// Error of a call. The text is for the model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("the MCP server {server} does not run: {reason}")]
    NotRunning { server: String, reason: String },
    #[error(
        "the MCP server {server} did not answer within {seconds} seconds; the call was cancelled, and whether it was \
         carried out is unknown"
    )]
    Timeout { server: String, seconds: f64 },
    #[error("the MCP server {server} exited during the call; its result is unknown{quote}")]
    Died { server: String, quote: String },
    #[error("the MCP server {server} refuses the call: {problem}")]
    Refused { server: String, problem: String },
    #[error("the MCP server {server} answers with what cannot be used: {problem}")]
    Unusable { server: String, problem: String },
}

/// A server, started or not.
pub(crate) struct Server {
    config: McpServer,
    environment: HostEnvironment,
    quoter: Quoter,
    /// Cancelled by the shutdown.
    closing: CancellationToken,
    /// An async mutex, because it is held while the server starts: other callers wait for the start.
    life: Mutex<ServerLife>,
}

#[derive(Default)]
struct ServerLife {
    stage: Stage,
    /// The latest list of its tools.
    list: ToolList,
    /// Number of restarts since the latest successful call.
    restarts: u32,
    sandbox: Option<Arc<dyn Sandbox>>,
}

#[derive(Default)]
enum Stage {
    #[default]
    Unstarted,
    Running(Box<Running>),
    /// It has exited, and may be restarted.
    Ended,
    GivenUp(String),
}

struct Running {
    service: RunningService<RoleClient, ToolListListener>,
    program: ServerProgram,
}

impl Server {
    pub(crate) fn new(config: McpServer, environment: HostEnvironment) -> Self {
        let quoter = Quoter::new(&config.transport);
        Self { config, environment, quoter, closing: CancellationToken::new(), life: Mutex::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns its tools, and why some are missing. Starts the server if that has not been tried.
    pub(crate) async fn offer(
        &self,
        sandbox: Option<&Arc<dyn Sandbox>>,
    ) -> (Vec<ListedTool>, Option<String>) {
        let mut life = self.life.lock().await;
        if matches!(self.config.transport, Transport::Sandbox(_)) {
            life.set_sandbox(sandbox).await;
        }
        match &life.stage {
            Stage::Unstarted => self.start(&mut life).await,
            Stage::Running(running) if running.service.service().is_stale.swap(false, Ordering::Relaxed) => {
                match timeout(RELIST_TIMEOUT, tool_list::list(running.service.peer())).await {
                    Ok(Ok(list)) => life.list = list,
                    // The earlier list is probably still right.
                    failed => tracing::debug!(server = self.name(), ?failed, "cannot list the tools again"),
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

    /// Calls a tool by its name at the server. Dropping the future cancels the call.
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
                let problem = "it requests more input, which is not supported".to_owned();
                Err(CallError::Unusable { server: server(), problem })
            }
            Err(ServiceError::McpError(error)) => {
                Err(CallError::Refused { server: server(), problem: self.quoter.line(&error.message) })
            }
            Err(ServiceError::TransportSend(error)) => {
                let quote = self.quote_exit(&transport::chain(error.error.as_ref())).await;
                Err(CallError::Died { server: server(), quote })
            }
            Err(ServiceError::TransportClosed) => {
                Err(CallError::Died { server: server(), quote: self.quote_exit("").await })
            }
            Err(error) => Err(CallError::Unusable {
                server: server(),
                problem: self.quoter.line(&transport::chain(&error)),
            }),
        }
    }

    /// Stops the server. It is not started again.
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
        if matches!(&life.stage, Stage::Running(running) if running.has_exited()) {
            life.end().await;
        }
        if matches!(life.stage, Stage::Ended) {
            if life.restarts == MAX_RESTARTS {
                let reason = format!("it died {MAX_RESTARTS} times in a row and is not started again");
                life.stage = Stage::GivenUp(reason);
            } else {
                life.restarts += 1;
                self.start(&mut life).await;
                // It may start at the next call.
                if let (Stage::GivenUp(reason), true) = (&life.stage, life.restarts < MAX_RESTARTS) {
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

    /// Starts the server, which is [`Stage::Running`] or [`Stage::GivenUp`] afterwards. Does nothing while its sandbox is missing.
    async fn start(&self, life: &mut ServerLife) {
        if matches!(self.config.transport, Transport::Sandbox(_)) && life.sandbox.is_none() {
            return;
        }
        let mut program = ServerProgram::None;
        let started = timeout(self.config.start_timeout, async {
            let sandbox = life.sandbox.as_ref();
            let connected = transport::connect(
                &self.config,
                ToolListListener::default(),
                &self.environment,
                sandbox,
                &mut program,
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
                life.stage = Stage::Running(Box::new(Running { service, program }));
            }
            Err(problem) => {
                let stderr = self.quoter.stderr(&program.stderr().await);
                life.stage = Stage::GivenUp(format!("{}{stderr}", self.quoter.line(&problem)));
            }
        }
    }

    /// Quotes the end of stderr of a server that exited, or else the error by which that was noticed.
    async fn quote_exit(&self, error: &str) -> String {
        let stderr = match &self.life.lock().await.stage {
            Stage::Running(running) => running.program.stderr().await,
            Stage::Unstarted | Stage::Ended | Stage::GivenUp(_) => String::new(),
        };
        match (stderr.is_empty(), error.is_empty()) {
            (false, _) => self.quoter.stderr(&stderr),
            (true, false) => format!(": {}", self.quoter.line(error)),
            (true, true) => String::new(),
        }
    }
}

impl ServerLife {
    /// Stops a server that runs in another sandbox. `None` changes nothing.
    async fn set_sandbox(&mut self, sandbox: Option<&Arc<dyn Sandbox>>) {
        let Some(sandbox) = sandbox else { return };
        let boot_id = |sandbox: &Arc<dyn Sandbox>| -> BootId { sandbox.lease().boot_id.clone() };
        if self.sandbox.as_ref().map(boot_id) != Some(boot_id(sandbox)) {
            self.end().await;
            self.stage = Stage::Unstarted;
            self.restarts = 0;
        }
        // Also for the same boot id: the connection may be a new one.
        self.sandbox = Some(Arc::clone(sandbox));
    }

    async fn end(&mut self) {
        if let Stage::Running(mut running) = std::mem::replace(&mut self.stage, Stage::Ended) {
            let _ = running.service.close_with_timeout(CLOSE_TIMEOUT).await;
            running.program.end().await;
        }
    }
}

impl Running {
    fn has_exited(&self) -> bool {
        self.service.peer().is_transport_closed() || self.service.is_closed()
    }
}

/// The client's side of the protocol: supports no requests of servers, and remembers that their tools have changed.
#[derive(Debug, Default)]
struct ToolListListener {
    is_stale: AtomicBool,
}

impl ClientHandler for ToolListListener {
    fn get_info(&self) -> ClientConfig {
        let client = Implementation::new("glovebox", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), client)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.is_stale.store(true, Ordering::Relaxed);
    }
}

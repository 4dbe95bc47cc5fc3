//! Lifecycle of a server: start, tool list, calls and restarts.
//!
//! A server whose first start fails is not started again. One that exits is restarted by the next
//! call, until it has exited several times without a successful call in between. A server in the
//! sandbox starts again in a new sandbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::sandbox::Sandbox;
use protocol::BootId;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
    Implementation,
};
use rmcp::service::{NotificationContext, RunningService, ServiceError};
use rmcp::{ClientHandler, Peer, RoleClient};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::{McpServer, Transport};
use crate::quote::Quoter;
use crate::tool_list::{self, ToolList};
use crate::transport::{self, HostEnvironment, ServerProgram};

/// Maximum number of restarts without a successful call in between.
const MAX_RESTARTS: u32 = 3;

/// Time limit for listing tools again after the server has reported a change.
const RELIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for closing the protocol.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Reason why no server is started after a shutdown.
const CLOSED: &str = "the conversation was closed";

/// The usual cause of a server that does not start in a sandbox: it downloads its packages.
const NETWORK_HINT: &str = "; if it needs a network, which a sandbox does not have by default: --network host, or \
                            run_in = \"host\"";

/// Error of a call. The text is for the model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("the MCP server {server} is not running: {reason}")]
    NotRunning { server: String, reason: String },
    #[error(
        "the MCP server {server} did not respond within {seconds} seconds; the call was cancelled, and whether it was \
         carried out is unknown"
    )]
    Timeout { server: String, seconds: f64 },
    #[error("the MCP server {server} exited during the call; its result is unknown{quote}")]
    Exited { server: String, quote: String },
    #[error("the MCP server {server} rejected the call: {problem}")]
    Rejected { server: String, problem: String },
    #[error("the MCP server {server} sent an unusable response: {problem}")]
    InvalidResponse { server: String, problem: String },
}

/// A configured server and its current state.
pub(crate) struct Server {
    config: McpServer,
    environment: HostEnvironment,
    quoter: Quoter,
    /// Cancelled by the shutdown.
    closing: CancellationToken,
    /// An async mutex, because it is held while the server starts: other callers wait for the
    /// start.
    state: Mutex<ServerState>,
}

#[derive(Default)]
struct ServerState {
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
    Exited,
    /// It is not started again, for this reason.
    Unavailable(String),
}

struct Running {
    service: RunningService<RoleClient, ToolListListener>,
    program: ServerProgram,
}

impl Server {
    pub(crate) fn new(config: McpServer, environment: HostEnvironment) -> Self {
        let quoter = Quoter::new(&config);
        Self {
            config,
            environment,
            quoter,
            closing: CancellationToken::new(),
            state: Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns its tools, and why some are missing. Starts the server if that has not been tried.
    pub(crate) async fn offer(&self, sandbox: Option<&Arc<dyn Sandbox>>) -> ToolList {
        let mut state = self.state.lock().await;
        if matches!(self.config.transport, Transport::Sandbox(_)) {
            state.set_sandbox(sandbox).await;
        }
        match &state.stage {
            Stage::Unstarted => self.start(&mut state).await,
            Stage::Running(running)
                if running
                    .service
                    .service()
                    .is_stale
                    .swap(false, Ordering::Relaxed) =>
            {
                match timeout(RELIST_TIMEOUT, self.list_tools(running.service.peer())).await {
                    Ok(Ok(list)) => state.list = list,
                    // The earlier list is probably still correct.
                    failed => tracing::debug!(
                        server = self.name(),
                        ?failed,
                        "cannot list the tools again"
                    ),
                }
            }
            Stage::Running(_) | Stage::Exited | Stage::Unavailable(_) => {}
        }
        match &state.stage {
            Stage::Unstarted => ToolList::default(),
            Stage::Unavailable(reason) => ToolList {
                tools: Vec::new(),
                problem: Some(reason.clone()),
            },
            Stage::Running(_) | Stage::Exited => state.list.clone(),
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
        let Ok(answered) = timeout(self.config.call_timeout, peer.call_tool_once(params)).await
        else {
            let seconds = self.config.call_timeout.as_secs_f64();
            return Err(CallError::Timeout {
                server: server(),
                seconds,
            });
        };
        match answered {
            Ok(CallToolResponse::Complete(result)) => {
                self.state.lock().await.restarts = 0;
                Ok(result)
            }
            Ok(_) => {
                let problem = "it requests more input, which is not supported".to_owned();
                Err(CallError::InvalidResponse {
                    server: server(),
                    problem,
                })
            }
            Err(ServiceError::McpError(error)) => Err(CallError::Rejected {
                server: server(),
                problem: self.quoter.line(&error.message),
            }),
            Err(ServiceError::TransportSend(error)) => {
                let quote = self
                    .quote_exit(&transport::format_error(error.error.as_ref()))
                    .await;
                Err(CallError::Exited {
                    server: server(),
                    quote,
                })
            }
            Err(ServiceError::TransportClosed) => Err(CallError::Exited {
                server: server(),
                quote: self.quote_exit("").await,
            }),
            Err(error) => Err(CallError::InvalidResponse {
                server: server(),
                problem: self.quoter.line(&transport::format_error(&error)),
            }),
        }
    }

    /// Stops the server. It is not started again.
    pub(crate) async fn shut_down(&self) {
        self.closing.cancel();
        let mut state = self.state.lock().await;
        state.stop().await;
        state.stage = Stage::Unavailable(CLOSED.to_owned());
    }

    async fn running_peer(&self) -> Result<Peer<RoleClient>, CallError> {
        let not_running = |reason: &str| CallError::NotRunning {
            server: self.config.name.clone(),
            reason: reason.to_owned(),
        };
        let mut state = self.state.lock().await;
        if matches!(&state.stage, Stage::Running(running) if running.has_exited()) {
            state.stop().await;
        }
        if matches!(state.stage, Stage::Exited) {
            if state.restarts == MAX_RESTARTS {
                let reason =
                    format!("it exited {MAX_RESTARTS} times in a row and is not restarted");
                state.stage = Stage::Unavailable(reason);
            } else {
                state.restarts += 1;
                self.start(&mut state).await;
                // It may start at the next call.
                if let (Stage::Unavailable(reason), true) =
                    (&state.stage, state.restarts < MAX_RESTARTS)
                {
                    let error = not_running(reason);
                    state.stage = Stage::Exited;
                    return Err(error);
                }
            }
        }
        match &state.stage {
            Stage::Running(running) => Ok(running.service.peer().clone()),
            Stage::Unavailable(reason) => Err(not_running(reason)),
            Stage::Unstarted | Stage::Exited => Err(not_running("there is no sandbox for it yet")),
        }
    }

    /// Starts the server, which is [`Stage::Running`] or [`Stage::Unavailable`] afterwards. Does
    /// nothing while its sandbox is missing.
    async fn start(&self, state: &mut ServerState) {
        if matches!(self.config.transport, Transport::Sandbox(_)) && state.sandbox.is_none() {
            return;
        }
        let mut program = ServerProgram::None;
        let started = timeout(self.config.start_timeout, async {
            let sandbox = state.sandbox.as_ref();
            let listener = ToolListListener::default();
            let connected = transport::connect(
                &self.config,
                listener,
                &self.environment,
                sandbox,
                &mut program,
            );
            let service = connected.await.map_err(|error| error.to_string())?;
            let listed = self.list_tools(service.peer()).await;
            let list = listed.map_err(|error| {
                format!(
                    "it cannot list its tools: {}",
                    transport::format_error(&error)
                )
            })?;
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
                state.list = list;
                state.stage = Stage::Running(Box::new(Running { service, program }));
            }
            Err(problem) => {
                let stderr = self.quoter.stderr(&program.stderr().await);
                let hint = match self.config.transport {
                    Transport::Sandbox(_) => NETWORK_HINT,
                    _ => "",
                };
                state.stage =
                    Stage::Unavailable(format!("{}{stderr}{hint}", self.quoter.line(&problem)));
            }
        }
    }

    /// Lists the tools. The problem with the list quotes the server.
    async fn list_tools(&self, peer: &Peer<RoleClient>) -> Result<ToolList, ServiceError> {
        let ToolList { tools, problem } = tool_list::list(peer).await?;
        Ok(ToolList {
            tools,
            problem: problem.map(|problem| self.quoter.line(&problem)),
        })
    }

    /// Quotes the end of stderr of a server that has exited. Without stderr, quotes the error of
    /// the connection.
    async fn quote_exit(&self, error: &str) -> String {
        let stderr = match &self.state.lock().await.stage {
            Stage::Running(running) => running.program.stderr().await,
            Stage::Unstarted | Stage::Exited | Stage::Unavailable(_) => String::new(),
        };
        match (stderr.is_empty(), error.is_empty()) {
            (false, _) => self.quoter.stderr(&stderr),
            (true, false) => format!(": {}", self.quoter.line(error)),
            (true, true) => String::new(),
        }
    }
}

impl ServerState {
    /// Stops a server that runs in another sandbox. `None` changes nothing.
    async fn set_sandbox(&mut self, sandbox: Option<&Arc<dyn Sandbox>>) {
        let Some(sandbox) = sandbox else { return };
        let boot_id = |sandbox: &Arc<dyn Sandbox>| -> BootId { sandbox.lease().boot_id.clone() };
        if self.sandbox.as_ref().map(boot_id) != Some(boot_id(sandbox)) {
            self.stop().await;
            self.stage = Stage::Unstarted;
            self.restarts = 0;
        }
        // Also for the same boot id: the connection may be a new one.
        self.sandbox = Some(Arc::clone(sandbox));
    }

    async fn stop(&mut self) {
        if let Stage::Running(mut running) = std::mem::replace(&mut self.stage, Stage::Exited) {
            let _ = running.service.close_with_timeout(CLOSE_TIMEOUT).await;
            running.program.stop().await;
        }
    }
}

impl Running {
    fn has_exited(&self) -> bool {
        self.service.peer().is_transport_closed() || self.service.is_closed()
    }
}

/// Handler of a server's messages: supports none of its requests, and records that its tools have
/// changed.
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

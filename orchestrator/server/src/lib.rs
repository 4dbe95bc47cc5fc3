//! The host server: V0's REST API and socket.io, streams of events, OpenAI's API and an MCP
//! endpoint, on the application layer.
//!
//! Knows [`conversations`] and the types of [`engine`], and no adapter: the composition root passes
//! [`HostedConversations`] and the server's [`ServerConfig`]. The routes are in `routes`, their
//! shapes in [`protocol::client_api`].
//!
//! `/api/v2` is Glovebox's own API (`v2`).
//!
//! `/v1` is OpenAI's API, in which an agent is a model (`openai`), and `/mcp` an MCP server whose
//! tools are conversations (`mcp_endpoint`).
//!
//! Every request to `/api`, `/v1` and `/mcp` needs the key of the operator or of a user, or the
//! session of a browser that has signed in with it. A user sees only own conversations and
//! settings: a conversation of another user is answered as one that does not exist, for which every
//! route uses the extractor `ConversationPath`. The operator sees all conversations. Requests whose
//! `Host` is not expected are rejected, and so are those from pages of other origins, so that a
//! page in a browser cannot reach a server on the same machine. Programs in sandboxes that listen
//! on a port are reached at host names of their own (`ports`).
//!
//! | route below `/api/conversations/{id}` | response |
//! |---|---|
//! | `GET list-files?path=` | the names in a folder, 10,000 at most; `x-truncated` is set if there are more |
//! | `GET select-file?file=` | `{code}`, a text; 415 for other files |
//! | `GET zip-directory` | the workspace as `workspace.zip`; cut off without the end of the body if it cannot be packed |
//! | `POST upload-files` | `{uploaded_files, skipped_files}` for a multipart body with fields `files` |
//! | `GET git/changes` | `[{status, path}]` relative to the remote branch; empty without a repository |
//! | `GET git/diff?path=` | `{modified, original}` |
//! | `GET microagents` | `{microagents}`, the knowledge of the conversation |
//! | `GET remember-prompt?event_id=` | `{status, prompt}`; calls no model |
//! | `POST submit-feedback` | the feedback, which is stored in the log, and the fields that V0's page shows |
//! | `POST exp-config` | `false` |
//!
//! Those that read the workspace need a running conversation with a sandbox (409), and start
//! nothing. `docs/v0-migration.md` lists how they differ from V0's.
//!
//! `GET /api/user/*` lists repositories, branches, tasks and microagents of git providers, with the
//! user's stored tokens.

mod audit;
mod auth;
mod base_path;
mod cached;
mod client_address;
mod client_events;
mod connections;
mod cookies;
mod error;
mod extract;
mod failed_attempts;
mod input_memory;
mod json_values;
mod keyed_permits;
mod mcp_endpoint;
mod metrics;
mod openai;
mod openapi;
mod origin;
mod other_hosts;
mod paced_body;
mod page;
mod page_source;
mod ports;
mod proxy;
mod rate_limit;
mod request_log;
mod resources;
mod routes;
mod sign_in_host;
mod signature;
mod socket_frames;
mod socket_io;
mod socket_sessions;
mod state;
mod stream;
mod unread;
mod v2;
mod view;
mod work;

use std::path::PathBuf;
use std::sync::Arc;

use accounts::{AccountStore, AuditStore};
use conversations::{Choices, HostedConversations, UserProfiles};
use git_providers::GitClient;
use rustls::ServerConfig as TlsConfig;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use base_path::{BasePath, InvalidBasePath};
pub use client_address::{InvalidNetwork, ProxyNetwork, TrustedProxies};
pub use metrics::{ServedRequest, ServerMetrics, ServerUsage};
pub use origin::AllowedHosts;
pub use other_hosts::OtherHosts;
pub use page_source::{InvalidPageSource, PageSource};
pub use ports::PortHosts;
pub use rate_limit::RequestRate;
pub use sign_in_host::page_url;
use state::ServerState;

/// Settings of [`Server`].
#[derive(Debug)]
pub struct ServerConfig {
    /// The operator's key, which guards `/api` and the sockets, and sees everything.
    pub key: SecretString,
    /// The names under which clients reach this server.
    pub allowed_hosts: AllowedHosts,
    /// The path below which clients reach this server.
    pub base_path: BasePath,
    /// Values of the settings that clients can choose.
    pub choices: Choices,
    /// The addresses of ports in sandboxes.
    pub port_hosts: PortHosts,
    /// Reverse proxies whose headers about the client are believed.
    pub trusted_proxies: TrustedProxies,
    /// Maximum rate of requests per client. `None` for no limit.
    pub request_rate: Option<RequestRate>,
    /// Client of the hosts that share the store. `None` if there are none.
    pub other_hosts: Option<OtherHosts>,
    /// The client of git providers, which users' tokens are sent with.
    pub git: GitClient,
    /// Collects and writes the metrics.
    pub metrics: Arc<dyn ServerMetrics>,
    /// Folder of a web page to serve from the same origin. `None` for the API alone.
    pub page_folder: Option<PathBuf>,
    /// Other hosts from which the page may load scripts, styles, fonts and pictures.
    pub page_sources: Vec<PageSource>,
}

/// The server of the REST API and the sockets.
pub struct Server {
    state: Arc<ServerState>,
}

impl Server {
    /// Creates a server of the conversations, the users, and their settings.
    pub fn new(
        conversations: Arc<HostedConversations>,
        profiles: Arc<UserProfiles>,
        accounts: Arc<dyn AccountStore>,
        audit: Arc<dyn AuditStore>,
        config: ServerConfig,
    ) -> Self {
        Self {
            state: Arc::new(ServerState::new(
                conversations,
                profiles,
                accounts,
                audit,
                config,
            )),
        }
    }

    /// Serves requests until `shutdown` is cancelled: with TLS if there is a configuration. Then
    /// ends the streams, completes open requests within a grace period, and returns. The
    /// conversations keep running.
    pub async fn serve(
        self,
        listener: TcpListener,
        tls: Option<Arc<TlsConfig>>,
        shutdown: CancellationToken,
    ) {
        let router = routes::router(Arc::clone(&self.state));
        let streams = self.state.streams.clone();
        let proxies = self.state.trusted_proxies.clone();
        let ending = shutdown.clone();
        // The streams end before the connections are waited for.
        let end_streams = async move {
            ending.cancelled().await;
            streams.cancel();
        };
        tokio::join!(
            connections::accept(router, listener, tls, proxies, shutdown),
            end_streams
        );
    }
}

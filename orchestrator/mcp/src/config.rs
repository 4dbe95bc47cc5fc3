//! Configuration of servers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use engine::llm::Tool;
use reqwest::Url;
use secrecy::SecretString;

/// Configuration of a server.
#[derive(Debug, Clone)]
pub struct McpServer {
    /// Name, for messages to the user and as prefix of ambiguous tool names.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// Timeout of the start, which includes listing its tools.
    pub start_timeout: Duration,
    /// Timeout of a call.
    pub call_timeout: Duration,
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Transport {
    /// Over stdin and stdout of a program on this host. It is not isolated.
    Host(Program),
    /// Over stdin and stdout of a program in the conversation's sandbox.
    Sandbox(Program),
    /// Over streamable HTTP, the current transport.
    StreamableHttp(Remote),
    /// Over HTTP with server-sent events, the transport of 2024.
    Sse(Remote),
}

/// A server that is started as a program.
#[derive(Debug, Clone)]
pub struct Program {
    /// Name or path of the program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that are added to its environment.
    pub env: BTreeMap<String, SecretString>,
}

/// A server that is already running.
#[derive(Clone)]
pub struct Remote {
    /// Its URL. Some servers require their key in it.
    pub(crate) url: Url,
    /// Key, sent as a bearer token.
    pub api_key: Option<SecretString>,
    /// Headers of each request.
    pub headers: BTreeMap<String, SecretString>,
}

/// The text is not the URL of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an address such as https://host/mcp, with a key in `api_key` or `headers`")]
pub struct InvalidServerUrl;

impl Remote {
    /// Creates a server without a key.
    ///
    /// # Errors
    /// The text is not an HTTP URL, or contains a user name or a password.
    pub fn new(url: &str) -> Result<Self, InvalidServerUrl> {
        let url: Url = url.parse().map_err(|_| InvalidServerUrl)?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
        if !is_plain || !is_http {
            return Err(InvalidServerUrl);
        }
        Ok(Self {
            url,
            api_key: None,
            headers: BTreeMap::new(),
        })
    }

    /// Returns the host of its URL.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }
}

/// What the tools of all servers may cost in each request. A model searches for more expensive
/// ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolBudget {
    /// Maximum number of tools.
    pub tools: usize,
    /// Maximum length of their definitions, in estimated tokens.
    pub tokens: usize,
}

/// Maximum number of tools in a request, whatever the budget. Providers accept 128, which include
/// the agent's own.
const MAX_LISTED_TOOLS: usize = 100;

impl ToolBudget {
    pub(crate) fn holds(self, tools: &[Tool]) -> bool {
        tools.len() <= self.tools.min(MAX_LISTED_TOOLS)
            && Tool::estimated_tokens(tools) <= self.tokens
    }
}

impl McpServer {
    /// Returns the secrets of its configuration.
    pub fn secrets(&self) -> Vec<&SecretString> {
        match &self.transport {
            Transport::Host(program) | Transport::Sandbox(program) => {
                program.env.values().collect()
            }
            Transport::StreamableHttp(remote) | Transport::Sse(remote) => {
                remote.headers.values().chain(&remote.api_key).collect()
            }
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("host", &self.host())
            .finish_non_exhaustive()
    }
}

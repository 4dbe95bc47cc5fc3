//! What servers there are, as data.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use reqwest::Url;
use secrecy::SecretString;

/// One server.
#[derive(Debug, Clone)]
pub struct McpServer {
    /// Its name, for people and for telling its tools from another's.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// Until it has said what tools it has.
    pub start_timeout: Duration,
    /// For one call.
    pub call_timeout: Duration,
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Transport {
    /// Over the stdin and stdout of a program on this host. It can do what we can.
    Host(Program),
    /// Over the stdin and stdout of a program in the conversation's sandbox.
    Sandbox(Program),
    /// Over HTTP, as the protocol is today.
    StreamableHttp(Remote),
    /// Over HTTP, as the protocol was in 2024: one stream of events for the answers.
    Sse(Remote),
}

/// A program to start.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its name or path.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Added to its environment.
    pub env: BTreeMap<String, SecretString>,
}

/// A server that runs already.
#[derive(Clone)]
pub struct Remote {
    /// Where; some want their key in it.
    pub(crate) url: Url,
    /// Sent as a bearer token.
    pub api_key: Option<SecretString>,
    /// Sent with each request.
    pub headers: BTreeMap<String, SecretString>,
}

/// Why a text is no server's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an address such as https://host/mcp, with a key in `api_key` or `headers`")]
pub struct NoAddress;

impl Remote {
    /// A server at this address, which is asked without a key.
    ///
    /// # Errors
    /// When it is none, or would be asked with a name and a password.
    pub fn at(address: &str) -> Result<Self, NoAddress> {
        let url: Url = address.parse().map_err(|_| NoAddress)?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
        if !is_plain || !is_http {
            return Err(NoAddress);
        }
        Ok(Self { url, api_key: None, headers: BTreeMap::new() })
    }

    /// The host that it is on.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }
}

impl McpServer {
    /// What nobody else may see of it.
    pub fn secrets(&self) -> Vec<&SecretString> {
        match &self.transport {
            Transport::Host(program) | Transport::Sandbox(program) => program.env.values().collect(),
            Transport::StreamableHttp(remote) | Transport::Sse(remote) => {
                remote.headers.values().chain(&remote.api_key).collect()
            }
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("host", &self.host()).finish_non_exhaustive()
    }
}

//! What servers there are, as data.

use std::collections::BTreeMap;
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
#[derive(Debug, Clone)]
pub struct Remote {
    /// Where.
    pub url: Url,
    /// Sent as a bearer token.
    pub api_key: Option<SecretString>,
    /// Sent with each request.
    pub headers: BTreeMap<String, SecretString>,
}

//! Fixture: configured servers, and checks of their processes.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::tool_servers::{ToolOffer, ToolServers as _};
use mcp::{McpServer, McpServers, Program, Remote, ToolBudget, Transport};
use protocol::{Observation, ObservationKind};
use serde_json::{Map, Value};

/// A server with long timeouts, for hosts under load.
pub(crate) fn server(name: &str, transport: Transport) -> McpServer {
    let (start_timeout, call_timeout) = (Duration::from_secs(60), Duration::from_secs(60));
    McpServer {
        name: name.into(),
        transport,
        start_timeout,
        call_timeout,
    }
}

pub(crate) fn program(command: &str, args: &[&str]) -> Program {
    let args = args.iter().map(|argument| (*argument).to_owned()).collect();
    Program {
        command: command.into(),
        args,
        env: BTreeMap::new(),
    }
}

pub(crate) fn remote(url: &str) -> Remote {
    Remote::new(url).unwrap()
}

/// Servers whose environment has only `PATH` and `HOME`.
pub(crate) fn servers(servers: Vec<McpServer>) -> McpServers {
    let environment =
        ["PATH", "HOME"].map(|name| (name.to_owned(), std::env::var(name).unwrap_or_default()));
    McpServers::new(
        servers,
        vec!["think".into()],
        ToolBudget {
            tools: 3,
            tokens: 1000,
        },
        &environment,
    )
}

pub(crate) fn names(offer: &ToolOffer) -> Vec<&str> {
    offer.tools.iter().map(|tool| tool.name.as_str()).collect()
}

pub(crate) async fn call(servers: &McpServers, name: &str, arguments: Value) -> Observation {
    let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
    servers.call(name, &arguments).await
}

pub(crate) fn is_error(observation: &Observation) -> bool {
    matches!(observation.kind, ObservationKind::Error(_))
}

/// Whether a process runs with this text in an argument.
pub(crate) fn runs(argument: &str) -> bool {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .any(|line| {
            line.split(|byte| *byte == 0)
                .any(|word| String::from_utf8_lossy(word).contains(argument))
        })
}

/// Waits until a condition is met. Panics after 20 s.
pub(crate) async fn wait_until(condition: &str, mut is_met: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !is_met() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "timed out: {condition}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

//! MCP servers inside a real sandbox, reached through its one connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::sandbox::Sandbox;
use engine::tool_servers::ToolServers;
use mcp::{McpServer, McpServers, Program, ToolBudget, Transport};
use protocol::{Observation, ObservationKind};
use serde_json::{Map, Value, json};
use tests::glovebox::wait_until;
use tests::sandbox_contract::faults::FaultInjection as _;
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::{Backend as _, create_sandbox};
use tests::tool_server::SCRIPT;

use crate::test_packages::npm_packages;

const BUDGET: ToolBudget = ToolBudget {
    tools: 20,
    tokens: 10_000,
};

fn server(command: &str, args: &[&str]) -> McpServer {
    let program = Program {
        command: command.into(),
        args: args.iter().map(|argument| (*argument).to_owned()).collect(),
        env: BTreeMap::from([("TOKEN".to_owned(), "of-the-server".into())]),
    };
    McpServer {
        name: "inside".into(),
        transport: Transport::Sandbox(program),
        start_timeout: Duration::from_secs(60),
        call_timeout: Duration::from_secs(60),
    }
}

async fn create_shared_sandbox(backend: &LocalBackend) -> Arc<dyn Sandbox> {
    Arc::from(create_sandbox(backend).await)
}

async fn removed(backend: &LocalBackend, sandbox: Arc<dyn Sandbox>) {
    let id = sandbox.lease().sandbox_id.clone();
    drop(sandbox);
    backend.provider().destroy(&id).await.unwrap();
    assert_eq!(backend.remains(&id).await, Vec::<String>::new());
}

async fn call(servers: &McpServers, name: &str, arguments: Value) -> Observation {
    let empty = Map::new();
    servers
        .call(name, arguments.as_object().unwrap_or(&empty))
        .await
}

fn is_error(observation: &Observation) -> bool {
    matches!(observation.kind, ObservationKind::Error(_))
}

/// Returns the id of the MCP server's process.
async fn process(servers: &McpServers) -> i32 {
    let answer = call(servers, "where", json!({})).await;
    assert!(!is_error(&answer), "{answer:?}");
    answer.content.rsplit(' ').next().unwrap().parse().unwrap()
}

fn runs(process: i32) -> bool {
    std::path::Path::new(&format!("/proc/{process}")).exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_server_runs_in_its_sandbox_and_ends_with_it() {
    let backend = LocalBackend::new().unwrap();
    let servers = McpServers::new(vec![server("sh", &["-c", SCRIPT])], Vec::new(), BUDGET, &[]);
    let early = servers.offer(None).await;
    assert_eq!(
        (early.tools.len(), early.failures.len()),
        (0, 0),
        "no tool is offered before the sandbox exists"
    );

    let sandbox = create_shared_sandbox(&backend).await;
    let offer = servers.offer(Some(&sandbox)).await;
    assert_eq!(offer.failures, []);
    assert_eq!(offer.tools[0].name, "where");
    let answer = call(&servers, "where", json!({})).await;
    let working_dir = &sandbox.lease().working_dir;
    assert!(
        answer
            .content
            .starts_with(&format!("{working_dir} of-the-server ")),
        "{answer:?}"
    );
    assert_eq!(process(&servers).await, process(&servers).await);

    let ended = call(&servers, "where", json!({"end": true})).await;
    assert!(
        is_error(&ended) && ended.content.contains("end requested"),
        "{ended:?}"
    );
    let again = process(&servers).await;
    assert!(runs(again));

    // A new sandbox starts the server again.
    let other = create_shared_sandbox(&backend).await;
    assert_eq!(servers.offer(Some(&other)).await, offer);
    assert!(!runs(again), "the server of the first sandbox has exited");
    let last = process(&servers).await;
    servers.shut_down().await;
    assert!(!runs(last));
    removed(&backend, sandbox).await;
    removed(&backend, other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_server_is_restarted_when_its_connection_breaks() {
    let backend = LocalBackend::new().unwrap();
    let sandbox = create_shared_sandbox(&backend).await;
    let servers = McpServers::new(vec![server("sh", &["-c", SCRIPT])], Vec::new(), BUDGET, &[]);
    servers.offer(Some(&sandbox)).await;
    let before = process(&servers).await;
    assert!(backend.cut_connection(&sandbox.lease().sandbox_id).await > 0);
    // The break is noticed before the call or by it.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    let after = loop {
        let answer = call(&servers, "where", json!({})).await;
        match answer
            .content
            .rsplit(' ')
            .next()
            .and_then(|number| number.parse().ok())
        {
            Some(process) if !is_error(&answer) && process != before => break process,
            _ => assert!(tokio::time::Instant::now() < deadline, "{answer:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(runs(after));
    wait_until("the first server has ended", || !runs(before));
    servers.shut_down().await;
    removed(&backend, sandbox).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_is_reported_when_the_mcp_program_is_missing() {
    let backend = LocalBackend::new().unwrap();
    let sandbox = create_shared_sandbox(&backend).await;
    let servers = McpServers::new(
        vec![server("/nowhere/to-be-found", &[])],
        Vec::new(),
        BUDGET,
        &[],
    );
    let offer = servers.offer(Some(&sandbox)).await;
    assert!(
        offer.failures[0].reason.contains("/nowhere/to-be-found"),
        "{offer:?}"
    );
    removed(&backend, sandbox).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reference_mcp_server_works_in_a_sandbox() {
    let Some(packages) = npm_packages() else {
        return;
    };
    let script = packages.join("@modelcontextprotocol/server-everything/dist/index.js");
    let backend = LocalBackend::new().unwrap();
    let sandbox = create_shared_sandbox(&backend).await;
    let server = server("node", &[script.to_str().unwrap(), "stdio"]);
    let servers = McpServers::new(vec![server], Vec::new(), BUDGET, &[]);
    let offer = servers.offer(Some(&sandbox)).await;
    assert_eq!(offer.failures, []);
    assert_eq!(
        call(&servers, "echo", json!({"message": "inside"}))
            .await
            .content,
        "Echo: inside"
    );
    let image = call(&servers, "get-tiny-image", json!({})).await;
    assert!(
        matches!(&image.kind, ObservationKind::Mcp(mcp) if mcp.image_urls.len() == 1),
        "{image:?}"
    );
    servers.shut_down().await;
    removed(&backend, sandbox).await;
}

//! The reference servers, over each transport that they support.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use engine::tool_servers::ToolServers as _;
use mcp::{McpServer, McpServers, Transport};
use protocol::ObservationKind;
use serde_json::json;
use tokio::process::{Child, Command};

use crate::fixture::{call, is_error, names, program, remote, runs, server, servers, wait_until};
use crate::test_packages::{npm_packages, pypi_packages};

fn everything(packages: &Path) -> PathBuf {
    packages.join("@modelcontextprotocol/server-everything/dist/index.js")
}

/// Calls each kind of tool of the reference server.
async fn call_everything(server: McpServer) -> McpServers {
    let servers = servers(vec![server]);
    let offer = servers.offer(None).await;
    assert_eq!(offer.failures, []);
    assert!(
        names(&offer).contains(&"echo") && names(&offer).contains(&"get-tiny-image"),
        "{:?}",
        names(&offer)
    );

    let echoed = call(&servers, "echo", json!({"message": "hi there"})).await;
    assert_eq!(echoed.content, "Echo: hi there");
    let sum = call(&servers, "get-sum", json!({"a": 2, "b": 3})).await;
    assert!(sum.content.contains('5') && !is_error(&sum), "{sum:?}");
    let image = call(&servers, "get-tiny-image", json!({})).await;
    let ObservationKind::Mcp(kind) = &image.kind else {
        panic!("{image:?}")
    };
    assert_eq!(kind.image_urls.len(), 1, "{image:?}");
    assert!(kind.image_urls[0].starts_with("data:image/png;base64,"));
    let resource = call(
        &servers,
        "get-resource-reference",
        json!({"resourceType": "Text", "resourceId": 1}),
    )
    .await;
    assert!(resource.content.contains("[resource "), "{resource:?}");
    let structured = call(
        &servers,
        "get-structured-content",
        json!({"location": "New York"}),
    )
    .await;
    assert!(structured.content.contains("temperature"), "{structured:?}");

    let wrong = call(&servers, "get-sum", json!({"a": "no number"})).await;
    assert!(
        is_error(&wrong) || wrong.content.starts_with("The tool failed: "),
        "{wrong:?}"
    );
    let unknown = call(&servers, "fly", json!({})).await;
    assert!(is_error(&unknown) && unknown.content == "no MCP server offers the tool fly now");
    servers
}

#[tokio::test(flavor = "multi_thread")]
async fn reference_server_works_over_stdio() {
    let Some(packages) = npm_packages() else {
        return;
    };
    let mark = format!("--mark={}", std::process::id());
    let script = everything(&packages);
    let node = program("node", &[script.to_str().unwrap(), "stdio", &mark]);
    let servers = call_everything(server("everything", Transport::Host(node))).await;
    assert!(runs(&mark));
    servers.shut_down().await;
    assert!(!runs(&mark), "it has exited with the conversation");
    let after = call(&servers, "echo", json!({"message": "x"})).await;
    assert!(
        is_error(&after) && after.content.contains("the conversation was closed"),
        "{after:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reference_server_works_over_streamable_http() {
    let Some(packages) = npm_packages() else {
        return;
    };
    let (_child, port) = start_listening(&packages, "streamableHttp").await;
    let transport = Transport::StreamableHttp(remote(&format!("http://127.0.0.1:{port}/mcp")));
    call_everything(server("everything", transport))
        .await
        .shut_down()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reference_server_works_over_sse() {
    let Some(packages) = npm_packages() else {
        return;
    };
    let (_child, port) = start_listening(&packages, "sse").await;
    let transport = Transport::Sse(remote(&format!("http://127.0.0.1:{port}/sse")));
    call_everything(server("everything", transport))
        .await
        .shut_down()
        .await;
}

/// Starts the server on a port that was free before. Tries again if another process has taken the
/// port.
async fn start_listening(packages: &Path, transport: &str) -> (Child, u16) {
    for _ in 0..5 {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mut node = Command::new("node");
        node.arg(everything(packages))
            .arg(transport)
            .env("PORT", port.to_string())
            .kill_on_drop(true);
        let mut child = node
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut is_open = false;
        wait_until("the server listens or has exited", || {
            is_open = std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
            is_open || child.try_wait().unwrap().is_some()
        })
        .await;
        if is_open {
            return (child, port);
        }
    }
    panic!("every port was taken by another process");
}

#[tokio::test(flavor = "multi_thread")]
async fn python_server_starts_when_another_server_fails() {
    let Some(packages) = pypi_packages() else {
        return;
    };
    let mut python = program(
        "python3",
        &["-m", "mcp_server_time", "--local-timezone", "UTC"],
    );
    python.env.insert(
        "PYTHONPATH".into(),
        packages.to_str().unwrap().to_owned().into(),
    );
    let missing = server(
        "missing",
        Transport::Host(program("/nowhere/to-be-found", &[])),
    );
    let servers = servers(vec![missing, server("time", Transport::Host(python))]);
    let offer = servers.offer(None).await;
    assert_eq!(names(&offer), ["get_current_time", "convert_time"]);
    assert_eq!(offer.failures.len(), 1);
    assert!(
        offer.failures[0]
            .reason
            .starts_with("cannot start /nowhere/to-be-found: No such file"),
        "{offer:?}"
    );
    let time = call(
        &servers,
        "get_current_time",
        json!({"timezone": "Europe/Berlin"}),
    )
    .await;
    assert!(
        time.content.contains("Europe/Berlin") && !is_error(&time),
        "{time:?}"
    );
    let failed = call(&servers, "get_current_time", json!({"timezone": "Nowhere"})).await;
    assert!(
        failed.content.starts_with("The tool failed: "),
        "{failed:?}"
    );
    servers.shut_down().await;
}

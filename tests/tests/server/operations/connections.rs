//! Clients that open many connections.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::json;
use tests::glovebox::{Home, TEST_TIMEOUT, finish};
use tests::host_server::{HostServer, is_state};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

/// Descriptors of the server. A quarter of half of them are for the connections of one client.
const DESCRIPTORS: usize = 256;

/// Sends a request from an address of the loopback network. Returns the response; empty if the
/// connection is closed.
async fn request_from(address: &str, server: SocketAddr, path: &str, key: &str) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind(SocketAddr::new(address.parse().unwrap(), 0))
        .unwrap();
    let mut stream = socket.connect(server).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Session-API-Key: {key}\r\nConnection: close\r\n\r\n"
    );
    let mut response = Vec::new();
    if stream.write_all(head.as_bytes()).await.is_ok() {
        // Fails if the server resets the connection.
        let _ = stream.read_to_end(&mut response).await;
    }
    String::from_utf8(response).unwrap()
}

#[tokio::test]
async fn idle_connections_of_one_client_leave_descriptors() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let glovebox = home.glovebox(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--runtime",
        "local",
        "--model",
        &model,
    ]);
    let mut command = Command::new("prlimit");
    command
        .arg(format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}"))
        .arg(glovebox.get_program());
    command
        .args(glovebox.get_args())
        .current_dir(home.path())
        .env_clear();
    command.envs(
        glovebox
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let server = HostServer::from_command(&home, &mut command);
    let address: SocketAddr = server.url.strip_prefix("http://").unwrap().parse().unwrap();
    // Before the flood, because the requests of this test have the same address.
    let id = server.create("Finish.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;

    let mut idle = Vec::new();
    for _ in 0..4 * DESCRIPTORS {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.3:0".parse().unwrap()).unwrap();
        idle.push(socket.connect(address).await.unwrap());
    }
    let path = format!("/api/conversations/{id}/events");
    let others = async {
        for _ in 0..20 {
            let response = request_from("127.0.0.2", address, &path, &server.key).await;
            assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, others)
        .await
        .expect("other clients are served");
    let refused = request_from("127.0.0.3", address, "/alive", "").await;
    assert_eq!(
        refused, "",
        "the client has as many connections as one may have"
    );
    drop(idle);
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    home.assert_nothing_runs();
}

//! The key: required by all routes except `/alive`, and not visible to processes in the sandbox.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request};
use protocol::sandbox_api::KEY_HEADER;

use crate::harness::TestServer;
use crate::skip::{Requirement, skip};

const KEY: &str = "canary-5e1f0a";

#[tokio::test(flavor = "multi_thread")]
async fn every_route_but_alive_requires_the_key() {
    let server = TestServer::start_with_key(KEY);
    let routes = [
        ("GET", "/v1/info"),
        ("GET", "/v1/openapi.json"),
        ("POST", "/v1/actions/a"),
        ("GET", "/v1/actions/a"),
        ("DELETE", "/v1/actions/a"),
        ("POST", "/execute_action"),
        ("GET", "/nowhere"),
    ];
    for (method, path) in routes {
        for key in [
            None,
            Some(""),
            Some("canary-5e1f0b"),
            Some("canary"),
            Some("canary-5e1f0a0"),
        ] {
            let mut request = Request::builder()
                .method(method)
                .uri(path)
                .header("host", "sandbox");
            if let Some(key) = key {
                request = request.header(KEY_HEADER, key);
            }
            let reply = server
                .send_request(request.body(Full::<Bytes>::default()).unwrap())
                .await;
            assert_eq!(
                (reply.status, reply.json()["code"].as_str()),
                (403, Some("forbidden")),
                "{method} {path}"
            );
        }
    }
    let open = Request::get("/alive")
        .header("host", "sandbox")
        .body(Full::default())
        .unwrap();
    assert_eq!(server.send_request(open).await.status, 200);
    assert_eq!(server.send(Method::GET, "/v1/info", "").await.status, 200);
    let document = server.send(Method::GET, "/v1/openapi.json", "").await;
    assert_eq!(
        (document.status, document.header("content-type")),
        (200, "application/json")
    );
    assert_eq!(document.body, include_str!("../../openapi.json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_head_request_has_no_body() {
    let server = TestServer::start_with_key(KEY);
    let head = Request::head("http://sandbox/v1/info")
        .body(Full::<Bytes>::default())
        .unwrap();
    let refused = server.http2().await.send_request(head).await.unwrap();
    assert_eq!(refused.status(), 403);
    assert_eq!(refused.into_body().collect().await.unwrap().to_bytes(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_cannot_find_the_key() {
    let server = TestServer::start_with_key(KEY);
    let look =
        "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; cat <&0";
    let answer = server
        .run(
            "a",
            &format!("({look}) </dev/null | grep -c '^canary-' ; true"),
        )
        .await;
    assert_eq!(answer.text().trim(), "0");
}

/// As another user, tries to read our processes in `/proc`, their memory and the socket.
const INSPECT_AS_USER: &str = r#"
for pid in $SERVER $SUPERVISOR; do
    for file in /proc/$pid/environ /proc/$pid/cmdline /proc/$pid/fd/*; do
        timeout 1 head -c 100000 "$file" 2>/dev/null </dev/null
    done
done | grep -c "[c]anary-"
head -c 1 "/proc/$SERVER/mem" 2>/dev/null && echo memory
ls "/proc/$SERVER/fd" >/dev/null 2>&1 && echo descriptors
ls "$(dirname "$SOCKET")" >/dev/null 2>&1 && echo folder
test -w "$SOCKET" && echo socket
echo looked
"#;

#[tokio::test(flavor = "multi_thread")]
async fn other_user_cannot_read_key_socket_or_memory() {
    if !nix::unistd::geteuid().is_root() {
        return skip(
            Requirement::Root,
            "only root can start processes as another user",
        );
    }
    let server = TestServer::start_with_key(KEY);
    std::fs::write(server.file("look"), INSPECT_AS_USER).unwrap();
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    let child = std::fs::read_to_string(children).unwrap();
    let environment = format!(
        "SERVER={} SUPERVISOR={} SOCKET={}",
        child.trim(),
        server.pid(),
        server.socket().display()
    );
    let look = |user: &str| {
        format!("{environment} setpriv --reuid={user} --regid={user} --clear-groups sh <look")
    };
    let answer = server.run("a", &look("65534")).await;
    assert_eq!(answer.text().trim(), "0\nlooked");
    // Root can read them, which shows that the script works.
    let answer = server.run("b", &look("0")).await;
    assert!(
        answer.text().contains("folder\nsocket\nlooked"),
        "{}",
        answer.text()
    );
}

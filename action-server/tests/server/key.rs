//! The key: asked for everywhere but at `/alive`, and nowhere to be found by what the server runs.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};
use protocol::sandbox_api::KEY_HEADER;

use crate::harness::Server;

const KEY: &str = "canary-5e1f0a";

#[tokio::test(flavor = "multi_thread")]
async fn everything_but_alive_needs_the_key() {
    let server = Server::start_with_key(KEY);
    let routes = [
        ("GET", "/v1/info"),
        ("POST", "/v1/actions/a"),
        ("GET", "/v1/actions/a"),
        ("DELETE", "/v1/actions/a"),
        ("POST", "/execute_action"),
        ("GET", "/nowhere"),
    ];
    for (method, path) in routes {
        for key in [None, Some(""), Some("canary-5e1f0b"), Some("canary"), Some("canary-5e1f0a0")] {
            let mut request = Request::builder().method(method).uri(path).header("host", "sandbox");
            if let Some(key) = key {
                request = request.header(KEY_HEADER, key);
            }
            let reply = server.send_request(request.body(Full::<Bytes>::default()).unwrap()).await;
            assert_eq!(
                (reply.status, reply.json()["code"].as_str()),
                (403, Some("forbidden")),
                "{method} {path}"
            );
        }
    }
    let open = Request::get("/alive").header("host", "sandbox").body(Full::default()).unwrap();
    assert_eq!(server.send_request(open).await.status, 200);
    assert_eq!(server.send(Method::GET, "/v1/info", "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_cannot_find_the_key() {
    let server = Server::start_with_key(KEY);
    let look = "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; cat <&0";
    let answer = server.run("a", &format!("({look}) </dev/null | grep -c '^canary-' ; true")).await;
    assert_eq!(answer.text().trim(), "0");
}

//! Files of a workspace in Glovebox's own API: what the contract of the service cannot see.

use std::fs;
use std::os::unix::fs::symlink;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::glovebox::{Home, finish};
use tests::host_server::HostServer;

use super::files::Workspace;

/// Sends a request to a route below `files`.
async fn send(workspace: &Workspace, method: &str, route: &str, body: &str) -> (StatusCode, Value) {
    let path = format!("/api/v2/conversations/{}/files{route}", workspace.id);
    let request = workspace
        .server
        .request(method.parse().unwrap(), &path)
        .body(body.to_owned());
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, body)
}

/// A link is moved and removed itself, and none leads out of the workspace.
#[tokio::test]
async fn links_are_changed_and_not_what_they_name() {
    let home = Home::new();
    let outside = home.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    let workspace = Workspace::open(home).await;
    symlink(&outside, workspace.at("out")).unwrap();
    symlink("inside", workspace.at("in")).unwrap();
    fs::create_dir(workspace.at("inside")).unwrap();
    fs::write(workspace.at("inside/file"), "text").unwrap();
    for (method, route, body) in [
        ("GET", "?path=out", ""),
        ("GET", "/content?path=out/kept", ""),
        ("GET", "/content?path=out/kept&offset=1", ""),
        ("GET", "/archive?path=out", ""),
        ("PUT", "/content?path=out/new", "new"),
        ("PUT", "/content?path=out", "new"),
        ("POST", "/folder", r#"{"path": "out/new"}"#),
        ("POST", "/move", r#"{"from": "out/kept", "to": "stolen"}"#),
        (
            "POST",
            "/move",
            r#"{"from": "inside/file", "to": "out/new"}"#,
        ),
        ("DELETE", "?path=out/kept", ""),
        ("DELETE", "?path=out/&recursive=true", ""),
    ] {
        let (status, error) = send(&workspace, method, route, body).await;
        let is_link = route == "?path=out/&recursive=true";
        let expected = if is_link { 204 } else { 403 };
        assert_eq!(status, expected, "{method} {route} {body}: {error}");
    }
    assert!(!workspace.at("out").exists());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    let (status, page) = send(&workspace, "GET", "", "").await;
    assert_eq!(status, 200);
    let link = page["entries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["name"] == "in")
        .unwrap();
    assert_eq!(
        (&link["kind"], &link["target"]),
        (&json!("symlink"), &json!("inside"))
    );
    let (status, text) = send(&workspace, "GET", "/content?path=in/file", "").await;
    assert_eq!((status.as_u16(), text), (200, json!("text")));
    let moved = r#"{"from": "in", "to": "in2"}"#;
    assert_eq!(send(&workspace, "POST", "/move", moved).await.0, 204);
    assert_eq!(send(&workspace, "DELETE", "?path=in2", "").await.0, 204);
    assert_eq!(fs::read(workspace.at("inside/file")).unwrap(), b"text");
}

/// A browser stores content, and runs none of it.
#[tokio::test]
async fn content_is_an_attachment_with_its_name() {
    let workspace = Workspace::open(Home::new()).await;
    fs::write(workspace.at("a \"b\"\r.html"), "<script>").unwrap();
    for (route, kind, name) in [
        (
            "content?path=a%20%22b%22%0D.html",
            "application/octet-stream",
            "a%20%22b%22%0D%2Ehtml",
        ),
        ("archive", "application/zip", "workspace%2Ezip"),
    ] {
        let path = format!("/api/v2/conversations/{}/files/{route}", workspace.id);
        let request = workspace.server.request(Method::GET, &path);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        let headers = response.headers();
        let disposition = format!("attachment; filename*=UTF-8''{name}");
        assert_eq!(headers["content-type"], kind);
        assert_eq!(headers["content-disposition"], disposition);
        assert_eq!(headers["x-content-type-options"], "nosniff");
    }
}

/// Nothing is written of a body that is cut, and no request starts a conversation.
#[tokio::test]
async fn incomplete_body_and_closed_conversation_change_nothing() {
    let mut workspace = Workspace::open(Home::new()).await;
    fs::write(workspace.at("file"), "before").unwrap();
    let path = format!(
        "/api/v2/conversations/{}/files/content?path=file",
        workspace.id
    );
    let chunks = [Ok("after"), Err(std::io::Error::other("lost"))];
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    let request = workspace.server.request(Method::PUT, &path).body(body);
    assert!(request.send().await.is_err());
    assert_eq!(fs::read(workspace.at("file")).unwrap(), b"before");

    workspace.server.kill();
    let model = workspace.home.script(&json!([finish()]));
    workspace.server = HostServer::start(&workspace.home, &model, &[]);
    for (method, route, body) in [
        ("GET", "", ""),
        ("GET", "/content?path=file", ""),
        ("PUT", "/content?path=file", "after"),
        ("DELETE", "?path=file", ""),
        ("GET", "/archive", ""),
    ] {
        let (status, error) = send(&workspace, method, route, body).await;
        assert_eq!(status, 409, "{method} {route}: {error}");
    }
    assert_eq!(fs::read(workspace.at("file")).unwrap(), b"before");
}

//! Every route with every kind of path that is not beneath the root.

use std::fs;

use hyper::Method;
use serde_json::{Value, json};

use super::{ConfinedServer, SECRET, archive, is_in};

struct RouteRequest {
    method: Method,
    path: String,
    body: Vec<u8>,
}

fn get(path: String) -> RouteRequest {
    RouteRequest {
        method: Method::GET,
        path,
        body: Vec::new(),
    }
}

fn post(path: &str, body: Value) -> RouteRequest {
    RouteRequest {
        method: Method::POST,
        path: path.into(),
        body: body.to_string().into(),
    }
}

/// Returns requests of the routes that follow links.
fn behind_links(path: &str) -> Vec<RouteRequest> {
    vec![
        get(format!("/v1/files?path={path}")),
        RouteRequest {
            method: Method::PUT,
            path: format!("/v1/files?path={path}"),
            body: b"x".to_vec(),
        },
        get(format!("/v1/files/stat?path={path}&follow=true")),
        get(format!("/v1/files/list?path={path}&depth=3&hidden=true")),
        get(format!("/v1/files/glob?path={path}&pattern=*")),
        get(format!("/v1/files/grep?path={path}&pattern=.")),
        get(format!("/v1/files/tree?path={path}")),
        RouteRequest {
            method: Method::PUT,
            path: format!("/v1/files/tree?path={path}"),
            body: archive("x", "x"),
        },
        get(format!("/v1/files/watch?path={path}&recursive=true")),
        post(
            "/v1/files/chmod",
            json!({"path": path, "mode": "0777", "recursive": true}),
        ),
    ]
}

/// Returns requests of the routes that act on a link itself.
fn by_name(path: &str) -> Vec<RouteRequest> {
    vec![
        get(format!("/v1/files/stat?path={path}")),
        RouteRequest {
            method: Method::DELETE,
            path: format!("/v1/files?path={path}&recursive=true"),
            body: Vec::new(),
        },
        post(
            "/v1/files/mkdir",
            json!({"path": path, "parents": true, "mode": "0777"}),
        ),
        post("/v1/files/mkdir", json!({"path": path})),
        post(
            "/v1/files/move",
            json!({"from": path, "to": "stolen", "overwrite": true}),
        ),
        post(
            "/v1/files/move",
            json!({"from": "mine", "to": path, "overwrite": true}),
        ),
        post("/v1/files/move", json!({"from": "mine", "to": path})),
    ]
}

fn actions(path: &str) -> Vec<Value> {
    let edit = |command: &str| {
        json!({"action": "edit", "args": {"path": path, "command": command, "file_text": "x",
            "old_str": "content", "new_str": "x", "insert_line": 0, "impl_source": "oh_aci"}})
    };
    vec![
        json!({"action": "read", "args": {"path": path}}),
        json!({"action": "read", "args": {"path": path, "impl_source": "oh_aci"}}),
        json!({"action": "write", "args": {"path": path, "content": "x"}}),
        json!({"action": "write", "args": {"path": path, "content": "x", "start": 0, "end": 1}}),
        edit("view"),
        edit("create"),
        edit("str_replace"),
        edit("insert"),
        edit("undo_edit"),
    ]
}

/// Creates links that lead out, and a file and folder beneath the root.
fn start() -> ConfinedServer {
    let confined = ConfinedServer::start();
    let outside = confined.outside();
    fs::write(confined.server.file("mine"), "mine").unwrap();
    fs::create_dir_all(confined.server.file("deep/er")).unwrap();
    confined.link(outside.join("f"), "file");
    confined.link("../../outside/f", "relative-file");
    confined.link("relative-file", "chain");
    confined.link(&outside, "folder");
    confined.link("../../outside", "relative-folder");
    confined.link("../relative-folder", "deep/up");
    confined.link(outside.join("new"), "dangling");
    confined.link("../../outside/new", "relative-dangling");
    confined.link("/proc/self/root", "magic");
    // The target is beneath the root, but the path to it is not.
    confined.link(confined.server.file("mine"), "absolute");
    confined
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_reaches_a_path_outside_the_root() {
    let confined = start();
    let (root, outside) = (confined.root(), confined.outside());
    let (root, outside) = (root.display(), outside.display());
    let before = confined.outside_state();
    let through = [
        "../../outside/f".to_owned(),
        "../../outside/new".to_owned(),
        format!("{outside}/f"),
        format!("{outside}"),
        format!("{root}/../outside/f"),
        format!("{root}/../root/../outside/SECRET-folder"),
        format!("{root}side/f"),
        "deep/../../../outside/f".to_owned(),
        "folder/f".to_owned(),
        "folder/SECRET-folder/f".to_owned(),
        "relative-folder/f".to_owned(),
        "relative-folder/new/and/deeper".to_owned(),
        "deep/up/f".to_owned(),
        "deep/er/../up/SECRET-folder".to_owned(),
        "dangling/below".to_owned(),
        "relative-dangling/below".to_owned(),
        "magic/etc/passwd".to_owned(),
        "absolute/../mine".to_owned(),
        "/".to_owned(),
        "/proc/self/root".to_owned(),
    ];
    let at_links = [
        "file",
        "relative-file",
        "chain",
        "folder",
        "relative-folder",
        "deep/up",
        "dangling",
        "relative-dangling",
        "magic",
        "absolute",
    ];
    let behind = through.iter().map(String::as_str).chain(at_links);
    let requests = behind.clone().flat_map(behind_links);
    let mut count = 0;
    for RouteRequest { method, path, body } in
        requests.chain(through.iter().flat_map(|path| by_name(path)))
    {
        let named = format!("{method} {path} {}", String::from_utf8_lossy(&body));
        let refused = confined.ask(method, &path, body).await;
        assert_eq!(refused.status, 403, "{named}: {:?}", refused.body);
        let error = refused.json();
        assert_eq!(error["code"], "outside_root", "{named}: {error}");
        assert!(
            !error["detail"].as_str().unwrap().contains("/proc/self/fd"),
            "{named}: {error}"
        );
        count += 1;
    }
    assert_eq!(count, 30 * 10 + 20 * 7);
    for path in behind {
        for action in actions(path) {
            let observation = confined.act(action.clone()).await;
            assert!(
                observation.contains("is not beneath the root"),
                "{action}: {observation}"
            );
            assert!(
                !observation.contains(SECRET) || path.contains(SECRET),
                "{action}: {observation}"
            );
            assert!(
                !observation.contains("/proc/self/fd"),
                "{action}: {observation}"
            );
        }
    }
    assert_eq!(confined.outside_state(), before);
    assert_eq!(fs::read(confined.server.file("mine")).unwrap(), b"mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn link_out_of_the_root_can_itself_be_moved_and_removed() {
    let confined = start();
    let before = confined.outside_state();
    let status = confined
        .ask(Method::GET, "/v1/files/stat?path=relative-folder", "")
        .await;
    assert_eq!(
        (status.status, &status.json()["kind"]),
        (200, &json!("symlink"))
    );
    assert_eq!(status.json()["target"], "../../outside");
    assert_eq!(
        confined
            .post(
                "/v1/files/mkdir",
                json!({"path": "folder", "parents": true})
            )
            .await
            .status,
        409
    );
    let moved = confined
        .post("/v1/files/move", json!({"from": "folder", "to": "moved"}))
        .await;
    assert_eq!(
        (moved.status, &moved.json()["kind"]),
        (200, &json!("symlink"))
    );
    let over = json!({"from": "mine", "to": "file", "overwrite": true});
    assert_eq!(confined.post("/v1/files/move", over).await.status, 200);
    assert_eq!(fs::read(confined.server.file("file")).unwrap(), b"mine");
    for link in ["moved", "relative-folder", "dangling"] {
        let removed = confined
            .ask(
                Method::DELETE,
                &format!("/v1/files?path={link}&recursive=true"),
                "",
            )
            .await;
        assert_eq!(removed.status, 204, "{link}");
        assert!(
            fs::symlink_metadata(confined.server.file(link)).is_err(),
            "{link}"
        );
    }
    assert_eq!(confined.outside_state(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn recursive_operations_skip_links_out_of_the_root() {
    let confined = start();
    // If their lines were used as patterns, the result would reveal which names match.
    confined.link("../../outside/f", ".ignore");
    fs::write(confined.outside().join("f"), "mine\nSECRET\n").unwrap();
    let before = confined.outside_state();
    for path in [
        "/v1/files/list?path=&depth=9&hidden=true",
        "/v1/files/glob?path=&pattern=**",
        "/v1/files/glob?path=&pattern=**&hidden=true&ignored=true",
        "/v1/files/grep?path=&pattern=.&hidden=true&ignored=true",
        "/v1/files/tree?path=",
    ] {
        let result = confined.ask(Method::GET, path, "").await;
        assert_eq!(result.status, 200, "{path}: {:?}", result.body);
        assert!(is_in("mine", &result.body), "{path}: {:?}", result.body);
        assert!(!is_in(SECRET, &result.body), "{path}: {:?}", result.body);
    }
    let view = json!({"action": "read", "args": {"path": ".", "impl_source": "oh_aci"}});
    let viewed = confined.act(view).await;
    assert!(
        viewed.contains("/mine") && viewed.contains("/relative-folder"),
        "{viewed}"
    );
    // The error does not even reveal whether it is a folder.
    assert!(
        !viewed.contains("/relative-folder/") && !viewed.contains(SECRET),
        "{viewed}"
    );
    let changed = json!({"path": ".", "mode": "0700", "recursive": true});
    assert_eq!(confined.post("/v1/files/chmod", changed).await.status, 200);
    let unpacked = confined
        .ask(
            Method::PUT,
            "/v1/files/tree?path=",
            archive("relative-file", "x"),
        )
        .await;
    assert_eq!(unpacked.status, 204, "{:?}", unpacked.body);
    assert_eq!(
        fs::read(confined.server.file("relative-file")).unwrap(),
        b"x"
    );
    let removed = confined
        .ask(Method::DELETE, "/v1/files?path=deep&recursive=true", "")
        .await;
    assert_eq!(removed.status, 204);
    assert_eq!(confined.outside_state(), before);
}

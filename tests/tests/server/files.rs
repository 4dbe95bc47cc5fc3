//! Files of a conversation's workspace.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use reqwest::{Method, Response, StatusCode, Url};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish, wait_until};
use tests::host_server::{HostServer, is_state};

use crate::skip::skip_without;

/// The boundary of multipart bodies.
const BOUNDARY: &str = "test-boundary";

/// A running conversation in the home's workspace, with its server.
pub(super) struct Workspace {
    pub(super) home: Home,
    pub(super) server: HostServer,
    pub(super) id: String,
}

impl Workspace {
    /// Starts a conversation, whose agent has finished, in the folder that `home.workspace()` has.
    pub(super) async fn open(home: Home) -> Self {
        Self::open_with(home, json!({"initial_user_msg": "Finish."})).await
    }

    /// Starts the conversation with a request.
    pub(super) async fn open_with(home: Home, request: Value) -> Self {
        let config = format!(
            "[core]\nworkspace_base = \"{}\"\n",
            home.workspace().display()
        );
        home.write(".glovebox/config.toml", config);
        let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
        let created = server.post("/api/conversations", &request).await;
        let id = created["conversation_id"].as_str().unwrap().to_owned();
        server
            .wait_for_event(&id, |event| is_state(event, "finished"))
            .await;
        Self { home, server, id }
    }

    /// Returns a path in the workspace on this machine.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.home.workspace().join(name)
    }

    /// Gets a route of the conversation with a parameter of the query.
    pub(super) async fn get(&self, route: &str, query: &[(&str, &str)]) -> (StatusCode, Value) {
        let response = self.response(route, query).await;
        let status = response.status();
        (status, response.json().await.unwrap())
    }

    async fn response(&self, route: &str, query: &[(&str, &str)]) -> Response {
        self.server
            .request(Method::GET, &path(&self.id, route, query))
            .send()
            .await
            .unwrap()
    }

    /// Uploads files, and returns the response.
    async fn upload(&self, files: &[(&str, &[u8])]) -> (StatusCode, Value) {
        let mut body = Vec::new();
        for (name, content) in files {
            let head = format!(
                "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"files\"; filename=\"{name}\"\r\n\r\n"
            );
            body.extend([head.as_bytes(), content, b"\r\n"].concat());
        }
        body.extend(format!("--{BOUNDARY}--\r\n").bytes());
        self.upload_body(body).await
    }

    async fn upload_body(&self, body: Vec<u8>) -> (StatusCode, Value) {
        let path = format!("/api/conversations/{}/upload-files", self.id);
        let request = self.server.request(Method::POST, &path);
        let request = request.header(
            "content-type",
            format!("multipart/form-data; boundary={BOUNDARY}"),
        );
        let response = request.body(body).send().await.unwrap();
        let status = response.status();
        (status, response.json().await.unwrap())
    }
}

/// Returns the path and the query of a conversation's route.
fn path(id: &str, route: &str, query: &[(&str, &str)]) -> String {
    let url = format!("http://localhost/api/conversations/{id}/{route}");
    let url = Url::parse_with_params(&url, query).unwrap();
    format!("{}?{}", url.path(), url.query().unwrap_or_default())
}

fn make_pipe(path: PathBuf) {
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

#[tokio::test]
async fn folder_is_listed_in_v0s_order_without_ignored_files() {
    let home = Home::new();
    for folder in [
        ".git",
        "node_modules",
        ".venv",
        "build",
        "Src",
        "docs/node_modules",
        "docs/build",
    ] {
        fs::create_dir_all(home.workspace().join(folder)).unwrap();
    }
    for file in [
        "b.txt",
        "A.txt",
        ".hidden",
        "x.log",
        ".DS_Store",
        "docs/y.log",
        "docs/z",
        "docs/Z",
    ] {
        fs::write(home.workspace().join(file), "").unwrap();
    }
    fs::write(home.workspace().join(".gitignore"), "*.log\n/build/\n").unwrap();
    symlink("docs", home.workspace().join("to-docs")).unwrap();
    symlink("nowhere", home.workspace().join("dangling")).unwrap();
    let workspace = Workspace::open(home).await;
    let root = json!([
        "docs/",
        "Src/",
        "to-docs/",
        ".gitignore",
        ".hidden",
        "A.txt",
        "b.txt"
    ]);
    assert_eq!(
        workspace.get("list-files", &[]).await,
        (StatusCode::OK, root.clone())
    );
    assert_eq!(workspace.get("list-files", &[("path", "")]).await.1, root);
    let docs = json!(["docs/build/", "docs/node_modules/", "docs/Z", "docs/z"]);
    assert_eq!(
        workspace.get("list-files", &[("path", "docs")]).await.1,
        docs
    );
    assert_eq!(
        workspace.get("list-files", &[("path", "docs/")]).await.1,
        docs
    );
    assert_eq!(
        workspace.get("list-files", &[("path", "Src")]).await.1,
        json!([])
    );
    let linked = workspace.get("list-files", &[("path", "to-docs")]).await.1;
    assert_eq!(linked[0], "to-docs/build/");
    assert_eq!(
        workspace.get("list-files", &[("path", "none")]).await.0,
        404
    );
    assert_eq!(
        workspace.get("list-files", &[("path", "b.txt")]).await.0,
        400
    );
}

#[tokio::test]
async fn list_of_many_files_is_truncated_and_says_so() {
    let home = Home::new();
    for number in 0..10_001 {
        fs::write(home.workspace().join(format!("{number:05}")), "").unwrap();
    }
    let workspace = Workspace::open(home).await;
    let response = workspace.response("list-files", &[]).await;
    assert_eq!(response.headers()["x-truncated"], "true");
    let names: Vec<String> = response.json().await.unwrap();
    assert_eq!((names.len(), names[9_999].as_str()), (10_000, "09999"));
    fs::remove_file(workspace.at("10000")).unwrap();
    assert!(
        workspace
            .response("list-files", &[])
            .await
            .headers()
            .get("x-truncated")
            .is_none()
    );
}

#[tokio::test]
async fn text_is_shown_and_other_files_are_rejected() {
    let home = Home::new();
    let page = "<script>alert(1)</script>\r\nä";
    fs::write(home.workspace().join("page.html"), page).unwrap();
    fs::write(home.workspace().join("empty"), "").unwrap();
    fs::write(home.workspace().join("binary"), b"a\0b").unwrap();
    fs::write(home.workspace().join("latin1"), b"\xe4").unwrap();
    fs::write(home.workspace().join("long"), "x".repeat((8 << 20) + 1)).unwrap();
    fs::create_dir(home.workspace().join("folder")).unwrap();
    make_pipe(home.workspace().join("pipe"));
    symlink("page.html", home.workspace().join("link")).unwrap();
    let workspace = Workspace::open(home).await;
    let response = workspace
        .response("select-file", &[("file", "page.html")])
        .await;
    let headers = response.headers().clone();
    assert_eq!(
        response.json::<Value>().await.unwrap(),
        json!({"code": page})
    );
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    let absolute = workspace.at("page.html").display().to_string();
    for name in ["link", "./page.html", "folder/../page.html", &absolute] {
        assert_eq!(
            workspace.get("select-file", &[("file", name)]).await.1,
            json!({"code": page}),
            "{name}"
        );
    }
    assert_eq!(
        workspace.get("select-file", &[("file", "empty")]).await.1,
        json!({"code": ""})
    );
    for (name, status, code) in [
        ("binary", 415, "FILE$BINARY"),
        ("latin1", 415, "FILE$BINARY"),
        ("long", 413, "FILE$TOO_LARGE"),
        ("folder", 400, "FILE$WRONG_KIND"),
        ("pipe", 400, "FILE$WRONG_KIND"),
        ("", 400, "FILE$WRONG_KIND"),
        ("none", 404, "FILE$NOT_FOUND"),
        ("page.html/none", 404, "FILE$NOT_FOUND"),
    ] {
        let (is, body) = workspace.get("select-file", &[("file", name)]).await;
        assert_eq!(
            (is.as_u16(), &body["msg_id"]),
            (status, &json!(code)),
            "{name}: {body}"
        );
        assert!(body["error"].is_string());
    }
    assert_eq!(workspace.get("select-file", &[]).await.0, 422);
}

#[tokio::test]
async fn paths_and_links_out_of_the_workspace_are_rejected() {
    let home = Home::new();
    let secret = home.write("secret", "secret");
    let at = |name: &str| home.workspace().join(name);
    symlink(&secret, at("absolute")).unwrap();
    symlink("../secret", at("relative")).unwrap();
    symlink("relative", at("second")).unwrap();
    symlink("..", at("folder")).unwrap();
    symlink("/proc/self/root", at("magic")).unwrap();
    symlink("loop", at("loop")).unwrap();
    let workspace = Workspace::open(home).await;
    let outside = secret.display().to_string();
    let sibling = format!("{}-other/x", workspace.home.workspace().display());
    for path in [
        "../secret",
        "..",
        "a/../../secret",
        "/etc/passwd",
        "/",
        &outside,
        &sibling,
        "absolute",
        "relative",
        "second",
        "folder/secret",
        "folder",
        "magic/etc/passwd",
        "loop",
        "none/../../secret",
    ] {
        for (route, name) in [
            ("select-file", "file"),
            ("list-files", "path"),
            ("git/diff", "path"),
        ] {
            let (status, body) = workspace.get(route, &[(name, path)]).await;
            assert_eq!(
                (status.as_u16(), &body["msg_id"]),
                (403, &json!("FILE$OUTSIDE_WORKSPACE")),
                "{route} {path}"
            );
        }
        let (status, body) = workspace.upload(&[(path, b"overwritten")]).await;
        assert_eq!(
            (status.as_u16(), &body["uploaded_files"]),
            (200, &json!([])),
            "{path}"
        );
        assert_eq!(body["skipped_files"][0]["name"], *path, "{body}");
    }
    for path in ["a\0b", &"x/".repeat(65), &"x".repeat(4097)] {
        let (status, body) = workspace.get("select-file", &[("file", path)]).await;
        assert_eq!(
            (status.as_u16(), &body["msg_id"]),
            (400, &json!("FILE$INVALID_PATH"))
        );
    }
    assert_eq!(fs::read_to_string(secret).unwrap(), "secret");
}

#[tokio::test]
async fn uploads_are_stored_and_unusable_names_skipped() {
    let home = Home::new();
    fs::create_dir(home.workspace().join("folder")).unwrap();
    fs::write(home.workspace().join("old"), "old").unwrap();
    let workspace = Workspace::open(home).await;
    let large = (0..3 << 20)
        .map(|number: u32| number.to_le_bytes()[0])
        .collect::<Vec<_>>();
    let files: [(&str, &[u8]); 6] = [
        ("new", b"new"),
        ("old", b"a\0b"),
        ("deep/er/x", b""),
        ("large", &large),
        ("folder", b"x"),
        ("", b"x"),
    ];
    let (status, body) = workspace.upload(&files).await;
    assert_eq!(status, 200, "{body}");
    let path = |name| json!(workspace.at(name));
    assert_eq!(
        body["uploaded_files"],
        json!([path("new"), path("old"), path("deep/er/x"), path("large")])
    );
    let skipped = body["skipped_files"].as_array().unwrap();
    assert_eq!(
        skipped.iter().map(|file| &file["name"]).collect::<Vec<_>>(),
        ["folder", ""]
    );
    assert!(skipped.iter().all(|file| file["reason"].is_string()));
    assert_eq!(fs::read(workspace.at("old")).unwrap(), b"a\0b");
    assert_eq!(fs::read(workspace.at("large")).unwrap(), large);
    assert!(
        fs::read_dir(workspace.at("folder"))
            .unwrap()
            .next()
            .is_none()
    );
    assert_eq!(
        workspace.upload(&[]).await.1,
        json!({"uploaded_files": [], "skipped_files": []})
    );
}

#[tokio::test]
async fn incomplete_upload_is_rejected_and_stores_nothing() {
    let workspace = Workspace::open(Home::new()).await;
    let head = "content-disposition: form-data; name=\"files\"; filename=\"part\"\r\n\r\n";
    for body in [
        format!("--{BOUNDARY}\r\n{head}content"),
        format!("--{BOUNDARY}\r\n"),
        "x".to_owned(),
    ] {
        assert_eq!(
            workspace.upload_body(body.clone().into_bytes()).await.0,
            400,
            "{body}"
        );
    }
    let other = head.replace("files", "other");
    let other = format!("--{BOUNDARY}\r\n{other}content\r\n--{BOUNDARY}--\r\n");
    let (status, body) = workspace.upload_body(other.into_bytes()).await;
    assert_eq!((status.as_u16(), &body["field"]), (400, &json!("other")));
    let path = format!("/api/conversations/{}/upload-files", workspace.id);
    assert_eq!(
        workspace
            .server
            .send(Method::POST, &path, Some(&json!({})))
            .await
            .0,
        400
    );
    // The action server removes its draft once it sees the end of the request.
    wait_until("nothing is left", || {
        fs::read_dir(workspace.home.workspace())
            .unwrap()
            .next()
            .is_none()
    });
    assert_eq!(workspace.get("list-files", &[]).await.1, json!([]));
}

/// V0's page opens a conversation when the user looks at it, and loses the message of a file that
/// is refused.
#[tokio::test]
async fn file_is_uploaded_to_a_conversation_that_is_opened_again() {
    let mut workspace = Workspace::open(Home::new()).await;
    workspace.server.kill();
    workspace.server = HostServer::start(
        &workspace.home,
        &workspace.home.script(&json!([finish()])),
        &[],
    );
    let start = format!("/api/conversations/{}/start", workspace.id);
    workspace
        .server
        .post(&start, &json!({"providers_set": []}))
        .await;
    let (status, body) = workspace.upload(&[("new.txt", b"new")]).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(fs::read(workspace.at("new.txt")).unwrap(), b"new");
}

#[tokio::test]
async fn files_before_a_broken_part_are_named() {
    let workspace = Workspace::open(Home::new()).await;
    let head = |name: &str| {
        format!(
            "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"files\"; filename=\"{name}\"\r\n\r\n"
        )
    };
    // A folder's name is skipped, with its content.
    let whole = format!(
        "{}first\r\n{}{}\r\n",
        head("first"),
        head("."),
        "x".repeat(1 << 20)
    );
    let long = head("long").replace(
        "\r\n\r\n",
        &format!("\r\nx-long: {}\r\n\r\n", "x".repeat(4 << 20)),
    );
    for broken in [
        format!("{}second", head("second")),
        head("other").replace("files", "other"),
        long,
    ] {
        let (status, body) = workspace
            .upload_body(format!("{whole}{broken}").into_bytes())
            .await;
        assert_eq!(
            (status.as_u16(), &body["msg_id"]),
            (400, &json!("API$INVALID_REQUEST")),
            "{body}"
        );
        assert_eq!(
            body["uploaded_files"].as_array().unwrap().len(),
            1,
            "{body}"
        );
        assert_eq!(body["skipped_files"][0]["name"], ".", "{body}");
    }
    assert_eq!(workspace.get("list-files", &[]).await.1, json!(["first"]));
}

#[tokio::test]
async fn link_to_the_workspace_is_listed() {
    let home = Home::new();
    fs::write(home.workspace().join("file"), "").unwrap();
    symlink(".", home.workspace().join("own")).unwrap();
    symlink(home.workspace(), home.workspace().join("absolute")).unwrap();
    let workspace = Workspace::open(home).await;
    for path in ["own", "absolute", "own/absolute", "own/own/"] {
        let (status, names) = workspace.get("list-files", &[("path", path)]).await;
        let file = format!("{}/file", path.trim_end_matches('/'));
        assert!(
            status == 200 && names.as_array().unwrap().contains(&json!(file)),
            "{path}: {names}"
        );
    }
}

#[tokio::test]
async fn zip_has_the_files_of_the_workspace() {
    if skip_without("python3") || skip_without("unzip") {
        return;
    }
    let home = Home::new();
    let at = |name: &str| home.workspace().join(name);
    fs::create_dir_all(at(".git/empty")).unwrap();
    fs::write(at("ä b"), "text").unwrap();
    fs::write(at(".git/config"), "x".repeat(1 << 20)).unwrap();
    fs::write(at("back\\slash"), "").unwrap();
    make_pipe(at("pipe"));
    symlink("../secret", at("out")).unwrap();
    symlink("ä b", at("in")).unwrap();
    home.write("secret", "secret");
    let workspace = Workspace::open(home).await;
    let response = workspace.response("zip-directory", &[]).await;
    let headers = response.headers().clone();
    assert_eq!(headers["content-type"], "application/zip");
    assert_eq!(
        headers["content-disposition"],
        "attachment; filename=\"workspace.zip\""
    );
    assert_eq!(headers["x-content-type-options"], "nosniff");
    let file = workspace
        .home
        .write("workspace.zip", response.bytes().await.unwrap());
    let script = "import sys, zipfile, json; archive = zipfile.ZipFile(sys.argv[1]); assert archive.testzip() is None; \
                  print(json.dumps({name: archive.read(name).decode() for name in archive.namelist()}))";
    let output = Command::new("python3")
        .args(["-c", script])
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let entries: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!({
        ".git/": "", ".git/empty/": "", ".git/config": "x".repeat(1 << 20), "ä b": "text", "back_slash": "",
        "in": "ä b",
    });
    assert_eq!(entries, expected);
    // Info-ZIP reads it too, and creates the link.
    let unpacked = Command::new("unzip")
        .arg("-q")
        .arg(&file)
        .current_dir(workspace.home.path())
        .output();
    assert!(unpacked.as_ref().unwrap().status.success(), "{unpacked:?}");
    assert_eq!(
        fs::read_to_string(workspace.home.path().join("in")).unwrap(),
        "text"
    );
}

#[tokio::test]
async fn zip_ends_with_an_error_when_the_sandbox_ends() {
    let home = Home::new();
    // Incompressible, and more than what the buffers on the way hold.
    let mut number = 1_u32;
    let mut next = || {
        number ^= number << 13;
        number ^= number >> 17;
        number ^= number << 5;
        number.to_le_bytes()
    };
    let noise: Vec<u8> = (0..16 << 20).flat_map(|_| next()).collect();
    fs::write(home.workspace().join("noise"), noise).unwrap();
    let workspace = Workspace::open(home).await;
    let mut response = workspace.response("zip-directory", &[]).await;
    assert_eq!(response.status(), 200);
    response
        .chunk()
        .await
        .unwrap()
        .expect("the start of the archive");
    workspace
        .server
        .post(
            &format!("/api/conversations/{}/stop", workspace.id),
            &json!({}),
        )
        .await;
    let end = loop {
        match response.chunk().await {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert!(end.is_err(), "the client takes the archive for complete");
}

#[tokio::test]
async fn zip_is_cut_off_when_its_key_is_revoked() {
    let home = Home::new();
    home.write(
        ".glovebox/config.toml",
        format!(
            "[core]\nworkspace_base = \"{}\"\n",
            home.workspace().display()
        ),
    );
    // Incompressible, and more than what the buffers on the way hold.
    let noise = bash("head -c 50000000 /dev/urandom >noise");
    let server = HostServer::start(&home, &home.script(&json!([noise, finish()])), &[]);
    home.run(&["user", "add", "ada"]).expect(0);
    let (key, key_id) = home.add_key("ada", &[]);
    let work = json!({"initial_user_msg": "Work."});
    let (_, created) = server
        .send_as(&key, Method::POST, "/api/conversations", Some(&work))
        .await;
    let id = created["conversation_id"].as_str().unwrap();
    server
        .wait_for_event(id, |event| is_state(event, "finished"))
        .await;
    let zip = server.request_without_key(Method::GET, &path(id, "zip-directory", &[]));
    let mut response = zip.header("X-Session-API-Key", &key).send().await.unwrap();
    assert_eq!(response.status(), 200);
    home.run(&["user", "key", "revoke", &key_id]).expect(0);
    // The server checks the key every five seconds.
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let end = loop {
        match response.chunk().await {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert!(end.is_err(), "the client has the whole archive");
}

#[tokio::test]
async fn file_that_changes_while_it_is_read_is_text_or_an_error() {
    let workspace = Workspace::open(Home::new()).await;
    let path = workspace.at("log");
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = std::thread::spawn({
        let ended = std::sync::Arc::clone(&ended);
        move || {
            let mut number = 0;
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                number = (number + 7) % 64;
                fs::write(&path, "line\n".repeat(number * 20_000)).unwrap();
            }
        }
    });
    for _ in 0..50 {
        let (status, body) = workspace.get("select-file", &[("file", "log")]).await;
        match status.as_u16() {
            200 => assert!(body["code"].is_string()),
            404 => {}
            // The sandbox says that the file has changed, or breaks off.
            409 => assert_eq!(body["msg_id"], "SANDBOX$REFUSED"),
            _ => assert_eq!(
                (status.as_u16(), &body["msg_id"]),
                (503, &json!("SANDBOX$UNAVAILABLE"))
            ),
        }
    }
    // Complete, or an error.
    if let Ok(zip) = workspace.response("zip-directory", &[]).await.bytes().await {
        assert!(zip.windows(4).any(|bytes| bytes == b"PK\x05\x06"));
    }
    ended.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().unwrap();
}

#[tokio::test]
async fn reading_a_file_starts_nothing() {
    let workspace = Workspace::open(Home::new()).await;
    fs::write(workspace.at("a"), "a").unwrap();
    workspace
        .server
        .post(
            &format!("/api/conversations/{}/stop", workspace.id),
            &json!({}),
        )
        .await;
    let routes: [(&str, &[(&str, &str)]); 6] = [
        ("list-files", &[]),
        ("select-file", &[("file", "a")]),
        ("zip-directory", &[]),
        ("git/changes", &[]),
        ("git/diff", &[("path", "a")]),
        ("microagents", &[]),
    ];
    for (route, query) in routes {
        let (status, body) = workspace.get(route, query).await;
        assert_eq!(
            (status.as_u16(), &body["msg_id"]),
            (409, &json!("CONVERSATION$CONFLICT")),
            "{route}"
        );
        let unknown = workspace
            .server
            .send(Method::GET, &path("none", route, query), None)
            .await;
        assert_eq!(unknown.0, 404, "{route}");
        let path = format!("/api/conversations/{}/{route}", workspace.id);
        assert_eq!(
            workspace.server.status_with_key(&path, None).await,
            401,
            "{route}"
        );
    }
    assert_eq!(workspace.upload(&[("b", b"b")]).await.0, 409);
    let info = workspace
        .server
        .get(&format!("/api/conversations/{}", workspace.id))
        .await;
    assert_eq!(info["status"], "STOPPED");
    assert!(!workspace.at("b").exists());
}

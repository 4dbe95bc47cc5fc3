//! The command line, the key, open routes, the first requests of a client, and the format of
//! errors.

use std::fs;
use std::process::Stdio;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};
use serde_json::{Value, json};

use super::{KEY, V0Sandbox, content, exit_code, free_port};
use crate::harness::program;
use crate::skip::{Requirement, skip};

#[tokio::test(flavor = "multi_thread")]
async fn v0_client_connects_and_prepares_its_sandbox() {
    let sandbox = V0Sandbox::start();
    let alive = Request::get("/alive")
        .header("host", "sandbox")
        .body(Full::<Bytes>::default())
        .unwrap();
    let alive = sandbox.send(alive).await;
    assert_eq!((alive.status, alive.json()), (200, json!({"status": "ok"})));
    let cell = sandbox
        .act(json!({"action": "run_ipython", "args": {"code": "import os; os.environ['A'] = '1'"}, "timeout": 120}))
        .await;
    // Independent of this machine's IPython.
    if cell["observation"] == "run_ipython" {
        let done =
            "[Code executed successfully with no output]\n[Jupyter current working directory: ";
        assert!(content(&cell).starts_with(done), "{cell}");
        assert_eq!(
            (&cell["success"], &cell["extras"]["image_urls"]),
            (&json!(true), &json!(null))
        );
    } else {
        assert!(content(&cell).starts_with("A cell needs "), "{cell}");
        assert_eq!(cell["extras"], json!({"error_id": ""}));
    }
    let export = sandbox
        .run("export A=\"1\"; export B=\"two words\"; export HOME=\"$PWD\"")
        .await;
    assert_eq!(
        (exit_code(&export), export["success"].as_bool()),
        (0, Some(true))
    );
    let git = "git config --global user.name \"openhands\" && git config --global user.email \"a@b.dev\" && \
               export GIT_PAGER=\"cat\"";
    assert!([0, 127].contains(&exit_code(&sandbox.run(git).await)));
    assert_eq!(content(&sandbox.run("echo $A $B").await), "1 two words");
    assert_eq!(
        sandbox.get("/vscode/connection_token").await.json(),
        json!({"token": null})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_plugins_are_reported_with_status_200() {
    let sandbox = V0Sandbox::start();
    for (action, named) in [
        (
            json!({"action": "browse", "args": {"url": "http://x"}}),
            "browser",
        ),
        (
            json!({"action": "browse_interactive", "args": {"browser_actions": "noop()"}}),
            "browser",
        ),
        (
            json!({"action": "call_tool_mcp", "args": {"name": "x"}}),
            "mcp",
        ),
        (
            json!({"action": "think", "args": {"thought": "x"}}),
            "think",
        ),
    ] {
        let result = sandbox.act(action).await;
        assert_eq!(result["observation"], "error");
        assert!(content(&result).contains(named), "{result}");
    }
    let servers = json!([{"name": "fetch", "command": "uvx"}]);
    let result = sandbox.post("/update_mcp_server", servers).await;
    assert_eq!(result.status, 200);
    assert!(
        result.json()["router_error_log"]
            .as_str()
            .unwrap()
            .contains("not started: fetch"),
        "{result:?}"
    );
    let result = sandbox.post("/update_mcp_server", json!([])).await;
    assert_eq!(
        (result.status, result.json()["router_error_log"].as_str()),
        (200, Some(""))
    );
    assert_eq!(
        sandbox.post("/update_mcp_server", json!({})).await.status,
        400
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_but_alive_and_server_info_require_the_key() {
    let sandbox = V0Sandbox::start();
    let paths = [
        ("POST", "/execute_action"),
        ("POST", "/list_files"),
        ("POST", "/upload_file"),
        ("GET", "/download_files?path=/"),
        ("POST", "/update_mcp_server"),
        ("GET", "/vscode/connection_token"),
        ("GET", "/nowhere"),
    ];
    for (method, path) in paths {
        for key in [None, Some(""), Some("canary-7d21c5")] {
            let mut request = Request::builder()
                .method(method)
                .uri(path)
                .header("host", "sandbox");
            if let Some(key) = key {
                request = request.header("X-Session-API-Key", key);
            }
            let reply = sandbox
                .send(request.body(Full::<Bytes>::default()).unwrap())
                .await;
            let body = reply.json();
            assert_eq!(
                (reply.status, body.as_object().unwrap().len()),
                (403, 1),
                "{method} {path}"
            );
            assert!(body["detail"].is_string());
        }
    }
    let open = Request::get("/server_info")
        .header("host", "sandbox")
        .body(Full::<Bytes>::default())
        .unwrap();
    let info = sandbox.send(open).await;
    assert_eq!(info.status, 200);
    let info = info.json();
    let numbers = [
        "/uptime",
        "/idle_time",
        "/resources/cpu_percent",
        "/resources/memory/rss",
        "/resources/memory/vms",
        "/resources/memory/percent",
        "/resources/disk/total",
        "/resources/disk/used",
        "/resources/disk/free",
        "/resources/disk/percent",
        "/resources/io/read_bytes",
        "/resources/io/write_bytes",
    ];
    assert!(
        numbers
            .iter()
            .all(|path| info.pointer(path).is_some_and(Value::is_number)),
        "{info}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_time_is_reset_by_an_action() {
    let sandbox = V0Sandbox::start();
    sandbox.run("sleep 0.5").await;
    let info = sandbox.get("/server_info").await.json();
    let (uptime, idle) = (
        info["uptime"].as_f64().unwrap(),
        info["idle_time"].as_f64().unwrap(),
    );
    assert!(uptime - idle >= 0.5 && idle >= 0.0, "{info}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_request_is_refused_in_v0_s_format() {
    let sandbox = V0Sandbox::start();
    let run = |args: Value| json!({"action": {"action": "run", "args": args}});
    let mut table = vec![
        ("/execute_action", json!({}), 422, "action"),
        ("/execute_action", json!([]), 422, "action"),
        ("/execute_action", json!({"action": "run"}), 422, "action"),
        (
            "/execute_action",
            json!({"action": {"action": "dance"}}),
            400,
            "dance",
        ),
        (
            "/execute_action",
            json!({"action": {"observation": "run"}}),
            422,
            "action",
        ),
        ("/execute_action", run(json!({})), 422, "command"),
        (
            "/execute_action",
            run(json!({"command": 7})),
            422,
            "args.command",
        ),
        ("/list_files", json!([]), 422, "object"),
        ("/list_files", json!({"path": 7}), 422, "path"),
        ("/nowhere", json!({}), 404, "route"),
        ("/v1/info", json!({}), 404, "route"),
        ("/alive", json!({}), 405, ""),
    ];
    let late = json!({"action": {"action": "run", "args": {"command": "ls"}, "timeout": -1}});
    table.push(("/execute_action", late, 422, "timeout"));
    for (path, body, status, named) in table {
        let reply = sandbox.post(path, body.clone()).await;
        assert_eq!(reply.status, status, "{path} {body} {reply:?}");
        if path == "/alive" {
            continue;
        }
        let result = reply.json();
        let field = if status == 422 { "errors" } else { "detail" };
        assert!(
            result["detail"].is_string() && result.get("code").is_none(),
            "{result}"
        );
        assert!(
            result[field].as_str().unwrap().contains(named),
            "{path} {body} {result}"
        );
        assert_eq!(result.get("errors").is_some(), status == 422);
    }
    let reply = sandbox
        .send(sandbox.request(Method::POST, "/execute_action", "{"))
        .await;
    assert_eq!(
        (reply.status, reply.json()["detail"].is_string()),
        (400, true)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_v0_cannot_find_the_key() {
    let sandbox = V0Sandbox::start();
    let pid = sandbox.child.id();
    // Checked as root, who can read all processes.
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    assert!(
        !String::from_utf8_lossy(&environment).contains(&sandbox.key),
        "the launched process has the key"
    );
    let look =
        "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; cat <&0";
    // Split, so that the search does not find itself.
    let pattern = sandbox.key.replace("y-", "y[-]");
    let found = sandbox
        .run(&format!("({look}) </dev/null | grep -c '{pattern}'"))
        .await;
    assert_eq!(content(&found), "0", "{found}");
    assert_eq!(
        content(
            &sandbox
                .run("echo ${SESSION_API_KEY-none} ${NO_CHANGE_TIMEOUT_SECONDS-none}")
                .await
        ),
        "none none"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_is_required_when_none_is_set() {
    let sandbox = V0Sandbox::start_with(&[], None);
    let body = json!({"action": {"action": "run", "args": {"command": "echo hi"}}}).to_string();
    let ask = |host: &str| Request::post("/execute_action").header("host", host);
    let open = ask("127.0.0.1:8000")
        .body(Full::from(body.clone()))
        .unwrap();
    assert_eq!(content(&sandbox.send(open).await.json()), "hi");
    // A web page in a browser on this machine, with its own name or one that resolves to this
    // machine.
    let page = ask("127.0.0.1:8000").header("origin", "http://evil.example");
    for page in [page, ask("evil.example:8000")] {
        let refused = sandbox
            .send(page.body(Full::from(body.clone())).unwrap())
            .await;
        assert_eq!(
            (refused.status, refused.json()["detail"].is_string()),
            (403, true)
        );
    }
}

#[test]
fn v0_start_error_is_printed() {
    let port = free_port().to_string();
    let start = |arguments: &[&str], key: &str| {
        let mut command = program();
        command
            .args(["v0", &port])
            .args(arguments)
            .env("SESSION_API_KEY", key)
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(start(&[], KEY).0, 2);
    let (code, stderr) = start(&["--working-dir", "/", "--host", "0.0.0.0"], "");
    assert_eq!(
        (code, stderr.contains("SESSION_API_KEY")),
        (1, true),
        "{stderr}"
    );
    let (code, stderr) = start(&["--working-dir", "/"], "a key with blanks");
    assert_eq!(
        (code, stderr.contains("SESSION_API_KEY")),
        (1, true),
        "{stderr}"
    );
    assert!(!stderr.contains("blanks"), "the error shows the key");
    let (code, stderr) = start(&["--working-dir", "/", "--username", "unknown-user"], KEY);
    assert_eq!((code, stderr.contains("--user-id")), (1, true), "{stderr}");
    assert_eq!(start(&["--working-dir", "/dev/null/x"], KEY).0, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_changes_to_the_user_when_started_as_root() {
    if !nix::unistd::geteuid().is_root() {
        return skip(Requirement::Root, "only root can change the user");
    }
    let arguments = ["--username", "root", "--user-id", "54321"];
    let sandbox = V0Sandbox::start_with(&arguments, Some(KEY));
    let result = sandbox
        .run("id -u; id -G; echo $HOME; touch made; stat -c %u . made")
        .await;
    let name = content(&result).lines().collect::<Vec<_>>();
    assert_eq!(
        [name[0], name[1], name[3], name[4]],
        ["54321", "54321", "54321", "54321"],
        "{result}"
    );
    let pid = sandbox.child.id();
    let denied = format!("cat /proc/{pid}/environ /proc/{pid}/fd/0 /proc/{pid}/mem");
    assert_ne!(exit_code(&sandbox.run(&denied).await), 0);
}

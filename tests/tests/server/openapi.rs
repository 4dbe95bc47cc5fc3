//! The OpenAPI document, and responses that conform to it.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish};
use tests::host_server::{HostServer, is_state};
use tokio::process::Command;
use tokio::time::timeout;

use crate::test_packages::pypi_packages;

/// Runs Schemathesis, whose arguments follow.
const SCHEMATHESIS: &str = "import schemathesis.cli; schemathesis.cli.schemathesis()";

/// Maximum time of a run. It takes half a minute on a quiet machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(180);

/// Operations that are not tested, each with the reason.
const EXCLUDED: [&str; 4] = [
    // Its response does not end.
    "/api/v2/conversations/{id}/stream",
    // A generated address or token would be sent to the network by later operations.
    "/api/settings",
    "/api/v2/settings",
    "/api/add-git-providers",
];

#[tokio::test]
async fn document_and_its_page_are_open() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let get = async |path: &str| {
        let response = server
            .request_without_key(reqwest::Method::GET, path)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let policy = response.headers()["content-security-policy"]
            .to_str()
            .unwrap()
            .to_owned();
        (policy, response.text().await.unwrap())
    };
    let (_, text) = get("/api/openapi.json").await;
    let document: Value = serde_json::from_str(&text).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let keys = document["components"]["securitySchemes"]
        .as_object()
        .unwrap();
    assert_eq!(
        keys.keys().collect::<Vec<_>>(),
        ["bearer", "key", "session"]
    );
    let (policy, page) = get("/api/docs").await;
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("script-src"),
        "{policy}"
    );
    assert!(!page.contains("<script"));
    let root = server
        .request_without_key(reqwest::Method::GET, "/")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (root.status().as_u16(), &root.headers()["location"]),
        (307, &"/api/docs".parse().unwrap())
    );
    for path in document["paths"].as_object().unwrap().keys() {
        assert!(page.contains(path.as_str()), "{path}");
    }
}

/// Sends generated requests, valid and not, to a real server: none fails in the server, and each
/// response has a documented status, type and schema.
#[tokio::test]
async fn responses_conform_to_the_document() {
    let Some(packages) = pypi_packages() else {
        return;
    };
    let home = Home::new();
    // Clones of generated names do not leave this machine.
    let rules = "GIT_CONFIG_COUNT = '1', GIT_CONFIG_KEY_0 = 'url.http://127.0.0.1:1/.insteadOf', \
                 GIT_CONFIG_VALUE_0 = 'https://', GIT_ALLOW_PROTOCOL = 'http', GIT_SSH_COMMAND = 'false'";
    home.write(
        ".glovebox/config.toml",
        format!("[sandbox]\nruntime_startup_env_vars = {{ {rules} }}\n"),
    );
    let model = home.script(&json!([bash("echo hello"), finish()]));
    let server = HostServer::start(&home, &model, &["--max-running", "4"]);
    let id = server.create("Say hello.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let mut command = Command::new("python3");
    command.args([
        "-c",
        SCHEMATHESIS,
        "run",
        &format!("{}/api/openapi.json", server.url),
    ]);
    command.args(["--header", &format!("X-Session-API-Key: {}", server.key)]);
    command.args([
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        "8",
        "--seed",
        "1",
    ]);
    command.args([
        "--generation-database",
        "none",
        "--suppress-health-check",
        "all",
        "--no-color",
        "--no-shrink",
    ]);
    command.args([
        "--checks",
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
    ]);
    command.args([
        "--request-timeout",
        "20",
        "--continue-on-failure",
        "--warnings",
        "off",
    ]);
    for path in EXCLUDED {
        command.args(["--exclude-path", path]);
    }
    command
        .env("PYTHONPATH", packages)
        .env("NO_PROXY", "127.0.0.1");
    command
        .current_dir(home.path())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(RUN_TIMEOUT, command.output())
        .await
        .expect("the run ends")
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{report}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    server.terminate();
}

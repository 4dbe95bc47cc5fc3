//! Rules of a sandbox-host: keys, quotas, sizes and idle sandboxes; V0's plain requests.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::sandbox::{Lifetime, SandboxError, SandboxProvider, SandboxSpec};
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use sandbox_host::SandboxHostConfig;
use sandbox_remote::{RemoteRuntimeBackend, RemoteRuntimeConfig, RemoteRuntimeProvider};
use serde_json::{Value, json};
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::remote::{OTHER_SECRET, SECRET, SandboxHostBackend, client_for};
use tests::sandbox_contract::{Backend, error, run, spec};
use tokio::net::TcpStream;

fn leased_backend() -> SandboxHostBackend<LocalBackend> {
    SandboxHostBackend::over_local().unwrap()
}

fn client_without_retries(address: SocketAddr, secret: &str) -> RemoteRuntimeProvider {
    let config = RemoteRuntimeConfig::new(
        format!("http://{address}").parse().unwrap(),
        secret.to_owned().into(),
    );
    RemoteRuntimeProvider::new(
        RemoteRuntimeBackend::new(RemoteRuntimeConfig {
            enable_retries: false,
            ..config
        })
        .unwrap(),
    )
}

async fn ask(address: SocketAddr, request: Request<Full<Bytes>>) -> (StatusCode, Value) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut requests, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(driver);
    let answer = requests.send_request(request).await.unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn request(
    method: &str,
    path: &str,
    key: (&str, &str),
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "host.test:1")
        .header(key.0, key.1);
    request
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}

fn request_with_key(method: &str, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    request(method, path, ("X-API-Key", SECRET), body)
}

fn conversation(spec: &SandboxSpec) -> String {
    spec.conversation.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_has_a_quota_and_sees_only_its_own_sandboxes() {
    let backend = leased_backend();
    let config = SandboxHostConfig {
        max_sandboxes: 2,
        max_sandboxes_per_key: 1,
        ..SandboxHostBackend::<LocalBackend>::host_config()
    };
    let address = backend.start_host(config);
    let [first_client, second_client] =
        [SECRET, OTHER_SECRET].map(|secret| client_without_retries(address, secret));
    let [first, second] = [spec(&backend), spec(&backend)];
    let sandbox = first_client.create(&first, &|_| {}).await.unwrap();
    let refused = error(first_client.create(&second, &|_| {}).await).to_string();
    assert!(
        refused.contains("429") && refused.contains("this key has 1 sandboxes"),
        "{refused}"
    );

    // The other key has a separate sandbox for the same session.
    let others = second_client.create(&first, &|_| {}).await.unwrap();
    run(&*sandbox, 1, "touch ours").await;
    assert_eq!(run(&*others, 1, "ls").await.content.trim(), "");
    let listed = first_client.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (&listed[0].sandbox, listed[0].lifetime),
        (&sandbox.lease().sandbox_id, Lifetime::Conversation)
    );

    let (_, ours) = ask(
        address,
        request_with_key("GET", &format!("/sessions/{}", conversation(&first)), ""),
    )
    .await;
    let stop = json!({"runtime_id": ours["runtime_id"]}).to_string();
    let (status, body) = ask(
        address,
        request("POST", "/stop", ("X-API-Key", OTHER_SECRET), stop),
    )
    .await;
    assert_eq!(
        (status, &body["code"]),
        (StatusCode::NOT_FOUND, &json!("not_found"))
    );
    second_client
        .destroy(&others.lease().sandbox_id)
        .await
        .unwrap();
    assert_eq!(second_client.list().await.unwrap(), []);
    assert_eq!(run(&*sandbox, 2, "ls").await.content.trim(), "ours");

    first_client
        .destroy(&sandbox.lease().sandbox_id)
        .await
        .unwrap();
    let sandbox = first_client.create(&second, &|_| {}).await.unwrap();
    first_client
        .destroy(&sandbox.lease().sandbox_id)
        .await
        .unwrap();
}

#[tokio::test]
async fn request_is_refused_when_its_key_is_wrong_or_missing() {
    let backend = leased_backend();
    let address = backend.start_host(SandboxHostBackend::<LocalBackend>::host_config());
    let failed = error(
        client_without_retries(address, "unknown-0123456789")
            .create(&spec(&backend), &|_| {})
            .await,
    );
    assert!(
        matches!(failed, SandboxError::RuntimeUnavailable { .. }),
        "{failed:?}"
    );
    assert!(
        failed.to_string().contains("check sandbox.api_key"),
        "{failed}"
    );
    for path in [
        "/list",
        "/sessions/x",
        "/runtime/x",
        "/registry_prefix",
        "/image_exists?image=a",
    ] {
        let (status, body) = ask(address, request("GET", path, ("X-Other", "x"), "")).await;
        assert_eq!(
            (status, &body["code"]),
            (StatusCode::FORBIDDEN, &json!("forbidden")),
            "{path}"
        );
    }
    let (status, body) = ask(address, request("GET", "/alive", ("X-Other", "x"), "")).await;
    assert_eq!((status, body), (StatusCode::OK, json!({"status": "ok"})));
}

#[tokio::test]
async fn excessive_request_is_refused_with_a_reason() {
    let backend = leased_backend();
    let address = backend.start_host(SandboxHostBackend::<LocalBackend>::host_config());
    let (status, _) = ask(
        address,
        request_with_key("POST", "/start", vec![b' '; 5 << 20]),
    )
    .await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    for body in [
        json!({"session_id": "x", "resource_factor": 2}),
        json!({"session_id": "x", "resource_factor": 0}),
        json!({"session_id": "x", "resources": {"memory_bytes": 1_u64 << 50, "cpus": 1, "pids": 1, "disk_bytes": 1}}),
        json!({"session_id": "../x"}),
        json!({"session_id": "x".repeat(200)}),
        json!({"image": "x"}),
    ] {
        let (status, reply) = ask(
            address,
            request_with_key("POST", "/start", body.to_string()),
        )
        .await;
        assert_eq!(
            (status, &reply["code"]),
            (StatusCode::BAD_REQUEST, &json!("invalid")),
            "{body}"
        );
    }
    let mut spec = spec(&backend);
    spec.resources.memory_bytes = 1 << 50;
    let failed = error(client_for(address, SECRET).create(&spec, &|_| {}).await);
    assert!(
        matches!(&failed, SandboxError::Invalid { detail } if detail.contains("more resources")),
        "{failed:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v0_client_reaches_the_server_below_the_sandbox_url() {
    let backend = leased_backend();
    let address = backend.start_host(SandboxHostBackend::<LocalBackend>::host_config());
    let start = json!({
        "image": "ours:1", "command": ["/openhands/micromamba/bin/micromamba", "run"], "working_dir": "/openhands/code/",
        "environment": {"DEBUG": "true"}, "session_id": "0123abcd", "resource_factor": 1,
    });
    let (status, started) = ask(
        address,
        request_with_key("POST", "/start", start.to_string()),
    )
    .await;
    assert_eq!(
        (status, &started["status"], &started["pod_status"]),
        (StatusCode::OK, &json!("running"), &json!("ready"))
    );
    let url = started["url"].as_str().unwrap();
    let path = url.strip_prefix("http://host.test:1").unwrap();
    let key = (
        "X-Session-API-Key",
        started["session_api_key"].as_str().unwrap(),
    );

    let (status, body) = ask(address, request("GET", &format!("{path}/alive"), key, "")).await;
    assert_eq!((status, body), (StatusCode::OK, json!({"status": "ok"})));
    let action = json!({"action": {"action": "run", "args": {"command": "echo from a v0 client"}}})
        .to_string();
    let (status, observed) = ask(
        address,
        request(
            "POST",
            &format!("{path}/execute_action"),
            key,
            action.clone(),
        ),
    )
    .await;
    assert_eq!(status, StatusCode::OK);
    assert!(
        observed["content"]
            .as_str()
            .unwrap()
            .contains("from a v0 client"),
        "{observed}"
    );
    assert_eq!(observed["extras"]["metadata"]["exit_code"], json!(0));

    for wrong in [("X-Session-API-Key", "wrong"), ("X-API-Key", SECRET)] {
        for path in [
            format!("{path}/execute_action"),
            format!("{path}/alive"),
            format!("{path}/stream"),
        ] {
            let method = if path.ends_with("action") {
                "POST"
            } else {
                "GET"
            };
            let (status, _) = ask(address, request(method, &path, wrong, action.clone())).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        }
    }
    let (status, body) = ask(address, request("GET", &format!("{path}/stream"), key, "")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        body["detail"]
            .as_str()
            .unwrap()
            .contains("Upgrade: glovebox-stream"),
        "{body}"
    );

    let runtime = json!({"runtime_id": started["runtime_id"]}).to_string();
    let (_, found) = ask(
        address,
        request_with_key(
            "GET",
            &format!("/runtime/{}", started["runtime_id"].as_str().unwrap()),
            "",
        ),
    )
    .await;
    assert_eq!(found["pod_status"], json!("ready"));
    let (status, body) = ask(address, request_with_key("POST", "/pause", runtime.clone())).await;
    assert_eq!(
        (status, &body["code"]),
        (StatusCode::NOT_IMPLEMENTED, &json!("unsupported"))
    );
    let (status, _) = ask(address, request_with_key("POST", "/stop", runtime)).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = ask(address, request_with_key("GET", "/sessions/0123abcd", "")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sandbox_is_removed_when_idle_unless_kept_or_in_use() {
    let backend = leased_backend();
    let config = SandboxHostConfig {
        idle_timeout: Duration::from_secs(1),
        ..SandboxHostBackend::<LocalBackend>::host_config()
    };
    let provider = client_for(backend.start_host(config), SECRET);
    let [mut kept, left, held] = [spec(&backend), spec(&backend), spec(&backend)];
    kept.lifetime = Lifetime::UntilRemoved;
    let kept = provider
        .create(&kept, &|_| {})
        .await
        .unwrap()
        .lease()
        .clone();
    let held = provider.create(&held, &|_| {}).await.unwrap();
    let left = provider
        .create(&left, &|_| {})
        .await
        .unwrap()
        .lease()
        .clone();

    let deadline = Instant::now() + Duration::from_secs(20);
    while !backend.remains(&left.sandbox_id).await.is_empty() {
        assert!(Instant::now() < deadline, "the idle sandbox is not removed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(matches!(
        error(provider.attach(&left).await),
        SandboxError::Lost { .. }
    ));
    assert_eq!(run(&*held, 1, "echo held").await.content.trim(), "held");
    let kept = provider.attach(&kept).await.unwrap();
    assert_eq!(run(&*kept, 1, "echo kept").await.content.trim(), "kept");
    for sandbox in [held, kept] {
        provider.destroy(&sandbox.lease().sandbox_id).await.unwrap();
    }
}

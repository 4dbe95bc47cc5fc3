//! The client of a scripted runtime API: its requests and retries.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use engine::sandbox::{Lifetime, SandboxError, SandboxProvider, SandboxSpec, SandboxState};
use sandbox_remote::{RemoteRuntimeBackend, RemoteRuntimeConfig, RemoteRuntimeProvider};
use serde_json::{Value, json};
use tests::sandbox_contract::remote::{DirectServerBackend, SERVER_KEY};
use tests::sandbox_contract::{error, run};
use tokio::net::TcpListener;

/// The statuses and bodies of a route's responses, in order.
type RouteScript = Vec<(&'static str, VecDeque<(u16, Value)>)>;

/// Responds to each route from its script; other routes are 404, as in V0's services.
#[derive(Clone, Default)]
struct ScriptedService {
    answers: Arc<Mutex<RouteScript>>,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl ScriptedService {
    async fn serve(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    /// The last response of a route is repeated.
    fn script(&self, route: &'static str, answers: impl IntoIterator<Item = (u16, Value)>) {
        let mut script = self.answers.lock().unwrap();
        script.retain(|(other, _)| *other != route);
        script.push((route, answers.into_iter().collect()));
    }

    fn take_requests(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

async fn answer(
    State(service): State<ScriptedService>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    assert_eq!(headers["x-api-key"], "the key");
    let route = format!("{method} {uri}");
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    service.requests.lock().unwrap().push((route.clone(), body));
    let mut script = service.answers.lock().unwrap();
    let answers = script
        .iter_mut()
        .find(|(scripted, _)| *scripted == route)
        .map(|(_, answers)| answers);
    let (status, body) = match answers {
        None => (404, json!({"detail": "Not Found"})),
        Some(answers) if answers.len() > 1 => answers.pop_front().unwrap(),
        Some(answers) => answers[0].clone(),
    };
    (
        StatusCode::from_u16(status).unwrap(),
        [("retry-after", "1")],
        body.to_string(),
    )
        .into_response()
}

fn config(address: SocketAddr) -> RemoteRuntimeConfig {
    RemoteRuntimeConfig {
        init_timeout: Duration::from_secs(30),
        class: Some("sysbox".into()),
        resource_factor: 2.0,
        default_image: Some("ours:1".into()),
        ..RemoteRuntimeConfig::new(
            format!("http://{address}/api").parse().unwrap(),
            "the key".to_owned().into(),
        )
    }
}

fn spec() -> SandboxSpec {
    SandboxSpec {
        environment: [("COLOR".to_owned(), "green".to_owned())].into(),
        ..SandboxSpec::new("talk-1".parse().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_is_retried_and_readiness_awaited_when_service_is_busy() {
    let (backend, service) = (
        DirectServerBackend::new().unwrap(),
        ScriptedService::default(),
    );
    let server = backend.start().await;
    let provider = RemoteRuntimeProvider::new(
        RemoteRuntimeBackend::new(config(service.serve().await)).unwrap(),
    );
    let runtime = |status: &str| {
        json!({
            "runtime_id": "run-7", "session_id": "talk-1", "url": format!("http://{}", server.address),
            "session_api_key": SERVER_KEY, "status": status, "work_hosts": {"http://w": 1},
        })
    };
    let full = json!({"detail": "too many"});
    service.script(
        "POST /api/start",
        [(503, full.clone()), (429, full), (200, runtime("running"))],
    );
    let pod = |status: &str| {
        (
            200,
            json!({"runtime_id": "run-7", "pod_status": status, "status": "running", "url": ""}),
        )
    };
    service.script("GET /api/runtime/run-7", [pod("Pending"), pod("ready")]);
    let started = Instant::now();
    let sandbox = provider.create(&spec(), &|_| {}).await.unwrap();
    assert!(
        started.elapsed() > Duration::from_secs(2),
        "it asks to wait a second each time: {:?}",
        started.elapsed()
    );
    assert_eq!(
        run(&*sandbox, 1, "echo there").await.content.trim(),
        "there"
    );
    assert_eq!(sandbox.lease().sandbox_id.as_str(), "glovebox-talk-1");

    let requests = service.take_requests();
    let routes: Vec<&str> = requests.iter().map(|(route, _)| route.as_str()).collect();
    let attempt = ["GET /api/sessions/talk-1", "POST /api/start"];
    let looks = ["GET /api/runtime/run-7", "GET /api/runtime/run-7"];
    assert_eq!(routes, [&attempt[..], &attempt, &attempt, &looks].concat());
    let start = &requests[1].1;
    for (field, value) in [
        ("image", json!("ours:1")),
        ("session_id", json!("talk-1")),
        ("environment", json!({"COLOR": "green"})),
        ("resource_factor", json!(2.0)),
        ("runtime_class", json!("sysbox-runc")),
        ("lifetime", json!("conversation")),
    ] {
        assert_eq!(start[field], value, "{field}");
    }
    assert!(
        start["command"][2]
            .as_str()
            .unwrap()
            .contains("action-server serve"),
        "{start}"
    );

    // Paused meanwhile: an attach resumes it.
    let lease = sandbox.lease().clone();
    drop(sandbox);
    service.script("GET /api/sessions/talk-1", [(200, runtime("paused"))]);
    service.script("POST /api/resume", [(200, json!({"message": "ok"}))]);
    let sandbox = provider.attach(&lease).await.unwrap();
    assert_eq!(
        run(&*sandbox, 2, "echo again").await.content.trim(),
        "again"
    );
    service.script("GET /api/sessions/talk-1", [(200, runtime("running"))]);
    for route in ["POST /api/pause", "POST /api/stop"] {
        service.script(route, [(502, Value::Null), (200, Value::Null)]);
    }
    provider
        .pausing()
        .unwrap()
        .pause(&lease.sandbox_id)
        .await
        .unwrap();
    provider
        .pausing()
        .unwrap()
        .resume(&lease.sandbox_id)
        .await
        .unwrap();
    provider.destroy(&lease.sandbox_id).await.unwrap();
    let requests = service.take_requests();
    let posts: Vec<_> = requests
        .iter()
        .filter(|(route, _)| route.starts_with("POST"))
        .collect();
    let routes: Vec<&str> = posts
        .iter()
        .map(|(route, _)| route.strip_prefix("POST /api/").unwrap())
        .collect();
    assert_eq!(
        routes,
        ["resume", "pause", "pause", "resume", "stop", "stop"]
    );
    assert!(
        posts
            .iter()
            .all(|(_, body)| *body == json!({"runtime_id": "run-7"})),
        "{posts:?}"
    );

    service.script(
        "GET /api/list",
        [(
            200,
            json!({"runtimes": [runtime("paused"), {"runtime_id": "x"}]}),
        )],
    );
    let listed = provider.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    // The API has no removal of idle sandboxes.
    assert_eq!(
        (listed[0].condition, listed[0].lifetime),
        (SandboxState::Paused, Lifetime::UntilRemoved)
    );

    service.script("GET /api/sessions/talk-1", [(200, runtime("stopped"))]);
    assert!(matches!(
        error(provider.attach(&lease).await),
        SandboxError::Lost { .. }
    ));
}

#[tokio::test]
async fn service_error_is_quoted_when_retries_or_time_run_out() {
    let service = ScriptedService::default();
    let address = service.serve().await;
    service.script(
        "POST /api/start",
        [(503, json!({"detail": "no node \u{1b}[31m is free"}))],
    );
    let once = RemoteRuntimeConfig {
        enable_retries: false,
        ..config(address)
    };
    let short = RemoteRuntimeConfig {
        init_timeout: Duration::from_secs(2),
        ..config(address)
    };
    for (config, times) in [(once, 1..=1), (short, 2..=3)] {
        let started = Instant::now();
        let failed = error(
            RemoteRuntimeProvider::new(RemoteRuntimeBackend::new(config).unwrap())
                .create(&spec(), &|_| {})
                .await,
        );
        assert!(
            matches!(failed, SandboxError::RuntimeUnavailable { .. }),
            "{failed:?}"
        );
        let text = failed.to_string();
        assert!(
            text.contains("503") && text.contains("no node  [31m is free"),
            "{text}"
        );
        assert!(
            started.elapsed() < Duration::from_secs(4),
            "{:?}",
            started.elapsed()
        );
        let starts = service
            .take_requests()
            .iter()
            .filter(|(route, _)| route == "POST /api/start")
            .count();
        assert!(times.contains(&starts), "{starts}");
    }
}

#[tokio::test]
async fn failed_sandbox_is_stopped_and_reported() {
    let service = ScriptedService::default();
    let provider = RemoteRuntimeProvider::new(
        RemoteRuntimeBackend::new(config(service.serve().await)).unwrap(),
    );
    let runtime = json!({"runtime_id": "run-7", "url": "http://127.0.0.1:9", "status": "running"});
    service.script("POST /api/start", [(200, runtime.clone())]);
    service.script(
        "GET /api/runtime/run-7",
        [(
            200,
            json!({"runtime_id": "run-7", "pod_status": "CrashLoopBackOff"}),
        )],
    );
    service.script(
        "GET /api/sessions/talk-1",
        [(404, json!({})), (200, runtime)],
    );
    service.script("POST /api/stop", [(200, json!({}))]);
    let failed = error(provider.create(&spec(), &|_| {}).await);
    assert!(
        matches!(&failed, SandboxError::Start { detail, .. } if detail.contains("crashloopbackoff")),
        "{failed:?}"
    );
    assert_eq!(service.take_requests().last().unwrap().0, "POST /api/stop");
}

#[tokio::test]
async fn error_is_typed_when_runtime_api_is_invalid_or_silent() {
    let service = ScriptedService::default();
    service.script("GET /api/sessions/talk-1", [(200, json!("a web page"))]);
    let failed = error(
        RemoteRuntimeProvider::new(
            RemoteRuntimeBackend::new(config(service.serve().await)).unwrap(),
        )
        .create(&spec(), &|_| {})
        .await,
    );
    assert!(
        failed
            .to_string()
            .contains("check that the address is that of a runtime API"),
        "{failed}"
    );

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let site = Router::new().fallback(async || axum::response::Html("<!doctype html><p>Welcome"));
    tokio::spawn(async move { axum::serve(listener, site).await });
    let failed = error(
        RemoteRuntimeProvider::new(RemoteRuntimeBackend::new(config(address)).unwrap())
            .create(&spec(), &|_| {})
            .await,
    );
    assert!(
        failed
            .to_string()
            .contains("cannot be read (a web page, not JSON): check that"),
        "{failed}"
    );

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = RemoteRuntimeConfig {
        init_timeout: Duration::from_secs(1),
        api_timeout: Duration::from_millis(300),
        ..config(silent.local_addr().unwrap())
    };
    let started = Instant::now();
    let failed = error(
        RemoteRuntimeProvider::new(RemoteRuntimeBackend::new(silent).unwrap())
            .create(&spec(), &|_| {})
            .await,
    );
    assert!(
        matches!(failed, SandboxError::RuntimeUnavailable { .. }),
        "{failed:?}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
}

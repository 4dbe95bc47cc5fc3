//! Traces, as a collector receives them.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::json;
use tests::glovebox::{Home, bash, finish};
use tests::host_server::{HostServer, is_state};
use tokio::net::TcpListener;

/// Starts a server that sends its traces to this address.
fn start(home: &Home, collector: &str) -> HostServer {
    let model = home.script(&json!([bash("echo 'a secret'"), finish()]));
    let listen = ["serve", "--listen", "127.0.0.1:0", "--rate-limit", "off"];
    let arguments = [&listen[..], &["--runtime", "local", "-l", &model]].concat();
    HostServer::from_command(
        home,
        home.glovebox(&arguments)
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector),
    )
}

async fn run(server: &HostServer) -> String {
    let id = server.create("Say a secret.").await;
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    id
}

/// The value of a text attribute.
fn attribute(span: &Span, key: &str) -> Option<String> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let attribute = span
        .attributes
        .iter()
        .find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

#[tokio::test]
async fn collector_receives_the_spans_of_a_conversation() {
    let received: Arc<Mutex<Vec<Bytes>>> = Arc::default();
    let bodies = Arc::clone(&received);
    let collect = move |body: Bytes| async move { bodies.lock().unwrap().push(body) };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let collector = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().route("/v1/traces", post(collect));
    tokio::spawn(async move { axum::serve(listener, app).await });

    let home = Home::new();
    let server = start(&home, &collector);
    let id = run(&server).await;
    // Blocks this thread, which the collector needs.
    tokio::task::spawn_blocking(|| server.terminate())
        .await
        .unwrap();

    let bodies = received.lock().unwrap().clone();
    assert!(
        !bodies
            .iter()
            .any(|body| String::from_utf8_lossy(body).contains("secret"))
    );
    let requests = bodies
        .into_iter()
        .map(|body| ExportTraceServiceRequest::decode(body).unwrap());
    let resources: Vec<_> = requests
        .flat_map(|request| request.resource_spans)
        .collect();
    let names = resources
        .iter()
        .flat_map(|spans| &spans.resource)
        .flat_map(|resource| &resource.attributes);
    assert!(
        names.clone().any(|name| name.key == "service.name"),
        "{resources:?}"
    );
    let spans: Vec<_> = resources
        .into_iter()
        .flat_map(|spans| spans.scope_spans)
        .flat_map(|spans| spans.spans)
        .collect();
    let find = |name: &str| {
        spans
            .iter()
            .find(|span| span.name == name)
            .unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
    };
    let conversation = find("conversation");
    assert_eq!(attribute(conversation, "id"), Some(id));
    for name in ["step", "create_sandbox", "action"] {
        let child = find(name);
        assert_eq!(child.trace_id, conversation.trace_id, "{name}");
        assert_eq!(child.parent_span_id, conversation.span_id, "{name}");
    }
    assert!(spans.iter().all(|span| span.events.is_empty()));
    let request = find("request");
    assert!(attribute(request, "path").is_some_and(|path| path.starts_with("/api/conversations")));
}

#[tokio::test]
async fn server_ends_without_its_collector() {
    let home = Home::new();
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let server = start(&home, &format!("http://{closed}"));
    run(&server).await;
    server.terminate();
    let home = Home::new();
    let refused = home
        .glovebox(&["conversations", "ls"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "no address")
        .output();
    let refused = refused.unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

//! The log of a model call: its spans, retries and result, without contents.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::scene::{KEY, complete, config, response_body};
use crate::server::{Reply, Server};

#[tokio::test]
async fn retry_is_a_warning_in_the_span_of_its_model_call() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let writer = Arc::new(log.reopen().unwrap());
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(writer);
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let server = Server::start(vec![
        Reply::json(503, &json!({})),
        Reply::json(200, &response_body("a-secret")),
    ])
    .await;
    let mut config = config(&server);
    config.retry.num_retries = 2;
    complete(&config).await.unwrap();

    let text = std::fs::read_to_string(log.path()).unwrap();
    assert!(!text.contains("a-secret") && !text.contains(KEY), "{text}");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let line = |message: &str| {
        lines
            .iter()
            .find(|line| line["fields"]["message"] == message)
            .unwrap()
    };
    let call = json!({ "name": "model_call", "model": "openai/gpt-4o" });
    let retry = line("retrying the model call");
    assert_eq!(
        (&retry["level"], &retry["spans"]),
        (&json!("WARN"), &json!([call])),
        "{retry}"
    );
    assert_eq!(
        (&retry["fields"]["attempt"], &retry["fields"]["kind"]),
        (&json!(2), &json!("Unavailable"))
    );
    let attempt = json!({ "name": "attempt", "number": 2 });
    assert_eq!(
        line("received a response of the model")["spans"],
        json!([call, attempt])
    );
}

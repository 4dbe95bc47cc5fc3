//! The security analyzer that is asked over HTTP.

use std::time::Duration;

use engine::security::{Judgement, SecurityAnalyzer as _};
use llm::{AnalyzerConfig, HttpAnalyzer};
use protocol::action::RunAction;
use protocol::{Action, SecurityRisk};
use serde_json::json;

use crate::server::{Reply, Seen, Server};

/// More than an answer takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

async fn assess(reply: Reply, timeout: Duration) -> (Result<Judgement, String>, Server) {
    let server = Server::start(vec![reply]).await;
    let config = AnalyzerConfig { url: server.url.clone(), api_key: Some("the-key".into()), timeout };
    let run: Action = RunAction { command: "ls".into(), ..Default::default() }.into();
    let judged = HttpAnalyzer::new(config).unwrap().assess(&run).await;
    (judged.map_err(|error| error.to_string()), server)
}

#[tokio::test]
async fn an_action_is_posted_and_its_risk_read() {
    let (risk, mut server) =
        assess(Reply::json(200, &json!({"risk": "HIGH", "reason": "because"})), LONG).await;
    assert_eq!(risk, Ok(Judgement { risk: SecurityRisk::High, reason: "because".into() }));
    let Seen::Request { head, body } = server.next().await else { panic!("no request") };
    assert!(head.contains("authorization: Bearer the-key"), "{head}");
    assert_eq!(
        (&body["action"]["action"], &body["action"]["args"]["command"]),
        (&json!("run"), &json!("ls"))
    );
    assert_eq!(
        assess(Reply::json(200, &json!({"risk": "unknown"})), LONG).await.0,
        Ok(SecurityRisk::Unknown.into())
    );
}

#[tokio::test]
async fn what_is_no_answer_is_an_error_in_time() {
    for (reply, error) in [
        (Reply::json(200, &json!({"risk": "fine"})), "did not answer with {risk, reason}"),
        (Reply::json(500, &json!({"risk": "low"})), "answered with status 500 Internal Server Error"),
        (
            Reply::json(200, &json!({"risk": "low", "reason": "x".repeat(1 << 17)})),
            "answered with more than 65536 bytes",
        ),
        (Reply::cut("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"), "broke off"),
    ] {
        assert_eq!(assess(reply, LONG).await.0, Err(format!("the security analyzer {error}")));
    }
    let late = assess(Reply::silence(), Duration::from_millis(100)).await.0;
    assert_eq!(late, Err("the security analyzer did not answer within 100ms".into()));
}

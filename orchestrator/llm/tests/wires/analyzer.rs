//! The security analyzers behind HTTP.

use std::sync::Arc;
use std::time::Duration;

use engine::security::{RiskAssessment, SecurityAnalyzer};
use engine::view::View;
use llm::{AnalyzerConfig, GraySwanAnalyzer, HttpAnalyzer, InvariantAnalyzer};
use protocol::action::{MessageAction, RunAction};
use protocol::observation::RunObservation;
use protocol::{Action, Event, EventBody, EventId, EventSource, Observation, SecurityRisk};
use serde_json::{Value, json};

use crate::server::{Reply, Server, ServerEvent};

/// A timeout that no response exceeds on a busy machine.
const LONG: Duration = Duration::from_secs(60);

async fn assess(reply: Reply, timeout: Duration) -> (Result<RiskAssessment, String>, Server) {
    let server = Server::start(vec![reply]).await;
    let config = AnalyzerConfig {
        url: server.url.clone(),
        api_key: Some("the-key".into()),
        timeout,
    };
    let analyzer = HttpAnalyzer::new(config).unwrap();
    let assessment = analyzer.assess(&run("ls"), &View::default()).await;
    (assessment.map_err(|error| error.to_string()), server)
}

async fn assess_risk(
    analyzer: &dyn SecurityAnalyzer,
    action: &Action,
    history: &View,
) -> Result<SecurityRisk, String> {
    let assessment = analyzer.assess(action, history).await;
    assessment
        .map(|assessment| assessment.risk)
        .map_err(|error| error.to_string())
}

fn run(command: &str) -> Action {
    let security_risk = SecurityRisk::Low;
    RunAction {
        command: command.into(),
        thought: "I look.".into(),
        security_risk,
        ..Default::default()
    }
    .into()
}

/// Returns a task, a command and its output.
fn history() -> View {
    let task = MessageAction {
        content: "the task".into(),
        ..Default::default()
    };
    let bodies: [(EventSource, EventBody, Option<EventId>); 3] = [
        (EventSource::User, Action::from(task).into(), None),
        (EventSource::Agent, run("ls").into(), None),
        (
            EventSource::Agent,
            Observation::new("a b".to_owned(), RunObservation::default()).into(),
            Some(EventId(1)),
        ),
    ];
    let events = (0..).zip(bodies).map(|(id, (source, body, cause))| {
        let timestamp = "2025-10-03T12:00:00".to_owned().try_into().unwrap();
        let mut event = Event::new(EventId(id), timestamp, source, body);
        event.cause = cause;
        Arc::new(event)
    });
    View::from_events(events.collect())
}

/// Returns the first line and the body of the next request.
async fn request(server: &mut Server) -> (String, Value) {
    let ServerEvent::Request { head, body } = server.next().await else {
        panic!("no request")
    };
    (head.lines().next().unwrap().to_owned(), body)
}

fn invariant(server: &Server) -> InvariantAnalyzer {
    InvariantAnalyzer::new(&server.url, LONG).unwrap()
}

fn creation_replies(monitor: &str) -> [Reply; 3] {
    [
        json!({"id": "s"}),
        json!("raise \"no\" if: ..."),
        json!({"monitor_id": monitor}),
    ]
    .map(|body| Reply::json(200, &body))
}

#[tokio::test]
async fn invariant_receives_the_trace_before_the_action() {
    let violations = json!([
        "PolicyViolation('secrets [risk=medium]')",
        "no risk is stated"
    ]);
    let replies = creation_replies("m/1")
        .into_iter()
        .chain([Reply::json(200, &violations), Reply::json(200, &json!([]))]);
    let mut server = Server::start(replies.collect()).await;
    let analyzer = invariant(&server);
    assert_eq!(
        assess_risk(&analyzer, &run("cat key"), &history()).await,
        Ok(SecurityRisk::Medium)
    );
    let (line, _) = request(&mut server).await;
    assert!(
        line.starts_with("GET /v1/session/new?session_id=0"),
        "{line}"
    );
    assert_eq!(
        request(&mut server).await.0,
        "GET /v1/policy/template HTTP/1.1"
    );
    let (line, body) = request(&mut server).await;
    assert_eq!(line, "POST /v1/monitor/new?session_id=s HTTP/1.1");
    assert_eq!(body, json!({"rule": "raise \"no\" if: ..."}));
    let (line, body) = request(&mut server).await;
    assert_eq!(line, "POST /v1/monitor/m%2F1/check?session_id=s HTTP/1.1");
    let past = body["past_events"].as_array().unwrap();
    assert_eq!(
        past[0],
        json!({"metadata": {}, "role": "user", "content": "the task"})
    );
    assert_eq!(
        past[1],
        json!({"metadata": {}, "role": "assistant", "content": "I look."})
    );
    assert_eq!(
        (&past[2]["type"], &past[2]["function"]["name"]),
        (&json!("function"), &json!("run"))
    );
    assert_eq!(
        past[3],
        json!({"metadata": {}, "role": "tool", "content": "a b", "tool_call_id": "1"})
    );
    let pending = &body["pending_events"][1];
    assert_eq!(
        (&pending["id"], &pending["function"]["arguments"]["command"]),
        (&json!("3"), &json!("cat key"))
    );
    // The monitor is reused. The risk is low without a violation.
    assert_eq!(
        assess_risk(&analyzer, &run("ls"), &history()).await,
        Ok(SecurityRisk::Low)
    );
    assert!(
        request(&mut server)
            .await
            .0
            .starts_with("POST /v1/monitor/m%2F1/check")
    );
}

#[tokio::test]
async fn monitor_is_created_again_when_invariant_has_restarted() {
    let replies = creation_replies("m")
        .into_iter()
        .chain([Reply::json(200, &json!([])), Reply::json(404, &json!({}))]);
    let replies = replies
        .chain(creation_replies("n"))
        .chain([Reply::json(200, &json!(["[risk=high] x", "[risk=low]"]))]);
    let mut server = Server::start(replies.collect()).await;
    let analyzer = invariant(&server);
    assert_eq!(
        assess_risk(&analyzer, &run("ls"), &history()).await,
        Ok(SecurityRisk::Low)
    );
    assert_eq!(
        assess_risk(&analyzer, &run("ls"), &history()).await,
        Ok(SecurityRisk::High)
    );
    assert_eq!(server.requests(), 9);
}

#[tokio::test]
async fn failure_of_invariant_is_an_error() {
    for (replies, error) in [
        (
            vec![Reply::json(503, &json!({}))],
            "responded with status 503 Service Unavailable",
        ),
        (
            creation_replies("m")
                .into_iter()
                .chain([Reply::json(200, &json!({}))])
                .collect(),
            "did not respond with a list of violations",
        ),
        (
            vec![Reply::json(200, &json!({}))],
            "did not respond with {id}",
        ),
    ] {
        let server = Server::start(replies).await;
        let risk = assess_risk(&invariant(&server), &run("ls"), &history()).await;
        assert_eq!(risk, Err(format!("the security analyzer {error}")));
    }
}

async fn score(reply: Reply) -> (Result<SecurityRisk, String>, Server) {
    let server = Server::start(vec![reply]).await;
    let analyzer = GraySwanAnalyzer::new(&server.url, "the-key".into(), "p".into(), LONG).unwrap();
    (
        assess_risk(&analyzer, &run("cat key"), &history()).await,
        server,
    )
}

#[tokio::test]
async fn grayswan_receives_messages_and_uses_v0s_thresholds() {
    for (body, risk) in [
        (json!({"violation": 0.3, "ipi": false}), SecurityRisk::Low),
        (
            json!({"violation": 0.31, "ipi": null}),
            SecurityRisk::Medium,
        ),
        (json!({"violation": 0.71}), SecurityRisk::High),
        (json!({"violation": 0.0, "ipi": true}), SecurityRisk::High),
        (
            json!({"output": {"data": {"violation": 0.5}}}),
            SecurityRisk::Medium,
        ),
    ] {
        assert_eq!(score(Reply::json(200, &body)).await.0, Ok(risk), "{body}");
    }
    let (_, mut server) = score(Reply::json(200, &json!({"violation": 0.1}))).await;
    let ServerEvent::Request { head, body } = server.next().await else {
        panic!("no request")
    };
    for header in [
        "authorization: Bearer the-key",
        "x-grayswan-api-key: the-key",
    ] {
        assert!(head.contains(header), "{head}");
    }
    assert_eq!(body["policy_id"], "p");
    let roles = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap());
    assert_eq!(
        roles.collect::<Vec<_>>(),
        ["user", "assistant", "tool", "assistant"]
    );
    let action = &body["messages"][3];
    assert_eq!(
        (
            &action["content"],
            &action["tool_calls"][0]["function"]["name"]
        ),
        (&json!("I look."), &json!("run"))
    );
    let arguments = action["tool_calls"][0]["function"]["arguments"]
        .as_str()
        .unwrap();
    assert!(
        arguments.contains("\"command\":\"cat key\"") && !arguments.contains("security_risk"),
        "{arguments}"
    );
}

#[tokio::test]
async fn grayswan_without_a_score_is_an_error() {
    for (reply, error) in [
        (
            Reply::json(200, &json!({"ipi": false})),
            "responded without a score",
        ),
        (
            Reply::json(403, &json!({"violation": 0.1})),
            "responded with status 403 Forbidden",
        ),
        (
            Reply::json(200, &json!([])),
            "did not respond with {violation}",
        ),
    ] {
        assert_eq!(
            score(reply).await.0,
            Err(format!("the security analyzer {error}"))
        );
    }
}

#[tokio::test]
async fn risk_of_a_posted_action_is_parsed() {
    let (risk, mut server) = assess(
        Reply::json(200, &json!({"risk": "HIGH", "reason": "because"})),
        LONG,
    )
    .await;
    assert_eq!(
        risk,
        Ok(RiskAssessment {
            risk: SecurityRisk::High,
            reason: "because".into()
        })
    );
    let ServerEvent::Request { head, body } = server.next().await else {
        panic!("no request")
    };
    assert!(head.contains("authorization: Bearer the-key"), "{head}");
    assert_eq!(
        (
            &body["action"]["action"],
            &body["action"]["args"]["command"]
        ),
        (&json!("run"), &json!("ls"))
    );
    assert_eq!(
        assess(Reply::json(200, &json!({"risk": "unknown"})), LONG)
            .await
            .0,
        Ok(SecurityRisk::Unknown.into())
    );
}

#[tokio::test]
async fn invalid_or_late_response_is_an_error() {
    for (reply, error) in [
        (
            Reply::json(200, &json!({"risk": "fine"})),
            "did not respond with {risk, reason}",
        ),
        (
            Reply::json(500, &json!({"risk": "low"})),
            "responded with status 500 Internal Server Error",
        ),
        (
            Reply::json(200, &json!({"risk": "low", "reason": "x".repeat(1 << 17)})),
            "responded with more than 65536 bytes",
        ),
        (
            Reply::cut("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"),
            "did not complete its response",
        ),
    ] {
        assert_eq!(
            assess(reply, LONG).await.0,
            Err(format!("the security analyzer {error}"))
        );
    }
    let late = assess(Reply::silence(), Duration::from_millis(100)).await.0;
    assert_eq!(
        late,
        Err("the security analyzer did not respond within 100ms".into())
    );
}

//! Errors of invalid requests name the field and have a client error status. No request crashes the
//! server.

use hyper::Method;

use crate::harness::TestServer;

#[tokio::test(flavor = "multi_thread")]
async fn invalid_input_is_refused_with_the_field_name() {
    let server = TestServer::start();
    let long_id = format!("/v1/actions/{}", "x".repeat(129));
    let deep = "[".repeat(100_000);
    let run = r#"{"action":"run","args":{"command":"true"}}"#;
    let table: &[(Method, &str, &str, u16, &str)] = &[
        (Method::POST, "/v1/actions/a", "", 400, "JSON"),
        (Method::POST, "/v1/actions/a", "{", 400, "JSON"),
        (Method::POST, "/v1/actions/a", &deep, 400, "JSON"),
        (Method::POST, "/v1/actions/a", "\"\\ud800\"", 400, "JSON"),
        (Method::POST, "/v1/actions/a", "[]", 422, "map"),
        (Method::POST, "/v1/actions/a", "{}", 422, "action"),
        (
            Method::POST,
            "/v1/actions/a",
            r#"{"action":7}"#,
            422,
            "action",
        ),
        (
            Method::POST,
            "/v1/actions/a",
            r#"{"action":"dance"}"#,
            400,
            "dance",
        ),
        (
            Method::POST,
            "/v1/actions/a",
            r#"{"action":"think"}"#,
            422,
            "think",
        ),
        (
            Method::POST,
            "/v1/actions/a",
            r#"{"action":"run"}"#,
            422,
            "command",
        ),
        (
            Method::POST,
            "/v1/actions/a",
            r#"{"action":"run","args":[]}"#,
            422,
            "args",
        ),
        (
            Method::POST,
            "/v1/actions/a",
            r#"{"action":"run","args":{"command":7}}"#,
            422,
            "args.command",
        ),
        (
            Method::POST,
            "/v1/actions/a",
            r#"{"action":"run","args":{"command":"a"},"timeout":-1}"#,
            422,
            "timeout",
        ),
        (
            Method::POST,
            "/v1/actions/a",
            r#"{"action":"run","args":{"command":"a"},"timeout":"x"}"#,
            422,
            "timeout",
        ),
        (
            Method::POST,
            "/v1/actions/a",
            r#"{"action":"run","args":{"command":"a"},"timeout":1e999}"#,
            400,
            "JSON",
        ),
        (Method::POST, "/v1/actions/a?after=-1", run, 400, "after"),
        (Method::POST, "/v1/actions/a?after=x", run, 400, "after"),
        (
            Method::POST,
            "/v1/actions/a?after=99999999999999999999",
            run,
            400,
            "after",
        ),
        (Method::POST, "/v1/actions/.a", run, 400, "id"),
        (Method::POST, "/v1/actions/a%2Fb", run, 400, "id"),
        (Method::POST, "/v1/actions/%ff", run, 400, "id"),
        (Method::POST, &long_id, run, 400, "id"),
        (Method::GET, "/v1/actions/unknown", "", 404, "unknown"),
        (Method::DELETE, "/v1/actions/unknown", "", 404, "unknown"),
        (Method::GET, "/nowhere", "", 404, "route"),
        (Method::GET, "/v1/actions/", "", 404, "route"),
        (Method::PUT, "/v1/info", "", 405, "method"),
        (Method::GET, "/execute_action", "", 405, "method"),
        (Method::POST, "/execute_action", "{}", 422, "action"),
        (
            Method::POST,
            "/execute_action",
            r#"{"action":"run"}"#,
            422,
            "action",
        ),
        (
            Method::POST,
            "/execute_action",
            r#"{"action":{"action":"dance"}}"#,
            400,
            "dance",
        ),
        (
            Method::POST,
            "/execute_action",
            r#"{"action":{"action":"read","args":{}}}"#,
            422,
            "path",
        ),
    ];
    for (method, path, body, status, named) in table {
        let reply = server.send(method.clone(), path, body.to_string()).await;
        let case = format!("{method} {path} {}: {reply:?}", &body[..body.len().min(80)]);
        assert_eq!(reply.status, *status, "{case}");
        let error = reply.json();
        assert!(error["code"].is_string(), "{case}");
        assert!(error["detail"].as_str().unwrap().contains(named), "{case}");
        assert_eq!(error["errors"].is_array(), *status == 422, "{case}");
    }
    assert_eq!(server.run("a", "echo fine").await.text(), "fine\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_refused_when_its_body_is_too_long() {
    let server = TestServer::start();
    let mut client = server.http2().await;
    let body = http_body_util::Full::<bytes::Bytes>::from(vec![b' '; (32 << 20) + 1]);
    let request = hyper::Request::post("http://sandbox/v1/actions/a")
        .body(body)
        .unwrap();
    assert_eq!(client.send_request(request).await.unwrap().status(), 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_action_arguments_are_handled() {
    let server = TestServer::start();
    let table = [
        r#"{"action":"read","args":{"path":"a\u0000b"}}"#,
        r#"{"action":"read","args":{"path":"","start":-9223372036854775808,"end":9223372036854775807}}"#,
        r#"{"action":"read","args":{"path":"/dev/zero"}}"#,
        r#"{"action":"read","args":{"path":"/","impl_source":"oh_aci","view_range":[1]}}"#,
        r#"{"action":"read","args":{"path":"/etc/passwd","impl_source":"oh_aci","view_range":[9223372036854775807,-2]}}"#,
        r#"{"action":"write","args":{"path":"/","content":"x"}}"#,
        r#"{"action":"write","args":{"path":"w","content":"x","start":9223372036854775807,"end":-7}}"#,
        r#"{"action":"write","args":{"path":"w","content":"x","start":9223372036854775807,"end":9223372036854775807}}"#,
        r#"{"action":"edit","args":{"path":"w","command":"insert","insert_line":-9223372036854775808,"new_str":""}}"#,
        r#"{"action":"edit","args":{"path":"w","command":"str_replace","old_str":"","new_str":""}}"#,
        r#"{"action":"edit","args":{"path":"\u0000","command":"create","file_text":""}}"#,
        r#"{"action":"edit","args":{"path":"w","command":"","impl_source":"llm_based_edit"}}"#,
    ];
    for (number, action) in table.iter().enumerate() {
        let answer = server
            .act(&format!("a{number}"), serde_json::from_str(action).unwrap())
            .await;
        assert!(
            !answer.observation.content.contains("failed on this file"),
            "{action}: {answer:?}"
        );
    }
}

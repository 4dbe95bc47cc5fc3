//! How the wire is chosen.

use engine::llm::{Llm as _, LlmErrorKind};
use llm::{LlmConfig, ProviderLlm, request_url};
use serde_json::{Value, json};

use super::scene::{response, text_item};
use crate::scene::{complete, config, request, response_body};
use crate::server::{Reply, Server, ServerEvent};

fn refusal(status: u16) -> Reply {
    let message = "Function tools with reasoning_effort are not supported for gpt-5.5 in /v1/chat/completions. To use \
                   function tools, use /v1/responses or set reasoning_effort to 'none'.";
    let error =
        json!({ "message": message, "type": "invalid_request_error", "param": "reasoning_effort" });
    Reply::json(status, &json!({ "error": error }))
}

fn success() -> Reply {
    Reply::json(200, &response(&json!([text_item("Hello")])))
}

/// Returns the path and the body of the next request.
async fn next_request(server: &mut Server) -> (String, Value) {
    let ServerEvent::Request { head, body } = server.next().await else {
        panic!("no request")
    };
    (head.split(' ').nth(1).unwrap().to_owned(), body)
}

#[tokio::test]
async fn refusal_of_chat_completions_is_remembered() {
    for status in [400, 404] {
        let mut server = Server::start(vec![refusal(status), success()]).await;
        let llm = ProviderLlm::new(&LlmConfig {
            model: "gpt-5.5".into(),
            ..config(&server)
        })
        .unwrap();
        for _ in 0..2 {
            assert_eq!(
                llm.complete(&request(), &|_| ())
                    .await
                    .unwrap()
                    .response
                    .message
                    .text,
                "Hello"
            );
        }
        assert_eq!(next_request(&mut server).await.0, "/v1/chat/completions");
        for _ in 0..2 {
            let (path, body) = next_request(&mut server).await;
            assert_eq!(
                (path.as_str(), &body["model"]),
                ("/v1/responses", &json!("gpt-5.5"))
            );
            assert!(
                body.get("messages").is_none() && body["input"].is_array(),
                "{body}"
            );
        }
    }
}

#[tokio::test]
async fn wire_changes_only_once() {
    let mut server = Server::start(vec![refusal(400)]).await;
    let error = complete(&config(&server)).await.unwrap_err();
    assert_eq!(
        (error.kind, server.requests()),
        (LlmErrorKind::BadRequest, 2)
    );
}

#[tokio::test]
async fn other_refusals_do_not_change_the_wire() {
    let body = json!({ "error": { "message": "Invalid schema for function 'x'" } });
    let mut server = Server::start(vec![
        Reply::json(400, &body),
        Reply::json(200, &response_body("x")),
    ])
    .await;
    assert_eq!(
        complete(&config(&server)).await.unwrap_err().kind,
        LlmErrorKind::BadRequest
    );
    assert_eq!(server.requests(), 1);
}

#[test]
fn setting_prefix_and_host_choose_the_wire() {
    for (model, provider, base, url) in [
        (
            "gpt-4o",
            None,
            None,
            "https://api.openai.com/v1/chat/completions",
        ),
        ("gpt-5.5", None, None, "https://api.openai.com/v1/responses"),
        (
            "gpt-5.5",
            Some("openai"),
            None,
            "https://api.openai.com/v1/chat/completions",
        ),
        (
            "gpt-5.5",
            None,
            Some("http://h/v1"),
            "http://h/v1/chat/completions",
        ),
        (
            "m",
            Some("openai_responses"),
            Some("http://h/v1"),
            "http://h/v1/responses",
        ),
        (
            "openai/responses/m",
            None,
            Some("http://h/v1"),
            "http://h/v1/responses",
        ),
    ] {
        let config = LlmConfig {
            custom_llm_provider: provider.map(str::to_owned),
            base_url: base.map(str::to_owned),
            ..LlmConfig::new(model)
        };
        assert_eq!(
            request_url(&config).unwrap().as_str(),
            url,
            "{model} {provider:?}"
        );
    }
}

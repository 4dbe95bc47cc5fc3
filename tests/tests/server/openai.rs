//! Agents as models, with OpenAI's client from PyPI.

use std::process::Stdio;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::glovebox::{Home, TEST_TIMEOUT, bash, finish};
use tests::host_server::{HostServer, is_state};

use crate::test_packages::pypi_packages;

/// Sends the requests in its last argument, a JSON list of arguments of the client's method, and
/// prints the results as JSON lines.
const CLIENT: &str = r"
import json, sys
import openai
url, key, requests = sys.argv[1:]
client = openai.OpenAI(base_url=url + '/v1', api_key=key)

def send(request):
    if request == 'models':
        return [model.id for model in client.models.list()]
    if not request.get('stream'):
        response = client.chat.completions.with_raw_response.create(**request)
        parsed = response.parse()
        return {**parsed.model_dump(), 'header': response.headers['x-conversation-id']}
    return [chunk.model_dump() for chunk in client.chat.completions.create(**request)]

for request in json.loads(requests):
    try:
        result = send(request)
    except openai.APIStatusError as error:
        result = {'error': type(error).__name__, 'status': error.status_code, 'body': error.body}
    except openai.APIError as error:
        result = {'error': type(error).__name__, 'status': None, 'body': error.body}
    print(json.dumps(result), flush=True)
";

/// Sends requests with the client. Returns the results.
async fn send(server: &HostServer, key: &str, requests: Value) -> Vec<Value> {
    let mut command = tokio::process::Command::new("python3");
    command
        .args(["-c", CLIENT, &server.url, key, &requests.to_string()])
        .stdin(Stdio::null());
    command
        .env("PYTHONPATH", pypi_packages().unwrap())
        .env("NO_PROXY", "127.0.0.1");
    let output = tokio::time::timeout(TEST_TIMEOUT, command.kill_on_drop(true).output());
    let output = output.await.expect("the client ends").unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn user(content: impl Into<Value>) -> Value {
    json!([{"role": "user", "content": content.into()}])
}

#[tokio::test]
async fn agent_answers_and_continues_by_id() {
    if pypi_packages().is_none() {
        return;
    }
    let home = Home::new();
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5});
    let mut second = json!({"text": "Again."});
    second["usage"] = usage.clone();
    let model = home.script(&json!([bash("echo hello"), finish(), second]));
    let server = HostServer::start(&home, &model, &[]);
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Who are you?"},
        {"role": "assistant", "content": "An agent."},
        {"role": "user", "content": "Say hello."},
    ]);
    let request = json!({"model": "glovebox/CodeActAgent", "messages": messages, "temperature": 0.5, "max_tokens": 9});
    let results = send(&server, &server.key, json!(["models", request])).await;
    let models = results[0].as_array().unwrap();
    assert_eq!(models[0], "glovebox");
    assert!(
        models.contains(&json!("glovebox/CodeActAgent")),
        "{models:?}"
    );
    let first = &results[1];
    assert_eq!(
        first["choices"][0]["message"]["content"], "Done.",
        "{first}"
    );
    assert_eq!(
        (&first["choices"][0]["finish_reason"], &first["model"]),
        (&json!("stop"), &json!("glovebox/CodeActAgent"))
    );
    assert!(first["usage"]["total_tokens"].as_u64().unwrap() > 0);
    assert_eq!(first["conversation_id"], first["header"]);
    let id = first["conversation_id"].as_str().unwrap();
    let events = server
        .wait_for_event(id, |event| is_state(event, "finished"))
        .await;
    let message = events
        .iter()
        .find(|event| event["action"] == "message")
        .unwrap();
    assert_eq!(message["args"]["content"], "Say hello.");
    assert!(events.iter().any(|event| {
        let instructions = event["extras"]["conversation_instructions"]
            .as_str()
            .unwrap_or_default();
        instructions.starts_with("Be brief.")
            && instructions.ends_with("User: Who are you?\n\nAssistant: An agent.")
    }));

    let by_body = json!({
        "model": "glovebox", "messages": user("Once more."), "extra_body": {"conversation_id": id},
    });
    let result = &send(&server, &server.key, json!([by_body])).await[0];
    assert_eq!(
        result["choices"][0]["message"]["content"], "Again.",
        "{result}"
    );
    assert_eq!(result["conversation_id"], id);
    let tokens =
        ["prompt_tokens", "completion_tokens", "total_tokens"].map(|name| &result["usage"][name]);
    assert_eq!(
        tokens,
        [&json!(10), &json!(5), &json!(15)],
        "of this turn only"
    );
    // The script has ended, so the agent fails.
    let by_header = json!({
        "model": "glovebox", "messages": user("And again."), "extra_headers": {"x-conversation-id": id},
    });
    let result = &send(&server, &server.key, json!([by_header])).await[0];
    assert_eq!(
        (&result["status"], &result["body"]["code"]),
        (&json!(422), &json!("AGENT$FAILED")),
        "{result}"
    );
    let events = server
        .get(&format!(
            "/api/conversations/{id}/events?limit=100&query=And again."
        ))
        .await;
    assert_eq!(
        events["events"].as_array().unwrap().len(),
        1,
        "sent once, although it failed"
    );
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn answer_is_streamed_message_by_message() {
    if pypi_packages().is_none() {
        return;
    }
    let home = Home::new();
    let model = home.script(&json!([{"text": "What is your name?"}, finish()]));
    let server = HostServer::start(&home, &model, &[]);
    let request = json!({"model": "glovebox", "messages": user("Greet me."), "stream": true});
    let chunks = send(&server, &server.key, json!([request])).await.remove(0);
    let chunks = chunks.as_array().unwrap();
    let deltas: Vec<_> = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["delta"])
        .collect();
    assert_eq!(
        (&deltas[0]["role"], &deltas[0]["content"]),
        (&json!("assistant"), &json!(""))
    );
    assert_eq!(deltas[1]["content"], "What is your name?");
    assert_eq!(
        chunks.last().unwrap()["choices"][0]["finish_reason"],
        "stop"
    );
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["object"] == "chat.completion.chunk")
    );
    let id = chunks[0]["conversation_id"].as_str().unwrap();

    let mut request = json!({"model": "glovebox", "messages": user("Ada"), "stream": true});
    request["stream_options"] = json!({"include_usage": true});
    request["extra_body"] = json!({"conversation_id": id});
    let failing = request.clone();
    let results = send(&server, &server.key, json!([request, failing])).await;
    let chunks = results[0].as_array().unwrap();
    assert_eq!(chunks[1]["choices"][0]["delta"]["content"], "Done.");
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert!(
        last["usage"]["total_tokens"].as_u64().unwrap() > 0,
        "{last}"
    );
    assert_eq!(results[1]["body"]["code"], "AGENT$FAILED", "{}", results[1]);
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn errors_have_the_format_of_openai() {
    if pypi_packages().is_none() {
        return;
    }
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let of = |fields: Value| {
        let mut request = json!({"model": "glovebox", "messages": user("Go.")});
        request
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        request
    };
    let tool = json!({"type": "function", "function": {"name": "a"}});
    let cases = [
        (
            of(json!({"model": "gpt-5"})),
            "NotFoundError",
            404,
            "model",
            "model_not_found",
        ),
        (
            of(json!({"tools": [tool]})),
            "BadRequestError",
            400,
            "tools",
            "API$INVALID_REQUEST",
        ),
        (
            of(json!({"n": 2})),
            "BadRequestError",
            400,
            "n",
            "API$INVALID_REQUEST",
        ),
        (
            of(json!({"messages": []})),
            "BadRequestError",
            400,
            "messages",
            "API$INVALID_REQUEST",
        ),
        (
            of(json!({"messages": [{"role": "x", "content": "a"}]})),
            "BadRequestError",
            400,
            "messages[0].role",
            "API$INVALID_REQUEST",
        ),
        (
            of(json!({"extra_body": {"conversation_id": "none"}})),
            "NotFoundError",
            404,
            "",
            "CONVERSATION$NOT_FOUND",
        ),
        (
            of(json!({"extra_body": {"conversation_id": "../a"}})),
            "BadRequestError",
            400,
            "conversation_id",
            "API$INVALID_REQUEST",
        ),
    ];
    let requests: Vec<_> = cases.iter().map(|(request, ..)| request.clone()).collect();
    let results = send(&server, &server.key, json!(requests)).await;
    for ((request, error, status, param, code), result) in cases.iter().zip(results) {
        let body = &result["body"];
        assert_eq!(
            (&result["error"], &result["status"]),
            (&json!(error), &json!(status)),
            "{request}: {result}"
        );
        assert_eq!(
            body["param"].as_str().unwrap_or_default(),
            *param,
            "{request}: {result}"
        );
        assert_eq!(
            (&body["code"], &body["type"]),
            (&json!(code), &json!("invalid_request_error"))
        );
        if *code == "model_not_found" {
            let text = "there is no model `gpt-5`; the models are glovebox, glovebox/";
            assert!(
                body["message"].as_str().unwrap().starts_with(text),
                "{body}"
            );
        }
    }
    let refused = send(&server, "wrong", json!([of(json!({}))]))
        .await
        .remove(0);
    assert_eq!(
        (
            &refused["error"],
            &refused["body"]["code"],
            &refused["body"]["type"]
        ),
        (
            &json!("AuthenticationError"),
            &json!("AUTH$WRONG_KEY"),
            &json!("authentication_error")
        )
    );
    let foreign = server
        .request(Method::GET, "/v1/models")
        .header("Origin", "http://evil.example");
    let body: Value = foreign.send().await.unwrap().json().await.unwrap();
    assert_eq!(body["error"]["type"], "permission_error", "{body}");
    let unknown = server.send(Method::GET, "/v1/assistants", None).await;
    assert_eq!(
        (unknown.0, &unknown.1["error"]["code"]),
        (StatusCode::NOT_FOUND, &json!("API$NO_ROUTE"))
    );
    assert_eq!(server.get("/api/conversations").await["results"], json!([]));
}

#[tokio::test]
async fn keys_and_owners_hold_for_chat_completions() {
    if pypi_packages().is_none() {
        return;
    }
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    let [ada, ben] = ["ada", "ben"].map(|name| home.add_user(name));
    let (reader, _) = home.add_key("ada", &["--scope", "read"]);
    let image =
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let content = json!([{"type": "text", "text": "What is this?"}, image]);
    let created = send(
        &server,
        &ada,
        json!([{"model": "glovebox", "messages": user(content)}]),
    )
    .await
    .remove(0);
    let id = created["conversation_id"].as_str().unwrap();
    let events = server
        .wait_for_event(id, |event| is_state(event, "finished"))
        .await;
    let message = events
        .iter()
        .find(|event| event["action"] == "message")
        .unwrap();
    assert_eq!(
        message["args"]["image_urls"],
        json!(["data:image/png;base64,iVBORw0KGgo="])
    );

    let by_id = |id: &str| json!([{"model": "glovebox", "messages": user("Hi."), "extra_body": {"conversation_id": id}}]);
    let unknown = "0".repeat(id.len());
    let of_none = send(&server, &ben, by_id(&unknown)).await.remove(0);
    let of_ada = send(&server, &ben, by_id(id)).await.remove(0);
    assert_eq!(
        of_ada.to_string().replace(id, &unknown),
        of_none.to_string()
    );
    let refused = send(
        &server,
        &reader,
        json!(["models", {"model": "glovebox", "messages": user("Hi.")}]),
    )
    .await;
    assert!(refused[0].is_array());
    assert_eq!(refused[1]["body"]["code"], "AUTH$READ_ONLY_KEY");
    let audit = home.glovebox(&["audit", "--json"]).output().unwrap();
    let rows = String::from_utf8(audit.stdout).unwrap();
    let rows: Vec<Value> = rows
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let is_row = |row: &&Value| row["action"] == "POST /v1/chat/completions";
    let found: Vec<_> = rows
        .iter()
        .filter(is_row)
        .map(|row| {
            (
                row["user"].as_str().unwrap(),
                row["conversation"] == id,
                row["status"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("ada", true, 200),
            ("ben", false, 404),
            ("ben", true, 404),
            ("ada", false, 403)
        ]
    );
}

#[tokio::test]
async fn answer_says_which_action_awaits_confirmation() {
    let home = Home::new();
    let server = HostServer::start(
        &home,
        &home.script(&json!([bash("echo hello"), finish()])),
        &[],
    );
    server
        .post("/api/settings", &json!({"confirmation_mode": true}))
        .await;
    let body = json!({"model": "glovebox", "messages": user("Say hello.")});
    let answer = server.post("/v1/chat/completions", &body).await;
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(
        text.contains("awaits confirmation: run echo hello") && text.contains("user_confirmed"),
        "{text}"
    );
    let id = answer["conversation_id"].as_str().unwrap();
    let start = text.find("{\"action\"").unwrap();
    let end = start + text[start..].find("}}").unwrap() + 2;
    let decision: Value = serde_json::from_str(&text[start..end]).unwrap();
    server
        .post(&format!("/api/conversations/{id}/events"), &decision)
        .await;
    let events = server
        .wait_for_event(id, |event| is_state(event, "finished"))
        .await;
    assert!(events.iter().any(|event| event["content"] == "hello"));
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
}

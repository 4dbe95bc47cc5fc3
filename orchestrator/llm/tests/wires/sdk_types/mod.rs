//! Requests of each wire, validated with the parameter types of OpenAI's and Anthropic's SDKs from
//! PyPI.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use engine::llm::{ChatMessage, Llm as _, LlmRequest, MessagePart};
use llm::{LlmConfig, ProviderLlm};
use serde_json::{Value, json};

use crate::scene;
use crate::server::{Reply, Server};
use crate::test_packages::pypi_packages;

const VALIDATE: &str = include_str!("validate.py");

const IMAGE: &str = "data:image/png;base64,AA==";

/// Fields with any JSON: the schemas of tools, and the arguments of calls.
const FREE_FIELDS: [(&str, &str); 4] = [
    ("chat", "parameters"),
    ("responses", "parameters"),
    ("messages", "input_schema"),
    ("messages", "input"),
];

/// A model with its API, and the provider's response to each of its requests.
struct Model {
    api: &'static str,
    config: LlmConfig,
    response: Value,
}

fn model(api: &'static str, name: &str, change: impl FnOnce(&mut LlmConfig)) -> Model {
    let response = match api {
        "chat" => chat_completion(),
        "responses" => response(),
        _ => message(),
    };
    let mut config = LlmConfig::new(name);
    change(&mut config);
    Model {
        api,
        config,
        response,
    }
}

fn models() -> Vec<Model> {
    let all_parameters = |config: &mut LlmConfig| {
        (config.top_p, config.max_output_tokens, config.seed) = (Some(0.5), Some(4000), Some(7));
        config.stop = vec!["END".into()];
    };
    let effort = |effort: &'static str| {
        move |config: &mut LlmConfig| config.reasoning_effort = Some(effort.to_owned())
    };
    vec![
        model("chat", "openai/gpt-4o", all_parameters),
        model("chat", "openai/o3", effort("high")),
        model("responses", "openai/responses/gpt-4o", all_parameters),
        model("responses", "openai/responses/gpt-6-luna", effort("xhigh")),
        model("messages", "anthropic/claude-sonnet-4", all_parameters),
        model("messages", "anthropic/claude-3-7-sonnet", effort("medium")),
        model("messages", "anthropic/claude-opus-5-5", effort("max")),
    ]
}

fn chat_completion() -> Value {
    let call = |id: &str| json!({ "id": id, "type": "function", "function": { "name": "execute_bash", "arguments": "{\"command\": \"ls\"}" } });
    let message = json!({
        "role": "assistant", "content": "I look.", "refusal": null, "annotations": [], "audio": null,
        "tool_calls": [call("call_1"), call("call_2")],
    });
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt",
        "choices": [{ "index": 0, "finish_reason": "tool_calls", "logprobs": null, "message": message }],
    })
}

fn response() -> Value {
    let call = |id: &str| {
        json!({
            "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "execute_bash",
            "arguments": "{}", "status": "completed",
        })
    };
    let text =
        json!({ "type": "output_text", "text": "I look.", "annotations": [], "logprobs": [] });
    let output = json!([
        {
            "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": "hm" }],
            "encrypted_content": "e", "status": null,
        },
        {
            "type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [text],
            "phase": "commentary",
        },
        call("call_1"),
        call("call_2"),
    ]);
    json!({ "id": "resp_1", "object": "response", "status": "completed", "model": "gpt", "output": output })
}

fn message() -> Value {
    let call = |id: &str| {
        json!({
            "type": "tool_use", "id": id, "name": "execute_bash", "input": { "command": "ls" },
            "caller": { "type": "direct" },
        })
    };
    let content = json!([
        { "type": "thinking", "thinking": "hm", "signature": "s" },
        { "type": "redacted_thinking", "data": "d" },
        { "type": "text", "text": "I look.", "citations": null },
        call("toolu_1"),
        call("toolu_2"),
    ]);
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": content,
        "stop_reason": "tool_use", "usage": { "input_tokens": 1, "output_tokens": 1 },
    })
}

/// Returns a request, and the response of its model with the results of its calls.
async fn request(model: &Model, messages: &[ChatMessage]) -> (Value, Vec<ChatMessage>) {
    let mut server = Server::start(vec![Reply::json(200, &model.response)]).await;
    let (url, key) = (server.url.clone(), scene::KEY.into());
    let config = LlmConfig {
        base_url: Some(url),
        api_key: Some(key),
        ..model.config.clone()
    };
    let tools = scene::request().tools;
    let request = LlmRequest {
        messages: messages.to_vec(),
        tools,
    };
    let completion = ProviderLlm::new(&config)
        .unwrap()
        .complete(&request, &|_| ())
        .await
        .unwrap();
    let message = completion.response.message;
    let calls = message.tool_calls.clone();
    let results = calls.into_iter().map(|call| ChatMessage::ToolResult {
        call_id: call.id,
        name: call.name,
        parts: vec![
            MessagePart::Text("done".into()),
            MessagePart::Image(IMAGE.into()),
        ],
    });
    let body = json!({ "api": model.api, "body": server.body().await });
    (
        body,
        std::iter::once(ChatMessage::Assistant(message))
            .chain(results)
            .collect(),
    )
}

/// Returns the requests of all models: first with an empty history, then with their own response,
/// and then with those of all others.
async fn requests() -> Vec<Value> {
    let user = |text: &str| {
        ChatMessage::User(vec![
            MessagePart::Text(text.into()),
            MessagePart::Image(IMAGE.into()),
        ])
    };
    let start = vec![ChatMessage::System("be good".into()), user("go")];
    let models = models();
    let (mut requests, mut whole) = (Vec::new(), start.clone());
    for model in &models {
        let (first, turn) = request(model, &start).await;
        let (next, _) = request(model, &[&start[..], &turn[..], &[user("more")]].concat()).await;
        requests.extend([first, next]);
        whole.extend(turn);
    }
    for model in &models {
        requests.push(request(model, &whole).await.0);
    }
    requests
}

fn validate(requests: &[Value], packages: &Path) -> Vec<Value> {
    let mut process = Command::new("python3")
        .args(["-c", VALIDATE])
        .env("PYTHONPATH", packages)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: String = requests
        .iter()
        .map(|request| format!("{request}\n"))
        .collect();
    process
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let output = String::from_utf8(output.stdout).unwrap();
    output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn requests_have_the_types_of_the_providers_sdks() {
    let Some(packages) = pypi_packages() else {
        return;
    };
    let requests = requests().await;
    let results = validate(&requests, &packages);
    assert_eq!(results.len(), requests.len());
    for (request, result) in requests.iter().zip(&results) {
        assert_eq!(result["errors"], json!([]), "{result:#} {request:#}");
        // An unknown key is an error in every object with a type.
        let is_free = |path: &&Value| {
            let mut keys = path.as_array().unwrap().iter();
            keys.any(|key| {
                FREE_FIELDS
                    .iter()
                    .any(|(api, field)| request["api"] == *api && key == field)
            })
        };
        let unchecked = result["unchecked"].as_array().unwrap().iter();
        let unchecked: Vec<&Value> = unchecked.filter(|path| !is_free(path)).collect();
        assert!(unchecked.is_empty(), "{unchecked:?} of {request:#}");
    }
}

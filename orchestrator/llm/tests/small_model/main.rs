//! A real model, small and on this machine: what a scripted server cannot show of streams, counts and cancelling, and the
//! text format for tool calls. Nothing about its cleverness is asserted.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

#[path = "../../../../tests/pypi.rs"]
mod pypi;

mod server;

use std::sync::Mutex;
use std::time::Duration;

use engine::llm::{AssistantMessage, ChatMessage, Completion, LlmProgress, LlmRequest, MessagePart, Tool};
use llm::{LlmConfig, connect};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use server::Server;

/// Many times what a short answer takes on a busy machine, and many times less than the long answer takes on an idle one.
const SHORT: Duration = Duration::from_secs(100);

fn config(server: &Server, fields: Value) -> LlmConfig {
    let Value::Object(completion_kwargs) = fields else { panic!("fields are an object") };
    LlmConfig {
        base_url: Some(format!("{}/v1", server.address)),
        max_output_tokens: Some(12),
        native_tool_calling: Some(true),
        completion_kwargs,
        ..LlmConfig::new("SmolLM2-135M-Instruct")
    }
}

fn user(text: &str) -> ChatMessage {
    ChatMessage::User(vec![MessagePart::Text(text.into())])
}

fn said(message: Value) -> ChatMessage {
    ChatMessage::Assistant(AssistantMessage::from_stored(message))
}

/// The answer, and its text as it was told.
async fn ask(config: &LlmConfig, request: &LlmRequest) -> (Completion, Vec<String>) {
    let told = Mutex::new(Vec::new());
    let on_progress = |progress| {
        if let LlmProgress::Text(piece) = progress {
            told.lock().unwrap().push(piece);
        }
    };
    let completion = connect(config).unwrap().complete(request, &on_progress).await.unwrap();
    (completion, told.into_inner().unwrap())
}

/// One test: the model is loaded once.
#[tokio::test]
async fn a_small_model_answers() {
    let Some(server) = Server::start() else { return };
    it_streams_and_counts(&server).await;
    a_dropped_call_ends_its_work(&server).await;
    it_calls_tools_in_its_text(&server).await;
}

async fn it_streams_and_counts(server: &Server) {
    let request = LlmRequest { messages: vec![user("Tell me of the sea.")], tools: vec![] };
    let (completion, told) = ask(&config(server, json!({ "ignore_eos": true })), &request).await;
    assert!(told.len() > 1, "{told:?}");
    assert_eq!(told.concat(), completion.response.message.text);
    assert_eq!(completion.usage.completion_tokens, 12);
    assert!(completion.usage.prompt_tokens > 5, "{:?}", completion.usage);
    assert_eq!(completion.cost, None);
    assert_eq!(completion.response.finish_reason, "length");
}

async fn a_dropped_call_ends_its_work(server: &Server) {
    let mut long = config(server, json!({ "ignore_eos": true }));
    long.max_output_tokens = Some(4000);
    let (began, mut beginning) = mpsc::unbounded_channel();
    let asking = tokio::spawn(async move {
        let request = LlmRequest { messages: vec![user("Count to a thousand.")], tools: vec![] };
        let on_progress = move |progress| {
            if matches!(progress, LlmProgress::Text(_)) {
                let _ = began.send(());
            }
        };
        connect(&long).unwrap().complete(&request, &on_progress).await
    });
    beginning.recv().await.unwrap();
    asking.abort();
    let request = LlmRequest { messages: vec![user("Hello.")], tools: vec![] };
    tokio::time::timeout(SHORT, ask(&config(server, json!({})), &request)).await.unwrap();
}

/// A grammar holds its pen: a model of this size would not find the format by itself.
async fn it_calls_tools_in_its_text(server: &Server) {
    let grammar =
        r#"root ::= "I say it.\n<function=say>\n<parameter=text>\n" [a-z]{3} "\n</parameter>\n</function>""#;
    let mut config = config(server, json!({ "grammar": grammar }));
    config.native_tool_calling = None;
    config.max_output_tokens = Some(200);
    let call = json!({ "id": "c", "function": { "name": "say", "arguments": "{\"text\": \"hi\"}" } });
    let result = |text: &str| ChatMessage::ToolResult {
        call_id: "c".into(),
        name: "say".into(),
        parts: vec![MessagePart::Text(text.into())],
    };
    let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let request = LlmRequest {
        messages: vec![
            ChatMessage::System("You say things.".into()),
            user("Say hi."),
            said(json!({ "content": null, "tool_calls": [call] })),
            result("said"),
            user("Say more."),
        ],
        tools: vec![Tool { name: "say".into(), description: "Says it.".into(), parameters: schema }],
    };
    let (completion, _) = ask(&config, &request).await;
    assert_eq!(completion.response.message.text, "I say it.");
    let calls = completion.response.message.tool_calls;
    assert_eq!((calls.len(), calls[0].name.as_str()), (1, "say"));
    let arguments: Value = serde_json::from_str(&calls[0].arguments).unwrap();
    assert_eq!(arguments["text"].as_str().unwrap().len(), 3);
}

//! A small real model on this machine: streaming, token counts, cancellation, and emulated tool
//! calls. The quality of its responses does not matter.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "../../../../tests/pypi.rs"]
mod pypi;
#[path = "../../../../tests/skip.rs"]
mod skip;

mod server;

use std::sync::Mutex;
use std::time::Duration;

use engine::llm::{
    AssistantMessage, ChatMessage, Completion, LlmProgress, LlmRequest, MessagePart, Tool, ToolCall,
};
use llm::{LlmConfig, connect};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use server::Server;

/// Much longer than a short response takes on a busy machine, and much shorter than a long one
/// takes on an idle machine.
const SHORT: Duration = Duration::from_secs(100);

fn config(server: &Server, fields: Value) -> LlmConfig {
    let Value::Object(completion_kwargs) = fields else {
        panic!("fields are an object")
    };
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

fn result(text: &str) -> ChatMessage {
    let parts = vec![MessagePart::Text(text.into())];
    ChatMessage::ToolResult {
        call_id: "c".into(),
        name: "say".into(),
        parts,
    }
}

fn assistant(message: Value) -> ChatMessage {
    ChatMessage::Assistant(AssistantMessage::from_stored(message))
}

/// Returns the completion and the reported chunks of its text.
async fn complete(config: &LlmConfig, request: &LlmRequest) -> (Completion, Vec<String>) {
    let chunks = Mutex::new(Vec::new());
    let on_progress = |progress| {
        if let LlmProgress::Text(chunk) = progress {
            chunks.lock().unwrap().push(chunk);
        }
    };
    let completion = connect(config)
        .unwrap()
        .complete(request, &on_progress)
        .await
        .unwrap();
    (completion, chunks.into_inner().unwrap())
}

/// One test, so that the model is loaded once.
#[tokio::test]
async fn small_model_streams_counts_and_calls_tools() {
    let Some(server) = Server::start() else {
        return;
    };
    assert_streams_and_counts(&server).await;
    assert_speaks_all_wires(&server).await;
    assert_dropped_call_is_cancelled(&server).await;
    assert_emulates_tool_calls(&server).await;
}

async fn assert_streams_and_counts(server: &Server) {
    let request = LlmRequest {
        messages: vec![user("Tell me of the sea.")],
        tools: vec![],
    };
    let (completion, chunks) =
        complete(&config(server, json!({ "ignore_eos": true })), &request).await;
    assert!(chunks.len() > 1, "{chunks:?}");
    assert_eq!(chunks.concat(), completion.response.message.text);
    assert_eq!(completion.usage.completion_tokens, 12);
    assert!(completion.usage.prompt_tokens > 5, "{:?}", completion.usage);
    assert_eq!(completion.cost, None);
    assert_eq!(completion.response.finish_reason, "length");
}

/// Sends two turns on each wire, streamed and not. The second has the call of a tool with its
/// result.
///
/// On the wire of the Responses API, llama.cpp sends no index of an item, and no reason when it
/// stops at the maximum length.
async fn assert_speaks_all_wires(server: &Server) {
    for (wire, is_streamed) in [
        ("openai", true),
        ("openai", false),
        ("openai_responses", true),
        ("openai_responses", false),
        ("anthropic", true),
        ("anthropic", false),
    ] {
        let mut config = config(server, json!({ "ignore_eos": true, "stream": is_streamed }));
        config.custom_llm_provider = Some(wire.into());
        config.max_output_tokens = Some(20);
        let mut request = LlmRequest {
            messages: vec![ChatMessage::System("Be brief.".into()), user("Hello.")],
            tools: vec![],
        };
        for _ in 0..2 {
            let (completion, chunks) = complete(&config, &request).await;
            assert_eq!(!chunks.is_empty(), is_streamed, "{wire}: {chunks:?}");
            let mut message = completion.response.message;
            assert!(!message.text.is_empty(), "{wire}");
            if is_streamed {
                assert_eq!(chunks.concat(), message.text, "{wire}");
            }
            // llama.cpp ignores `ignore_eos` on the wire of Anthropic.
            let tokens = if wire == "anthropic" { 1..=20 } else { 20..=20 };
            assert!(
                tokens.contains(&completion.usage.completion_tokens),
                "{wire}: {:?}",
                completion.usage
            );
            message.tool_calls = vec![ToolCall {
                id: "c".into(),
                name: "say".into(),
                arguments: "{}".into(),
                ..ToolCall::default()
            }];
            request.messages.extend([
                ChatMessage::Assistant(message),
                result("said"),
                user("Go on."),
            ]);
        }
    }
}

async fn assert_dropped_call_is_cancelled(server: &Server) {
    let mut long = config(server, json!({ "ignore_eos": true }));
    long.max_output_tokens = Some(4000);
    let (started, mut start) = mpsc::unbounded_channel();
    let call = tokio::spawn(async move {
        let request = LlmRequest {
            messages: vec![user("Count to a thousand.")],
            tools: vec![],
        };
        let on_progress = move |progress| {
            if matches!(progress, LlmProgress::Text(_)) {
                let _ = started.send(());
            }
        };
        connect(&long)
            .unwrap()
            .complete(&request, &on_progress)
            .await
    });
    start.recv().await.unwrap();
    call.abort();
    let request = LlmRequest {
        messages: vec![user("Hello.")],
        tools: vec![],
    };
    tokio::time::timeout(SHORT, complete(&config(server, json!({})), &request))
        .await
        .unwrap();
}

/// A grammar enforces the format, which a model of this size does not produce reliably.
async fn assert_emulates_tool_calls(server: &Server) {
    let grammar = r#"root ::= "I say it.\n<function=say>\n<parameter=text>\n" [a-z]{3} "\n</parameter>\n</function>""#;
    let mut config = config(server, json!({ "grammar": grammar }));
    config.native_tool_calling = None;
    config.max_output_tokens = Some(200);
    let call =
        json!({ "id": "c", "function": { "name": "say", "arguments": "{\"text\": \"hi\"}" } });
    let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let request = LlmRequest {
        messages: vec![
            ChatMessage::System("You say things.".into()),
            user("Say hi."),
            assistant(json!({ "content": null, "tool_calls": [call] })),
            result("said"),
            user("Say more."),
        ],
        tools: vec![Tool {
            name: "say".into(),
            description: "Says it.".into(),
            parameters: schema,
        }],
    };
    let (completion, _) = complete(&config, &request).await;
    assert_eq!(completion.response.message.text, "I say it.");
    let calls = completion.response.message.tool_calls;
    assert_eq!((calls.len(), calls[0].name.as_str()), (1, "say"));
    let arguments: Value = serde_json::from_str(&calls[0].arguments).unwrap();
    assert_eq!(arguments["text"].as_str().unwrap().len(), 3);
}

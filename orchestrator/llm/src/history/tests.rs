//! What a model has written, and what is sent of it.

use engine::llm::{AssistantMessage, ChatMessage, LlmRequest, MessagePart, ModelResponse, Tool};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{BRIDGE, CONTINUE, History, HistoryRefusal, MOVED_IMAGES, NO_RESULT, text_part};
use crate::config::LlmConfig;

fn history(model: &str) -> History {
    History::new(&LlmConfig::new(model), "h:443", false)
}

fn request(messages: Vec<ChatMessage>) -> LlmRequest {
    LlmRequest {
        messages,
        tools: vec![],
    }
}

fn sent(model: &str, messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    history(model).acceptable(&request(messages)).messages
}

fn user(text: &str) -> ChatMessage {
    ChatMessage::User(vec![text_part(text)])
}

fn assistant(message: Value) -> ChatMessage {
    ChatMessage::Assistant(AssistantMessage::from_stored(message))
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

fn result(id: &str, text: &str) -> ChatMessage {
    ChatMessage::ToolResult {
        call_id: id.into(),
        name: "run".into(),
        parts: vec![text_part(text)],
    }
}

/// Returns the calls of all messages, as they are stored.
fn calls(messages: &[ChatMessage]) -> Vec<Value> {
    let assistants = messages.iter().filter_map(|message| match message {
        ChatMessage::Assistant(message) => Some(message),
        _ => None,
    });
    assistants
        .flat_map(|message| &message.tool_calls)
        .map(|call| call.to_stored())
        .collect()
}

#[test]
fn arguments_become_an_object() {
    for (written, expected) in [
        (
            r#"{"command": "echo hi"#,
            r#"{"malformed":"{\"command\": \"echo hi"}"#,
        ),
        ("", "{}"),
        ("null", "{}"),
        ("[1]", r#"{"malformed":"[1]"}"#),
        (r#"{"x":  1}"#, r#"{"x":  1}"#),
    ] {
        let messages = sent(
            "m",
            vec![
                user("go"),
                assistant(json!({ "tool_calls": [call("a", "run", written)] })),
            ],
        );
        assert_eq!(calls(&messages), [call("a", "run", expected)], "{written}");
    }
}

#[test]
fn names_are_cleaned_and_the_meant_tool_is_found() {
    let tool = |name: &str| Tool {
        name: name.into(),
        description: String::new(),
        parameters: json!({}),
    };
    let request = LlmRequest {
        messages: vec![],
        tools: vec![tool("execute_bash"), tool("mcp_a.b")],
    };
    for (written, found, sent_name) in [
        ("execute_bash", "execute_bash", "execute_bash"),
        (
            "execute_bash<|channel|>commentary",
            "execute_bash",
            "execute_bash",
        ),
        ("functions.execute_bash", "execute_bash", "execute_bash"),
        ("Execute_Bash ", "execute_bash", "execute_bash"),
        ("mcp_a.b", "mcp_a.b", "mcp_a_b"),
        ("other.tool", "other.tool", "other_tool"),
        ("", "", "unknown_tool"),
    ] {
        let message = json!({ "tool_calls": [call("a", written, "{}")] });
        let mut response = ModelResponse {
            message: AssistantMessage::from_stored(message),
            ..Default::default()
        };
        history("m").complete(&mut response, &request);
        assert_eq!(response.message.tool_calls[0].name, found, "{written}");
        let messages = sent(
            "m",
            vec![user("go"), ChatMessage::Assistant(response.message)],
        );
        assert_eq!(calls(&messages), [call("a", sent_name, "{}")], "{written}");
    }
    let long = sent(
        "m",
        vec![
            user("go"),
            assistant(json!({ "tool_calls": [call("a", &"x".repeat(150), "{}")] })),
        ],
    );
    assert_eq!(calls(&long), [call("a", &"x".repeat(64), "{}")]);
}

#[test]
fn calls_of_one_response_get_different_ids() {
    let blocks =
        ["a", "b"].map(|name| json!({ "type": "tool_use", "id": "1", "name": name, "input": {} }));
    let message = json!({ "tool_calls": [call("1", "a", "{}"), call("1", "b", "{}")], "anthropic_content": blocks });
    let mut response = ModelResponse {
        message: AssistantMessage::from_stored(message),
        ..Default::default()
    };
    history("m").complete(&mut response, &LlmRequest::default());
    let ids: Vec<_> = response
        .message
        .tool_calls
        .iter()
        .map(|call| call.id.as_str())
        .collect();
    assert_eq!(ids, ["1", "1-2"]);
    let blocks = &response.message.provider_fields.0["anthropic_content"];
    assert_eq!(
        (&blocks[0]["id"], &blocks[1]["id"]),
        (&json!("1"), &json!("1-2"))
    );
}

#[test]
fn refused_and_repeated_ids_are_replaced_with_those_of_results() {
    let long = "functions.execute_bash:0/a-very-long-id-of-another-server";
    let turn = |id: &str| {
        [
            assistant(json!({ "tool_calls": [call(id, "run", "{}")] })),
            result(id, "done"),
        ]
    };
    let messages = [
        vec![user("go")],
        turn(long).into(),
        turn(long).into(),
        turn("ok").into(),
    ]
    .concat();
    for (model, length) in [("gpt-4o", 16), ("mistral-large-4", 9)] {
        let messages = sent(model, messages.clone());
        let ids: Vec<_> = calls(&messages)
            .iter()
            .map(|call| call["id"].as_str().unwrap().to_owned())
            .collect();
        let results = messages.iter().filter_map(|message| match message {
            ChatMessage::ToolResult { call_id, .. } => Some(call_id.clone()),
            _ => None,
        });
        let results: Vec<_> = results.collect();
        assert_eq!(ids, results);
        assert!(
            ids[0].len() == length && ids[1].len() == length && ids[0] != ids[1],
            "{ids:?}"
        );
        assert_eq!(ids[2] == "ok", model == "gpt-4o");
    }
}

#[test]
fn each_call_has_one_result_after_it() {
    let messages = vec![
        user("go"),
        result("orphan", "x"),
        assistant(json!({ "tool_calls": [call("a", "run", "{}"), call("b", "run", "{}")] })),
        result("b", "done"),
        result("c", "of no call"),
    ];
    let results: Vec<_> = sent("m", messages).into_iter().skip(2).collect();
    assert_eq!(results, [result("a", NO_RESULT), result("b", "done")]);
}

#[test]
fn calls_with_the_same_id_have_their_own_results() {
    let calls_of_a_log = [call("a", "run", "{}"), call("a", "run", "{}")];
    let messages = vec![
        user("go"),
        assistant(json!({ "tool_calls": calls_of_a_log })),
        result("a", "one"),
        result("a", "two"),
    ];
    let sent = sent("m", messages);
    let [
        ..,
        ChatMessage::ToolResult {
            call_id: first,
            parts: one,
            ..
        },
        ChatMessage::ToolResult {
            call_id: second,
            parts: two,
            ..
        },
    ] = sent.as_slice()
    else {
        panic!("{sent:?}")
    };
    assert_ne!(first, second);
    assert_eq!(
        (one, two),
        (&vec![text_part("one")], &vec![text_part("two")])
    );
}

#[test]
fn empty_messages_are_left_out_and_users_messages_joined() {
    let empty = json!({ "content": " ", "reasoning_content": "hm" });
    let messages = vec![
        user("one"),
        user("two"),
        assistant(empty),
        user("three"),
        assistant(json!({})),
    ];
    let joined = ChatMessage::User(vec![text_part("one"), text_part("two"), text_part("three")]);
    assert_eq!(sent("m", messages), [joined]);
    let search = json!({ "anthropic_content": [{ "type": "server_tool_use", "id": "s" }] });
    assert_eq!(
        sent("m", vec![user("go"), assistant(search.clone())])[1],
        assistant(search)
    );
}

#[test]
fn call_without_an_id_hides_no_other_from_its_block() {
    let long = "l".repeat(150);
    let block =
        |id: &str, name: &str| json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
    let message = assistant(json!({
        "tool_calls": [call("response-call-1", "run", "{}"), call("b:1", &long, "{}")],
        "anthropic_content": [block("", "run"), block("b:1", &long)],
    }));
    let messages = sent("m", vec![user("go"), message]);
    let ChatMessage::Assistant(sent) = &messages[1] else {
        panic!("{messages:?}")
    };
    let blocks = sent.provider_fields.0["anthropic_content"]
        .as_array()
        .unwrap();
    for (block, call) in blocks.iter().zip(&sent.tool_calls) {
        assert_eq!(
            (&block["id"], &block["name"]),
            (&json!(call.id), &json!(call.name))
        );
    }
    assert_eq!(sent.tool_calls[1].name.len(), 64);
}

#[test]
fn arguments_of_an_original_call_are_text() {
    for (original, arguments) in [
        (Value::Null, ""),
        (json!({ "x": 1 }), "{\"x\":1}"),
        (json!("{}"), "{}"),
    ] {
        let mut item = json!({ "type": "function_call", "call_id": "a", "name": "run", "arguments": original });
        if original.is_null() {
            item.as_object_mut().unwrap().remove("arguments");
        }
        let message =
            json!({ "tool_calls": [call("a", "run", arguments)], "openai_output": [item] });
        let messages = sent("m", vec![user("go"), assistant(message)]);
        let ChatMessage::Assistant(sent) = &messages[1] else {
            panic!("{messages:?}")
        };
        let text = sent.provider_fields.0["openai_output"][0]["arguments"]
            .as_str()
            .unwrap();
        assert!(
            serde_json::from_str::<Value>(text).unwrap().is_object(),
            "{original}: {text}"
        );
    }
}

#[test]
fn model_answers_the_user() {
    let text = || assistant(json!({ "content": "I begin." }));
    let expected = [user(CONTINUE), text(), user("go")];
    assert_eq!(
        sent("m", vec![user(" "), text(), user(""), user("go")]),
        expected
    );
    assert_eq!(
        sent("m", vec![ChatMessage::System("be good".into())])[1..],
        [user(CONTINUE)]
    );
}

#[test]
fn no_request_ends_with_a_message_of_the_model() {
    let said = || assistant(json!({ "content": "I begin." }));
    let first = sent("m", vec![user("go"), said()]);
    assert_eq!(first, [user("go"), said(), user(CONTINUE)]);
    let next = sent("m", vec![user("go"), said(), said()]);
    assert_eq!(next[..3], first, "a request is the start of the next one");
}

#[test]
fn strict_templates_get_a_message_between_result_and_user() {
    let turn = |model| {
        let call = assistant(json!({ "tool_calls": [call("abcdefghi", "finish", "{}")] }));
        sent(
            model,
            vec![user("go"), call, result("abcdefghi", "done"), user("more")],
        )
    };
    assert_eq!(
        turn("mistral/devstral-medium")[3..],
        [assistant(json!({ "content": BRIDGE })), user("more")]
    );
    assert_eq!(turn("gpt-4o")[3..], [user("more")]);
}

#[test]
fn images_follow_results_that_cannot_hold_them() {
    let image = || MessagePart::Image("data:image/png;base64,AA==".into());
    let with_image = |id: &str| ChatMessage::ToolResult {
        call_id: id.into(),
        name: "run".into(),
        parts: vec![text_part("see"), image()],
    };
    let call = assistant(json!({ "tool_calls": [call("a", "run", "{}"), call("b", "run", "{}")] }));
    let messages = vec![
        user("go"),
        call,
        with_image("a"),
        result("b", "ok"),
        user("and?"),
    ];
    let moved = ChatMessage::User(vec![text_part(MOVED_IMAGES), image(), text_part("and?")]);
    assert_eq!(
        sent("m", messages.clone())[2..],
        [result("a", "see"), result("b", "ok"), moved]
    );
    let kept = History::new(&LlmConfig::new("m"), "h", true).acceptable(&request(messages.clone()));
    assert_eq!(kept.messages, messages);
}

fn signed(history: &History) -> AssistantMessage {
    let message = json!({
        "content": "hm", "reasoning_content": "because", "annotations": [],
        "tool_calls": [{ "id": "a", "function": { "name": "run", "arguments": "{}" }, "extra_content": { "x": 1 } }],
    });
    let mut response = ModelResponse {
        message: AssistantMessage::from_stored(message),
        ..Default::default()
    };
    history.complete(&mut response, &LlmRequest::default());
    response.message
}

#[test]
fn fields_are_sent_only_to_their_writer() {
    let writer = history("a");
    let message = signed(&writer);
    let request = request(vec![user("go"), ChatMessage::Assistant(message)]);
    let sent_by = |history: &History| match &history.acceptable(&request).messages[1] {
        ChatMessage::Assistant(message) => Value::Object(message.to_stored()),
        other => panic!("{other:?}"),
    };
    let own = sent_by(&writer);
    assert_eq!(
        (
            &own["reasoning_content"],
            &own["tool_calls"][0]["extra_content"]["x"]
        ),
        (&json!("because"), &json!(1))
    );
    assert!(own.get("written_by").is_none());
    let plain =
        json!({ "role": "assistant", "content": "hm", "tool_calls": [call("a", "run", "{}")] });
    assert_eq!(sent_by(&history("b")), plain);
    assert_eq!(
        sent_by(&History::new(&LlmConfig::new("a"), "other:443", false)),
        plain
    );
    let plain_message = AssistantMessage::from_stored(
        json!({ "content": "hi", "annotations": [], "refusal": null }),
    );
    let mut response = ModelResponse {
        message: plain_message.clone(),
        ..Default::default()
    };
    writer.complete(&mut response, &LlmRequest::default());
    assert_eq!(
        response.message, plain_message,
        "a message without such fields names no writer"
    );
}

#[test]
fn refused_signature_is_replaced() {
    let history = history("gemini-3.1-pro");
    let message = json!({ "tool_calls": [{
        "id": "a", "function": { "name": "run", "arguments": "{}" },
        "extra_content": { "google": { "thought_signature": "old" } },
    }] });
    let mut response = ModelResponse {
        message: AssistantMessage::from_stored(message),
        ..Default::default()
    };
    history.complete(&mut response, &LlmRequest::default());
    let request = request(vec![ChatMessage::Assistant(response.message)]);
    let signature = || {
        let calls = calls(&history.acceptable(&request).messages);
        calls[0]["extra_content"]["google"]["thought_signature"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(signature(), "old");
    assert!(history.learn(HistoryRefusal::Reasoning, &request));
    assert_ne!(signature(), "old");
}

#[test]
fn refused_reasoning_is_not_sent_again() {
    let history = history("a");
    let request = request(vec![
        user("go"),
        ChatMessage::Assistant(signed(&history)),
        result("a", "done"),
    ]);
    assert!(history.learn(HistoryRefusal::Reasoning, &request));
    assert!(!history.learn(HistoryRefusal::Reasoning, &request));
    let plain = assistant(json!({ "content": "hm", "tool_calls": [call("a", "run", "{}")] }));
    assert_eq!(history.acceptable(&request).messages[1], plain);
}

#[test]
fn refused_images_are_left_out_the_newest_first() {
    let history = history("a");
    let image = |name: &str| {
        ChatMessage::User(vec![MessagePart::Image(format!(
            "data:image/png;base64,{name}"
        ))])
    };
    let request = request(vec![
        image("old"),
        assistant(json!({ "content": "hm" })),
        image("new"),
    ]);
    let sent = || {
        let messages = history.acceptable(&request).messages;
        [format!("{:?}", messages[0]), format!("{:?}", messages[2])]
            .map(|text| text.contains("base64"))
    };
    assert_eq!(sent(), [true, true]);
    for expected in [[true, false], [false, false]] {
        assert!(history.learn(HistoryRefusal::Image, &request));
        assert_eq!(sent(), expected);
    }
    assert!(!history.learn(HistoryRefusal::Image, &request));
}

#[test]
fn missing_reasoning_and_signatures_are_filled_in() {
    let message = || assistant(json!({ "tool_calls": [call("a", "run", "{}")] }));
    let stored = |messages: Vec<ChatMessage>| match messages.into_iter().nth(1) {
        Some(ChatMessage::Assistant(message)) => Value::Object(message.to_stored()),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        stored(sent("deepseek/deepseek-v4", vec![user("go"), message()]))["reasoning_content"],
        " "
    );
    let signature = &stored(sent("gemini-3.1-pro", vec![user("go"), message()]))["tool_calls"][0]["extra_content"]
        ["google"];
    assert_eq!(
        signature["thought_signature"],
        "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
    );
    let history = history("other");
    let request = request(vec![user("go"), message()]);
    assert_eq!(
        stored(history.acceptable(&request).messages).get("reasoning_content"),
        None
    );
    assert!(history.learn(HistoryRefusal::NoReasoning, &request));
    assert!(!history.learn(HistoryRefusal::NoReasoning, &request));
    assert_eq!(
        stored(history.acceptable(&request).messages)["reasoning_content"],
        " "
    );
}

#[test]
fn schemas_of_tools_are_repaired() {
    for (schema, expected) in [
        (json!(null), json!({ "type": "object", "properties": {} })),
        (
            json!({ "type": "object", "properties": null, "required": null }),
            json!({ "type": "object", "properties": {} }),
        ),
        (
            json!({ "oneOf": [
                { "properties": { "a": { "type": "string" } }, "required": ["a", "c"] },
                { "properties": { "b": { "type": "array" }, "c": {} }, "required": ["b", "c"] },
            ] }),
            json!({ "type": "object", "required": ["c"], "properties": {
                "a": { "type": "string" }, "b": { "type": "array", "items": {} }, "c": {},
            } }),
        ),
        (
            json!({ "properties": { "$filter": { "type": "object", "properties": { "a b": {} }, "required": ["a b"] } }, "required": ["$filter"] }),
            json!({ "type": "object", "required": ["_filter"], "properties": {
                "_filter": { "type": "object", "properties": { "a_b": {} }, "required": ["a_b"] },
            } }),
        ),
    ] {
        assert_eq!(super::schema::repaired(&schema), expected, "{schema}");
        assert_eq!(
            super::schema::repaired(&expected),
            expected,
            "a good schema is kept"
        );
    }
}

#[test]
fn arguments_have_the_names_of_the_tools_own_schema() {
    let parameters =
        json!({ "properties": { "$filter": { "properties": { "a b": {} } }, "x": {} } });
    let tool = Tool {
        name: "query".into(),
        description: String::new(),
        parameters,
    };
    let request = LlmRequest {
        messages: vec![],
        tools: vec![tool],
    };
    for (written, expected) in [
        (
            r#"{"_filter":{"a_b":1},"x":2}"#,
            r#"{"$filter":{"a b":1},"x":2}"#,
        ),
        (r#"{"x":  2}"#, r#"{"x":  2}"#),
        (r#"{"_filter": "#, r#"{"_filter": "#),
    ] {
        let message =
            AssistantMessage::from_stored(json!({ "tool_calls": [call("a", "query", written)] }));
        let mut response = ModelResponse {
            message,
            ..Default::default()
        };
        history("m").complete(&mut response, &request);
        assert_eq!(response.message.tool_calls[0].arguments, expected);
    }
}

/// Messages of a log, also of models that write anything.
fn any_message() -> impl Strategy<Value = ChatMessage> {
    let id = prop::sample::select(vec!["", "a", "b", "call:1", "x".repeat(50).leak()]);
    let name = prop::sample::select(vec!["", "run", "functions.run", "run<|channel|>x"]);
    let arguments = prop::sample::select(vec!["", "null", "{}", "{\"a", "[1]", "{\"x\":1}"]);
    let call =
        (id.clone(), name, arguments).prop_map(|(id, name, arguments)| call(id, name, arguments));
    let text = prop::sample::select(vec!["", " ", "text"]);
    prop_oneof![
        text.clone().prop_map(user),
        (text, prop::collection::vec(call, 0..4))
            .prop_map(|(text, calls)| assistant(json!({ "content": text, "tool_calls": calls }))),
        id.prop_map(|id| result(id, "done")),
    ]
}

proptest! {
    /// Between condensations, a request is the start of the next one.
    #[test]
    fn each_request_is_the_start_of_the_next(
        messages in prop::collection::vec(any_message(), 1..30), strict in any::<bool>(),
    ) {
        let model = if strict { "mistral-large" } else { "gpt-4o" };
        let is_answer = |message: &ChatMessage| matches!(message, ChatMessage::Assistant(message) if !message.text.trim().is_empty() || !message.tool_calls.is_empty());
        let whole = sent(model, messages.clone());
        for (at, _) in messages.iter().enumerate().filter(|(_, message)| is_answer(message)) {
            let part = sent(model, messages[..at].to_vec());
            prop_assert_eq!(&whole[..part.len()], &part[..]);
        }
    }
}

use std::sync::Mutex;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::ScriptedLlm;

fn tools() -> Vec<Tool> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "text": { "type": "string", "description": "What to say.", "enum": ["a", "b"] },
            "number": { "type": "integer" },
        },
        "required": ["text"],
    });
    vec![Tool {
        name: "say".into(),
        description: "Says it.".into(),
        parameters,
    }]
}

fn call(arguments: &str) -> ToolCall {
    ToolCall {
        id: "c".into(),
        name: "say".into(),
        arguments: arguments.into(),
        ..Default::default()
    }
}

fn read(text: &str) -> (String, Vec<(String, String)>) {
    format::parse_response(text, &tools())
}

fn one(arguments: &Value) -> Vec<(String, String)> {
    vec![("say".to_owned(), arguments.to_string())]
}

#[test]
fn call_is_written_and_parsed_in_v0s_format() {
    let text = "<function=say>\n<parameter=number>\n7\n</parameter>\n<parameter=text>\nhi\nthere\n</parameter>\n</function>";
    assert_eq!(
        format::format_call(&call(r#"{"text":"hi\nthere","number":7}"#), &tools()),
        text
    );
    assert_eq!(
        read(text),
        (
            String::new(),
            one(&json!({ "number": 7, "text": "hi\nthere" }))
        )
    );
}

#[test]
fn variants_of_the_format_are_parsed() {
    let hi = || one(&json!({ "text": "hi" }));
    for text in [
        "<function=say><parameter=text>hi</parameter></function>",
        "<function=say>\n<parameter=text>hi</parameter>\n", // stopped before its end
        "<function=say>\n<parameter=text>\nhi\n</parameter>\n</function\n",
        "<function= say >\n<parameter= text >hi</parameter></function>",
    ] {
        assert_eq!(read(text), (String::new(), hi()), "{text}");
    }
    assert_eq!(
        read("First.\n<function=say></function>\nThen."),
        ("First.\n\nThen.".into(), one(&json!({})))
    );
    assert_eq!(
        read("<function=say></function><function=say></function>")
            .1
            .len(),
        2
    );
    assert_eq!(read("no call, a < b").1, []);
}

#[test]
fn numbers_are_json_and_text_stays_text() {
    let arguments = json!({ "text": "7", "number": 7, "list": [1], "other": "so" });
    let text = "<function=say><parameter=text>7</parameter><parameter=number>7</parameter>\
                <parameter=list>[1]</parameter><parameter=other>so</parameter></function>";
    assert_eq!(read(text).1, one(&arguments));
}

#[test]
fn malformed_call_has_its_text_as_arguments() {
    for (text, arguments) in [
        ("<function=say>\nhi\n</function>", "hi"),
        (
            "<function=say><parameter=text>cut off by &lt;/function",
            "<parameter=text>cut off by </function",
        ),
        (
            "<function=say><parameter=text>hi</parameter> and so on</function>",
            "<parameter=text>hi</parameter> and so on",
        ),
        ("<function=say><parameter=tex", "<parameter=tex"),
        (
            "<function=say><parameter=words>hi</parameter></function>",
            "<parameter=words>hi</parameter>",
        ),
    ] {
        assert_eq!(
            read(text).1,
            [("say".to_owned(), arguments.to_owned())],
            "{text}"
        );
        assert_eq!(format::parse_object(arguments), None);
    }
    assert_eq!(
        read("<function=say").1,
        [("say".to_owned(), "<function=say".to_owned())]
    );
}

#[test]
fn call_is_malformed_when_a_value_quotes_end_tags() {
    let quoted = "<function=say>\n<parameter=text>\nhi\n</parameter>\n</function>";
    for body in [
        format!("<parameter=text>\nWrite {quoted}.\n</parameter>\n</function>"),
        format!("<parameter=text>\n{quoted}\n{quoted}\n</parameter>\n</function>"),
        format!(
            "<parameter=text>\n{quoted} or {quoted} with\n</parameter>\n<parameter=number>7</parameter></function>"
        ),
        "<parameter=text>End with </parameter></function>.</parameter></function>".to_owned(),
        "<parameter=text>End with </parameter>\n</function> after <function=say>.</parameter></function>"
            .to_owned(),
        "<parameter=text>End with </parameter></function>, start with <parameter=.</parameter></function>"
            .to_owned(),
        "<parameter=text></parameter> and </function><function=say></function></parameter></function>"
            .to_owned(),
    ] {
        let (outside, calls) = read(&format!("So.\n<function=say>\n{body}\n"));
        assert_eq!(
            (outside.as_str(), calls.as_slice()),
            ("So.", &[("say".to_owned(), body.clone())][..]),
            "{body}"
        );
        assert_eq!(format::parse_object(&body), None);
    }
    // Stopped at the end tag of the quoted call.
    let stopped = "<parameter=text>\nWrite <function=say>\n<parameter=text>\nhi\n</parameter>";
    assert_eq!(
        read(&format!("<function=say>\n{stopped}\n")).1,
        [("say".to_owned(), stopped.to_owned())]
    );
}

#[test]
fn value_may_quote_a_call_with_escaped_end_tags() {
    let quoted = "<function=say>\n<parameter=text>\nhi\n</parameter>\n</function>";
    let escaped = quoted.replace("</", "&lt;/");
    let text = format!("<function=say>\n<parameter=text>\n{escaped}\n</parameter>\n</function>");
    assert_eq!(
        read(&text),
        (String::new(), one(&json!({ "text": quoted })))
    );
    for text in ["grep '<function='", "a <parameter=x> b"] {
        let call = format!("<function=say><parameter=text>{text}</parameter></function>");
        assert_eq!(read(&call).1, one(&json!({ "text": text })));
    }
}

#[test]
fn earlier_call_stays_when_a_later_one_is_malformed() {
    let first = "<function=say><parameter=text>hi</parameter></function>\n";
    let cut = "<parameter=number>7</parameter><parameter=text>cut";
    let expected = [
        one(&json!({ "text": "hi" })),
        vec![("say".to_owned(), cut.to_owned())],
    ]
    .concat();
    assert_eq!(read(&format!("{first}<function=say>{cut}")).1, expected);
}

#[test]
fn cut_end_tag_is_not_an_argument() {
    for end in ["", "<", "</", "</ ", "</f", "</functio", "\n</"] {
        let text = format!("<function=say>\n<parameter=text>hi</parameter>\n{end}");
        assert_eq!(
            read(&text),
            (String::new(), one(&json!({ "text": "hi" }))),
            "{text}"
        );
    }
    // A cut end tag of a value is no end of the call.
    let cut = "<function=say><parameter=text>hi</";
    assert_eq!(
        read(cut).1,
        [("say".to_owned(), "<parameter=text>hi".to_owned())]
    );
}

#[test]
fn equals_sign_ends_the_name_of_a_known_parameter() {
    for (text, arguments) in [
        ("<parameter=text=hi</parameter>", json!({ "text": "hi" })),
        (
            "<parameter=text=all > done</parameter>\n",
            json!({ "text": "all > done" }),
        ),
        (
            "<parameter=text=\nhi\n</parameter>",
            json!({ "text": "hi" }),
        ),
        (
            "<parameter=number=7</parameter><parameter=text=b</parameter>",
            json!({ "number": 7, "text": "b" }),
        ),
        ("<parameter=text>a=b</parameter>", json!({ "text": "a=b" })),
        (
            "<parameter=text>hi</parameter><parameter=no=7>x</parameter>",
            json!({ "no=7": "x", "text": "hi" }),
        ),
    ] {
        assert_eq!(
            read(&format!("<function=say>{text}</function>")).1,
            one(&arguments),
            "{text}"
        );
    }
    let cut = "<function=say>\n<parameter=text=all > done";
    assert_eq!(
        read(cut).1,
        [("say".to_owned(), "<parameter=text=all > done".to_owned())]
    );
}

/// Records the last request.
struct RequestRecorder {
    inner: ScriptedLlm,
    request: Mutex<LlmRequest>,
}

#[async_trait]
impl Llm for RequestRecorder {
    fn model(&self) -> &str {
        self.inner.model()
    }

    fn max_cost(&self, _: u64) -> f64 {
        0.0
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        *self.request.lock().unwrap() = request.clone();
        self.inner.complete(request, on_progress).await
    }
}

/// Returns the request of the inner model and the converted response when that model returns
/// `text`.
async fn complete(messages: Vec<ChatMessage>, text: &str) -> (LlmRequest, ModelResponse) {
    let script = json!({ "responses": [{ "text": text }] }).to_string();
    let inner = Arc::new(RequestRecorder {
        inner: ScriptedLlm::from_json(&script).unwrap(),
        request: Mutex::default(),
    });
    let llm = TextCallsLlm::new(Arc::clone(&inner) as Arc<dyn Llm>);
    let request = LlmRequest {
        messages,
        tools: tools(),
    };
    let response = llm.complete(&request, &|_| ()).await.unwrap().response;
    (inner.request.lock().unwrap().clone(), response)
}

fn text(text: &str) -> MessagePart {
    MessagePart::Text(text.into())
}

fn is_user_message(message: &ChatMessage, texts: &[&str]) -> bool {
    matches!(message, ChatMessage::User(parts) if *parts == texts.iter().map(|part| text(part)).collect::<Vec<_>>())
}

#[tokio::test]
async fn tools_are_described_and_text_becomes_calls() {
    let messages = vec![
        ChatMessage::System("be good".into()),
        ChatMessage::User(vec![text("go")]),
    ];
    let (request, response) = complete(
        messages,
        "I say it.\n<function=say>\n<parameter=text>hi</parameter>\n",
    )
    .await;
    assert_eq!(request.tools, []);
    let ChatMessage::System(system) = &request.messages[0] else {
        panic!("{request:?}")
    };
    for part in [
        "be good\n\n# Tools",
        "## say\nSays it.",
        "- text (string, required): What to say. One of [\"a\",\"b\"].",
    ] {
        assert!(system.contains(part), "{part} in {system}");
    }
    assert_eq!(response.message.text, "I say it.");
    let expected = ToolCall {
        id: "scripted-1-call-1".into(),
        ..call(r#"{"text":"hi"}"#)
    };
    assert_eq!(response.message.tool_calls, [expected]);
    assert_eq!(response.finish_reason, "tool_calls");
}

#[tokio::test]
async fn calls_are_sent_as_text_and_format_is_repeated_if_malformed() {
    let assistant = |id: &str, arguments: &str| {
        let call = ToolCall {
            id: id.into(),
            ..call(arguments)
        };
        let tool_calls = vec![call];
        ChatMessage::Assistant(AssistantMessage {
            text: "Hm.".into(),
            tool_calls,
            ..Default::default()
        })
    };
    let result = |id: &str| ChatMessage::ToolResult {
        call_id: id.into(),
        name: "say".into(),
        parts: vec![text("done"), MessagePart::Image("data:x".into())],
    };
    let go = ChatMessage::User(vec![text("go")]);
    let and = ChatMessage::User(vec![text("and?")]);
    let messages = vec![
        go,
        assistant("a", r#"{"text":"x"}"#),
        result("a"),
        and,
        assistant("b", "not"),
        result("b"),
    ];
    let (request, response) = complete(messages, "Done.").await;
    let [
        ChatMessage::System(_),
        _,
        ChatMessage::Assistant(first),
        ChatMessage::User(second),
        _,
        ChatMessage::User(last),
    ] = request.messages.as_slice()
    else {
        panic!("{request:?}")
    };
    let written = "Hm.\n\n<function=say>\n<parameter=text>\nx\n</parameter>\n</function>";
    assert_eq!((first.text.as_str(), first.tool_calls.len()), (written, 0));
    let image = MessagePart::Image("data:x".into());
    assert_eq!(
        *second,
        [
            text("Result of say:"),
            text("done"),
            image.clone(),
            text("and?")
        ]
    );
    assert_eq!(
        *last,
        [
            text("Result of say:"),
            text("done"),
            image,
            text(prompt::FORMAT)
        ]
    );
    assert!(is_user_message(&request.messages[1], &["go"]));
    assert_eq!(
        (
            response.message.text.as_str(),
            response.message.tool_calls.len()
        ),
        ("Done.", 0)
    );
}

#[tokio::test]
async fn native_calls_of_another_model_are_sent_as_text() {
    let blocks = json!([
        { "type": "text", "text": "Hm." },
        { "type": "tool_use", "id": "a", "name": "say", "input": { "text": "x" } },
    ]);
    let thought = json!([{ "type": "thinking", "thinking": "", "signature": "s" }, { "type": "text", "text": "raw" }]);
    let message = |blocks: Value| {
        let fields = [("anthropic_content".to_owned(), blocks)]
            .into_iter()
            .collect();
        let tool_calls = vec![ToolCall {
            id: "a".into(),
            ..call(r#"{"text":"x"}"#)
        }];
        let text = "Hm.".into();
        ChatMessage::Assistant(AssistantMessage {
            text,
            tool_calls,
            provider_fields: ProviderFields(fields),
        })
    };
    for (blocks, is_kept) in [(blocks, false), (thought, true)] {
        let (request, _) = complete(
            vec![ChatMessage::User(vec![text("go")]), message(blocks)],
            "Done.",
        )
        .await;
        let [.., ChatMessage::Assistant(sent)] = request.messages.as_slice() else {
            panic!("{request:?}")
        };
        assert!(sent.text.contains("<function=say>"), "{sent:?}");
        assert_eq!(
            sent.provider_fields.0.contains_key("anthropic_content"),
            is_kept
        );
    }
}

/// Empty arguments would be those of a call that ends the task.
#[test]
fn call_that_is_cut_before_its_parameters_is_malformed() {
    for cut in [
        "<function=say>",
        "<function=say>\n",
        "So.\n<function=say>\n  ",
    ] {
        let (_, calls) = read(cut);
        assert_eq!(
            (calls.len(), format::parse_object(&calls[0].1)),
            (1, None),
            "{cut:?}"
        );
    }
    for whole in ["<function=say>\n</function>", "<function=say>\n</func"] {
        let (_, calls) = read(whole);
        assert_eq!(
            format::parse_object(&calls[0].1),
            Some(Map::new()),
            "{whole:?}"
        );
    }
}

/// Special and ordinary parts of a text.
const PIECES: [&str; 18] = [
    "<",
    "&",
    "lt;",
    "amp;",
    "&lt;",
    "&amp;",
    "/parameter",
    "/function",
    "</parameter>",
    "</function>",
    "<parameter=x>",
    "<function=y>",
    "\n",
    " ",
    "a",
    "\"",
    "{}",
    "ü",
];

/// Generates texts of special and ordinary parts.
fn special_text() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..12)
        .prop_map(|pieces| pieces.concat())
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        special_text().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_arguments_are_parsed_as_written(
        text in prop_oneof![special_text(), any::<String>()],
        others in proptest::collection::btree_map("[a-z_]{5,9}", any_value(), 0..4),
    ) {
        let mut arguments: Map<String, Value> = others.into_iter().collect();
        arguments.insert("text".into(), text.into());
        let arguments = Value::Object(arguments);
        let written = format::format_call(&call(&arguments.to_string()), &tools());
        let (outside, calls) = read(&format!("So.\n\n{written}"));
        prop_assert_eq!(outside, "So.");
        prop_assert_eq!(calls.len(), 1);
        prop_assert_eq!(format::parse_object(&calls[0].1), arguments.as_object().cloned());
    }

    #[test]
    fn any_text_is_parsed(text in prop_oneof![special_text(), any::<String>()]) {
        let (outside, calls) = read(&text);
        prop_assert!(outside.len() + calls.len() <= text.len());
    }
}

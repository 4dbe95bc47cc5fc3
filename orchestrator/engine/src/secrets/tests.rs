use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use proptest::prelude::*;
use protocol::action::RunAction;
use protocol::observation::RunObservation;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{Action, ActionId, ConversationId, Event, EventId, EventSource, Observation};
use secrecy::SecretString;
use serde_json::json;

use super::*;
use crate::events::EventStore as _;
use crate::llm::Tool;
use crate::sandbox::{OutputChunk, Sandbox, SandboxProvider as _, SandboxSpec};
use crate::testing::{MemoryStore, ScriptedProvider, ScriptedResult, timestamp};
use crate::tool_servers::{ToolOffer, ToolServerFailure, ToolServers, announce};
use crate::view::View;

const VALUE: &str = "s3cr€t \"q\\uote\" /&+?=x\ny-END";

fn redactor() -> Redactor {
    Redactor::new([("CANARY", &SecretString::from(VALUE))]).unwrap()
}

/// What programs make of a value, written out by other hands than ours where there are such.
fn spelled() -> Vec<String> {
    let json = serde_json::to_string(VALUE).unwrap();
    let twice = serde_json::to_string(&json).unwrap();
    let url = "s3cr%E2%82%ACt%20%22q%5Cuote%22%20%2F%26%2B%3F%3Dx%0Ay-END";
    let mut found = vec![
        VALUE.to_owned(),
        VALUE.replace('\n', "\r\n"),
        VALUE.replace('\n', " "),
        json.trim_matches('"').to_owned(),
        twice.trim_matches(|c| c == '"' || c == '\\').to_owned(),
        r#"s3cr\u20act \"q\\uote\" /&+?=x\ny-END"#.to_owned(),
        url.to_owned(),
        url.to_lowercase().replace("-end", "-END"),
        url.replace("%20", "+"),
        url.replace("%2F", "/"),
    ];
    for before in ["", "a", "ab"] {
        for engine in [&STANDARD, &URL_SAFE] {
            let letters = engine.encode(format!("{before}{VALUE}xyz"));
            for (end, length) in [
                ("\n", 76),
                ("\r\n", 7),
                ("\\n", 11),
                ("\\\\n", 5),
                ("\n", 1),
            ] {
                found.push(lines(&letters, length).join(end));
            }
            found.push(letters);
        }
    }
    found.push(r#"$'s3cr€t "q\\uote" /&+?=x\ny-END'"#.to_owned());
    found.push(r#"$'s3cr\342\202\254t "q\\uote" /&+?=x\ny-END'"#.to_owned());
    found
}

/// A text in lines of so many letters.
fn lines(letters: &str, length: usize) -> Vec<&str> {
    (0..letters.len())
        .step_by(length)
        .map(|at| &letters[at..letters.len().min(at + length)])
        .collect()
}

/// Whether the middle of a spelling is there: the letters of base64 at its ends belong to its
/// neighbours too.
fn shows(text: &str, spelling: &str) -> bool {
    let third = spelling.len() / 3;
    let middle = &spelling.as_bytes()[third..2 * third];
    text.as_bytes()
        .windows(middle.len())
        .any(|window| window == middle)
}

#[test]
fn every_spelling_is_redacted() {
    let redactor = redactor();
    for spelling in spelled() {
        let text = format!("before {spelling} after");
        let whole = redactor.text(&text);
        assert!(
            shows(&text, &spelling) && !shows(&whole, &spelling),
            "{whole}"
        );
        assert_eq!(redactor.bytes(text.as_bytes()), whole.as_bytes());
    }
    assert_eq!(
        redactor.text(&format!("a {VALUE}{VALUE} b")),
        format!("a {REDACTED}{REDACTED} b")
    );
    let value = json!({"k": [VALUE, {VALUE: 1}], "n": 3});
    assert_eq!(
        redactor.json(value),
        json!({"k": [REDACTED, {REDACTED: 1}], "n": 3})
    );
    assert_eq!(redactor.text("nothing of it"), "nothing of it");
    assert!(!format!("{redactor:?}").contains("s3cr"));
}

/// As bash, dash and ash print it with `set -x`, `export -p` and `printf %q`.
#[test]
fn shell_spellings_are_redacted() {
    let value = r#"it's $a `b" c/d#~"#;
    let redactor = Redactor::new([("CANARY", &SecretString::from(value))]).unwrap();
    for printed in [
        r#"'it'\''s $a `b" c/d#~'"#,
        r#"it\'s\ \$a\ \`b\"\ c/d#~"#,
        r#""it's \$a \`b\" c/d#~""#,
        r#"'it'"'"'s $a `b" c/d#~'"#,
    ] {
        let arguments = json!({"command": printed}).to_string();
        for text in [printed, &arguments] {
            let clean = redactor.text(text);
            assert!(
                clean.contains(REDACTED) && clean.len() < REDACTED.len() + 20,
                "{clean}"
            );
        }
    }
}

#[test]
fn lines_of_a_key_are_redacted_except_its_header() {
    let (one, two, last) = (
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7",
        "VJTUt9Us8cKjMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictG",
        "JmpggIk3uX3InnM=",
    );
    let key =
        format!("-----BEGIN PRIVATE KEY-----\n{one}\n{two}\n{last}\n-----END PRIVATE KEY-----\n");
    let redactor = Redactor::new([("KEY", &SecretString::from(key.as_str()))]).unwrap();
    assert_eq!(
        redactor.text(&format!("{key}after")),
        format!("{REDACTED}after")
    );
    assert_eq!(
        redactor.text(&format!("{last}\n-----END")),
        format!("{REDACTED}\n-----END")
    );
    let head = format!("-----BEGIN PRIVATE KEY-----\n{one}\nafter");
    assert_eq!(
        redactor.text(&head),
        format!("-----BEGIN PRIVATE KEY-----\n{REDACTED}\nafter")
    );
    let settings = "a word among others, in a line that is long\nkey=value\n";
    let redactor = Redactor::new([("SETTINGS", &SecretString::from(settings))]).unwrap();
    let first = settings.lines().next().unwrap();
    assert_eq!(redactor.text(first), first);
}

/// Between lines of base64 there is nothing else, except what programs put before lines.
#[test]
fn only_wrapped_lines_are_joined() {
    let redactor = Redactor::new([("CANARY", &SecretString::from("abcdef"))]).unwrap();
    let letters = STANDARD.encode("abcdef");
    let (one, two) = letters.split_at(4);
    assert_eq!(
        redactor.text(&format!("x\n\n{one}\n{two}\n\ny")),
        format!("x\n\n{REDACTED}\n\ny")
    );
    for apart in [
        format!("{one}\n\n{two}"),
        format!("{one}\n12{two}"),
        format!("{one}\n1: {two}"),
        format!("{one}\\{two}"),
        format!("{one}\r{two}"),
    ] {
        assert_eq!(redactor.text(&apart), apart);
    }
    for prefix in [
        "    ",
        "\t",
        "     2\t",
        "2:",
        "12-",
        "+",
        "-",
        "+    ",
        "     2\\t",
    ] {
        let lines = format!("{prefix}{one}\n{prefix}{two}\n{prefix}end");
        let clean = format!("{prefix}{REDACTED}\n{prefix}end");
        assert_eq!(redactor.text(&lines), clean);
    }
}

#[test]
fn values_of_unsuitable_length_are_rejected() {
    let of = |value: &str| {
        Redactor::new([("NAME", &SecretString::from(value))])
            .map(drop)
            .map_err(|e| e.to_string())
    };
    assert_eq!(of("123456"), Ok(()));
    let error = of("12345").unwrap_err();
    assert!(
        error.starts_with("the secret NAME has fewer than 6 bytes") && !error.contains("12345"),
        "{error}"
    );
    assert!(of(&"x".repeat(MAX_SECRET_BYTES + 1)).is_err());
    let value = SecretString::from("a value");
    assert_eq!(
        Redactor::new(vec![("N", &value); MAX_SECRETS + 1]).map(drop),
        Err(SecretError::TooMany)
    );
    let long = SecretString::from("x".repeat(MAX_SECRET_BYTES));
    assert_eq!(
        Redactor::new(vec![("N", &long); 5]).map(drop),
        Err(SecretError::TooLarge)
    );
    assert_eq!(Redactor::new(vec![]).unwrap().text(VALUE), VALUE);
}

#[test]
fn long_values_are_redacted_as_a_whole() {
    let value = format!("start of a value, {}", "\\\"'".repeat(4 << 10));
    let redactor = Redactor::new([("LONG", &SecretString::from(value.as_str()))]).unwrap();
    let json = serde_json::to_string(&value).unwrap();
    assert_eq!(
        redactor.text(&format!("{value} {json}")),
        format!("{REDACTED} \"{REDACTED}\"")
    );
    let cut = &value[..value.len() - 1];
    assert_eq!(redactor.text(cut), cut);
}

/// Halves of the secret in base64, on lines of their own with what precedes them.
fn numbered() -> Vec<String> {
    let letters = STANDARD.encode(VALUE);
    let (one, two) = letters.split_at(letters.len() / 2);
    let prefixes = ["", "     2\t", "12:", "+", "-  ", "12"].iter();
    prefixes
        .flat_map(|prefix| [one, two].map(|half| format!("\n{prefix}{half}")))
        .collect()
}

#[test]
fn blanks_after_a_letter_of_a_secret_are_not_kept() {
    let letter = &STANDARD.encode(VALUE)[..1];
    let mut stream = StreamRedactor::new(redactor());
    let shown =
        stream.push(format!("{letter}\n").as_bytes()).len() + stream.push(&[b' '; 1000]).len();
    assert!(shown > 900, "{shown}");
}

proptest! {
    /// In pieces comes the same as at once, however it is cut.
    #[test]
    fn secrets_split_across_chunks_are_redacted(
        parts in prop::collection::vec(prop_oneof![
            prop::sample::select(spelled()),
            prop::sample::select(vec!["s3cr".to_owned(), "s3cr€t \"q".to_owned(), "text ".to_owned(), "s".to_owned()]),
            prop::sample::select(numbered()),
        ], 0..6),
        cuts in prop::collection::vec(1..9_usize, 1..50),
    ) {
        let text = parts.concat();
        let redactor = redactor();
        let mut stream = StreamRedactor::new(redactor.clone());
        let mut shown = Vec::new();
        let mut rest = text.as_bytes();
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let (piece, left) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            shown.extend(stream.push(piece));
            rest = left;
        }
        shown.extend(stream.finish());
        prop_assert_eq!(String::from_utf8(shown).unwrap(), redactor.text(&text));
    }

    /// What cannot be the beginning of a secret is shown at once.
    #[test]
    fn stream_buffers_only_possible_secrets(text in "[ab]{0,20}") {
        prop_assert_eq!(StreamRedactor::new(redactor()).push(text.as_bytes()), text.as_bytes());
    }
}

#[tokio::test]
async fn secrets_are_never_stored() {
    let memory = Arc::new(MemoryStore::default());
    let store = GuardedStore::new(memory.clone(), redactor());
    let conversation: ConversationId = "c".parse().unwrap();
    let run = RunAction {
        command: format!("echo '{VALUE}'"),
        ..Default::default()
    };
    let mut event = Event::new(
        EventId(0),
        timestamp(),
        EventSource::Agent,
        Action::from(run),
    );
    event.tool_call_metadata = Some(protocol::tool_call::ToolCallMetadata {
        function_name: "execute_bash".into(),
        tool_call_id: "c".into(),
        model_response: (&json!({"arguments": json!({"command": VALUE}).to_string()})).into(),
        total_calls_in_response: 1,
    });
    let harmless = Event::new(
        EventId(1),
        timestamp(),
        EventSource::Agent,
        Action::from(RunAction::default()),
    );
    let events = [event, harmless.clone()];
    store.append(&conversation, &events).await.unwrap();
    let stored = memory.read(&conversation, EventId(0), 9).await.unwrap();
    assert_eq!(
        store.as_stored(events.to_vec()).unwrap(),
        stored,
        "what its owner keeps is what is read"
    );
    assert_eq!(stored[1], harmless);
    let text = serde_json::to_string(&stored).unwrap();
    for spelling in spelled() {
        assert!(!shows(&text, &spelling), "{spelling} in {text}");
    }
    assert_eq!(
        stored[0].message(),
        format!("Running command: echo '{REDACTED}'")
    );
}

#[test]
fn only_signatures_of_a_response_are_not_redacted() {
    let redactor = Redactor::new([("CANARY", &SecretString::from("hunter2hunter2"))]).unwrap();
    let (signature, masked) = ("AB+/hunter2hunter2_-==", format!("AB+/{REDACTED}_-=="));
    let response = |signature: &str, other: &str| {
        json!({"choices": [{"message": {
            "content": other,
            "thinking_blocks": [
                {"type": "thinking", "thinking": other, "signature": signature},
                {"type": "redacted_thinking", "data": signature},
                {"type": "audio", "data": other},
            ],
            "reasoning_items": [{"type": "reasoning", "encrypted_content": signature}],
            "anthropic_content": [{"type": "tool_use", "input": {"signature": other, "type": "redacted_thinking", "data": other}}],
            "tool_calls": [{
                "function": {"name": "run", "arguments": json!({"signature": other}).to_string()},
                "extra_content": {"google": {"thought_signature": signature}},
            }],
            "signature": format!("not base64: {other}"),
        }}]})
    };
    let event = |response: &serde_json::Value, other: &str| {
        let run = RunAction {
            command: other.to_owned(),
            ..Default::default()
        };
        let mut event = Event::new(
            EventId(0),
            timestamp(),
            EventSource::Agent,
            Action::from(run),
        );
        event.tool_call_metadata = Some(protocol::tool_call::ToolCallMetadata {
            function_name: "run".into(),
            tool_call_id: "c".into(),
            model_response: response.into(),
            total_calls_in_response: 1,
        });
        event
    };
    let redacted = redactor
        .event(&event(&response(signature, signature), signature))
        .unwrap();
    assert_eq!(
        redacted,
        Some(event(&response(signature, &masked), &masked))
    );
    // Elsewhere, such a field is not the provider's.
    assert_eq!(
        redactor.json(json!({"signature": signature})),
        json!({"signature": masked})
    );
}

#[tokio::test]
async fn secrets_of_a_sandbox_are_redacted() {
    let scripted = ScriptedProvider::new(|_| {
        ScriptedResult::Observation(Observation::new(
            format!("it is {VALUE}"),
            RunObservation::default(),
        ))
    });
    let provider = GuardedProvider::new(Arc::new(scripted), redactor(), SecretRegistry::default());
    let conversation: ConversationId = "c".parse().unwrap();
    let sandbox = provider
        .create(&SandboxSpec::new(conversation.clone()), &|_| {})
        .await
        .unwrap();
    let request = ActionRequest::new(SandboxAction::Run(RunAction::default()), None);
    let output = Mutex::new(Vec::new());
    let on_output = |chunk: OutputChunk<'_>| {
        if let OutputChunk::Bytes { bytes, .. } = chunk {
            output.lock().unwrap().extend_from_slice(bytes);
        }
    };
    let observation = sandbox
        .execute(
            &ActionId::for_event(&conversation, EventId(0)),
            &request,
            &on_output,
        )
        .await
        .unwrap();
    assert_eq!(observation.content, format!("it is {REDACTED}"));
    let output = String::from_utf8(output.into_inner().unwrap()).unwrap();
    assert!(!output.contains("s3cr"), "{output}");
}

#[tokio::test]
async fn only_commands_and_cells_get_the_secrets_that_they_name() {
    let environments = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&environments);
    let scripted = ScriptedProvider::new(move |request| {
        seen.lock().unwrap().push(request.environment.0.clone());
        ScriptedResult::Observation(Observation::new("", RunObservation::default()))
    });
    let secret = |value: &str| Secret {
        value: value.into(),
        description: "for it".into(),
    };
    let registry = SecretRegistry::new(
        [
            ("TOKEN".into(), secret("value of it")),
            ("KEY_2".into(), secret(VALUE)),
        ]
        .into(),
    );
    assert_eq!(registry.descriptions()["TOKEN"], "for it");
    assert!(!format!("{registry:?}").contains("value of it"));
    let provider = GuardedProvider::new(Arc::new(scripted), redactor(), registry);
    let conversation: ConversationId = "c".parse().unwrap();
    let sandbox = provider
        .create(&SandboxSpec::new(conversation.clone()), &|_| {})
        .await
        .unwrap();
    let cases = [
        ("echo $TOKEN", &["TOKEN"][..]),
        ("echo \"${TOKEN}\"", &["TOKEN"]),
        ("TOKEN=$TOKEN ./deploy; use KEY_2", &["KEY_2", "TOKEN"]),
        ("echo $TOKEN_2 $MYTOKEN KEY_ token", &[]),
        ("ls", &[]),
    ];
    let requests = cases.iter().map(|(command, names)| {
        let run = RunAction {
            command: (*command).to_owned(),
            ..Default::default()
        };
        (SandboxAction::Run(run), *names)
    });
    let typed = RunAction {
        command: "$TOKEN".into(),
        is_input: true,
        ..Default::default()
    };
    let read = json!({"action": "read", "args": {"path": "$TOKEN"}});
    let read: ActionRequest = serde_json::from_value(read).unwrap();
    let cell = json!({"action": "run_ipython", "args": {"code": "import os; os.environ['TOKEN']"}});
    let cell: ActionRequest = serde_json::from_value(cell).unwrap();
    let others = [
        (SandboxAction::Run(typed), &[][..]),
        (read.action, &[]),
        (cell.action, &["TOKEN"]),
    ];
    for (number, (action, names)) in (0..).zip(requests.chain(others)) {
        let id = ActionId::for_event(&conversation, EventId(number));
        sandbox
            .execute(&id, &ActionRequest::new(action.clone(), None), &|_| {})
            .await
            .unwrap();
        let given = environments.lock().unwrap().pop().unwrap();
        assert_eq!(
            given.keys().map(String::as_str).collect::<Vec<_>>(),
            names,
            "{action:?}"
        );
        assert!(given.get("KEY_2").is_none_or(|value| value == VALUE));
    }
}

#[tokio::test]
async fn offers_and_results_of_tool_servers_are_redacted() {
    struct Telling;
    #[async_trait::async_trait]
    impl ToolServers for Telling {
        async fn offer(&self, _: Option<&Arc<dyn Sandbox>>) -> ToolOffer {
            let tool = |name: &str| Tool {
                name: name.into(),
                description: format!("It knows {VALUE}."),
                parameters: json!({"type": "object", "properties": {VALUE: {}}}),
            };
            let failure = ToolServerFailure {
                server: "git".into(),
                reason: format!("no {VALUE}"),
            };
            let tools = vec![tool("report"), tool(VALUE)];
            ToolOffer {
                tools,
                failures: vec![failure],
                ..ToolOffer::default()
            }
        }
        async fn call(
            &self,
            _: &str,
            _: &serde_json::Map<String, serde_json::Value>,
        ) -> Observation {
            Observation::error(format!("it is {VALUE}"), "")
        }
        async fn set_sandbox_servers(&self, _: Vec<crate::tool_servers::SandboxToolServer>) {}
        async fn shut_down(&self) {}
    }
    let guarded = GuardedToolServers::new(Arc::new(Telling), redactor());
    let offer = guarded.offer(None).await;
    let names: Vec<_> = offer.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["report"]);
    let mut view = View::default();
    for body in announce(&view, &offer) {
        let event = Event::new(view.end(), timestamp(), EventSource::Environment, body);
        assert_eq!(
            redactor().event(&event).unwrap(),
            None,
            "it is redacted already"
        );
        view.update(&[Arc::new(event)]);
    }
    assert_eq!(view.end(), EventId(2));
    assert_eq!(announce(&view, &guarded.offer(None).await), []);
    assert_eq!(
        guarded.call("report", &Default::default()).await.content,
        format!("it is {REDACTED}")
    );
}

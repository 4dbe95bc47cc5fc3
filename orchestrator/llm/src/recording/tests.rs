use std::sync::Arc;

use engine::llm::{
    AssistantMessage, ChatMessage, Llm, LlmErrorKind, LlmRequest, MessagePart, Tool,
};
use engine::secrets::{Redactor, Secret, SecretRegistry};
use serde_json::{Value, json};

use super::*;
use crate::ScriptedLlm;

const KEY: &str = "sk-canary-1234567890";

fn redaction() -> RecordingRedaction {
    let redactor = Redactor::new([("key", &KEY.into())]).unwrap();
    RecordingRedaction {
        redactor,
        ..Default::default()
    }
}

fn request(text: &str) -> LlmRequest {
    LlmRequest {
        messages: vec![
            ChatMessage::System("be good".into()),
            ChatMessage::User(vec![
                MessagePart::Text(text.into()),
                MessagePart::Image("data:x".into()),
            ]),
            ChatMessage::Assistant(AssistantMessage {
                text: "so".into(),
                ..Default::default()
            }),
            ChatMessage::ToolResult {
                call_id: "c".into(),
                name: "run".into(),
                parts: vec![],
            },
        ],
        tools: vec![Tool {
            name: "run".into(),
            description: "runs".into(),
            parameters: json!({}),
        }],
    }
}

/// Records calls of a script: a response with the key, an error, and a response.
async fn record(
    folder: &Path,
    texts: &[&str],
) -> Vec<Result<engine::llm::Completion, engine::llm::LlmError>> {
    let script = json!({ "responses": [
        { "text": format!("The key is {KEY}.") }, { "error": "rate_limited" }, { "text": "Done." },
    ] });
    let inner = Arc::new(ScriptedLlm::from_json(&script.to_string()).unwrap());
    let llm = RecordingLlm::new(inner, folder, redaction()).unwrap();
    let mut results = Vec::new();
    for text in texts {
        results.push(llm.complete(&request(text), &|_| ()).await);
    }
    results
}

fn replay(folder: &Path) -> ReplayLlm {
    ReplayLlm::open(folder, redaction()).unwrap()
}

#[tokio::test]
async fn recording_of_one_conversation_replays_in_another() {
    let folder = tempfile::tempdir().unwrap();
    let redaction_of = |id: &str| RecordingRedaction {
        conversation: id.parse().ok(),
        ..redaction()
    };
    let script = r#"{"responses": [{"text": "Look into /w/first-id/src."}]}"#;
    let inner = Arc::new(ScriptedLlm::from_json(script).unwrap());
    let llm = RecordingLlm::new(inner, folder.path(), redaction_of("first-id")).unwrap();
    llm.complete(&request("in /w/first-id"), &|_| ())
        .await
        .unwrap();
    let file = std::fs::read_to_string(folder.path().join("000001.json")).unwrap();
    assert!(!file.contains("first-id"), "{file}");
    let llm = ReplayLlm::open(folder.path(), redaction_of("second-id")).unwrap();
    let completion = llm
        .complete(&request("in /w/second-id"), &|_| ())
        .await
        .unwrap();
    assert_eq!(
        completion.response.message.text,
        "Look into /w/second-id/src."
    );
}

#[tokio::test]
async fn recorded_results_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("new");
    let recorded = record(&folder, &["one", "two", "three"]).await;
    let llm = replay(&folder);
    assert_eq!(llm.model(), "scripted");
    let one = llm.complete(&request("one"), &|_| ()).await.unwrap();
    assert_eq!(one.response.message.text, "The key is <secret_hidden>.");
    assert_eq!(one.usage, recorded[0].as_ref().unwrap().usage);
    assert_eq!(llm.complete(&request("two"), &|_| ()).await, recorded[1]);
    let three = llm.complete(&request("three"), &|_| ()).await.unwrap();
    assert_eq!(
        three.response.to_stored(),
        recorded[2].as_ref().unwrap().response.to_stored()
    );
    let error = llm.complete(&request("three"), &|_| ()).await.unwrap_err();
    assert_eq!(
        (error.kind, error.detail.as_str()),
        (LlmErrorKind::NotRecorded, "all recorded calls are used")
    );
}

#[tokio::test]
async fn error_describes_how_the_request_differs() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &["go left", "two"]).await;
    let llm = replay(folder.path());
    let error = llm
        .complete(&request("go right"), &|_| ())
        .await
        .unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::NotRecorded);
    let file = folder.path().join("000001.json").display().to_string();
    let place =
        "the request.messages[1].user[0].text, character 3: recorded \"left\", now \"right\"";
    assert_eq!(error.detail, format!("{file}: {place}"));
    // Replay continues with the next matching call.
    assert_eq!(
        llm.complete(&request("two"), &|_| ())
            .await
            .unwrap_err()
            .kind,
        LlmErrorKind::RateLimited
    );
}

#[tokio::test]
async fn files_have_no_key_and_no_draft_is_left() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &[&format!("use {KEY}")]).await;
    record(folder.path(), &["again"]).await;
    let mut names: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["000001.json", "000002.json"].map(|name| folder.path().join(name))
    );
    for name in names {
        let text = std::fs::read_to_string(name).unwrap();
        assert!(!text.contains(KEY));
        assert!(serde_json::from_str::<Value>(&text).unwrap()["request"]["messages"].is_array());
    }
    replay(folder.path())
        .complete(&request(&format!("use {KEY}")), &|_| ())
        .await
        .unwrap();
}

#[tokio::test]
async fn recordings_do_not_collide_when_models_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let script = json!({ "responses": vec![json!({ "text": "so" }); 8] }).to_string();
    let llm = || {
        let inner = Arc::new(ScriptedLlm::from_json(&script).unwrap());
        RecordingLlm::new(inner, folder.path(), RecordingRedaction::default()).unwrap()
    };
    // All of them list the folder before the first call.
    let (one, two, three) = (llm(), llm(), llm());
    let record = async |llm: &RecordingLlm| {
        for number in 0..8 {
            llm.complete(&request(&number.to_string()), &|_| ())
                .await
                .unwrap();
        }
    };
    tokio::join!(record(&one), record(&two), record(&three));
    let names: Vec<_> = list_files(folder.path())
        .unwrap()
        .into_iter()
        .map(|(number, _)| number)
        .collect();
    assert_eq!(names, (1..=24).collect::<Vec<_>>());
    let llm = ReplayLlm::open(folder.path(), RecordingRedaction::default()).unwrap();
    for number in (0..8).cycle().take(24) {
        llm.complete(&request(&number.to_string()), &|_| ())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn cancelled_call_has_no_file() {
    struct Silent;

    #[async_trait::async_trait]
    impl Llm for Silent {
        fn model(&self) -> &str {
            "silent"
        }

        fn max_cost(&self, _: u64) -> f64 {
            0.0
        }

        async fn complete(
            &self,
            _: &LlmRequest,
            _: &(dyn Fn(engine::llm::LlmProgress) + Send + Sync),
        ) -> Result<engine::llm::Completion, engine::llm::LlmError> {
            std::future::pending().await
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let llm = RecordingLlm::new(
        Arc::new(Silent),
        folder.path(),
        RecordingRedaction::default(),
    )
    .unwrap();
    let left = || std::fs::read_dir(folder.path()).unwrap().count();
    let request = request("one");
    let call = llm.complete(&request, &|_| ());
    tokio::select! {
        _ = call => panic!("it never responds"),
        () = async { while left() == 0 { tokio::task::yield_now().await } } => {}
    }
    // If the claim itself was cancelled, its thread removes the draft.
    while left() > 0 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn error_names_what_cannot_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let error = || {
        ReplayLlm::open(folder.path(), RecordingRedaction::default())
            .unwrap_err()
            .to_string()
    };
    assert!(
        error().ends_with("has 0 recorded calls, not 1 to 100000"),
        "{}",
        error()
    );
    std::fs::write(folder.path().join("000001.json"), "{}").unwrap();
    assert!(
        error().ends_with("000001.json is not a recorded call"),
        "{}",
        error()
    );
    let missing = ReplayLlm::open(
        &folder.path().join("missing"),
        RecordingRedaction::default(),
    )
    .unwrap_err();
    assert!(
        matches!(missing, RecordingError::Folder { .. }),
        "{missing}"
    );
}

#[tokio::test]
async fn replay_restores_a_secret_in_a_response() {
    const TOKEN: &str = "hunter2 \"quoted\"";
    let secret = Secret {
        value: TOKEN.into(),
        description: String::new(),
    };
    let registry = SecretRegistry::new([("TOKEN".to_owned(), secret)].into());
    let redaction = RecordingRedaction {
        redactor: Redactor::new([("TOKEN", &TOKEN.into())]).unwrap(),
        placeholders: registry.placeholders(),
        conversation: None,
    };
    let call = json!({"name": "execute_bash", "arguments": {"command": format!("echo {TOKEN}")}});
    let script = json!({"responses": [{"text": TOKEN, "tool_calls": [call]}]}).to_string();
    let folder = tempfile::tempdir().unwrap();
    let inner = Arc::new(ScriptedLlm::from_json(&script).unwrap());
    let llm = RecordingLlm::new(inner, folder.path(), redaction.clone()).unwrap();
    let recorded = llm.complete(&request(TOKEN), &|_| ()).await.unwrap();
    let file = std::fs::read_to_string(folder.path().join("000001.json")).unwrap();
    assert!(
        !file.contains("hunter2") && file.contains("<secret_hidden:TOKEN:"),
        "{file}"
    );
    let replayed = ReplayLlm::open(folder.path(), redaction).unwrap();
    let replayed = replayed.complete(&request(TOKEN), &|_| ()).await.unwrap();
    assert_eq!(replayed.response.to_stored(), recorded.response.to_stored());
}

use std::sync::Arc;

use engine::llm::{AssistantMessage, ChatMessage, Llm, LlmErrorKind, LlmRequest, MessagePart, Tool};
use engine::secrets::{Redactor, Secret, SecretRegistry};
use serde_json::{Value, json};

use super::*;
use crate::ScriptedLlm;

const KEY: &str = "sk-canary-1234567890";

fn redaction() -> RecordingRedaction {
    let redactor = Redactor::new([("key", &KEY.into())]).unwrap();
    RecordingRedaction { redactor, ..Default::default() }
}

fn request(text: &str) -> LlmRequest {
    LlmRequest {
        messages: vec![
            ChatMessage::System("be good".into()),
            ChatMessage::User(vec![MessagePart::Text(text.into()), MessagePart::Image("data:x".into())]),
            ChatMessage::Assistant(AssistantMessage { text: "so".into(), ..Default::default() }),
            ChatMessage::ToolResult { call_id: "c".into(), name: "run".into(), parts: vec![] },
        ],
        tools: vec![Tool { name: "run".into(), description: "runs".into(), parameters: json!({}) }],
    }
}

/// Records what is asked of a script: an answer that holds the key, an error, an answer.
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
    let of = |id: &str| RecordingRedaction { conversation: id.parse().ok(), ..redaction() };
    let script = r#"{"responses": [{"text": "Look into /w/first-id/src."}]}"#;
    let inner = Arc::new(ScriptedLlm::from_json(script).unwrap());
    let llm = RecordingLlm::new(inner, folder.path(), of("first-id")).unwrap();
    llm.complete(&request("in /w/first-id"), &|_| ()).await.unwrap();
    let file = std::fs::read_to_string(folder.path().join("000001.json")).unwrap();
    assert!(!file.contains("first-id"), "{file}");
    let llm = ReplayLlm::open(folder.path(), of("second-id")).unwrap();
    let answer = llm.complete(&request("in /w/second-id"), &|_| ()).await.unwrap();
    assert_eq!(answer.response.message.text, "Look into /w/second-id/src.");
}

#[tokio::test]
async fn what_is_recorded_is_said_again() {
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
    assert_eq!(three.response.to_stored(), recorded[2].as_ref().unwrap().response.to_stored());
    let error = llm.complete(&request("three"), &|_| ()).await.unwrap_err();
    assert_eq!(
        (error.kind, error.detail.as_str()),
        (LlmErrorKind::NotRecorded, "all recorded calls are used")
    );
}

#[tokio::test]
async fn a_request_that_differs_says_where() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &["go left", "two"]).await;
    let llm = replay(folder.path());
    let error = llm.complete(&request("go right"), &|_| ()).await.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::NotRecorded);
    let file = folder.path().join("000001.json").display().to_string();
    let place = "the request.messages[1].user[0].text, character 3: recorded \"left\", now \"right\"";
    assert_eq!(error.detail, format!("{file}: {place}"));
    // It goes on from where the recording has it.
    assert_eq!(llm.complete(&request("two"), &|_| ()).await.unwrap_err().kind, LlmErrorKind::RateLimited);
}

#[tokio::test]
async fn no_key_is_in_a_file_and_nothing_half_is_left() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &[&format!("use {KEY}")]).await;
    record(folder.path(), &["again"]).await;
    let mut names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert_eq!(names, ["000001.json", "000002.json"].map(|name| folder.path().join(name)));
    for name in names {
        let text = std::fs::read_to_string(name).unwrap();
        assert!(!text.contains(KEY));
        assert!(serde_json::from_str::<Value>(&text).unwrap()["request"]["messages"].is_array());
    }
    replay(folder.path()).complete(&request(&format!("use {KEY}")), &|_| ()).await.unwrap();
}

#[tokio::test]
async fn recordings_do_not_collide_when_models_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let script = json!({ "responses": vec![json!({ "text": "so" }); 8] }).to_string();
    let llm = || {
        let inner = Arc::new(ScriptedLlm::from_json(&script).unwrap());
        RecordingLlm::new(inner, folder.path(), RecordingRedaction::default()).unwrap()
    };
    // All of them begin to count before the first writes.
    let (one, two, three) = (llm(), llm(), llm());
    let record = async |llm: &RecordingLlm| {
        for number in 0..8 {
            llm.complete(&request(&number.to_string()), &|_| ()).await.unwrap();
        }
    };
    tokio::join!(record(&one), record(&two), record(&three));
    let names: Vec<_> = files(folder.path()).unwrap().into_iter().map(|(number, _)| number).collect();
    assert_eq!(names, (1..=24).collect::<Vec<_>>());
    let llm = ReplayLlm::open(folder.path(), RecordingRedaction::default()).unwrap();
    for number in (0..8).cycle().take(24) {
        llm.complete(&request(&number.to_string()), &|_| ()).await.unwrap();
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_leaves_nothing() {
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
    let llm = RecordingLlm::new(Arc::new(Silent), folder.path(), RecordingRedaction::default()).unwrap();
    let left = || std::fs::read_dir(folder.path()).unwrap().count();
    let request = request("one");
    let call = llm.complete(&request, &|_| ());
    tokio::select! {
        _ = call => panic!("it never answers"),
        () = async { while left() == 0 { tokio::task::yield_now().await } } => {}
    }
    // Where the claim itself was cut, it is undone by the thread that makes it.
    while left() > 0 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn what_cannot_be_replayed_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let error = || ReplayLlm::open(folder.path(), RecordingRedaction::default()).unwrap_err().to_string();
    assert!(error().ends_with("holds 0 recorded calls, not 1 to 100000"), "{}", error());
    std::fs::write(folder.path().join("000001.json"), "{}").unwrap();
    assert!(error().ends_with("000001.json is not a recorded call"), "{}", error());
    let missing = ReplayLlm::open(&folder.path().join("missing"), RecordingRedaction::default()).unwrap_err();
    assert!(matches!(missing, RecordingError::Folder { .. }), "{missing}");
}

#[tokio::test]
async fn secret_that_the_model_repeats_is_restored_by_replay() {
    const TOKEN: &str = "hunter2 \"quoted\"";
    let secret = Secret { value: TOKEN.into(), description: String::new() };
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
    assert!(!file.contains("hunter2") && file.contains("<secret_hidden:TOKEN:"), "{file}");
    let replayed = ReplayLlm::open(folder.path(), redaction).unwrap();
    let replayed = replayed.complete(&request(TOKEN), &|_| ()).await.unwrap();
    assert_eq!(replayed.response.to_stored(), recorded.response.to_stored());
}

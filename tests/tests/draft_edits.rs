//! V0's `edit_file`: the agent drafts an edit and a second model expands it.

use serde_json::{Value, json};
use tests::glovebox::{Home, finish, tool_call};
use tests::model_server::{ModelReply, ModelServer};

const FILE: &[u8] = b"\xef\xbb\xbfdef f():\r\n    return 1\r\n\r\ndef g():\r\n    return 1\r\n";

fn edit_file(path: &std::path::Path, more: &Value) -> Value {
    let mut arguments = more.clone();
    arguments["path"] = json!(path);
    tool_call("edit_file", &arguments)
}

fn script(home: &Home, model: &str, responses: &Value) -> String {
    let path = home.write(
        &format!("{model}.json"),
        json!({"model": model, "responses": responses}).to_string(),
    );
    format!("model = \"scripted:{}\"\n", path.display())
}

fn run(home: &Home, more: &[&str]) -> Vec<Value> {
    let workspace = home.workspace();
    let work = [
        "run",
        "--json",
        "-t",
        "edit",
        "--runtime",
        "local",
        "-d",
        workspace.to_str().unwrap(),
    ];
    let ended = home.run(&[&work, more].concat()).expect(0);
    assert!(!ended.stderr.contains("without effect"), "{}", ended.stderr);
    ended.events()
}

fn select_events<'a>(events: &'a [Value], key: &str, kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event[key] == kind).collect()
}

/// Returns the models that were called, in order.
fn called(events: &[Value]) -> Vec<&str> {
    let calls = events
        .iter()
        .filter_map(|event| event["llm_metrics"]["token_usages"].as_array());
    calls
        .flatten()
        .map(|usage| usage["model"].as_str().unwrap())
        .collect()
}

#[test]
fn second_model_expands_a_draft_and_is_counted_and_replayed() {
    let home = Home::new();
    let (file, new) = (
        home.workspace().join("a.py"),
        home.workspace().join("new/b.py"),
    );
    let agent = json!([
        edit_file(
            &file,
            &json!({"content": "# ... existing code ...\n    return 2", "start": 4, "end": 5})
        ),
        edit_file(&file, &json!({"content": "\nh = 3", "start": -1})),
        edit_file(&new, &json!({"content": "b = 1\n"})),
        finish(),
    ]);
    let config = format!(
        "[llm]\n{}[llm.draft_editor]\n{}[agent]\ncodeact_enable_llm_editor = true\n",
        script(&home, "agent", &agent),
        script(
            &home,
            "drafts",
            &json!([{"text": "```python\ndef g():\n    return 2\n```"}])
        ),
    );
    home.write(".glovebox/config.toml", config);
    let calls = home.path().join("calls");
    let mut all = Vec::new();
    for mode in ["--record", "--replay"] {
        home.write("work/a.py", FILE);
        let events = run(
            &home,
            &[
                mode,
                calls.to_str().unwrap(),
                "--save-trajectory",
                "trajectory.json",
            ],
        );
        let after = b"\xef\xbb\xbfdef f():\r\n    return 1\r\n\r\ndef g():\r\n    return 2\r\n\r\nh = 3\r\n";
        assert_eq!(std::fs::read(&file).unwrap(), after);
        assert_eq!(std::fs::read(&new).unwrap(), b"b = 1\n");
        assert_eq!(
            called(&events),
            ["agent", "drafts", "agent", "agent", "agent"]
        );
        std::fs::remove_dir_all(new.parent().unwrap()).unwrap();
        for model in ["agent", "drafts"] {
            // The recording needs no other model.
            let _gone = std::fs::remove_file(home.path().join(format!("{model}.json")));
        }
        all = events;
    }
    // A replay makes the same edits without a model call.
    home.write("work/a.py", FILE);
    for model in ["agent", "drafts"] {
        script(&home, model, &json!([]));
    }
    let again = [
        "replay",
        "trajectory.json",
        "--diff",
        "--runtime",
        "local",
        "-d",
        "work",
    ];
    let again = home.run(&again).expect(0);
    assert!(
        again.stderr.contains("4 of 4 actions had the same result"),
        "{}",
        again.stderr
    );
    assert!(again.stderr.contains(" 0 tokens in"), "{}", again.stderr);
    let tools = all
        .iter()
        .find(|event| event["action"] == "system")
        .unwrap()["args"]["tools"]
        .to_string();
    assert!(
        tools.contains("\"edit_file\"") && !tools.contains("str_replace_editor"),
        "{tools}"
    );
    let (asked, done) = (
        select_events(&all, "action", "edit"),
        select_events(&all, "observation", "edit"),
    );
    assert_eq!(
        (
            &asked[0]["args"]["impl_source"],
            &asked[0]["args"]["command"]
        ),
        (&json!("llm_based_edit"), &json!(""))
    );
    assert_eq!(
        (&asked[0]["args"]["start"], &asked[0]["args"]["end"]),
        (&json!(4), &json!(5))
    );
    assert_eq!(
        (&done[0]["cause"], &done[0]["extras"]["impl_source"]),
        (&asked[0]["id"], &json!("llm_based_edit"))
    );
    let diff = done[0]["extras"]["diff"].as_str().unwrap();
    assert!(
        diff.contains("-    return 1\r\n+    return 2\r\n"),
        "{diff}"
    );
    assert!(
        done[0]["content"]
            .as_str()
            .unwrap()
            .contains("     5\t    return 2\n"),
        "{done:?}"
    );
    assert_eq!(
        (done.len(), &done[2]["extras"]["prev_exist"]),
        (3, &json!(false))
    );
    home.assert_nothing_runs();
}

#[test]
fn failed_draft_is_reported_and_its_file_unchanged() {
    let home = Home::new();
    let place = |name: &str| home.workspace().join(name);
    let secret = "TOKEN=hunter2hunter2\n";
    let env = format!("A=1\n{secret}");
    let large = "line\n".repeat(300_000);
    let png = b"\x89PNG\r\n";
    for (name, content) in [
        ("bin", b"a\0b".as_slice()),
        ("a.png", png),
        ("large", large.as_bytes()),
        (".env", env.as_bytes()),
    ] {
        home.write(&format!("work/{name}"), content);
    }
    let draft =
        |name: &str| edit_file(&place(name), &json!({"content": "x", "start": 1, "end": 1}));
    // Without a second model, the agent's model expands each draft that is valid.
    let agent = json!([
        draft("bin"),
        draft("a.png"),
        draft("large"),
        draft(""),
        edit_file("relative".as_ref(), &json!({"content": "x"})),
        edit_file(&place(".env"), &json!({"content": "x", "start": 2})),
        draft(".env"),
        {"text": "A=2"},
        draft(".env"),
        {"error": "unavailable"},
        draft(".env"),
        {"text": "```\nA=2\n```"},
        finish(),
    ]);
    let config = "[agent]\nenable_llm_editor = true\nenable_stuck_detection = false\n[secrets]\nTOKEN = \"hunter2hunter2\"\n";
    home.write(
        ".glovebox/config.toml",
        format!("[llm]\n{}{config}", script(&home, "agent", &agent)),
    );
    let events = run(&home, &[]);
    let errors = select_events(&events, "observation", "error");
    let parts = [
        "bin cannot be read as text: ERROR_BINARY_FILE",
        "a.png is not text",
        "large is too large: it has 1500000 bytes",
        " is not a file",
        "the path relative is not absolute",
        "have a redacted secret",
        "did not respond with one block",
        "the model that applies drafts failed: ",
    ];
    assert_eq!(errors.len(), parts.len(), "{errors:#?}");
    for (error, part) in errors.iter().zip(parts) {
        let contents = error["content"].as_str().unwrap();
        assert!(
            contents.starts_with("The action was not performed: ") && contents.contains(part),
            "{part} in {contents}"
        );
    }
    assert_eq!(
        std::fs::read(place(".env")).unwrap(),
        format!("A=2\n{secret}").as_bytes()
    );
    assert_eq!(std::fs::read(place("bin")).unwrap(), b"a\0b");
    assert_eq!(std::fs::read(place("a.png")).unwrap(), png);
    home.assert_nothing_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draft_is_written_once_when_host_is_killed_while_expanding() {
    let home = Home::new();
    home.write(
        ".glovebox/config.toml",
        "[agent]\nenable_llm_editor = true\n",
    );
    let file = home.write("work/a", "1\n2\n");
    let replies = [
        ModelReply::call(
            "edit_file",
            &json!({"path": file, "content": "zwei", "start": 2}),
        ),
        ModelReply::Silence,
        ModelReply::says("```\nzwei\n```"),
        ModelReply::call("finish", &json!({"message": "Done."})),
    ];
    let server = ModelServer::start(replies).await;
    let workspace = home.workspace();
    let arguments = [
        "run",
        "--json",
        "-t",
        "work",
        "-l",
        "test",
        "--runtime",
        "local",
        "-d",
    ];
    let mut command = home.glovebox(&[&arguments[..], &[workspace.to_str().unwrap()]].concat());
    let mut run = home.start(command.env("LLM_BASE_URL", &server.base_url));
    let id = run.conversation();
    server.called(2).await;
    run.kill();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "1\n2\n");
    let mut resume = home.glovebox(&["resume", &id, "--json"]);
    home.start(resume.env("LLM_BASE_URL", &server.base_url))
        .end()
        .expect(0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "1\nzwei\n");
    let log = home
        .run(&["conversations", "show", &id, "--json"])
        .expect(0)
        .events();
    let (asked, done) = (
        select_events(&log, "action", "edit"),
        select_events(&log, "observation", "edit"),
    );
    assert_eq!(
        (asked.len(), done.len(), &done[0]["cause"]),
        (1, 1, &asked[0]["id"])
    );
    home.assert_nothing_runs();
}

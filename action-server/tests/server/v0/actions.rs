//! `read`, `write` and `edit`: the literals that V0's clients and models look for.

use std::fs;

use serde_json::{Value, json};

use super::{V0Sandbox, content};

async fn edit(sandbox: &V0Sandbox, args: Value) -> Value {
    let mut args = args;
    args["impl_source"] = "oh_aci".into();
    sandbox.act(json!({"action": "edit", "args": args})).await
}

async fn read(sandbox: &V0Sandbox, args: Value) -> Value {
    sandbox.act(json!({"action": "read", "args": args})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read() {
    let sandbox = V0Sandbox::start();
    fs::create_dir(sandbox.path("d")).unwrap();
    fs::write(sandbox.path("d/f"), "one\ntwo\n").unwrap();
    fs::write(sandbox.path("binary"), b"\0\x01").unwrap();
    fs::write(sandbox.path("i.png"), b"png").unwrap();
    let result = read(&sandbox, json!({"path": "d/f"})).await;
    assert_eq!(
        (content(&result), result["observation"].as_str()),
        ("one\ntwo\n", Some("read"))
    );
    assert_eq!(
        result["extras"],
        json!({"path": sandbox.path("d/f"), "impl_source": "default"})
    );
    assert!(result.get("success").is_none() && result["message"].is_string());
    sandbox.run("cd d").await;
    assert_eq!(
        read(&sandbox, json!({"path": "f"})).await["extras"]["path"],
        sandbox.path("d/f").as_str()
    );
    let missing = read(&sandbox, json!({"path": "none"})).await;
    let (path, dir) = (sandbox.path("d/none"), sandbox.path("d"));
    assert_eq!(
        content(&missing),
        format!("File not found: {path}. Your current working directory is {dir}.")
    );
    assert_eq!(missing["observation"], "error");
    let folder = read(&sandbox, json!({"path": dir})).await;
    assert_eq!(
        content(&folder),
        format!("Path is a directory: {dir}. You can only read files")
    );
    assert_eq!(
        content(&read(&sandbox, json!({"path": "../binary"})).await),
        "ERROR_BINARY_FILE"
    );
    assert_eq!(
        content(&read(&sandbox, json!({"path": "../i.png"})).await),
        "data:image/png;base64,cG5n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written() {
    let sandbox = V0Sandbox::start();
    let result = sandbox
        .act(json!({"action": "write", "args": {"path": "a/b/c", "content": "1\n2\n3\n"}}))
        .await;
    assert_eq!(result["observation"], "write");
    assert_eq!(result["extras"], json!({"path": sandbox.path("a/b/c")}));
    let slice = json!({"action": "write", "args": {"path": "a/b/c", "content": "x\n", "start": 1, "end": 2}});
    sandbox.act(slice).await;
    assert_eq!(
        fs::read_to_string(sandbox.path("a/b/c")).unwrap(),
        "1\nx\n3\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_edited() {
    let sandbox = V0Sandbox::start();
    let path = sandbox.path("f");
    let created = edit(
        &sandbox,
        json!({"path": path, "command": "create", "file_text": "a\nb\nc\n"}),
    )
    .await;
    assert!(
        content(&created).starts_with(&format!("File created successfully at: {path}")),
        "{created}"
    );
    let replaced = edit(
        &sandbox,
        json!({"path": path, "command": "str_replace", "old_str": " b ", "new_str": "B"}),
    )
    .await;
    let expected = format!(
        "The file {path} has been edited. Here's the result of running `cat -n` on a snippet of {path}:\n"
    );
    let text = content(&replaced);
    assert!(
        text.starts_with(&format!("{expected}     1\ta\n     2\tB\n     3\tc\n")),
        "{text}"
    );
    assert!(
        text.lines()
            .last()
            .unwrap()
            .starts_with("Review the changes and make sure they are as expected")
    );
    let extras = &replaced["extras"];
    assert_eq!(
        (extras["path"].as_str(), extras["prev_exist"].as_bool()),
        (Some(path.as_str()), Some(true))
    );
    assert_eq!(
        (
            extras["impl_source"].as_str(),
            extras["new_content"].as_str()
        ),
        (Some("oh_aci"), Some("a\nB\nc\n"))
    );
    let diff = extras["diff"].as_str().unwrap();
    assert_eq!(
        diff,
        format!("--- {path}\n+++ {path}\n@@ -2 +2 @@\n-b\n+B\n")
    );
    let inserted = edit(
        &sandbox,
        json!({"path": path, "command": "insert", "insert_line": 3, "new_str": "d"}),
    )
    .await;
    assert!(
        content(&inserted).contains("a snippet of the edited file:"),
        "{inserted}"
    );
    let undone = edit(&sandbox, json!({"path": path, "command": "undo_edit"})).await;
    let expected = format!(
        "Last edit to {path} undone successfully. Here's the result of running `cat -n` on {path}:"
    );
    assert!(content(&undone).starts_with(&expected), "{undone}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\nB\nc\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn editor_errors_are_observations() {
    let sandbox = V0Sandbox::start();
    fs::write(sandbox.path("f"), "a\na\n").unwrap();
    let path = sandbox.path("f");
    let none = sandbox.path("none");
    let absent = format!("old_str `z` did not appear verbatim in {path}");
    let missing = format!("The path {none} does not exist");
    for (args, expected) in [
        (
            json!({"path": path, "command": "create", "file_text": ""}),
            "File already exists",
        ),
        (
            json!({"path": path, "command": "create"}),
            "Parameter `file_text` is required for command: create",
        ),
        (
            json!({"path": path, "command": "insert", "new_str": ""}),
            "Parameter `insert_line` is required for command: insert",
        ),
        (
            json!({"path": path, "command": "insert", "insert_line": 1}),
            "Parameter `new_str` is required for command: insert",
        ),
        (
            json!({"path": none, "command": "str_replace", "old_str": "a", "new_str": "b"}),
            missing.as_str(),
        ),
        (
            json!({"path": none, "command": "undo_edit"}),
            "Invalid `path` parameter",
        ),
        (
            json!({"path": path, "command": "undo_edit"}),
            "No edit history found for",
        ),
        (
            json!({"path": path, "command": "str_replace", "old_str": "a", "new_str": "b"}),
            "Multiple occurrences of old_str `a` in lines [1, 2]. Please ensure it is unique.",
        ),
        (
            json!({"path": path, "command": "str_replace", "old_str": "z", "new_str": "b"}),
            absent.as_str(),
        ),
        (
            json!({"path": path, "command": "str_replace", "old_str": "a", "new_str": "a"}),
            "`new_str` and `old_str` must be different.",
        ),
        (
            json!({"path": path, "command": "insert", "insert_line": 9, "new_str": "x"}),
            "Invalid `insert_line` parameter",
        ),
        (
            json!({"path": path, "command": "insert", "insert_line": 9, "new_str": "x"}),
            "It should be within the range of allowed values: [0, 2]",
        ),
    ] {
        let result = edit(&sandbox, args).await;
        assert_eq!(result["observation"], "edit");
        assert!(
            content(&result).starts_with("ERROR:\n") && content(&result).contains(expected),
            "{result}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_folders_are_viewed() {
    let sandbox = V0Sandbox::start();
    fs::create_dir_all(sandbox.path("d/e")).unwrap();
    fs::write(sandbox.path("d/.hidden"), "").unwrap();
    fs::write(sandbox.path("f"), "a\nb\n").unwrap();
    fs::write(sandbox.path("long"), "0123456789\n".repeat(3_000)).unwrap();
    let view = |path: &str, range: Value| json!({"path": path, "impl_source": "oh_aci", "view_range": range});
    let result = read(&sandbox, view("f", json!([2, 9]))).await;
    assert!(
        content(&result).contains("     2\tb") && content(&result).contains("NOTE:"),
        "{result}"
    );
    assert_eq!(result["extras"]["impl_source"], "oh_aci");
    assert!(
        content(&read(&sandbox, view("long", Value::Null)).await).contains("<response clipped>")
    );
    let folder = read(&sandbox, view(&sandbox.path("d"), Value::Null)).await;
    let text = content(&folder);
    assert!(
        text.contains("d/e/\n") && !text.contains(".hidden"),
        "{text}"
    );
    assert!(text.contains("1 hidden"), "{text}");
    let missing = read(&sandbox, view("/none", Value::Null)).await;
    assert!(content(&missing).starts_with("ERROR:\n"), "{missing}");
}

//! Changes of git repositories in a workspace, and knowledge of the workspace.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tests::glovebox::{Home, TEST_TIMEOUT};

use super::files::Workspace;

/// Runs git in a folder.
fn git(folder: &Path, arguments: &[&str]) {
    let identity = [
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@example.org",
        "-c",
        "commit.gpgSign=false",
    ];
    let output = Command::new("git")
        .args(identity)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// Creates a repository with a commit, which is that of the remote branch `main`.
pub(super) fn create_repository(folder: &Path, files: &[(&str, &str)], options: &[&str]) {
    fs::create_dir_all(folder).unwrap();
    git(
        folder,
        &[&["init", "--quiet", "--initial-branch=main"], options].concat(),
    );
    for (name, content) in files {
        fs::write(folder.join(name), content).unwrap();
    }
    git(folder, &["add", "--all"]);
    git(folder, &["commit", "--quiet", "--message=first"]);
    git(folder, &["update-ref", "refs/remotes/origin/main", "HEAD"]);
    git(
        folder,
        &[
            "symbolic-ref",
            "refs/remotes/origin/HEAD",
            "refs/remotes/origin/main",
        ],
    );
}

fn change(status: &str, path: &str) -> Value {
    json!({"status": status, "path": path})
}

#[tokio::test]
async fn changes_are_those_since_the_remote_branch() {
    let home = Home::new();
    let at = home.workspace();
    create_repository(
        &at,
        &[
            ("a", "one\n"),
            ("gone", "x"),
            ("same", "x"),
            (".gitignore", "*.log\n"),
        ],
        &[],
    );
    fs::write(at.join("committed"), "x").unwrap();
    git(&at, &["add", "committed"]);
    git(&at, &["commit", "--quiet", "--message=second"]);
    fs::write(at.join("a"), "one\ntwo\n").unwrap();
    fs::remove_file(at.join("gone")).unwrap();
    fs::write(at.join("ä \"new\""), "new").unwrap();
    fs::write(at.join("x.log"), "").unwrap();
    fs::write(at.join("binary"), b"\0").unwrap();
    create_repository(
        &at.join("nested"),
        &[("b", "b")],
        &["--object-format=sha256"],
    );
    fs::write(at.join("nested/b"), "c").unwrap();
    let workspace = Workspace::open(home).await;
    let expected = [
        change("M", "a"),
        change("A", "binary"),
        change("A", "committed"),
        change("D", "gone"),
        change("M", "nested/b"),
        change("A", "ä \"new\""),
    ];
    assert_eq!(workspace.get("git/changes", &[]).await.1, json!(expected));
    for (path, modified, original) in [
        ("a", "one\ntwo\n", "one\n"),
        ("gone", "", "x"),
        ("ä \"new\"", "new", ""),
        ("nested/b", "c", "b"),
        ("same", "x", "x"),
    ] {
        let diff = workspace.get("git/diff", &[("path", path)]).await;
        assert_eq!(
            (diff.0.as_u16(), diff.1),
            (200, json!({"modified": modified, "original": original})),
            "{path}"
        );
    }
    assert_eq!(workspace.get("git/diff", &[("path", "none")]).await.0, 404);
    assert_eq!(
        workspace.get("git/diff", &[("path", "binary")]).await.0,
        415
    );
    assert_eq!(
        workspace.get("git/diff", &[("path", "nested")]).await.0,
        400
    );
}

#[tokio::test]
async fn changes_of_a_cloned_repository_have_its_folder() {
    let home = Home::new();
    let origin = home.workspace().join("upstream/project");
    create_repository(&origin, &[("a", "one\n")], &[]);
    let url = format!("file://{}", origin.display());
    let request = json!({"initial_user_msg": "Finish.", "repository": url});
    let workspace = Workspace::open_with(home, request).await;
    assert_eq!(workspace.get("git/changes", &[]).await.1, json!([]));
    fs::write(workspace.at("project/a"), "two\n").unwrap();
    fs::create_dir(workspace.at("project/folder")).unwrap();
    fs::write(workspace.at("project/folder/new"), "new").unwrap();
    // As in V0, of all repositories in the workspace.
    create_repository(&workspace.at("other"), &[("b", "b")], &[]);
    fs::remove_file(workspace.at("other/b")).unwrap();
    let expected = json!([
        change("D", "other/b"),
        change("M", "project/a"),
        change("A", "project/folder/new")
    ]);
    assert_eq!(workspace.get("git/changes", &[]).await.1, expected);
    let diff = json!({"modified": "two\n", "original": "one\n"});
    let relative = [("path", "project/a")];
    assert_eq!(workspace.get("git/diff", &relative).await.1, diff);
    let absolute = workspace.at("project/a").display().to_string();
    assert_eq!(
        workspace.get("git/diff", &[("path", &absolute)]).await.1,
        diff
    );
    assert_eq!(
        workspace.get("list-files", &[]).await.1,
        json!(["other/", "project/", "upstream/"])
    );
}

#[tokio::test]
async fn workspace_without_a_repository_has_no_changes() {
    let home = Home::new();
    fs::write(home.workspace().join("a"), "a").unwrap();
    // The home is a repository, and no part of the workspace.
    create_repository(home.path(), &[], &["--quiet"]);
    let workspace = Workspace::open(home).await;
    let (status, changes) = workspace.get("git/changes", &[]).await;
    assert_eq!((status.as_u16(), changes), (200, json!([])));
    let (status, body) = workspace.get("git/diff", &[("path", "a")]).await;
    assert_eq!(
        (status.as_u16(), &body["msg_id"]),
        (404, &json!("GIT$NO_REPOSITORY"))
    );
    // V0's page looks for this text.
    assert_eq!(body["error"], "Not a git repository");
}

#[tokio::test]
async fn repository_without_a_remote_branch_is_new_as_a_whole() {
    let home = Home::new();
    git(&home.workspace(), &["init", "--quiet"]);
    for number in 0..10_000 {
        fs::write(home.workspace().join(format!("{number:05}")), "").unwrap();
    }
    git(&home.workspace(), &["add", "00000"]);
    let workspace = Workspace::open(home).await;
    let (status, body) = workspace.get("git/changes", &[]).await;
    let changes = body.as_array().unwrap();
    assert_eq!((status.as_u16(), changes.len()), (200, 10_000));
    assert!(changes.iter().all(|change| change["status"] == "A"));
    assert_eq!(changes[9_999]["path"], "09999");
}

/// Each of these settings names a program that git would run.
#[tokio::test]
async fn configuration_of_a_repository_runs_no_program() {
    let home = Home::new();
    let at = home.workspace();
    create_repository(&at, &[("a", "one\n")], &[]);
    let marker = home.path().join("ran");
    let program = home.write(
        "program",
        format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", marker.display()),
    );
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.display().to_string();
    for name in [
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "diff.external",
        "diff.x.command",
        "diff.x.textconv",
        "filter.x.clean",
        "filter.x.smudge",
        "filter.x.process",
        "credential.helper",
        "core.editor",
        "core.gitProxy",
        "core.alternateRefsCommand",
        "gpg.program",
        "uploadpack.packObjectsHook",
        "remote.origin.uploadpack",
    ] {
        git(&at, &["config", name, &program]);
    }
    let hooks = at.join(".git/hooks");
    for hook in [
        "post-index-change",
        "reference-transaction",
        "fsmonitor-watchman",
    ] {
        fs::create_dir_all(&hooks).unwrap();
        fs::copy(&program, hooks.join(hook)).unwrap();
    }
    git(
        &at,
        &["config", "remote.origin.url", &format!("ext::{program} %S")],
    );
    git(&at, &["config", "remote.origin.promisor", "true"]);
    git(&at, &["config", "protocol.ext.allow", "always"]);
    fs::write(at.join(".gitattributes"), "* filter=x diff=x\n").unwrap();
    fs::write(at.join(".git/info/attributes"), "* filter=x diff=x\n").unwrap();
    fs::write(at.join("a"), "two\n").unwrap();
    // git runs some of them on its own, so the settings are effective.
    drop(
        Command::new("git")
            .args(["diff", "HEAD"])
            .current_dir(&at)
            .output()
            .unwrap(),
    );
    fs::remove_file(&marker).expect("git has run a program");
    // The object of the commit is missing, and promised by the remote.
    fs::write(
        at.join(".git/refs/remotes/origin/gone"),
        format!("{}\n", "1".repeat(40)),
    )
    .unwrap();

    let workspace = Workspace::open(home).await;
    let expected = json!([change("A", ".gitattributes"), change("M", "a")]);
    assert_eq!(workspace.get("git/changes", &[]).await.1, expected);
    let diff = workspace.get("git/diff", &[("path", "a")]).await;
    assert_eq!(diff.1, json!({"modified": "two\n", "original": "one\n"}));
    let path = format!("/api/v2/conversations/{}/git/diff", workspace.id);
    let patch = workspace.server.get(&path).await;
    let patch = patch.as_str().unwrap();
    assert!(patch.contains("+* filter=x diff=x\n") && patch.ends_with("-one\n+two\n"));
    fs::write(workspace.at(".git/HEAD"), "ref: refs/heads/gone\n").unwrap();
    let missing = workspace.get("git/changes", &[]).await;
    assert_eq!((missing.0.as_u16(), missing.1), (200, json!([])));
    assert!(
        !marker.exists(),
        "{}",
        fs::read_to_string(&marker).unwrap_or_default()
    );
}

#[tokio::test]
async fn knowledge_of_the_workspace_is_listed() {
    let home = Home::new();
    let folder = home.workspace().join(".openhands/microagents");
    fs::create_dir_all(&folder).unwrap();
    let tools = "mcp_tools:\n  stdio_servers:\n  - name: fetch\n    command: uvx\n";
    fs::write(
        folder.join("repo.md"),
        format!("---\n{tools}---\nBuild with make."),
    )
    .unwrap();
    fs::write(
        folder.join("pdf.md"),
        "---\ntriggers: [pdf]\ninputs:\n- name: FILE\n---\nRead it.",
    )
    .unwrap();
    let workspace = Workspace::open(home).await;
    let (status, body) = workspace.get("microagents", &[]).await;
    assert_eq!(status, 200);
    let find = |name: &str| {
        let all = body["microagents"].as_array().unwrap();
        all.iter()
            .find(|entry| entry["name"] == name)
            .unwrap_or_else(|| panic!("{body:#}"))
            .clone()
    };
    let repo = json!({
        "name": "repo", "type": "repo", "content": "Build with make.", "triggers": [], "inputs": [], "tools": ["fetch"],
    });
    assert_eq!(find("repo"), repo);
    let pdf = find("pdf");
    assert_eq!(
        (&pdf["type"], &pdf["triggers"]),
        (&json!("knowledge"), &json!(["pdf", "/pdf"]))
    );
    assert_eq!(pdf["inputs"], json!([{"name": "FILE", "description": ""}]));
}

#[tokio::test]
async fn prompt_to_remember_quotes_the_conversation() {
    let workspace = Workspace::open(Home::new()).await;
    let events = workspace
        .server
        .wait_for_event(&workspace.id, |event| event["action"] == "message")
        .await;
    let message = events
        .iter()
        .find(|event| event["action"] == "message" && event["source"] == "user")
        .unwrap();
    let id = message["id"].to_string();
    let (status, body) = workspace.get("remember-prompt", &[("event_id", &id)]).await;
    assert_eq!((status.as_u16(), &body["status"]), (200, &json!("success")));
    let prompt = body["prompt"].as_str().unwrap();
    assert!(
        prompt.contains("user: Finish.") && prompt.contains(".openhands/microagents/repo.md"),
        "{prompt}"
    );
    assert_eq!(
        workspace
            .get("remember-prompt", &[("event_id", "1000000")])
            .await
            .0,
        404
    );
    assert_eq!(
        workspace
            .get("remember-prompt", &[("event_id", "x")])
            .await
            .0,
        422
    );
    assert_eq!(workspace.get("remember-prompt", &[]).await.0, 422);
    // Nothing was appended.
    let after = workspace
        .server
        .wait_for_event(&workspace.id, |_| true)
        .await;
    assert_eq!(after.len(), events.len());
}

/// V0's page shows the branch.
#[tokio::test]
async fn branch_is_the_one_that_is_checked_out() {
    let home = Home::new();
    let origin = home.workspace().join("upstream/project");
    create_repository(&origin, &[("a", "one\n")], &[]);
    let url = format!("file://{}", origin.display());
    let request = json!({"initial_user_msg": "Finish.", "repository": url});
    let workspace = Workspace::open_with(home, request).await;
    let project = workspace.at("project");
    let path = format!("/api/conversations/{}", workspace.id);
    // A sandbox that responds slowly is not waited for.
    let is_shown = async |expected: Value| {
        let shown = async {
            while workspace.server.get(&path).await["selected_branch"] != expected {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let shown = tokio::time::timeout(TEST_TIMEOUT, shown).await;
        shown.unwrap_or_else(|_| panic!("{expected} is not shown"));
    };
    is_shown(json!("main")).await;
    git(&project, &["checkout", "--quiet", "-b", "fix/it"]);
    is_shown(json!("fix/it")).await;
    // No branch, as while it rebases.
    git(&project, &["checkout", "--quiet", "--detach"]);
    is_shown(Value::Null).await;
    git(&project, &["checkout", "--quiet", "main"]);
    is_shown(json!("main")).await;
    fs::remove_dir_all(project.join(".git")).unwrap();
    fs::write(project.join(".git"), "gitdir: /etc\n").unwrap();
    is_shown(Value::Null).await;
}

//! Agents selected by name, by configuration section and by file; knowledge of a workspace.

use std::path::Path;

use crate::pypi::packages;
use engine::memory::{Memory, RecallHistory, WorkspaceFacts, format_recall};
use protocol::ObservationKind;
use serde_json::{Value, json};
use tests::glovebox::{CompletedRun, Home, bash, finish, tool_call};
use tests::sandbox_contract::local::LocalBackend;
use tests::sandbox_contract::{Backend as _, remove, spec};

fn run(home: &Home, more: &[&str]) -> CompletedRun {
    home.run(&[&["run", "--json", "-t", "work", "--runtime", "local"], more].concat())
}

/// Returns the agent's name, prompt and tools from the first system message.
fn system(events: &[Value]) -> (String, String, Vec<String>) {
    let args = &events
        .iter()
        .find(|event| event["action"] == "system")
        .unwrap()["args"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let tools = args["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| text(&tool["function"]["name"]));
    (
        text(&args["agent_class"]),
        text(&args["content"]),
        tools.collect(),
    )
}

fn errors(events: &[Value]) -> Vec<&str> {
    let errors = events
        .iter()
        .filter(|event| event["observation"] == "error");
    errors
        .map(|event| event["content"].as_str().unwrap())
        .collect()
}

#[test]
fn read_only_agent_searches_and_cannot_write() {
    let home = Home::new();
    std::fs::create_dir(home.workspace().join("src")).unwrap();
    home.write("work/src/a.rs", "fn found() {}\n");
    let model = home.script(&json!([
        tool_call("glob", &json!({"pattern": "*.rs"})),
        tool_call("grep", &json!({"pattern": "fn [a-z]+", "include": "*.rs"})),
        tool_call("view", &json!({"path": home.workspace().join("src/a.rs")})),
        bash("touch written"),
        tool_call(
            "str_replace_editor",
            &json!({"command": "create", "path": "/w", "file_text": ""})
        ),
        finish(),
    ]));
    let workspace = home.workspace();
    let ended = run(
        &home,
        &[
            "-l",
            &model,
            "-d",
            workspace.to_str().unwrap(),
            "--agent-cls",
            "ReadOnlyAgent",
        ],
    );
    let events = ended.expect(0).events();
    let (name, _, tools) = system(&events);
    assert_eq!(
        (name.as_str(), tools.join(" ").as_str()),
        ("ReadOnlyAgent", "view grep glob think finish")
    );
    let is_heard = |event: &&Value| event["cause"].is_u64() && event["observation"] != "recall";
    let received: Vec<_> = events.iter().filter(is_heard).collect();
    let content = |index: usize| received[index]["content"].as_str().unwrap();
    assert_eq!(
        (content(0).trim_end(), content(1).trim_end()),
        ("src/a.rs", "./src/a.rs:1:fn found() {}")
    );
    assert!(content(2).contains("1\tfn found() {}"), "{}", content(2));
    assert_eq!(
        errors(&events),
        [
            "there is no tool execute_bash",
            "there is no tool str_replace_editor"
        ]
    );
    assert!(!home.workspace().join("written").exists());
    home.assert_nothing_runs();
}

#[test]
fn loc_agent_finds_code_in_the_workspace() {
    let home = Home::new();
    std::fs::create_dir(home.workspace().join("shop")).unwrap();
    home.write("work/shop/base.py", "def helper():\n    return 1\n");
    home.write(
        "work/shop/cart.py",
        "from .base import helper\n\n\ndef total():\n    return helper()\n",
    );
    let model = home.script(&json!([
        tool_call("search_code_snippets", &json!({"search_terms": ["total"]})),
        tool_call("get_entity_contents", &json!({"entity_names": ["shop/base.py:helper"]})),
        tool_call("explore_tree_structure", &json!({
            "start_entities": ["shop/base.py:helper"], "direction": "upstream", "dependency_type_filter": ["invokes"],
        })),
        bash("touch written"),
        finish(),
    ]));
    let workspace = home.workspace();
    let ended = run(
        &home,
        &[
            "-l",
            &model,
            "-d",
            workspace.to_str().unwrap(),
            "--agent",
            "LocAgent",
        ],
    );
    let events = ended.expect(0).events();
    assert_eq!(
        (system(&events).0.as_str(), system(&events).2),
        ("LocAgent", vec!["finish".to_owned()])
    );
    let outputs: Vec<_> = events
        .iter()
        .filter(|event| event["observation"] == "run")
        .collect();
    let contents: Vec<_> = outputs
        .iter()
        .map(|output| output["content"].as_str().unwrap().trim_end())
        .collect();
    assert_eq!(
        contents,
        [
            "## total\nfunction shop/cart.py:total, lines 4 to 5\n     4\tdef total():\n     5\t    return helper()",
            "## function shop/base.py:helper, lines 1 to 2\n     1\tdef helper():\n     2\t    return 1",
            "shop/base.py:helper (function)\n  <- invokes shop/cart.py:total (function)",
        ]
    );
    assert!(
        outputs
            .iter()
            .all(|output| output["extras"]["command"].as_str().unwrap().len() < 300)
    );
    assert_eq!(errors(&events), ["there is no tool execute_bash"]);
    home.assert_nothing_runs();
}

#[test]
fn dummy_agent_plays_its_script_without_a_model() {
    let home = Home::new();
    let workspace = home.workspace();
    let ended = run(
        &home,
        &["-d", workspace.to_str().unwrap(), "--agent", "DummyAgent"],
    );
    let events = ended.events();
    assert_eq!(errors(&events), [""; 0], "{}", ended.stderr);
    let by_agent = |event: &&Value| event["source"] == "agent" && event["action"].is_string();
    let actions: Vec<_> = events
        .iter()
        .filter(by_agent)
        .map(|event| event["action"].as_str().unwrap())
        .collect();
    assert_eq!(
        actions,
        ["system", "message", "run", "write", "read", "run", "reject"]
    );
    let output = |index: usize| {
        let outputs: Vec<_> = events
            .iter()
            .filter(|event| event["observation"] == "run")
            .collect();
        outputs[index]["content"]
            .as_str()
            .unwrap()
            .trim_end()
            .to_owned()
    };
    assert_eq!(
        (output(0), output(1)),
        ("foo".to_owned(), "Hello, World!".to_owned())
    );
    assert_eq!(events.last().unwrap()["extras"]["agent_state"], "rejected");
    assert_eq!(
        std::fs::read_to_string(workspace.join("hello.sh"))
            .unwrap()
            .trim_end(),
        "echo \"Hello, World!\""
    );
    home.assert_nothing_runs();
}

#[test]
fn agent_fails_before_any_model_call_when_its_tool_is_missing() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    home.write(
        "cells.md",
        "---\ntools: [execute_ipython_cell, finish]\n---\nCalculate.",
    );
    // A python3 without IPython.
    std::fs::create_dir(home.path().join("bin")).unwrap();
    let python = home.write("bin/python3", "#!/bin/sh\nexit 1\n");
    std::fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        home.path().join("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let arguments = [
        "run",
        "--json",
        "-t",
        "work",
        "--runtime",
        "local",
        "-l",
        &model,
        "--agent-cls",
        "cells.md",
    ];
    let mut command = home.glovebox(&arguments);
    let events = home
        .start(command.env("PATH", path))
        .end()
        .expect(1)
        .events();
    let last = &events.last().unwrap()["extras"];
    assert_eq!(last["agent_state"], "error");
    let reason = last["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("the tool execute_ipython_cell is not offered: no IPython"),
        "{reason}"
    );
    assert!(!events.iter().any(|event| event["action"] == "finish"));
    home.assert_nothing_runs();
}

#[test]
fn cells_run_when_the_sandbox_has_ipython() {
    let Some(packages) = packages("ipython", include_str!("../ipython.txt"), &[]) else {
        return;
    };
    let home = Home::new();
    // The sandbox sees the workspace, but not necessarily this repository.
    let copied = home.workspace().join("packages");
    let copying = std::process::Command::new("cp")
        .arg("-r")
        .args([&packages, &copied])
        .status()
        .unwrap();
    assert!(copying.success());
    // A Chromium on the machine would be offered too.
    let python = format!(
        "[sandbox]\nruntime_startup_env_vars = {{ PYTHONPATH = {copied:?} }}\n[agent]\nenable_browsing = false\n"
    );
    home.write(".glovebox/config.toml", &python);
    let cell = |code: &str| tool_call("execute_ipython_cell", &json!({"code": code}));
    let script = json!([cell("x = 20 + 1"), cell("x * 2"), finish()]);
    let model = home.script(&script);
    let workspace = home.workspace();
    let arguments = ["-l", &model, "-d", workspace.to_str().unwrap()];
    let events = run(&home, &arguments).expect(0).events();
    assert_eq!(errors(&events), [""; 0]);
    assert!(
        !system(&events)
            .2
            .contains(&"execute_ipython_cell".to_owned()),
        "offered before the sandbox exists"
    );
    let is_offer = |event: &&Value| event["source"] == "environment" && event["action"] == "system";
    let offers: Vec<_> = events
        .iter()
        .filter(is_offer)
        .map(|event| &event["args"]["tools"])
        .collect();
    assert_eq!(offers.len(), 1, "{offers:?}");
    assert_eq!(offers[0][0]["function"]["name"], "execute_ipython_cell");
    let cells: Vec<_> = events
        .iter()
        .filter(|event| event["observation"] == "run_ipython")
        .collect();
    assert!(
        cells[1]["content"]
            .as_str()
            .unwrap()
            .starts_with("42\n[Jupyter current"),
        "{cells:?}"
    );
    assert_eq!(cells[1]["extras"]["code"], "x * 2");

    home.write(".glovebox/config.toml", python + "enable_jupyter = false\n");
    let again = home.script(&script);
    let events = run(&home, &["-l", &again, "-d", workspace.to_str().unwrap()])
        .expect(0)
        .events();
    assert_eq!(
        errors(&events),
        ["there is no tool execute_ipython_cell"; 2]
    );
    assert_eq!(events.iter().filter(is_offer).count(), 0);
    home.assert_nothing_runs();
}

#[test]
fn agent_from_a_file_has_its_own_prompt_tools_and_model() {
    let home = Home::new();
    let model = home.script(&json!([
        bash("echo 1"),
        tool_call("think", &json!({"thought": "2"})),
        finish()
    ]));
    home.write(
        ".glovebox/config.toml",
        format!("[llm]\nmodel = \"none\"\n[llm.of_agent]\nmodel = \"{model}\"\n"),
    );
    std::fs::create_dir_all(home.path().join(".glovebox/agents")).unwrap();
    let file = "---\nname: critic\ntools: [think, finish]\nmodel: of_agent\n---\nBe strict.\n";
    home.write(".glovebox/agents/reviewer.md", file);
    let events = run(&home, &["--agent", "reviewer", "-i", "2"])
        .expect(3)
        .events();
    let expected = (
        "critic".to_owned(),
        "Be strict.".to_owned(),
        vec!["think".to_owned(), "finish".to_owned()],
    );
    assert_eq!(system(&events), expected);
    assert_eq!(errors(&events), ["there is no tool execute_bash"]);
    let list: Value =
        serde_json::from_str(&home.run(&["conversations", "ls", "--json"]).stdout).unwrap();
    let id = list[0]["conversation_id"].as_str().unwrap();
    home.run(&["resume", id, "--json"]).expect(0);
    home.write(".glovebox/agents/reviewer.md", "---\ntools: fly\n---\nx");
    for (agent, part) in [
        (
            "reviewer",
            "reviewer.md:2: `tools` has \"fly\", which is not a tool",
        ),
        ("./missing.md", "cannot read ./missing.md: No such file"),
        (
            "nobody",
            "there is no agent nobody: there are CodeActAgent, ReadOnlyAgent,",
        ),
    ] {
        let stderr = run(&home, &["--agent", agent]).expect(2).stderr;
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
    home.assert_nothing_runs();
}

#[test]
fn agent_is_defined_by_a_config_section() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    home.write(".glovebox/careful.md", "Be careful.");
    home.write(
        ".glovebox/config.toml",
        "[agent]\nenable_think = false\n[agent.careful]\nenable_cmd = false\nenable_condensation_request = true\n\
         system_prompt_filename = \"careful.md\"\n[agent.CodeActAgent]\nenable_plan_mode = false\n",
    );
    let (name, prompt, tools) = system(
        &run(&home, &["-l", &model, "-c", "careful"])
            .expect(0)
            .events(),
    );
    assert_eq!((name.as_str(), prompt.as_str()), ("careful", "Be careful."));
    assert_eq!(
        tools,
        [
            "str_replace_editor",
            "task_tracker",
            "request_condensation",
            "finish"
        ]
    );
    let (name, prompt, tools) = system(&run(&home, &["-l", &model]).expect(0).events());
    assert_eq!(
        (name.as_str(), tools.join(" ").as_str()),
        ("CodeActAgent", "execute_bash str_replace_editor finish")
    );
    assert!(
        prompt.contains("\n\nShell\n") && !prompt.contains("task_tracker"),
        "{prompt}"
    );
    home.assert_nothing_runs();
}

fn write(folder: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workspace_knowledge_is_loaded_despite_hostile_files() {
    let backend = LocalBackend::new().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    let folder = workspace.path();
    write(folder, "AGENTS.md", "Build with make.");
    write(folder, ".openhands_instructions", "Ask first.");
    write(
        folder,
        ".openhands/microagents/git/hub.md",
        "---\ntriggers:\n- GitHub\n---\nUse the forge.",
    );
    write(folder, ".openhands/microagents/README.md", "Not this.");
    write(
        folder,
        ".openhands/microagents/long.md",
        "x".repeat(1 << 20),
    );
    write(folder, ".openhands/microagents/broken.md", b"\xff");
    write(
        folder,
        ".openhands/microagents/odd.md",
        "---\nnonsense\n---\n",
    );
    write(
        folder,
        ".openhands/skills/pdf/SKILL.md",
        "---\nname: pdf\ndescription: Reads PDFs.\n---\nLong.",
    );
    write(folder, ".openhands/skills/pdf/notes.md", "Not this.");
    let microagents = folder.join(".openhands/microagents");
    for (link, target) in [
        ("linked.md", "../../docs/linked.md"),
        ("circle.md", "circle.md"),
        ("up", ".."),
    ] {
        std::os::unix::fs::symlink(target, microagents.join(link)).unwrap();
    }
    write(folder, "docs/linked.md", "Linked.");
    let mut spec = spec(&backend);
    spec.workspace = Some(folder.into());
    let sandbox = backend.provider().create(&spec, &|_| {}).await.unwrap();
    let working_dir = sandbox.lease().working_dir.clone();
    let memory = Memory::default().load(&*sandbox, &working_dir, "").await;
    remove(&backend, sandbox).await;

    let recall = memory
        .recall(
            "on github",
            &WorkspaceFacts::default(),
            &RecallHistory::default(),
        )
        .unwrap();
    let ObservationKind::Recall(found) = &recall.observation.kind else {
        panic!("{recall:?}")
    };
    let pieces: Vec<_> = found
        .microagent_knowledge
        .iter()
        .map(|piece| (&*piece.name, &*piece.trigger))
        .collect();
    assert_eq!(pieces, [("git/hub", "GitHub")]);
    let formatted = format_recall(found);
    for part in [
        "Build with make.",
        "Ask first.",
        "Linked.",
        "xxx",
        "- pdf: Reads PDFs. (",
        "Use the forge.",
    ] {
        assert!(formatted.contains(part), "{part}");
    }
    assert!(!formatted.contains("Not this."));
    let mut problems: Vec<_> = memory.problems().iter().map(ToString::to_string).collect();
    problems.sort();
    let parts = [
        "broken.md: byte 0 is no UTF-8",
        "circle.md: ",
        "long.md: it is longer than 65536 bytes",
        "odd.md:2: expected `name: value`",
    ];
    assert_eq!(problems.len(), parts.len(), "{problems:?}");
    for (problem, part) in problems.iter().zip(parts) {
        assert!(problem.contains(part), "{part} in {problem}");
    }
}

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use protocol::action::{EditAction, RunAction, TrackedTask};
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use serde_json::{Value, json};

use super::*;
use crate::agent::{DelegateAgent, Prompt};

/// One with these tools, that can hand tasks on to a reader.
fn agent(tools: &[ToolName]) -> AgentDefinition {
    let delegates = vec![DelegateAgent {
        name: "reader".into(),
        description: "Finds things.\n".into(),
    }];
    AgentDefinition {
        delegates,
        ..AgentDefinition::code_act(Prompt::Unattended, tools.to_vec())
    }
}

fn call_with(tools: &[ToolName], name: &str, arguments: &Value) -> Result<Action, ToolError> {
    let call = ToolCall {
        id: "c".into(),
        name: name.into(),
        arguments: arguments.to_string(),
        ..Default::default()
    };
    to_action(&agent(tools), &[], &call, "why").map(|(action, _)| action)
}

fn call(name: &str, arguments: &Value) -> Result<Action, ToolError> {
    call_with(&ToolName::ALL, name, arguments)
}

#[test]
fn tools_are_found_by_their_definitions_name() {
    for tool in ToolName::ALL {
        assert_eq!(
            (ToolName::find(tool.name()), tool.definition().name.as_str()),
            (Some(tool), tool.name())
        );
    }
}

#[test]
fn unavailable_tools_are_rejected() {
    let shell = json!({"command": "rm -r /"});
    assert_eq!(
        call_with(&ToolName::READ_ONLY, "execute_bash", &shell),
        Err(ToolError::NoSuchTool("execute_bash".into()))
    );
}

#[test]
fn sandbox_tools_are_available_once_offered() {
    let named = |tools: Vec<Tool>| tools.into_iter().map(|tool| tool.name).collect::<Vec<_>>();
    let tools = [ToolName::ExecuteBash, ToolName::ExecuteIpythonCell];
    assert_eq!(
        named(definitions(&agent(&tools))),
        [execute_bash::NAME, DELEGATE]
    );
    let offered: Vec<_> = sandbox_tools(&agent(&tools))
        .into_iter()
        .map(|late| late.tool)
        .collect();
    assert_eq!(named(offered.clone()), [execute_ipython_cell::NAME]);
    let arguments = json!({"code": "1 + 1"}).to_string();
    let call = ToolCall {
        id: "c".into(),
        name: execute_ipython_cell::NAME.into(),
        arguments,
        ..Default::default()
    };
    let no_tool = Err(ToolError::NoSuchTool(call.name.clone()));
    assert_eq!(to_action(&agent(&tools), &[], &call, "why"), no_tool);
    let (action, _) = to_action(&agent(&tools), &offered, &call, "why").unwrap();
    let Action::RunIpython(cell) = action else {
        panic!("{action:?}")
    };
    assert_eq!(
        (
            cell.code.as_str(),
            cell.thought.as_str(),
            cell.include_extra
        ),
        ("1 + 1", "why", true)
    );
}

#[test]
fn read_only_agent_cannot_edit() {
    for (name, arguments) in [
        ("view", json!({"path": "/a"})),
        ("grep", json!({"pattern": "a"})),
        ("glob", json!({"pattern": "a"})),
        ("think", json!({"thought": "a"})),
        ("finish", json!({})),
    ] {
        let action = call_with(&ToolName::READ_ONLY, name, &arguments).unwrap();
        assert!(
            !matches!(action, Action::Edit(EditAction { .. }) | Action::Write(_)),
            "{action:?}"
        );
        if let Action::Run(run) = action {
            assert!(
                run.is_static && run.blocking,
                "a shell of its own, which keeps nothing: {run:?}"
            );
        }
    }
}

#[test]
fn tasks_are_delegated_to_known_agents_only() {
    let Ok(Action::Delegate(action)) =
        call("delegate", &json!({"agent": "reader", "task": "Find it."}))
    else {
        panic!("a delegation")
    };
    assert_eq!(
        (action.agent.as_str(), &action.inputs["task"]),
        ("reader", &json!("Find it."))
    );
    let missing = call("delegate", &json!({"agent": "writer", "task": "Find it."})).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "the arguments of delegate: there is no agent writer: there are reader"
    );
    let delegate = definitions(&agent(&[])).pop().unwrap();
    assert!(
        delegate
            .description
            .ends_with("The agents:\n- reader: Finds things."),
        "{}",
        delegate.description
    );
    assert_eq!(
        delegate.parameters["properties"]["agent"]["enum"],
        json!(["reader"])
    );
    let alone = AgentDefinition::code_act(Prompt::Unattended, Vec::new());
    assert!(definitions(&alone).is_empty());
}

fn call_with_text(name: &str, arguments: &str) -> Result<Action, ToolError> {
    let call = ToolCall {
        id: "c".into(),
        name: name.into(),
        arguments: arguments.into(),
        ..Default::default()
    };
    to_action(&agent(&ToolName::ALL), &[], &call, "why").map(|(action, _)| action)
}

#[test]
fn arguments_have_the_meant_type() {
    let insert = |line: Value| json!({"command": "insert", "path": "/a", "new_str": "2", "insert_line": line});
    let view = |range: Value| json!({"path": "/a", "view_range": range});
    let run = |is_input: Value, timeout: Value| json!({"command": "1", "is_input": is_input, "timeout": timeout});
    let plan = |tasks: Value| json!({"command": "plan", "task_list": tasks});
    for (tool, written, meant) in [
        ("str_replace_editor", insert(json!(2.0)), insert(json!(2))),
        (
            "str_replace_editor",
            insert(json!(" 2.0")),
            insert(json!(2)),
        ),
        ("view", view(json!(["1", 3.0])), view(json!([1, 3]))),
        ("view", view(json!("[1, \"-1\"]")), view(json!([1, -1]))),
        ("view", view(json!(null)), json!({"path": "/a"})),
        (
            "execute_bash",
            run(json!("True"), json!("2.5")),
            run(json!(true), json!(2.5)),
        ),
        (
            "execute_bash",
            run(json!("null"), json!(null)),
            json!({"command": "1"}),
        ),
        (
            "task_tracker",
            plan(json!(r#"[{"title": "Fix It"}]"#)),
            plan(json!([{"title": "Fix It"}])),
        ),
    ] {
        let expected = call(tool, &meant).unwrap();
        for text in [written.to_string(), json!(written.to_string()).to_string()] {
            assert_eq!(
                call_with_text(tool, &text).as_ref(),
                Ok(&expected),
                "{text}"
            );
        }
    }
    let search = |terms: Value| {
        call_offered("search_code_snippets", &json!({"search_terms": terms})).unwrap()
    };
    for (written, meant) in [
        ("Cart", json!(["Cart"])),
        (r#"["Cart", "run"]"#, json!(["Cart", "run"])),
        ("[0]", json!(["[0]"])),
    ] {
        assert_eq!(search(json!(written)), search(meant));
    }
}

#[test]
fn omitted_arguments_are_no_error_when_all_are_optional() {
    for text in ["", " \n", "null", "\"null\"", "{}"] {
        assert!(
            matches!(call_with_text("finish", text), Ok(Action::Finish(_))),
            "{text}"
        );
        let error = call_with_text("view", text).unwrap_err().to_string();
        assert_eq!(error, "the arguments of view: missing field `path`");
    }
}

#[test]
fn arguments_of_another_type_are_rejected_by_name() {
    for (tool, arguments, problem) in [
        (
            "view",
            json!({"path": "/a", "view_range": "one"}),
            r#"view_range: invalid type: string "one""#,
        ),
        (
            "view",
            json!({"path": "/a", "view_range": ["one"]}),
            r#"view_range[0]: invalid type: string "one""#,
        ),
        (
            "view",
            json!({"path": "/a", "view_range": "[1, [2]]"}),
            r#"view_range: invalid type: string "[1, [2]]""#,
        ),
        (
            "view",
            json!({"path": 7}),
            "path: invalid type: integer `7`, expected a string",
        ),
        ("view", json!(["/a"]), "write a JSON object"),
        (
            "edit_file",
            json!({"path": "/a", "content": "", "start": "two"}),
            r#"start: invalid type: string "two""#,
        ),
        (
            "edit_file",
            json!({"path": "/a", "content": "", "start": 2.5}),
            "start: invalid type: floating point `2.5`",
        ),
        (
            "edit_file",
            json!({"path": "/a", "content": "", "start": 1e300}),
            "start: invalid type: floating point",
        ),
        (
            "execute_bash",
            json!({"command": "", "is_input": 1}),
            "is_input: invalid type: integer `1`",
        ),
    ] {
        let error = call(tool, &arguments).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("the arguments of {tool}: {problem}")),
            "{error}"
        );
    }
}

#[test]
fn text_arguments_are_unchanged() {
    for text in [
        "2",
        "2.0",
        "true",
        "null",
        "",
        " [1, 3]",
        "{\"a\": \"B\"}",
        "\"quoted\"",
    ] {
        let arguments = json!({"command": "create", "path": text, "file_text": text, "old_str": text, "new_str": text});
        let Ok(Action::Edit(edit)) = call("str_replace_editor", &arguments) else {
            panic!("an edit")
        };
        let expected = Some(text.to_owned());
        assert_eq!(
            (
                edit.path.as_str(),
                &edit.file_text,
                &edit.old_str,
                &edit.new_str
            ),
            (text, &expected, &expected, &expected)
        );
        let Ok(Action::Run(run)) = call("execute_bash", &json!({"command": text})) else {
            panic!("a run")
        };
        assert_eq!(run.command, text);
    }
}

#[test]
fn arguments_have_the_type_that_the_server_declares() {
    let parameters = json!({"type": "object", "properties": {
        "count": {"type": "integer"},
        "filter": {"type": "object", "properties": {"deep": {"type": "boolean"}}},
        "text": {"type": "string"},
        "any": {},
    }});
    let arguments = json!({"count": "3", "filter": "{\"deep\": \"true\"}", "text": "3", "any": "3", "other": null});
    let expected =
        json!({"count": 3, "filter": {"deep": true}, "text": "3", "any": "3", "other": null});
    let converted = convert_arguments(arguments.as_object().unwrap().clone(), &parameters);
    assert_eq!(Value::from(converted), expected);
}

#[test]
fn found_tool_is_called_under_its_own_name() {
    let call = |offered: &[Tool], name: &str, arguments: Value| {
        let arguments = arguments.to_string();
        let call = ToolCall {
            id: "c".into(),
            name: name.into(),
            arguments,
            ..Default::default()
        };
        to_action(&agent(&[ToolName::ExecuteBash]), offered, &call, "why").map(|(action, _)| action)
    };
    let mcp = |action| match action {
        Ok(Action::CallToolMcp(mcp)) => (mcp.name, Value::from(mcp.arguments), mcp.thought),
        other => panic!("{other:?}"),
    };
    let tool = |name: &str| Tool {
        name: name.into(),
        description: String::new(),
        parameters: json!({"type": "object", "properties": {"arguments": {"type": "object"}}}),
    };
    let offered = ["search_tools", "call_tool", "where"].map(tool);
    let expected = |name: &str, arguments: Value| (name.to_owned(), arguments, "why".to_owned());
    for arguments in [json!({"n": 1}), json!("{\"n\": 1}")] {
        let found = json!({"name": "find", "arguments": arguments});
        assert_eq!(
            mcp(call(&offered, "call_tool", found)),
            expected("find", json!({"n": 1}))
        );
    }
    assert_eq!(
        mcp(call(&offered, "call_tool", json!({"name": "find"}))),
        expected("find", json!({}))
    );
    let query = json!({"query": "places"});
    assert_eq!(
        mcp(call(&offered, "search_tools", query.clone())),
        expected("search_tools", query)
    );
    assert_eq!(
        mcp(call(&offered, "find", json!({"n": 1}))),
        expected("find", json!({"n": 1})),
        "without call_tool"
    );
    let own = call(
        &offered,
        "call_tool",
        json!({"name": "execute_bash", "arguments": {"command": "ls"}}),
    );
    assert!(matches!(own, Ok(Action::Run(run)) if run.command == "ls"));
    for name in ["", "a\nb", &"x".repeat(65)] {
        let error = call(&offered, "call_tool", json!({"name": name})).unwrap_err();
        assert_eq!(error.to_string(), format!("there is no tool {name}"));
    }
    let declared =
        json!({"name": "find", "arguments": {"security_risk": "LOW"}, "security_risk": "LOW"});
    assert_eq!(
        call(&offered, "call_tool", declared)
            .unwrap()
            .security_risk(),
        SecurityRisk::Unknown
    );
    let nameless = call(&offered, "call_tool", json!({"arguments": {}})).unwrap_err();
    assert_eq!(
        nameless.to_string(),
        "the arguments of call_tool: missing field `name`"
    );
    assert_eq!(
        call(&offered[2..], "call_tool", json!({}))
            .unwrap_err()
            .to_string(),
        "there is no tool call_tool"
    );
}

#[test]
fn task_list_is_bounded() {
    let plan = |count: usize, notes: &str| {
        let task = json!({"id": 1, "title": "t", "status": "todo", "notes": notes});
        call(
            "task_tracker",
            &json!({"command": "plan", "task_list": vec![task; count]}),
        )
    };
    let Ok(Action::TaskTracking(planned)) = plan(200, "n") else {
        panic!("a plan")
    };
    let task = TrackedTask {
        id: "1".into(),
        title: "t".into(),
        status: "todo".into(),
        notes: "n".into(),
    };
    assert_eq!(
        (planned.task_list[0].clone(), planned.thought.as_str()),
        (task, "why")
    );
    plan(201, "n").unwrap_err();
    plan(1, &"n".repeat(9000)).unwrap_err();
    call("task_tracker", &json!({"command": "plan"})).unwrap_err();
    call("task_tracker", &json!({"command": "eat"})).unwrap_err();
    // Models write lists as text now and then.
    let text = json!({"command": "plan", "task_list": "[{\"id\": \"1\", \"title\": \"t\", \"status\": \"todo\"}]"});
    assert!(
        matches!(call("task_tracker", &text), Ok(Action::TaskTracking(plan)) if plan.task_list.len() == 1)
    );
}

#[test]
fn missing_fields_of_tasks_get_defaults() {
    let list = json!([{"title": "one"}, {"id": null, "title": "", "status": "", "notes": "n"}, {"id": 7, "status": "done"}]);
    let planned = call(
        "task_tracker",
        &json!({"command": "plan", "task_list": list}),
    );
    let Ok(Action::TaskTracking(planned)) = planned else {
        panic!("a plan")
    };
    let task = |id: &str, title: &str, status: &str, notes: &str| TrackedTask {
        id: id.into(),
        title: title.into(),
        status: status.into(),
        notes: notes.into(),
    };
    let expected = [
        task("task-1", "one", "todo", ""),
        task("task-2", "Untitled task", "todo", "n"),
        task("7", "Untitled task", "done", ""),
    ];
    assert_eq!(planned.task_list, expected);
}

#[test]
fn think_includes_the_text_of_the_response() {
    let think = |thought: &str, response: &str| {
        let arguments = json!({ "thought": thought }).to_string();
        let call = ToolCall {
            id: "c".into(),
            name: "think".into(),
            arguments,
            ..Default::default()
        };
        match to_action(&agent(&ToolName::ALL), &[], &call, response)
            .unwrap()
            .0
        {
            Action::Think(think) => think.thought,
            action => panic!("{action:?}"),
        }
    };
    assert_eq!(think("a", "why"), "why\na");
    assert_eq!(
        (think("a", ""), think("", "why")),
        ("a".to_owned(), "why".to_owned())
    );
}

/// What a search prints, run as the sandbox would run it.
fn search(folder: &Path, tool: &str, arguments: &Value) -> String {
    let Ok(Action::Run(RunAction { command, .. })) = call(tool, arguments) else {
        panic!("{tool} {arguments}")
    };
    let ran = Command::new("sh")
        .args(["-c", &command])
        .current_dir(folder)
        .output()
        .unwrap();
    format!(
        "{}{}",
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    )
}

fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in [
        ("src/main.rs", "fn main() {}\n"),
        ("src/a b/mod.ts", "let fn = 1;\nlet x;\n"),
        ("src/a b/view.tsx", "fn\n"),
        ("top.rs", "none\n"),
        ("it's (odd)+.md", "fn $HOME `x`\n"),
        (".github/ci.yml", "fn\n"),
        (".git/HEAD.yml", "fn\n"),
        ("node_modules/p/index.ts", "fn\n"),
        ("binary.rs", "fn\0\n"),
    ] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

#[test]
fn files_are_found_by_name() {
    let folder = project();
    let glob = |pattern: &str| search(folder.path(), "glob", &json!({"pattern": pattern}));
    assert_eq!(glob("*.rs"), "binary.rs\nsrc/main.rs\ntop.rs\n");
    assert_eq!(glob("./src/*.rs"), "src/main.rs\n");
    assert_eq!(
        glob("src/**/*.{ts,tsx}"),
        "src/a b/mod.ts\nsrc/a b/view.tsx\n"
    );
    assert_eq!(glob("**/main.??"), "src/main.rs\n");
    assert_eq!(glob("it's (odd)+.md"), "it's (odd)+.md\n");
    assert_eq!(glob("it's (odd)?.md"), "it's (odd)+.md\n");
    assert_eq!(glob(".github/*"), ".github/ci.yml\n");
    assert_eq!(
        glob("*.yml") + &glob("src") + &glob("$(touch made)") + &glob("{*.rs"),
        ""
    );
    assert!(!folder.path().join("made").exists());
    let below = search(
        folder.path(),
        "glob",
        &json!({"pattern": "*", "path": "src/a b"}),
    );
    assert_eq!(below, "mod.ts\nview.tsx\n");
    assert!(
        search(
            folder.path(),
            "glob",
            &json!({"pattern": "*", "path": "-missing"})
        )
        .contains("missing")
    );
}

#[test]
fn lines_are_found_by_pattern() {
    let folder = project();
    let grep = |arguments: Value| {
        let found = search(folder.path(), "grep", &arguments);
        let mut lines: Vec<_> = found.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(
        grep(json!({"pattern": "\\bfn( |$)"})),
        [
            "./it's (odd)+.md:1:fn $HOME `x`",
            "./src/a b/mod.ts:1:let fn = 1;",
            "./src/a b/view.tsx:1:fn",
            "./src/main.rs:1:fn main() {}"
        ]
    );
    assert_eq!(
        grep(json!({"pattern": "fn", "include": "*.{ts,tsx}", "path": "src"})),
        ["./a b/mod.ts:1:let fn = 1;", "./a b/view.tsx:1:fn"]
    );
    assert_eq!(
        grep(json!({"pattern": "let", "path": "src/a b/mod.ts"})),
        ["1:let fn = 1;", "2:let x;"]
    );
    assert_eq!(
        grep(json!({"pattern": "-e $HOME `x`"})),
        Vec::<String>::new()
    );
    assert_eq!(
        grep(json!({"pattern": "[$]HOME `"})),
        ["./it's (odd)+.md:1:fn $HOME `x`"]
    );
    std::fs::write(
        folder.path().join("long.rs"),
        format!("long{}\n", "x".repeat(10_000)).repeat(500),
    )
    .unwrap();
    let long = grep(json!({"pattern": "long"}));
    assert_eq!((long.len(), long[0].len()), (200, 500));
    for include in ["a/*.rs", "{a,b}{a,b}{a,b}{a,b}{a,b}"] {
        call("grep", &json!({"pattern": "a", "include": include})).unwrap_err();
    }
    call("grep", &json!({"pattern": "a\u{0}"})).unwrap_err();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a model writes is one word of the shell's, or refused.
    #[test]
    fn search_arguments_are_never_executed(text in "[a-z'\"`$();&|<>*?{}\\\\\n !~#=\\[\\],.-]{0,24}") {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kept"), "kept\n").unwrap();
        for (tool, arguments) in [
            ("grep", json!({"pattern": format!("{text}>made"), "include": text, "path": text})),
            ("glob", json!({"pattern": format!("{text};>made;"), "path": text})),
        ] {
            if let Ok(Action::Run(run)) = call(tool, &arguments) {
                Command::new("sh").args(["-c", &run.command]).current_dir(folder.path()).output().unwrap();
            }
        }
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        prop_assert_eq!(left, ["kept"]);
    }
}

#[test]
fn declared_risk_is_case_insensitive() {
    for (word, risk) in [
        (r#""LOW""#, SecurityRisk::Low),
        (r#"" medium""#, SecurityRisk::Medium),
        (r#""HIGH""#, SecurityRisk::High),
        (r#""fine""#, SecurityRisk::Unknown),
        ("3", SecurityRisk::Unknown),
        ("null", SecurityRisk::Unknown),
    ] {
        let arguments = format!(r#"{{"command": "ls", "security_risk": {word}}}"#);
        let call = ToolCall {
            id: "c".into(),
            name: execute_bash::NAME.into(),
            arguments,
            ..Default::default()
        };
        assert_eq!(
            to_action(&agent(&ToolName::ALL), &[], &call, "")
                .unwrap()
                .0
                .security_risk(),
            risk,
            "{word}"
        );
    }
}

#[test]
fn only_tools_with_an_effect_have_a_risk_parameter() {
    let all = agent(&ToolName::ALL);
    let late = sandbox_tools(&all).into_iter().map(|late| late.tool);
    let asking: Vec<_> = definitions(&all)
        .into_iter()
        .chain(late)
        .map(with_risk_parameter)
        .filter(|tool| {
            let is_named = tool.parameters["properties"].get(RISK).is_some();
            let required = tool.parameters["required"].as_array();
            let is_read_only = ToolName::find(&tool.name).is_some_and(ToolName::is_read_only);
            let is_required = required.is_some_and(|required| required.contains(&RISK.into()));
            assert_eq!(is_required, is_named && !is_read_only, "{}", tool.name);
            is_named
        })
        .map(|tool| tool.name)
        .collect();
    let acting = [
        execute_bash::NAME,
        str_replace_editor::NAME,
        edit_file::NAME,
        view::NAME,
        grep::NAME,
        glob::NAME,
    ];
    let late = [
        execute_ipython_cell::NAME,
        browser::NAME,
        search_code_snippets::NAME,
        get_entity_contents::NAME,
        explore_tree_structure::NAME,
    ];
    assert_eq!(asking, [&acting[..], &late].concat());
    assert!(
        definitions(&agent(&ToolName::ALL))
            .iter()
            .all(|tool| !tool.parameters.to_string().contains(RISK))
    );
}

/// What a tool that reads code prints, run as the sandbox would run it.
fn explore(folder: &Path, tool: &str, arguments: &Value) -> String {
    let action = call_offered(tool, arguments).unwrap();
    let action = SandboxAction::try_from(action).unwrap();
    let mut request = ActionRequest::new(action, None);
    add_code_graph(&mut request);
    let SandboxAction::Run(run) = &request.action else {
        panic!("{request:?}")
    };
    assert!(
        run.is_static && run.blocking && run.command.len() < 500,
        "{run:?}"
    );
    let mut command = Command::new("sh");
    let ran = command
        .args(["-c", &run.command])
        .envs(&request.environment.0)
        .current_dir(folder)
        .output()
        .unwrap();
    format!(
        "{}{}",
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    )
}

fn call_offered(name: &str, arguments: &Value) -> Result<Action, ToolError> {
    let agent = agent(&ToolName::LOCALIZING);
    let offered: Vec<_> = sandbox_tools(&agent)
        .into_iter()
        .map(|late| late.tool)
        .collect();
    let call = ToolCall {
        id: "c".into(),
        name: name.into(),
        arguments: arguments.to_string(),
        ..Default::default()
    };
    to_action(&agent, &offered, &call, "why").map(|(action, _)| action)
}

fn shop() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in [
        ("shop/__init__.py", ""),
        (
            "shop/base.py",
            "class Base:\n    def __init__(self):\n        helper()\n\n    def greet(self):\n        return self.name()\n\n\n\
             def helper():\n    return 1\n",
        ),
        (
            "shop/sub/cart.py",
            "from ..base import Base, helper as h\n\n\nclass Cart(Base):\n    @property\n    def name(self):\n        \
             return h()\n\n    def run(self):\n        self.greet()\n",
        ),
        ("shop/broken.py", "def (\n"),
        ("notes.txt", "helper is documented\n"),
        // Must not be imported.
        ("json.py", "raise SystemExit('imported')\n"),
    ] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

#[test]
fn code_is_found_by_name_word_and_line() {
    let shop = shop();
    let search = |arguments: Value| explore(shop.path(), "search_code_snippets", &arguments);
    let helper = "## helper\nfunction shop/base.py:helper, lines 9 to 10\n     9\tdef helper():\n    10\t    return 1\n\
                  shop/base.py:Base.__init__, line 3: helper()\n\
                  shop/sub/cart.py, line 1: from ..base import Base, helper as h\n## it's\nNothing was found.\n";
    assert_eq!(search(json!({"search_terms": ["helper", "it's"]})), helper);
    let text = json!({"search_terms": "helper", "file_path_or_pattern": "*.txt"});
    assert_eq!(
        search(text),
        "## helper\nnotes.txt, line 1: helper is documented\n"
    );
    let lines = json!({"line_nums": [7], "file_path_or_pattern": "shop/sub/cart.py"});
    assert_eq!(
        search(lines),
        "## Line 7 of shop/sub/cart.py:Cart.name\n     5\t    @property\n     6\t    def name(self):\n     7\t        return h()\n"
    );
}

#[test]
fn entities_are_shown_or_similar_names_suggested() {
    let names = json!({"entity_names": ["shop/base.py:Base.greet", "notes.txt", "cart.py:run"]});
    let shown = explore(shop().path(), "get_entity_contents", &names);
    let expected = "## function shop/base.py:Base.greet, lines 5 to 6\n     5\t    def greet(self):\n     6\t        return \
                    self.name()\n## file notes.txt, lines 1 to 1\n     1\thelper is documented\nThere is no cart.py:run. \
                    Perhaps: shop/sub/cart.py:Cart.run\n";
    assert_eq!(shown, expected);
}

#[test]
fn dependencies_are_followed_in_both_directions() {
    let shop = shop();
    let tree = |arguments: Value| explore(shop.path(), "explore_tree_structure", &arguments);
    let cart = json!({"start_entities": ["shop/sub/cart.py:Cart"], "traversal_depth": "-1",
                      "dependency_type_filter": ["inherits", "invokes"]});
    let expected = "shop/sub/cart.py:Cart (class)\n  -> inherits shop/base.py:Base (class)\n    \
                    -> invokes shop/base.py:helper (function)\n\
                    [Not Python that can be read: shop/broken.py]\n";
    assert_eq!(tree(cart), expected);
    let helper = json!({"start_entities": ["shop/base.py:helper"], "direction": "upstream", "traversal_depth": 1});
    let used = tree(helper);
    for user in [
        "imports shop/sub/cart.py (file)",
        "invokes shop/base.py:Base (class)",
        "invokes shop/sub/cart.py:Cart.name",
    ] {
        assert!(used.contains(&format!("  <- {user}")), "{used}");
    }
    let all = tree(
        json!({"start_entities": ["/"], "dependency_type_filter": ["contains"], "traversal_depth": 3}),
    );
    assert!(
        all.contains("  -> contains shop (directory)\n    -> contains shop/__init__.py (file)\n"),
        "{all}"
    );
    assert!(
        all.contains("      -> contains shop/base.py:Base (class)\n"),
        "{all}"
    );
}

#[test]
fn code_search_reports_missing_arguments() {
    for (tool, arguments, problem) in [
        (
            "search_code_snippets",
            json!({}),
            "give `search_terms` or `line_nums`",
        ),
        (
            "search_code_snippets",
            json!({"line_nums": [1]}),
            "`line_nums` need the file in `file_path_or_pattern`",
        ),
        (
            "get_entity_contents",
            json!({}),
            "missing field `entity_names`",
        ),
        (
            "get_entity_contents",
            json!({"entity_names": ["x".repeat(40_000)]}),
            "at most 32768 bytes",
        ),
        (
            "explore_tree_structure",
            json!({"start_entities": ["/"], "entity_type_filter": ["module"]}),
            "there is no kind module: there are directory, file, class, function",
        ),
    ] {
        let error = call_offered(tool, &arguments).unwrap_err().to_string();
        assert_eq!(error, format!("the arguments of {tool}: {problem}"));
    }
}

#[test]
fn call_without_content_is_an_action() {
    let think = call_with(&ToolName::ALL, "think", &json!({})).unwrap();
    assert!(matches!(think, Action::Think(think) if think.thought == "why"));
    let empty = serde_json::from_value(json!({"code": " \n"})).unwrap();
    let browse = browser::to_action(empty, "why").unwrap();
    assert!(
        matches!(browse, Action::BrowseInteractive(browse) if browse.browser_actions == "noop()")
    );
}

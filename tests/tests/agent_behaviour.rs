//! Recall, tools, confirmation, loop detection and notices of agents, on the command line with each
//! wire.

use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish, tool_call};
use tests::tool_server::SCRIPT;

fn run(home: &Home, task: &str, responses: &Value, code: i32) -> Vec<Value> {
    let (model, workspace) = (home.script(responses), home.workspace());
    let arguments = [
        "run",
        "--json",
        "--runtime",
        "local",
        "-t",
        task,
        "-l",
        &model,
        "-d",
    ];
    home.run(&[&arguments[..], &[workspace.to_str().unwrap()]].concat())
        .expect(code)
        .events()
}

fn latest(home: &Home) -> String {
    let list: Value =
        serde_json::from_str(&home.run(&["conversations", "ls", "--json"]).stdout).unwrap();
    list[0]["conversation_id"].as_str().unwrap().to_owned()
}

fn select_events<'a>(events: &'a [Value], key: &str, kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event[key] == kind).collect()
}

#[test]
fn instructions_are_recalled_first_and_knowledge_only_once() {
    Home::on_each_wire(|home| {
        home.write("work/AGENTS.md", "Build with make.");
        std::fs::create_dir_all(home.workspace().join(".openhands/microagents")).unwrap();
        home.write(
            "work/.openhands/microagents/forge.md",
            "---\ntriggers:\n- github\n---\nUse the forge.",
        );
        home.write(
            "work/.openhands/microagents/tests.md",
            "---\ntriggers:\n- pytest\n---\nUse -x.",
        );
        let responses = json!([finish(), finish(), finish()]);
        let events = run(home, "Look at GitHub", &responses, 0);
        let [asked] = select_events(&events, "action", "recall")[..] else {
            panic!("{events:#?}")
        };
        let [found] = select_events(&events, "observation", "recall")[..] else {
            panic!("{events:#?}")
        };
        assert_eq!(
            (&asked["source"], &asked["args"]["query"]),
            (&json!("user"), &json!("Look at GitHub"))
        );
        assert_eq!(
            (&found["cause"], &found["source"]),
            (&asked["id"], &json!("environment"))
        );
        assert_eq!(found["extras"]["repo_instructions"], "Build with make.");
        // One is built-in.
        let knowledge = found["extras"]["microagent_knowledge"].as_array().unwrap();
        assert_eq!(
            (&knowledge[0]["name"], &knowledge[1]["content"]),
            (&json!("github"), &json!("Use the forge."))
        );
        let finished = select_events(&events, "action", "finish")[0];
        assert!(found["id"].as_u64() < finished["id"].as_u64());
        let again = home
            .run(&["resume", &latest(home), "-t", "github again", "--json"])
            .expect(0)
            .events();
        assert_eq!(
            select_events(&again, "action", "recall").len(),
            0,
            "recalled twice"
        );
        let other = home
            .run(&["resume", &latest(home), "-t", "run pytest", "--json"])
            .expect(0)
            .events();
        let [found] = select_events(&other, "observation", "recall")[..] else {
            panic!("{other:#?}")
        };
        assert_eq!(
            found["extras"]["microagent_knowledge"][0]["content"], "Use -x.",
            "knowledge of the sandbox"
        );
        home.assert_nothing_runs();
    });
}

#[test]
fn malformed_knowledge_is_shown_to_the_user() {
    let home = Home::new();
    std::fs::create_dir_all(home.workspace().join(".openhands/microagents")).unwrap();
    home.write(
        "work/.openhands/microagents/forge.md",
        "---\ntriggers: [github\n---\nUse the forge.",
    );
    let (model, workspace) = (home.script(&json!([finish()])), home.workspace());
    let workspace = workspace.to_str().unwrap();
    let arguments = ["run", "--runtime", "local", "-t", "x", "-l", &model, "-d"];
    let shown = home.run(&[&arguments[..], &[workspace]].concat()).expect(0);
    let warning = shown
        .stderr
        .lines()
        .find(|line| line.contains("[warning: "));
    assert!(
        warning.is_some_and(|line| line.contains("microagents/forge.md")),
        "{shown:?}"
    );
}

#[test]
fn mcp_tool_is_called_in_the_sandbox() {
    Home::on_each_wire(|home| {
        let arguments = serde_json::to_string(&["-c", SCRIPT]).unwrap();
        home.write(
        ".glovebox/config.toml",
        // A browser on the machine would be offered too.
        format!("[core]\nenable_browser = false\n[[mcp.stdio_servers]]\nname = \"places\"\ncommand = \"sh\"\nargs = {arguments}\n"),
    );
        let events = run(
            home,
            "where are you?",
            &json!([tool_call("where", &json!({})), finish()]),
            0,
        );
        let offered = events
            .iter()
            .find(|event| event["action"] == "system" && event["source"] == "environment");
        assert_eq!(
            offered.unwrap()["args"]["tools"][0]["function"]["name"],
            "where"
        );
        let [called] = select_events(&events, "action", "call_tool_mcp")[..] else {
            panic!("{events:#?}")
        };
        let [answered] = select_events(&events, "observation", "mcp")[..] else {
            panic!("{events:#?}")
        };
        assert_eq!(answered["cause"], called["id"]);
        assert!(
            answered["content"]
                .as_str()
                .unwrap()
                .contains(home.workspace().to_str().unwrap())
        );
        home.assert_nothing_runs();
    });
}

#[test]
fn tool_beyond_the_limit_is_found_and_called() {
    Home::on_each_wire(|home| {
        let arguments = serde_json::to_string(&["-c", SCRIPT]).unwrap();
        home.write(
            ".glovebox/config.toml",
            format!(
                "[core]\nenable_browser = false\n[mcp]\nmax_listed_tools = 0\n\
             [[mcp.stdio_servers]]\nname = \"places\"\ncommand = \"sh\"\nargs = {arguments}\n"
            ),
        );
        let search = tool_call("search_tools", &json!({"query": "where"}));
        let call = tool_call(
            "call_tool",
            &json!({"name": "where", "arguments": {"a": 1}}),
        );
        let all = run(home, "where are you?", &json!([search, call, finish()]), 0);
        let shown = home
            .run(&["conversations", "show", &latest(home)])
            .expect(0)
            .stdout;
        assert!(
            shown.contains("[further tools: search_tools, call_tool; about "),
            "{shown}"
        );
        let offers = select_events(&all, "action", "system");
        let names: Vec<_> = offers[1]["args"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| &tool["function"]["name"])
            .collect();
        assert_eq!(names, ["search_tools", "call_tool"]);
        assert_eq!(offers.len(), 2);
        let [searched, called] = select_events(&all, "action", "call_tool_mcp")[..] else {
            panic!("{all:#?}")
        };
        assert_eq!(
            (&searched["args"]["name"], &called["args"]["name"]),
            (&json!("search_tools"), &json!("where"))
        );
        let [found, answered] = select_events(&all, "observation", "mcp")[..] else {
            panic!("{all:#?}")
        };
        assert!(
            found["content"]
                .as_str()
                .unwrap()
                .contains(r#""name":"where""#),
            "{found}"
        );
        assert!(
            answered["content"]
                .as_str()
                .unwrap()
                .contains(home.workspace().to_str().unwrap())
        );
        home.assert_nothing_runs();
    });
}

#[test]
fn looping_agent_is_stopped_and_resumes_before_the_loop() {
    Home::on_each_wire(|home| {
        let responses: Vec<Value> = (0..4)
            .map(|_| bash("echo same"))
            .chain([finish()])
            .collect();
        let events = run(home, "work", &json!(responses), 1);
        assert_eq!(select_events(&events, "observation", "run").len(), 4);
        let [detected] = select_events(&events, "observation", "loop_detection")[..] else {
            panic!("{events:#?}")
        };
        assert!(
            detected["content"]
                .as_str()
                .unwrap()
                .contains("same action with the same outcome four times")
        );
        let resumed = home
            .run(&["resume", &latest(home), "--json"])
            .expect(0)
            .events();
        assert_eq!(
            select_events(&resumed, "action", "loop_recovery")[0]["args"]["option"],
            1
        );
        assert_eq!(
            select_events(&resumed, "action", "condensation").len(),
            1,
            "the loop is condensed"
        );
        run(home, "work", &json!(responses), 1);
        let again = home
            .run(&["resume", &latest(home), "--from-loop", "message", "--json"])
            .expect(0)
            .events();
        assert_eq!(
            select_events(&again, "action", "loop_recovery")[0]["args"]["option"],
            2
        );
        assert_eq!(
            select_events(&again, "action", "message")[0]["args"]["content"],
            "work"
        );
        let none = home
            .run(&["resume", &latest(home), "--from-loop", "stop"])
            .expect(2)
            .stderr;
        assert!(none.contains("was not stopped in a loop"), "{none}");
        home.write(
            ".glovebox/config.toml",
            "[agent]\nenable_stuck_detection = false\n",
        );
        let events = run(home, "work", &json!(responses), 0);
        assert_eq!(select_events(&events, "observation", "run").len(), 4);
        home.assert_nothing_runs();
    });
}

#[test]
fn failing_calls_are_a_loop_only_when_they_are_identical() {
    Home::on_each_wire(|home| {
        let call = |code: &str| tool_call("no_such_tool", &json!({"code": code}));
        let responses = json!([call("1"), call("2"), call("3"), call("4"), finish()]);
        let events = run(home, "work", &responses, 0);
        assert_eq!(select_events(&events, "observation", "error").len(), 4);
        let events = run(
            home,
            "work",
            &json!([call("1"), call("1"), call("1"), finish()]),
            1,
        );
        let [detected] = select_events(&events, "observation", "loop_detection")[..] else {
            panic!("{events:#?}")
        };
        assert!(
            detected["content"]
                .as_str()
                .unwrap()
                .contains("the same action with an error three times")
        );
        home.assert_nothing_runs();
    });
}

#[test]
fn policy_asks_for_confirmation_only_when_command_is_risky() {
    Home::on_each_wire(|home| {
        let policy = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../orchestrator/security-policy.toml"
        );
        home.write(
            ".glovebox/config.toml",
            format!(
                "[security]\nconfirmation_policy = \"high\"\nsecurity_analyzer = \"{policy}\"\n"
            ),
        );
        let responses = json!([bash("ls"), bash("sudo rm -rf /"), finish()]);
        let events = run(home, "work", &responses, 4);
        let [ls, rm] = select_events(&events, "action", "run")[..] else {
            panic!("{events:#?}")
        };
        assert_eq!(
            (&ls["args"]["security_risk"], &rm["args"]["security_risk"]),
            (&json!(0), &json!(2))
        );
        assert_eq!(rm["args"]["confirmation_state"], "awaiting_confirmation");
        assert_eq!(select_events(&events, "observation", "run").len(), 1);
        let rejected = home
            .run(&["resume", &latest(home), "--reject", "no", "--json"])
            .expect(0)
            .events();
        assert_eq!(
            select_events(&rejected, "observation", "user_rejected").len(),
            1
        );
        home.assert_nothing_runs();
    });
}

#[test]
fn task_list_is_stored_in_the_log() {
    Home::on_each_wire(|home| {
        let task = json!({"id": "1", "title": "look", "status": "done"});
        let responses = json!([
            tool_call(
                "task_tracker",
                &json!({"command": "plan", "task_list": [task]})
            ),
            tool_call("task_tracker", &json!({"command": "view"})),
            finish(),
        ]);
        let events = run(home, "work", &responses, 0);
        let [planned, viewed] = select_events(&events, "observation", "task_tracking")[..] else {
            panic!("{events:#?}")
        };
        assert_eq!(
            planned["extras"]["task_list"],
            viewed["extras"]["task_list"]
        );
        assert_eq!(viewed["content"], "1. [done] look\n");
        home.assert_nothing_runs();
    });
}

#[test]
fn agent_is_notified_once_when_its_sandbox_is_replaced() {
    Home::on_each_wire(|home| {
        run(
            home,
            "work",
            &json!([
                bash("X=1"),
                finish(),
                bash("echo ${X:-none}"),
                finish(),
                finish()
            ]),
            0,
        );
        let resume = ["resume", &latest(home), "-t", "and now?", "--json"];
        let resumed = home.run(&resume).expect(0).events();
        let [notice] = select_events(&resumed, "observation", "success")[..] else {
            panic!("{resumed:#?}")
        };
        let [message] = select_events(&resumed, "action", "message")[..] else {
            panic!("{resumed:#?}")
        };
        assert!(
            notice["id"].as_u64() < message["id"].as_u64(),
            "the agent answers the notice"
        );
        let [ran] = select_events(&resumed, "observation", "run")[..] else {
            panic!("{resumed:#?}")
        };
        assert_eq!(ran["content"].as_str().unwrap().trim_end(), "none");
        assert!(
            notice["id"].as_u64() < ran["cause"].as_u64(),
            "the notice follows the action"
        );
        home.assert_nothing_runs();
    });
}

#[test]
fn sandbox_is_created_before_the_model_call_after_a_failure() {
    Home::on_each_wire(|home| {
        let model = home.script(&json!([finish()]));
        let arguments = [
            "run",
            "--json",
            "--runtime",
            "docker",
            "-t",
            "work",
            "-l",
            &model,
        ];
        let nowhere = format!("unix://{}/no-engine", home.path().display());
        let start = |arguments: &[&str]| {
            let mut command = home.glovebox(arguments);
            home.start(command.env("DOCKER_HOST", &nowhere))
                .end()
                .expect(1)
        };
        let started = start(&arguments).events();
        let reason = |events: &[Value]| {
            let changed = select_events(events, "observation", "agent_state_changed");
            let last = changed.last().unwrap()["extras"].clone();
            assert_eq!(last["agent_state"], "error");
            last["reason"].as_str().unwrap().to_owned()
        };
        let again = start(&["resume", &latest(home), "-t", "please", "--json"]).events();
        assert_eq!(reason(&again), reason(&started));
        assert_eq!(select_events(&again, "action", "finish").len(), 0);
    });
}

#[test]
fn mcp_tools_of_a_workspace_run_in_its_sandbox() {
    Home::on_each_wire(|home| {
        std::fs::create_dir_all(home.workspace().join(".openhands/microagents")).unwrap();
        home.write("work/server.sh", SCRIPT);
        let front_matter = "mcp_tools:\n  stdio_servers:\n  - name: inside\n    command: sh\n    args: [server.sh]\n    env:\n      TOKEN: of-the-file\n";
        home.write(
            "work/.openhands/microagents/repo.md",
            format!("---\n{front_matter}---\nBuild."),
        );
        let responses = json!([tool_call("where", &json!({})), finish()]);
        let events = run(home, "Where?", &responses, 0);
        let [answer] = select_events(&events, "observation", "mcp")[..] else {
            panic!("{events:#?}")
        };
        assert!(
            answer["content"]
                .as_str()
                .unwrap()
                .contains(" of-the-file "),
            "{answer}"
        );
        let exported = home
            .run(&["conversations", "export", &latest(home)])
            .expect(0);
        let exported: Vec<Value> = serde_json::from_str(&exported.stdout).unwrap();
        let [system] = select_events(&exported, "action", "system")[..] else {
            panic!("{exported:#?}")
        };
        assert!(
            system["args"]["tools"].to_string().contains("\"where\""),
            "{system}"
        );
        home.assert_nothing_runs();
    });
}

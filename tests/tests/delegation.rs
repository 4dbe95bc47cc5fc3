//! Delegated tasks, from the configuration to the log.

use serde_json::{Value, json};
use tests::glovebox::{CompletedRun, Home, bash, finish, tool_call};

/// Runs a main agent that may delegate to the agents `left` and `right`. Each has its own script.
fn run(home: &Home, responses: &Value, left: &Value, right: &Value, more: &[&str]) -> CompletedRun {
    let own = home.script(responses);
    let mut config =
        format!("[agent]\ndelegates = [\"left\", \"right\"]\n[llm]\nmodel = \"{own}\"\n");
    for (name, responses) in [("left", left), ("right", right)] {
        let script = home.path().join(format!("{name}.json"));
        std::fs::write(&script, json!({"responses": responses}).to_string()).unwrap();
        config.push_str(&format!(
            "[llm.{name}]\nmodel = \"scripted:{}\"\napi_key = \"key-of-the-{name}-one\"\n[agent.{name}]\nllm_config = \"{name}\"\ndescription = \"Goes {name}.\"\n",
            script.display()
        ));
    }
    home.write(".glovebox/config.toml", config);
    home.run(&[&["run", "-t", "work", "--runtime", "local"], more].concat())
}

fn delegate(agents: &[&str]) -> Value {
    let call = |agent: &&str| json!({"name": "delegate", "arguments": {"agent": agent, "task": "Find the other."}});
    json!({"text": "Both at once.", "tool_calls": agents.iter().map(call).collect::<Vec<_>>()})
}

/// Returns a command that waits for the file of the other agent.
fn meet(own: &str, other: &str) -> Value {
    bash(&format!(
        "cd /tmp; NAME={own}; cd - >/dev/null; touch {own}; until [ -e {other} ]; do sleep 0.05; done; pwd"
    ))
}

fn of<'a>(events: &'a [Value], delegation: &'a Value) -> impl Iterator<Item = &'a Value> {
    events
        .iter()
        .filter(move |event| event["delegation"] == *delegation)
}

#[test]
fn delegated_tasks_run_concurrently_each_in_its_own_shell() {
    let home = Home::new();
    let received = bash("echo \"${NAME:-none}\"");
    let saved = home.path().join("saved.json");
    let recorded = home.path().join("calls");
    let ended = run(
        &home,
        &json!([delegate(&["left", "right"]), received, finish()]),
        &json!([
            meet("left", "right"),
            bash("echo I am $NAME with key-of-the-left-one"),
            tool_call("finish", &json!({"message": "Left."}))
        ]),
        &json!([meet("right", "left"), {"text": "Right."}]),
        &[
            "--json",
            "--save-trajectory",
            saved.to_str().unwrap(),
            "--record",
            recorded.to_str().unwrap(),
        ],
    );
    let events = ended.expect(0).events();
    let tools = events
        .iter()
        .find(|event| event["action"] == "system")
        .unwrap()["args"]["tools"]
        .to_string();
    assert!(
        tools.contains("- left: Goes left.") && tools.contains("- right: Goes right."),
        "{tools}"
    );
    let handed: Vec<&Value> = events
        .iter()
        .filter(|event| event["action"] == "delegate")
        .collect();
    let [left, right] = handed[..] else {
        panic!("{handed:?}")
    };
    assert_eq!(
        left["args"],
        json!({"agent": "left", "inputs": {"task": "Find the other."}, "thought": "Both at once."})
    );
    let names: Vec<&Value> = of(&events, &left["id"])
        .map(|event| &event["args"]["agent_class"])
        .take(1)
        .collect();
    assert_eq!(
        names,
        [&json!("left")],
        "the delegate's first event is its own prompt"
    );
    let contents: Vec<&str> = of(&events, &left["id"])
        .filter(|event| event["observation"] == "run")
        .map(|event| event["content"].as_str().unwrap())
        .collect();
    assert!(
        contents[1].starts_with("I am left with <secret_hidden>"),
        "{contents:?}"
    );
    let outcome = |of: &Value| {
        let is_it =
            |event: &&Value| event["observation"] == "delegate" && event["cause"] == of["id"];
        let found: Vec<_> = events.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "exactly one result");
        assert_eq!(
            found[0].get("delegation"),
            None,
            "the result belongs to the delegating agent"
        );
        (
            found[0]["content"].clone(),
            found[0]["extras"]["outputs"].clone(),
        )
    };
    assert_eq!(
        outcome(left),
        (
            json!("left says:\nLeft."),
            json!({"outcome": "finished", "iterations": 3, "accumulated_cost": 0.0})
        )
    );
    assert_eq!(outcome(right).0, json!("right says:\nRight."));
    let own: Vec<&Value> = events
        .iter()
        .filter(|event| event["observation"] == "run" && event.get("delegation").is_none())
        .collect();
    assert!(
        own[0]["content"].as_str().unwrap().starts_with("none"),
        "the main agent has its own shell: {own:?}"
    );
    assert_eq!(
        std::fs::read_dir(recorded).unwrap().count(),
        8,
        "one file per model call"
    );

    // A replay delegates the tasks again.
    let again = home
        .run(&[
            "replay",
            saved.to_str().unwrap(),
            "--json",
            "--runtime",
            "local",
        ])
        .expect(0)
        .events();
    let outcomes = |events: &[Value]| {
        let observations = events
            .iter()
            .filter(|event| event["observation"] == "delegate");
        observations
            .map(|event| event["content"].to_string())
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(outcomes(&again), outcomes(&events));
    home.assert_nothing_runs();
}

#[test]
fn delegate_error_is_reported_and_the_agent_continues() {
    let home = Home::new();
    let ended = run(
        &home,
        &json!([delegate(&["left"]), delegate(&["nobody"]), finish()]),
        &json!([{"error": "authentication"}]),
        &json!([]),
        &[],
    );
    let stderr = ended.expect(0).stderr;
    let (_, after) = stderr.split_once("[task ").unwrap();
    let (task, _) = after.split_once(" for left]").unwrap();
    for part in [
        format!("--- left on task {task} ---\ntask:\n  Find the other."),
        format!("--- the agent ---\n[task {task}: left did not finish the task: "),
        "there is no agent nobody: there are left, right".to_owned(),
    ] {
        assert!(stderr.contains(&part), "{part} in {stderr}");
    }
    home.assert_nothing_runs();
}

#[test]
fn run_is_refused_when_a_delegate_does_not_exist() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    home.write(
        ".glovebox/config.toml",
        "[agent]\ndelegates = [\"nobody\"]\n",
    );
    let stderr = home
        .run(&["run", "-t", "work", "--runtime", "local", "-l", &model])
        .expect(2)
        .stderr;
    assert!(
        stderr.contains("agent.delegates: there is no agent nobody: there are CodeActAgent"),
        "{stderr}"
    );
}

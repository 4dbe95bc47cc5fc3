//! Several models in one conversation: routing, summaries, titles, recording and replay.

use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish};

/// Writes a model's script and returns its name for the configuration.
fn script(home: &Home, model: &str, responses: &Value) -> String {
    let script = json!({"model": model, "responses": responses});
    let path = home.write(&format!("{model}.json"), script.to_string());
    format!("model = \"scripted:{}\"", path.display())
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
fn first_model_answers_when_the_second_cannot_read_a_request() {
    let home = Home::new();
    let too_long = json!({"error": "context_window_exceeded"});
    let small = [
        bash("echo 1"),
        too_long.clone(),
        bash("echo 3"),
        bash("echo 4"),
        bash("echo 5"),
        too_long,
    ];
    let config = format!(
        "[llm]\n{}\n[llm.small]\nfor_routing = true\n{}\n[llm.clerk]\n{}\n\
         [model_routing]\nrouter_name = \"multimodal_router\"\n[agent]\nenable_prompt_extensions = false\n\
         [condenser]\ntype = \"llm\"\nllm_config = \"clerk\"\nmax_size = 10\n",
        script(&home, "big", &json!([bash("echo 2"), finish()])),
        script(&home, "small", &json!(small)),
        script(&home, "clerk", &json!([{"text": "It counts."}])),
    );
    home.write(".glovebox/config.toml", config);
    let (workspace, calls) = (home.workspace(), home.path().join("calls"));
    let work = [
        "run",
        "--json",
        "-t",
        "count",
        "--runtime",
        "local",
        "-d",
        workspace.to_str().unwrap(),
    ];
    let run = |more: [&str; 2]| {
        home.run(&[work.as_slice(), more.as_slice()].concat())
            .expect(0)
            .events()
    };
    let events = run(["--record", calls.to_str().unwrap()]);
    assert_eq!(
        called(&events),
        ["small", "big", "small", "small", "small", "clerk", "big"]
    );

    // The recording is all that a replay needs.
    for model in ["big", "small", "clerk"] {
        std::fs::remove_file(home.path().join(format!("{model}.json"))).unwrap();
    }
    let again = run(["--replay", calls.to_str().unwrap()]);
    assert_eq!(called(&again), called(&events));
    assert_eq!(std::fs::read_dir(&calls).unwrap().count(), 7);
    home.assert_nothing_runs();
}

#[test]
fn recording_replays_in_a_fresh_workspace() {
    let home = Home::new();
    // Requests contain both paths, and with them the conversation's id.
    let model = home.script(&json!([bash("echo $HOME; pwd"), finish()]));
    let run = |more: &[&str]| {
        let arguments = [
            "run",
            "--json",
            "-t",
            "work",
            "-l",
            &model,
            "--runtime",
            "local",
        ];
        home.run(&[arguments.as_slice(), more].concat())
            .expect(0)
            .events()
    };
    run(&["--record", "calls"]);
    run(&["--replay", "calls"]);
    home.assert_nothing_runs();
}

#[test]
fn title_is_generated_concurrently_and_charged() {
    let home = Home::new();
    let config = |clerk: &Value| {
        let (agent, clerk) = (
            script(&home, "agent", &json!([bash("echo 1"), finish()])),
            script(&home, "clerk", clerk),
        );
        format!("[core]\ntitle_llm_config = \"clerk\"\n[llm]\n{agent}\n[llm.clerk]\n{clerk}\n")
    };
    let titled = || {
        let events = home
            .run(&["run", "--json", "-t", "fix login", "--runtime", "local"])
            .expect(0)
            .events();
        let titles = events
            .iter()
            .filter(|event| event["record"] == "conversation_titled");
        let titles: Vec<_> = titles
            .map(|event| event["args"]["title"].as_str().unwrap().to_owned())
            .collect();
        let list: Value =
            serde_json::from_str(&home.run(&["conversations", "ls", "--json"]).stdout).unwrap();
        let paid = called(&events)
            .into_iter()
            .filter(|model| *model == "clerk")
            .count();
        (titles, list[0]["title"].as_str().unwrap().to_owned(), paid)
    };
    home.write(
        ".glovebox/config.toml",
        config(&json!([{"text": "Repair the login"}])),
    );
    assert_eq!(
        titled(),
        (
            vec!["Repair the login".to_owned()],
            "Repair the login".to_owned(),
            1
        )
    );
    home.write(
        ".glovebox/config.toml",
        config(&json!([{"error": "rate_limited"}])),
    );
    assert_eq!(
        titled(),
        (vec!["fix login".to_owned()], "fix login".to_owned(), 0)
    );
    home.write(
        ".glovebox/config.toml",
        config(&json!([])).replace("title_llm_config = \"clerk\"", ""),
    );
    assert_eq!(titled(), (vec![], "fix login".to_owned(), 0));
    home.assert_nothing_runs();
}

#[test]
fn completions_are_logged_to_the_configured_folder() {
    let home = Home::new();
    let config = format!(
        "[llm]\n{}\nlog_completions = true\nlog_completions_folder = \"calls\"\n",
        script(&home, "agent", &json!([bash("echo 1"), finish()]))
    );
    home.write(
        ".glovebox/config.toml",
        config.replace("log_completions_folder = \"calls\"\n", ""),
    );
    let run = || {
        home.run(&["run", "--json", "-t", "x", "--runtime", "local"])
            .expect(0)
    };
    assert!(!run().stderr.contains("without effect"));
    home.write(".glovebox/config.toml", config);
    run();
    for folder in [".glovebox/completions", "calls"] {
        let call = std::fs::read_to_string(home.path().join(folder).join("000002.json")).unwrap();
        let call: Value = serde_json::from_str(&call).unwrap();
        assert_eq!(call["model"], "agent");
    }
    home.assert_nothing_runs();
}

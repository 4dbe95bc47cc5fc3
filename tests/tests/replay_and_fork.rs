//! Replays of trajectories, and forks of conversations, on the command line.

use std::path::Path;

use serde_json::{Value, json};
use tests::glovebox::{CompletedRun, Home, as_stored, bash, finish};

const LOCAL: [&str; 2] = ["--runtime", "local"];

fn run(home: &Home, responses: &Value, more: &[&str]) -> CompletedRun {
    let model = home.script(responses);
    home.run(
        &[
            &["run", "--json", "-t", "work", "-l", &model],
            LOCAL.as_slice(),
            more,
        ]
        .concat(),
    )
}

fn replay(home: &Home, file: &Path, more: &[&str]) -> CompletedRun {
    home.run(&[&["replay", file.to_str().unwrap()], LOCAL.as_slice(), more].concat())
}

fn latest(home: &Home) -> String {
    let list: Value =
        serde_json::from_str(&home.run(&["conversations", "ls", "--json"]).stdout).unwrap();
    list[0]["conversation_id"].as_str().unwrap().to_owned()
}

fn outputs(events: &[Value]) -> Vec<&str> {
    let ran = events.iter().filter(|event| event["observation"] == "run");
    ran.map(|event| event["content"].as_str().unwrap().trim_end())
        .collect()
}

#[test]
fn replay_reports_a_difference_only_where_results_differ() {
    let home = Home::new();
    let file = home.path().join("done.json");
    let save = ["--save-trajectory", file.to_str().unwrap()];
    let responses = json!([
        bash("x=1; echo same"),
        bash("echo $x; cat /proc/sys/kernel/random/uuid"),
        finish()
    ]);
    let done = run(&home, &responses, &save).expect(0).events();
    let ended = replay(&home, &file, &["--diff", "--json"]).expect(1);
    let differences: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    let [difference] = differences.as_slice() else {
        panic!("{differences:#?}")
    };
    assert_eq!(
        difference["before"]["content"].as_str().unwrap().trim_end(),
        outputs(&done)[1]
    );
    let now = difference["after"]["content"].as_str().unwrap();
    assert!(
        now.starts_with("1\n") && now.trim_end() != outputs(&done)[1],
        "{now}"
    );
    let ended = replay(&home, &file, &["--diff"]).expect(1);
    assert!(
        ended.stdout.contains("then (run):") && ended.stderr.contains("2 of 3 actions"),
        "{ended:?}"
    );
    home.assert_nothing_runs();
}

#[test]
fn agent_resumes_after_a_replay_when_no_result_differs() {
    let home = Home::new();
    let file = home.path().join("done.json");
    let save = ["-i", "2", "--save-trajectory", file.to_str().unwrap()];
    run(&home, &json!([bash("x=1"), bash("echo $x")]), &save).expect(3);
    replay(&home, &file, &["--diff"]).expect(0);
    let model = home.script(&json!([bash("echo $((x + 1))"), finish()]));
    let ended = replay(&home, &file, &["--json", "-l", &model])
        .expect(0)
        .events();
    assert_eq!(outputs(&ended), ["", "1", "2"]);
    let messages = ended
        .iter()
        .filter(|event| event["source"] == "user" && event["action"] == "message");
    assert_eq!(
        messages
            .map(|event| event["args"]["content"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["work"]
    );
    let asked = ended
        .iter()
        .filter(|event| event.get("llm_metrics").is_some());
    assert_eq!(
        asked.count(),
        2,
        "the model is called only after the trajectory"
    );
    home.assert_nothing_runs();
}

#[test]
fn configured_trajectory_is_replayed_when_run_has_no_task() {
    let home = Home::new();
    let file = home.path().join("done.json");
    let save = ["-i", "1", "--save-trajectory", file.to_str().unwrap()];
    run(&home, &json!([bash("echo 1")]), &save).expect(3);
    home.write(
        ".glovebox/config.toml",
        "[core]\nreplay_trajectory_path = \"done.json\"\n",
    );
    let ended = run(&home, &json!([]), &[]).expect(2);
    assert!(
        ended.stderr.contains("the trajectory contains the task"),
        "{}",
        ended.stderr
    );
    let model = home.script(&json!([bash("echo 2"), finish()]));
    let again = home
        .run(&[["run", "--json", "-l", &model].as_slice(), &LOCAL].concat())
        .expect(0)
        .events();
    assert_eq!(outputs(&again), ["1", "2"]);
    home.assert_nothing_runs();
}

#[test]
fn stopped_action_is_not_replayed_but_reported() {
    let home = Home::new();
    let file = home.path().join("done.json");
    let model = home.script(&json!([bash("echo one"), bash("sleep 100000")]));
    let arguments = [
        "run",
        "--json",
        "-t",
        "work",
        "-l",
        &model,
        "--save-trajectory",
        file.to_str().unwrap(),
    ];
    let mut run = home.start(&mut home.glovebox(&[&arguments[..], &LOCAL].concat()));
    run.wait_for("the endless command", |event| {
        event["action"] == "run" && event["args"]["command"] == "sleep 100000"
    });
    run.signal(rustix::process::Signal::INT);
    run.end().expect(130);
    let ended = replay(&home, &file, &["--diff"]).expect(0);
    assert!(
        ended.stderr.contains("not replayed: 1 stopped or rejected"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("1 of 1 actions"), "{}", ended.stderr);
    home.assert_nothing_runs();
}

#[test]
fn v0_trajectory_is_replayed_and_an_invalid_one_refused() {
    let home = Home::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/tests/wire/trajectories");
    let ended = replay(
        &home,
        &folder.join("wrong_initial_state.json"),
        &["--diff", "--json"],
    )
    .expect(1);
    let differences: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    let renaming = differences
        .iter()
        .find(|difference| difference["message"].as_str().unwrap().contains("mv "));
    assert_eq!(
        renaming.unwrap()["after"]["extras"]["metadata"]["exit_code"],
        1,
        "there is no such file here"
    );
    for (text, problem) in [
        ("{}", "not a JSON array"),
        ("[]", "has no action that can be replayed"),
        ("[{\"id\": 0}]", "entry 0, counted from 0"),
    ] {
        let ended = replay(&home, &home.write("bad.json", text), &["--diff"]).expect(2);
        assert!(ended.stderr.contains(problem), "{}", ended.stderr);
    }
    replay(&home, Path::new("nowhere.json"), &["--diff"]).expect(2);
}

/// V0 before 2025 stored an edit's arguments in Python code, and wrote Python's dialect of JSON.
#[test]
fn edits_of_older_v0_versions_are_replayed() {
    let home = Home::new();
    let workspace = home.workspace();
    let path = format!("{}/game.py", workspace.display());
    let code = format!(
        "print(file_editor(**{{'command': 'create', 'path': '{path}', 'file_text': 'print(\\'1\\')\\n'}}))"
    );
    let args = json!({"path": path, "content": "", "start": 1, "end": -1, "thought": "\u{1}", "impl_source": "oh_aci",
        "translated_ipython_code": code});
    let event = |id: u32, args: Value| json!({"id": id, "timestamp": "2024-12-30T10:00:00.000000", "source": "agent", "timeout": 2, "args": args});
    let mut edit = event(3, args);
    edit["action"] = json!("edit");
    let mut finish = event(5, json!({"outputs": {}, "thought": "Done."}));
    finish["action"] = json!("finish");
    let text = json!([edit, finish]).to_string();
    let text = text
        .replacen("\"timeout\":2", "\"timeout\":NaN", 2)
        .replace("\\u0001", "\\ud83d");
    assert!(text.contains("NaN") && text.contains("\\ud83d"), "{text}");
    let folder = ["--diff", "-d", workspace.to_str().unwrap()];
    let ended = replay(&home, &home.write("older.json", &text), &folder);
    assert!(ended.stderr.contains("of 2 actions"), "{}", ended.stderr);
    assert_eq!(
        std::fs::read_to_string(workspace.join("game.py")).unwrap(),
        "print('1')\n"
    );
    home.assert_nothing_runs();
}

#[test]
fn fork_shares_the_first_events_and_diverges() {
    let home = Home::new();
    let responses = json!([bash("echo kept > file; pwd"), bash("echo lost"), finish()]);
    let log = as_stored(&run(&home, &responses, &[]).expect(0).events());
    let from = latest(&home);
    let last = log
        .iter()
        .find(|event| event["observation"] == "run")
        .unwrap()["id"]
        .as_u64()
        .unwrap();
    let fork = home
        .run(&["conversations", "fork", &from, "--at", &last.to_string()])
        .expect(0);
    let id = fork.stdout.trim();
    // The model calls before the fork are not repeated.
    let model = home.script(&json!([bash("pwd"), bash("cat file; pwd"), finish()]));
    home.run(&["resume", id, "-t", "another way", "-l", &model])
        .expect(0);
    let forked = as_stored(
        &home
            .run(&["conversations", "show", id, "--json"])
            .expect(0)
            .events(),
    );
    let shared = usize::try_from(last).unwrap();
    assert!(forked[1..=shared] == log[1..=shared]);
    assert_eq!(
        forked[0]["args"]["forked_from"],
        json!({"conversation": from, "event": last})
    );
    let (here, there) = (outputs(&log), outputs(&forked));
    assert_eq!(there.len(), 2, "{there:?}");
    let folder = there[1]
        .strip_prefix("kept\n")
        .expect("the fork has the files");
    assert!(
        folder != here[0] && folder.contains(id),
        "the fork has its own folder: {folder}"
    );
    let shown = as_stored(
        &home
            .run(&["conversations", "show", &from, "--json"])
            .events(),
    );
    assert!(shown.starts_with(&log), "the original is unchanged");
    let ended = home
        .run(&["conversations", "fork", &from, "--at", "999"])
        .expect(2);
    assert!(
        ended.stderr.contains("has no event 999"),
        "{}",
        ended.stderr
    );
    home.assert_nothing_runs();
}

//! The command line: complete runs of tasks, and wrong usage.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::glovebox::{CompletedRun, Home, as_stored, bash, finish, tool_call, wait_until};
use tests::model_server::{ModelReply, ModelServer};
use tests::sandbox_contract::Backend as _;
use tests::sandbox_contract::docker::DockerBackend;
use tests::terminal::TestTerminal;

const LOCAL: [&str; 2] = ["--runtime", "local"];

fn run_local(home: &Home, model: &str, more: &[&str]) -> CompletedRun {
    let arguments: Vec<_> = [
        &["run", "--json", "-t", "work", "-l", model],
        LOCAL.as_slice(),
        more,
    ]
    .concat();
    home.run(&arguments)
}

#[test]
fn demo_repairs_the_project_and_prints_a_transcript() {
    let home = Home::new();
    let demo = home.run(&["demo"]).expect(0);
    for part in [
        "FAILED  4 = IV",
        "$ sh test.sh",
        "ok      3999 = MMMCMXCIX",
        "finished after 5 steps",
    ] {
        assert!(demo.stderr.contains(part), "{part} in:\n{}", demo.stderr);
    }
    home.assert_nothing_runs();
}

#[test]
fn demo_runs_in_an_image_that_has_only_a_shell() {
    if let Some(backend) = DockerBackend::busybox() {
        let home = Home::new();
        let image = backend.image().unwrap();
        home.run(&["demo", "--runtime", "docker", "--image", &image])
            .expect(0);
        home.assert_nothing_runs();
    }
}

#[test]
fn task_is_completed_and_its_log_stored() {
    let home = Home::new();
    let workspace = home.workspace();
    let file = workspace.join("note.txt");
    let model = home.script(&json!([
        tool_call("str_replace_editor", &json!({"command": "create", "path": file, "file_text": "one\ntwo\n"})),
        tool_call("str_replace_editor", &json!({"command": "str_replace", "path": file, "old_str": "two", "new_str": "three"})),
        {"tool_calls": [
            {"name": "think", "arguments": {"thought": "two calls in one response"}},
            {"name": "execute_bash", "arguments": {"command": "cat note.txt; cd /; export X=1"}},
        ]},
        bash("pwd; echo $X; exit 3"),
        finish(),
    ]));
    let trajectory = home.path().join("trajectory.json");
    let more = [
        "-d",
        workspace.to_str().unwrap(),
        "--save-trajectory",
        trajectory.to_str().unwrap(),
    ];
    let run = run_local(&home, &model, &more).expect(0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\nthree\n");

    let events = run.events();
    let ids: Vec<_> = events
        .iter()
        .map(|event| event["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, (0..events.len() as u64).collect::<Vec<_>>());
    let ran: Vec<_> = events
        .iter()
        .filter(|event| event["observation"] == "run")
        .collect();
    assert_eq!(ran[0]["content"].as_str().unwrap().trim_end(), "one\nthree");
    assert_eq!(ran[1]["content"].as_str().unwrap().trim_end(), "/\n1");
    assert_eq!(ran[1]["extras"]["metadata"]["exit_code"], 3);
    let spent: Vec<_> = events
        .iter()
        .filter(|event| event.get("llm_metrics").is_some())
        .collect();
    assert_eq!(spent.len(), 5, "one record of usage per model call");

    let saved: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(trajectory).unwrap()).unwrap();
    assert!(
        saved.iter().all(|event| event.get("record").is_none()),
        "a trajectory has only V0's events"
    );
    let list = home.run(&["conversations", "ls", "--json"]).expect(0);
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    assert_eq!(list[0]["agent_state"], "finished");
    assert_eq!(list[0]["title"], "work");
    let id = list[0]["conversation_id"].as_str().unwrap();
    let shown = home
        .run(&["conversations", "show", id, "--json"])
        .expect(0)
        .events();
    assert_eq!(
        as_stored(&shown)[..events.len()],
        as_stored(&events),
        "the stored log equals the output"
    );
    let transcript = home.run(&["conversations", "show", id]).expect(0).stdout;
    assert!(
        transcript.contains("$ pwd; echo $X; exit 3"),
        "{transcript}"
    );
    home.assert_nothing_runs();
}

#[test]
fn agent_stops_at_the_iteration_limit_and_resumes() {
    let home = Home::new();
    let model = home.script(&json!([
        bash("echo 1"),
        bash("echo 2"),
        bash("echo 3"),
        finish()
    ]));
    let run = run_local(&home, &model, &["-i", "2"]).expect(3);
    let ran = |ended: &CompletedRun| {
        ended
            .events()
            .iter()
            .filter(|event| event["observation"] == "run")
            .count()
    };
    assert_eq!(ran(&run), 2);
    let list: Value =
        serde_json::from_str(&home.run(&["conversations", "ls", "--json"]).stdout).unwrap();
    let id = list[0]["conversation_id"].as_str().unwrap();
    let resumed = home.run(&["resume", id, "--json"]).expect(0);
    assert_eq!(ran(&resumed), 1);
    home.assert_nothing_runs();
}

#[test]
fn pending_action_is_confirmed_or_rejected_by_resume() {
    let home = Home::new();
    home.write(
        ".glovebox/config.toml",
        "[security]\nconfirmation_mode = true\n",
    );
    let model = home.script(&json!([bash("echo 1"), bash("echo 2"), finish()]));
    let run = run_local(&home, &model, &[]).expect(4);
    assert!(
        run.events()
            .iter()
            .all(|event| event["observation"] != "run")
    );
    let list: Value =
        serde_json::from_str(&home.run(&["conversations", "ls", "--json"]).stdout).unwrap();
    assert_eq!(list[0]["agent_state"], "awaiting_user_confirmation");
    let id = list[0]["conversation_id"].as_str().unwrap();
    let confirmed = home
        .run(&["resume", id, "--confirm", "--json"])
        .expect(4)
        .events();
    assert_eq!(
        confirmed
            .iter()
            .filter(|event| event["observation"] == "run")
            .count(),
        1
    );
    let rejected = home
        .run(&["resume", id, "--reject", "leave that", "--json"])
        .expect(0)
        .events();
    let rejection = rejected
        .iter()
        .find(|event| event["observation"] == "user_rejected")
        .unwrap();
    assert_eq!(
        rejection["content"],
        "The user rejected the action: leave that"
    );
    refused(
        &home.run(&["resume", id, "--confirm"]),
        2,
        "no action of conversation",
    );
    home.assert_nothing_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_stops_after_the_call_that_exceeds_the_budget() {
    let home = Home::new();
    let calls = ["1", "2", "3"]
        .map(|text| ModelReply::call("execute_bash", &json!({"command": format!("echo {text}")})));
    let server = ModelServer::start(calls).await;
    let arguments = ["run", "--json", "-t", "work", "-l", "test", "-b", "0.5"];
    let mut command = home.glovebox(&[arguments.as_slice(), LOCAL.as_slice()].concat());
    // The cost of a call is known only afterwards, so the second call exceeds the budget.
    command
        .env("LLM_BASE_URL", &server.base_url)
        .env("LLM_INPUT_COST_PER_TOKEN", "0.03")
        .env("LLM_OUTPUT_COST_PER_TOKEN", "0.03");
    let ended = home.start(&mut command).end().expect(3);
    let spent: Vec<f64> = ended
        .events()
        .iter()
        .filter_map(|event| event["llm_metrics"]["accumulated_cost"].as_f64())
        .collect();
    let (last, before) = spent.split_last().unwrap();
    assert!(
        *last >= 0.5 && before.iter().all(|cost| *cost < 0.5),
        "{spent:?}"
    );
    assert!(!ended.stderr.contains("no price"), "{}", ended.stderr);
    let server =
        ModelServer::start([ModelReply::call("finish", &json!({"message": "done"}))]).await;
    let mut command = home.glovebox(&[arguments.as_slice(), LOCAL.as_slice()].concat());
    let ended = home
        .start(command.env("LLM_BASE_URL", &server.base_url))
        .end()
        .expect(0);
    assert!(
        ended
            .stderr
            .contains("the limit of $0.5 has no effect, because the price of test is unknown"),
        "{}",
        ended.stderr
    );
    home.assert_nothing_runs();
}

#[test]
fn running_action_is_observed_when_run_is_interrupted() {
    for signal in [Signal::INT, Signal::TERM] {
        let home = Home::new();
        let model = home.script(&json!([
            bash("echo started; sleep 600 & sleep 601"),
            finish()
        ]));
        let arguments = [
            &["run", "--json", "-t", "work", "-l", &model],
            LOCAL.as_slice(),
        ]
        .concat();
        let mut run = home.start(&mut home.glovebox(&arguments));
        let action = run.wait_for("the command", |event| event["action"] == "run");
        run.signal(signal);
        let ended = run.end().expect(130);
        let endings = ended
            .events()
            .iter()
            .filter(|event| event["cause"] == action["id"])
            .count();
        assert_eq!(endings, 1, "{:#?}", ended.events());
        home.assert_nothing_runs();
    }
}

#[test]
fn nothing_is_left_when_sandbox_creation_is_interrupted() {
    if let Some(backend) = DockerBackend::busybox() {
        let image = backend.image().unwrap();
        let model_of = |home: &Home| home.script(&json!([finish()]));
        for command in ["run", "exec"] {
            let home = Home::new();
            let model = model_of(&home);
            let runtime = ["--runtime", "docker", "--image", &image];
            let arguments = match command {
                "run" => [
                    &["run", "--json", "-t", "work", "-l", &model],
                    runtime.as_slice(),
                ]
                .concat(),
                _ => [&["exec"], runtime.as_slice(), &["--", "true"]].concat(),
            };
            let started = home.start(&mut home.glovebox(&arguments));
            let folder = home.path().join(".glovebox/bin");
            // The server is unpacked just before the container is created.
            wait_until("the sandbox starts", || folder.exists());
            started.signal(Signal::HUP);
            started.end().expect(130);
            home.assert_nothing_runs();
        }
    }
}

#[test]
fn agent_is_asked_to_continue_three_times_when_it_only_talks() {
    let home = Home::new();
    let talk = json!({"text": "Which file do you mean?"});
    let model = home.script(&json!([talk, talk, talk, talk, talk]));
    let run = run_local(&home, &model, &[]).expect(4);
    let messages = run
        .events()
        .iter()
        .filter(|event| event["source"] == "user" && event["action"] == "message")
        .count();
    assert_eq!(messages, 4, "the task and three nudges");
    let alone = run_local(&home, &model, &["--no-auto-continue"]).expect(4);
    let messages = alone
        .events()
        .iter()
        .filter(|event| event["source"] == "user" && event["action"] == "message")
        .count();
    assert_eq!(messages, 1);
}

#[test]
fn exec_has_the_output_and_exit_code_of_its_command() {
    let home = Home::new();
    let exec = |more: &[&str]| home.run(&[&["exec"], LOCAL.as_slice(), &["--"], more].concat());
    assert_eq!(exec(&["echo", "two words"]).expect(0).stdout, "two words\n");
    assert_eq!(exec(&["printf a; printf b; exit 7"]).expect(7).stdout, "ab");
    assert_eq!(
        exec(&["printf", "%s|", "a b", "$HOME", "it's"])
            .expect(0)
            .stdout,
        "a b|$HOME|it's|"
    );
    home.assert_nothing_runs();
}

#[test]
fn exec_forwards_standard_input() {
    let home = Home::new();
    let exec = |more: &[&str]| {
        let mut exec = home.glovebox(&[&["exec"], LOCAL.as_slice(), more].concat());
        let exec = exec
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        exec.unwrap()
    };
    let mut cat = exec(&["--", "cat; echo err >&2"]);
    let input: Vec<u8> = (0..2_000_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let (mut stdin, sent) = (cat.stdin.take().unwrap(), input.clone());
    let writing = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = cat.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.stdout == input, "{}", output.stdout.len());
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b"err\n"[..])
    );
    // A program that ignores its stdin exits, and so does one without stdin, while ours stays open.
    for (more, expected) in [
        (["--", "echo done"].as_slice(), "done\n"),
        (&["-n", "--", "cat; echo end"], "end\n"),
    ] {
        let mut child = exec(more);
        let _open = child.stdin.take();
        assert_eq!(
            String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap(),
            expected
        );
    }
    home.assert_nothing_runs();
}

#[test]
fn exec_runs_in_the_given_image() {
    if let Some(backend) = DockerBackend::debian() {
        let home = Home::new();
        let image = backend.image().unwrap();
        let exec = home.run(&[
            "exec",
            "--runtime",
            "docker",
            "--image",
            &image,
            "--",
            "cat /etc/os-release",
        ]);
        assert!(exec.expect(0).stdout.contains("Debian"));
        home.assert_nothing_runs();
    }
}

/// Checks the exit code, part of the error, and that there is no backtrace.
#[track_caller]
fn refused(ended: &CompletedRun, code: i32, part: &str) {
    assert_eq!(ended.code, code, "{ended:?}");
    assert!(ended.stderr.contains(part), "{part} in: {}", ended.stderr);
    assert!(
        !ended.stderr.contains("panicked") && !ended.stderr.contains("backtrace"),
        "{}",
        ended.stderr
    );
}

#[test]
fn usage_error_names_the_problem() {
    let home = Home::new();
    refused(&home.run(&["run", "--fly"]), 2, "--fly");
    refused(&home.run(&["run"]), 2, "no task: give one");
    refused(
        &home.run(&["run", "-t", "x", "-i", "0"]),
        2,
        "--max-iterations",
    );
    refused(&home.run(&["run", "-t", "x"]), 2, "no model is named");
    refused(&home.run(&["resume", "../x"]), 2, "an id");
    refused(
        &home.run(&["exec", "--host", "box:ssh", "--", "true"]),
        2,
        "\"box:ssh\" is not a valid SSH host: the port must be",
    );
    refused(
        &home.run(&["exec", "--image", "", "--", "true"]),
        2,
        "a value is required for '--image <IMAGE>'",
    );
    refused(
        &home.run(&["demo", "--log-level", "zzz"]),
        2,
        "error, warn, info, debug or trace",
    );
    refused(
        &home.run(&["demo", "--log-level", "a=zzz"]),
        2,
        "--log-level",
    );
    refused(
        &home.run(&["resume", "nothing"]),
        2,
        "there is no conversation nothing",
    );
    refused(
        &home.run(&["conversations", "show", "nothing"]),
        2,
        "there is no conversation nothing",
    );
    let model = home.script(&json!([finish()]));
    refused(
        &home.run(&["run", "-t", "x", "-l", &model, "--runtime", "moon"]),
        2,
        "there is no runtime moon",
    );
    refused(
        &home.run(&["run", "-t", "x", "-l", &model, "-d", "nowhere"]),
        2,
        "there is no folder nowhere",
    );
    let task = home.write("task", b"caf\xe9");
    refused(
        &home.run(&["run", "-f", task.to_str().unwrap(), "-l", &model]),
        2,
        "is not UTF-8: byte 3",
    );
    refused(
        &home.run(&["run", "-f", "nowhere", "-l", &model]),
        2,
        "cannot read the task in nowhere",
    );
}

#[test]
fn config_error_names_file_line_and_key() {
    let home = Home::new();
    home.write(
        ".glovebox/config.toml",
        "[core]\nmax_iterations = \"many\"\n",
    );
    refused(
        &home.run(&["run", "-t", "x"]),
        2,
        "config.toml:2: core.max_iterations",
    );
    home.write(".glovebox/config.toml", "[core\n");
    refused(&home.run(&["run", "-t", "x"]), 2, "config.toml:1: ");
    home.write(".glovebox/config.toml", b"[core]\n# caf\xe9\n");
    refused(
        &home.run(&["run", "-t", "x"]),
        2,
        "config.toml is not UTF-8",
    );
    home.write(".glovebox/config.toml", "[llm]\nmodle = \"m\"\n");
    refused(
        &home.run(&["run", "-t", "x"]),
        2,
        "config.toml:2: unknown key llm.modle (did you mean model?)",
    );
    refused(
        &home.run(&["run", "-t", "x", "--config-file", "nowhere.toml"]),
        2,
        "cannot read nowhere.toml",
    );
}

#[test]
fn script_error_names_the_file_or_line() {
    let home = Home::new();
    home.write("bad.json", "{\"responses\": [\n  {\"txt\": 1}\n]}");
    refused(
        &home.run(&["run", "-t", "x", "-l", "scripted:bad.json"]),
        2,
        "line 2",
    );
    refused(
        &home.run(&["run", "-t", "x", "-l", "scripted:nowhere.json"]),
        2,
        "nowhere.json",
    );
}

#[test]
fn error_names_the_cause_when_engine_or_image_is_missing() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let docker = [
        "run",
        "-t",
        "x",
        "-l",
        &model,
        "--runtime",
        "docker",
        "--image",
    ];
    let mut no_engine = home.glovebox(&[&docker, ["any"].as_slice()].concat());
    let socket = format!("unix://{}/docker.sock", home.path().display());
    let ended = home.start(no_engine.env("DOCKER_HOST", socket)).end();
    refused(&ended, 1, "is Docker running?");
    if DockerBackend::busybox().is_some() {
        // No registry listens on this loopback port.
        let ended = home.run(&[&docker, ["127.0.0.1:1/no/image:1"].as_slice()].concat());
        refused(&ended, 1, "127.0.0.1:1/no/image:1 is not on this machine");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_resumable_when_the_model_provider_fails() {
    let cases = [
        (
            ModelReply::error(401, "invalid_api_key", "bad key"),
            "does not accept the key",
        ),
        (
            ModelReply::error(429, "rate_limit_exceeded", "slow down"),
            "limits the rate",
        ),
        (
            ModelReply::error(500, "server_error", "oops"),
            "unavailable",
        ),
        (
            ModelReply::Raw(200, "text/html", "<html>login</html>".into()),
            "there is no model API",
        ),
        (
            ModelReply::Raw(200, "application/json", "{\"choices\": []}".into()),
            "malformed response",
        ),
    ];
    for (reply, part) in cases {
        let home = Home::new();
        let server = ModelServer::start([reply]).await;
        let mut command = home.glovebox(&["run", "-t", "work", "-l", "test", "--runtime", "local"]);
        command
            .env("LLM_BASE_URL", &server.base_url)
            .env("LLM_API_KEY", "sk-secret")
            .env("LLM_NUM_RETRIES", "0");
        let ended = home.start(&mut command).end();
        refused(&ended, 1, part);
        assert!(!ended.stderr.contains("sk-secret"), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("resume with: glovebox resume"),
            "{}",
            ended.stderr
        );
        let list: Value =
            serde_json::from_str(&home.run(&["conversations", "ls", "--json"]).stdout).unwrap();
        assert_eq!(list[0]["agent_state"], "error");
        home.assert_nothing_runs();
    }
}

#[test]
fn folder_that_the_account_cannot_use_is_refused() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let folder = home.path().join("closed");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o000)).unwrap();
    let folder = folder.to_str().unwrap();
    let arguments = [
        "run",
        "-t",
        "x",
        "-l",
        &model,
        "--runtime",
        "local",
        "-d",
        folder,
    ];
    let ended = home.run_without_capabilities(&arguments);
    refused(&ended, 2, "this account cannot use the folder");
    assert!(home.conversations().is_empty());
}

#[test]
fn completions_are_generated_for_every_shell() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            home.run(&["completions", shell])
                .expect(0)
                .stdout
                .contains("glovebox")
        );
    }
    for words in ["glovebox run --runtime", "glovebox sandbox ls --runtime"] {
        let offered = home.completed(words, None);
        assert!(
            ["auto", "docker", "local", "ssh", "remote"]
                .iter()
                .all(|name| offered.contains(name)),
            "{offered}"
        );
    }
}

#[test]
fn control_characters_of_arguments_reach_no_terminal() {
    let home = Home::new();
    for arguments in [
        &["run", "task", "\x1b[2Jmore"][..],
        &["\x1b]0;title\x07"],
        &["run", "--max-iterations", "\x1b[31mten", "task"],
        &["conversations", "show", "\x1b[2J"],
        &["sandbox", "exec", "\x1b[2J", "--", "true"],
        &["--config-file", "/missing\x1b[2J", "run", "task"],
    ] {
        let mut terminal = TestTerminal::start(&home.glovebox(arguments));
        let start = terminal.wait_for("\n");
        terminal.wait_for_end(2);
        let shown = start + &terminal.seen;
        for sequence in ["\x1b[2J", "\x1b]0", "\x1b[31mten"] {
            assert!(!shown.contains(sequence), "{arguments:?}: {shown:?}");
        }
    }
}

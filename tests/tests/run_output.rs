//! The output of `glovebox run`, and its checks before the start.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tests::glovebox::{CompletedRun, Home, bash, finish, tool_call, wait_until};
use tests::model_server::{ModelReply, ModelServer};

use crate::skip::skip_without;

fn run(home: &Home, responses: &Value, more: &[&str]) -> Command {
    let (model, workspace) = (home.script(responses), home.workspace());
    let runtime = [
        "run",
        "--runtime",
        "local",
        "-l",
        &model,
        "-d",
        workspace.to_str().unwrap(),
    ];
    let mut command = home.glovebox(&[&runtime, more].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run_to_end(home: &Home, command: &mut Command) -> CompletedRun {
    home.start(command).end()
}

#[test]
fn answer_is_on_stdout_and_transcript_on_stderr() {
    let home = Home::new();
    let last = tool_call("finish", &json!({"message": "It is 42.\x1b[2J"}));
    let run = run_to_end(
        &home,
        &mut run(&home, &json!([bash("echo hi"), last]), &["What is it?"]),
    )
    .expect(0);
    assert_eq!(
        run.stdout, "It is 42.\x1b[2J\n",
        "output to a file is not escaped"
    );
    for part in [
        "network of the sandbox: none",
        "$ echo hi",
        "agent: It is 42.\n",
        "finished after 2 steps",
    ] {
        assert!(run.stderr.contains(part), "{part} in {}", run.stderr);
    }
    home.assert_nothing_runs();
}

#[test]
fn events_carry_the_id_of_their_conversation() {
    let home = Home::new();
    let run = run_to_end(
        &home,
        &mut run(&home, &json!([finish()]), &["work", "--json"]),
    )
    .expect(0);
    let id = &home.conversations()[0];
    assert!(
        run.events()
            .iter()
            .all(|event| event["conversation_id"] == **id),
        "{}",
        run.stdout
    );
    assert!(
        run.events().iter().any(|event| event["action"] == "finish"),
        "only events are on stdout"
    );
    home.assert_nothing_runs();
}

#[test]
fn run_ends_when_its_output_has_no_reader() {
    for is_json in [true, false] {
        let home = Home::new();
        let endless = bash("echo started; while true; do echo more; sleep 0.02; done");
        let more: &[&str] = if is_json {
            &["work", "--json"]
        } else {
            &["work"]
        };
        let steps = [bash("true"), bash("true"), endless];
        let mut child = run(&home, &json!(steps), more).spawn().unwrap();
        let mut line = String::new();
        match is_json {
            true => BufReader::new(child.stdout.take().unwrap())
                .read_line(&mut line)
                .unwrap(),
            false => BufReader::new(child.stderr.take().unwrap())
                .read_line(&mut line)
                .unwrap(),
        };
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let list: Value = serde_json::from_str(
            &home
                .run(&["conversations", "ls", "--json"])
                .expect(0)
                .stdout,
        )
        .unwrap();
        assert_eq!(list[0]["agent_state"], "stopped");
        home.assert_nothing_runs();
    }
}

#[test]
fn long_output_is_shown_without_its_middle() {
    let home = Home::new();
    let run = run_to_end(
        &home,
        &mut run(&home, &json!([bash("seq 1 5000"), finish()]), &["work"]),
    )
    .expect(0);
    let count = run.stderr.lines().count();
    assert!(
        count < 300 && run.stderr.contains("\n  5000\n"),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr
            .contains("bytes left out; the log has what the agent sees]"),
        "{}",
        run.stderr
    );
    home.assert_nothing_runs();
}

#[test]
fn plan_is_shown_with_the_state_of_each_task() {
    let home = Home::new();
    let tasks = json!([{"id": "1", "title": "look", "status": "done"}, {"id": "2", "title": "mend", "status": "todo"}]);
    let plan = tool_call(
        "task_tracker",
        &json!({"command": "plan", "task_list": tasks}),
    );
    let run = run_to_end(&home, &mut run(&home, &json!([plan, finish()]), &["work"])).expect(0);
    assert!(
        run.stderr
            .contains("[plan]\n  [done] look\n  [todo] mend\n"),
        "{}",
        run.stderr
    );
    home.assert_nothing_runs();
}

#[test]
fn arguments_of_an_mcp_tool_are_shown() {
    let home = Home::new();
    let arguments = serde_json::to_string(&["-c", tests::tool_server::SCRIPT]).unwrap();
    let server =
        format!("[[mcp.stdio_servers]]\nname = \"places\"\ncommand = \"sh\"\nargs = {arguments}\n");
    home.write(
        "own.toml",
        format!("[core]\nenable_browser = false\n{server}"),
    );
    let call = tool_call("where", &json!({"depth": 3}));
    let more = ["work", "--config-file", "own.toml"];
    let run = run_to_end(&home, &mut run(&home, &json!([call, finish()]), &more)).expect(0);
    assert!(
        run.stderr.contains("[where] {\"depth\":3}\n"),
        "{}",
        run.stderr
    );
    home.assert_nothing_runs();
}

#[test]
fn network_option_is_shown_and_kept_on_resume() {
    let home = Home::new();
    let responses = json!([bash("true"), finish(), finish()]);
    let run = run_to_end(
        &home,
        &mut run(&home, &responses, &["work", "--network", "host"]),
    )
    .expect(0);
    assert!(
        run.stderr.contains("network of the sandbox: host\n"),
        "{}",
        run.stderr
    );
    let id = &home.conversations()[0];
    let resumed = home.run(&["resume", id, "-t", "again"]).expect(0);
    assert!(
        resumed.stderr.contains("network of the sandbox: host\n"),
        "{}",
        resumed.stderr
    );
    let log = home
        .run(&["conversations", "show", id, "--json"])
        .expect(0)
        .events();
    let recall = log
        .iter()
        .find(|event| event["observation"] == "recall")
        .unwrap();
    assert_eq!(recall["extras"]["additional_agent_instructions"], "");
    home.assert_nothing_runs();
}

#[test]
fn agent_is_informed_when_its_sandbox_has_no_network() {
    let home = Home::new();
    let run = run_to_end(
        &home,
        &mut run(&home, &json!([finish()]), &["work", "--json"]),
    )
    .expect(0);
    let recall = run
        .events()
        .into_iter()
        .find(|event| event["observation"] == "recall")
        .unwrap();
    let recall = recall["extras"]["additional_agent_instructions"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(recall.starts_with("The sandbox has no network"), "{recall}");
    home.assert_nothing_runs();
}

#[test]
fn hint_is_shown_when_a_command_lacks_the_network() {
    let home = Home::new();
    let fails = || bash("echo 'curl: (6) Could not resolve host: example.org'; exit 6");
    let run = run_to_end(
        &home,
        &mut run(&home, &json!([fails(), fails(), finish()]), &["work"]),
    )
    .expect(0);
    assert_eq!(
        run.stderr
            .matches("[the sandbox has no network: --network host gives it one]")
            .count(),
        1
    );
    home.assert_nothing_runs();
}

#[test]
fn missing_key_is_reported_before_start() {
    let home = Home::new();
    let run = home
        .run(&["run", "work", "-l", "gpt-4o", "--runtime", "local"])
        .expect(2);
    assert!(
        run.stderr.contains("no key for gpt-4o: set LLM_API_KEY"),
        "{}",
        run.stderr
    );
    assert!(home.conversations().is_empty());
}

#[test]
fn unreachable_provider_is_reported_before_start() {
    let home = Home::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut command = home.glovebox(&["run", "work", "-l", "test", "--runtime", "local"]);
    let run = run_to_end(
        &home,
        command.env("LLM_BASE_URL", format!("http://{closed}/v1")),
    )
    .expect(1);
    let problem = format!("cannot reach the provider of test: {closed}: ");
    assert!(run.stderr.contains(&problem), "{}", run.stderr);
    assert!(home.conversations().is_empty());
}

/// Runs `glovebox doctor` and returns its exit code and its checks.
fn doctor(home: &Home, arguments: &[&str], variables: &[(&str, &str)]) -> (i32, Value) {
    let mut command = home.glovebox(&[&["doctor", "--json"], arguments].concat());
    let ended = run_to_end(home, command.envs(variables.iter().copied()));
    (ended.code, serde_json::from_str(&ended.stdout).unwrap())
}

fn check<'a>(checks: &'a Value, name: &str) -> &'a Value {
    let found = checks
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["check"] == name);
    found.unwrap_or_else(|| panic!("no check {name}: {checks}"))
}

fn names(checks: &Value) -> Vec<&str> {
    checks
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["check"].as_str().unwrap())
        .collect()
}

#[test]
fn run_ends_with_the_files_that_are_not_committed() {
    if skip_without("git") {
        return;
    }
    let home = Home::new();
    let script = "git init -q && echo 1 > kept && echo 1 > changed && git add . && \
                  git -c user.name=a -c user.email=a@b commit -qm first && echo 2 > changed && echo 1 > new";
    let steps = json!([bash(script), finish()]);
    let ended = run_to_end(&home, &mut run(&home, &steps, &["work"])).expect(0);
    let summary = "\nfiles that are not committed:\n  M changed\n  A new\n\nfinished after 2 steps";
    assert!(ended.stderr.contains(summary), "{}", ended.stderr);
    let other = Home::new();
    let ended = run_to_end(
        &other,
        &mut run(&other, &json!([bash("echo 1 > new"), finish()]), &["work"]),
    )
    .expect(0);
    assert!(
        !ended.stderr.contains("not committed"),
        "without a repository: {}",
        ended.stderr
    );
    home.assert_nothing_runs();
}

#[test]
fn configuration_is_shown_with_its_sources() {
    let home = Home::new();
    let file = home.write(
        ".glovebox/config.toml",
        "[core]\nruntime = \"local\"\n[llm]\napi_key = \"hidden-key-of-the-test\"\n[llm.fast]\nmodel = \"m\"\n",
    );
    let show = |more: &[&str]| {
        let mut command = home.glovebox(&[&["config", "show"], more].concat());
        let ended = run_to_end(
            &home,
            command.env("MAX_ITERATIONS", "7").stderr(Stdio::piped()),
        )
        .expect(0);
        assert!(!ended.stdout.contains("hidden-key"), "{}", ended.stdout);
        ended.stdout
    };
    let rows: Vec<Value> = serde_json::from_str(&show(&["--json", "-l", "other"])).unwrap();
    let row = |key: &str| rows.iter().find(|row| row["key"] == key).unwrap();
    let path = json!(file.canonicalize().unwrap());
    for (key, expected) in [
        (
            "core.runtime",
            json!({"value": "local", "source": "file", "path": path, "line": 2}),
        ),
        (
            "llm.api_key",
            json!({"value": "***", "source": "file", "path": path, "line": 4}),
        ),
        (
            "llm.fast.model",
            json!({"value": "m", "source": "file", "path": path, "line": 6}),
        ),
        (
            "core.max_iterations",
            json!({"value": 7, "source": "environment", "variable": "MAX_ITERATIONS"}),
        ),
        (
            "llm.model",
            json!({"value": "other", "source": "option", "option": "--model"}),
        ),
        ("llm.num_retries", json!({"value": 5, "source": "default"})),
    ] {
        let mut expected = expected;
        expected["key"] = json!(key);
        assert_eq!(row(key), &expected);
    }
    let set = show(&["--set"]);
    assert_eq!(set.lines().count(), 5, "a head and four values: {set}");
    assert!(
        set.contains(&format!("core.runtime         local  {}:2", file.display())),
        "{set}"
    );
    let retries = show(&["num_retries"]);
    assert!(
        retries.contains("llm.num_retries  5      default"),
        "{retries}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_checks_the_configured_runtime_only() {
    let home = Home::new();
    let server = ModelServer::start((0..3).map(|_| ModelReply::says("ok"))).await;
    let nowhere = format!("unix://{}/no-engine", home.path().display());
    let variables = [
        ("LLM_BASE_URL", server.base_url.as_str()),
        ("DOCKER_HOST", nowhere.as_str()),
    ];
    let (code, checks) = doctor(&home, &["--runtime", "local", "-l", "test"], &variables);
    assert_eq!(
        (code, names(&checks)),
        (
            0,
            vec![
                "isolation",
                "key",
                "model",
                "calls",
                "agent",
                "store",
                "disk",
                "sandbox"
            ]
        ),
        "{checks}"
    );
    assert!(
        checks
            .to_string()
            .contains("test: wire format: OpenAI chat completions"),
        "{checks}"
    );
    let (code, checks) = doctor(&home, &["-l", "test"], &variables);
    assert_eq!(
        (code, &check(&checks, "isolation")["status"]),
        (0, &json!("warning")),
        "an engine that is configured is missed: {checks}"
    );
    let (code, checks) = doctor(&home, &["--runtime", "docker", "-l", "test"], &variables);
    assert_eq!((code, names(&checks)[0]), (1, "engine"), "{checks}");
    assert!(
        check(&checks, "engine")["detail"]
            .to_string()
            .contains("--runtime local"),
        "{checks}"
    );
    assert_eq!(server.call_count(), 3);
}

#[test]
fn doctor_finds_what_fails_each_run() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    for (failed, variable, value, cause) in [
        ("agent", "DEFAULT_AGENT", "Nope", "there is no agent Nope"),
        ("agent", "SECURITY_SECURITY_ANALYZER", "/nope", "/nope"),
        ("sandbox", "SANDBOX_VOLUMES", "/nope:/data", "/nope"),
        ("isolation", "SANDBOX_NETWORK", "nope", "nope"),
    ] {
        let arguments = ["--runtime", "local", "-l", &model];
        let (code, checks) = doctor(&home, &arguments, &[(variable, value)]);
        let found = check(&checks, failed);
        assert_eq!((code, &found["status"]), (1, &json!("failed")), "{checks}");
        assert!(found["detail"].to_string().contains(cause), "{checks}");
    }
    home.assert_nothing_runs();
}

#[test]
fn doctor_names_the_next_step_for_a_store_that_is_down() {
    let home = Home::new();
    let script = home.script(&json!([finish()]));
    let store = ["--store", "postgres://127.0.0.1:1/glovebox"];
    let arguments = [&["--runtime", "local", "-l", &script], &store[..]].concat();
    let (code, checks) = doctor(&home, &arguments, &[]);
    let found = check(&checks, "store");
    assert_eq!((code, &found["status"]), (1, &json!("failed")), "{checks}");
    let detail = found["detail"].as_str().unwrap();
    assert!(
        detail.contains("; start the database, or set url"),
        "{detail}"
    );
}

#[test]
fn doctor_warns_when_the_budget_has_no_effect() {
    let home = Home::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{closed}/v1");
    let budget = [
        ("LLM_BASE_URL", url.as_str()),
        ("MAX_BUDGET_PER_TASK", "5.0"),
        ("LLM_NUM_RETRIES", "0"),
    ];
    let (_, checks) = doctor(&home, &["--runtime", "local", "-l", "test"], &budget);
    let found = check(&checks, "budget");
    assert_eq!(found["status"], "warning", "{checks}");
    assert!(
        found["detail"]
            .to_string()
            .contains("the limit of $5 has no effect, because the price of test")
    );
    let prices = [
        ("LLM_INPUT_COST_PER_TOKEN", "0.03"),
        ("LLM_OUTPUT_COST_PER_TOKEN", "0.03"),
    ];
    let priced = [&budget[..], &prices].concat();
    let (_, checks) = doctor(&home, &["--runtime", "local", "-l", "test"], &priced);
    assert!(!names(&checks).contains(&"budget"), "{checks}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_reports_that_no_key_is_set() {
    let home = Home::new();
    let server = ModelServer::start([ModelReply::error(
        401,
        "invalid_api_key",
        "Incorrect API key",
    )])
    .await;
    let variables = [
        ("LLM_BASE_URL", server.base_url.as_str()),
        ("LLM_API_KEY", ""),
    ];
    let (code, checks) = doctor(&home, &["--runtime", "local", "-l", "test"], &variables);
    assert!(
        check(&checks, "key")["detail"]
            .to_string()
            .contains("none is set: "),
        "{checks}"
    );
    let model = check(&checks, "model")["detail"].as_str().unwrap();
    let expected = "requires a key, and none is set: give one as LLM_API_KEY, ";
    assert!(
        code == 1 && model.contains(expected) && !model.contains("does not accept"),
        "{checks}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_fails_when_the_model_does_not_answer() {
    let home = Home::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let replies = [
        ModelReply::error(401, "invalid_api_key", "Incorrect API key"),
        ModelReply::error(404, "model_not_found", "no such model"),
        ModelReply::Raw(
            404,
            "application/json",
            "{\"detail\": \"Not Found\"}".into(),
        ),
    ];
    let server = ModelServer::start(replies).await;
    let root = server.base_url.strip_suffix("/v1").unwrap();
    let dead = format!("http://{closed}/v1");
    for (base_url, check_name, expected) in [
        (
            server.base_url.as_str(),
            "model",
            "set LLM_API_KEY, or api_key under [llm]",
        ),
        (
            &server.base_url,
            "model",
            "set LLM_MODEL, or model under [llm]",
        ),
        (root, "model", "does base_url lack /v1?; set LLM_BASE_URL"),
        (&dead, "model", "set LLM_BASE_URL, or base_url under [llm]"),
        (
            root.strip_prefix("http://").unwrap(),
            "key",
            "lacks `http://`",
        ),
    ] {
        let variables = [("LLM_BASE_URL", base_url), ("LLM_API_KEY", "wrong-key")];
        let (code, checks) = doctor(&home, &["--runtime", "local", "-l", "test"], &variables);
        let found = check(&checks, check_name);
        assert_eq!((code, &found["status"]), (1, &json!("failed")), "{checks}");
        assert!(
            found["detail"].as_str().unwrap().contains(expected),
            "{expected}: {found}"
        );
    }
    let (code, checks) = doctor(&home, &["--runtime", "local", "-l", "gpt-4o"], &[]);
    assert_eq!(
        (code, &check(&checks, "key")["status"]),
        (1, &json!("failed")),
        "{checks}"
    );
    assert!(
        check(&checks, "key")["detail"]
            .to_string()
            .contains("LLM_API_KEY"),
        "{checks}"
    );
}

#[test]
fn doctor_fails_when_a_remote_runtime_does_not_answer() {
    let home = Home::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (url, host) = (format!("http://{closed}"), format!("me@{closed}"));
    let (api, server) = (
        "SANDBOX_REMOTE_RUNTIME_API_URL",
        "SANDBOX_REMOTE_SERVER_URL",
    );
    for (runtime, variables, name, expected) in [
        ("remote", vec![], "service", "set remote_runtime_api_url"),
        (
            "remote",
            vec![(api, url.as_str()), ("SANDBOX_API_KEY", "k")],
            "service",
            "start the service at http://127.0.0.1",
        ),
        (
            "remote",
            vec![(server, &url), ("SANDBOX_REMOTE_SERVER_KEY", "k")],
            "service",
            "start the server at http://127.0.0.1",
        ),
        ("ssh", vec![], "ssh", "add --host"),
        (
            "ssh",
            vec![("SANDBOX_SSH_HOST", host.as_str())],
            "ssh",
            "try `ssh ssh://me@127.0.0.1:",
        ),
    ] {
        let script = home.script(&json!([]));
        let (code, checks) = doctor(&home, &["--runtime", runtime, "-l", &script], &variables);
        assert_eq!((code, names(&checks)[0]), (1, name), "{checks}");
        assert!(
            check(&checks, name)["detail"]
                .as_str()
                .unwrap()
                .contains(expected),
            "{expected}: {checks}"
        );
    }
}

#[test]
fn local_runtime_is_the_default_without_an_engine() {
    let home = Home::new();
    let nowhere = format!("unix://{}/no-engine", home.path().display());
    let task = |more: &[&str]| {
        let script = home.script(&json!([finish()]));
        let mut command = home.glovebox(&[&["run", "work", "-l", &script], more].concat());
        run_to_end(&home, command.env("DOCKER_HOST", &nowhere))
    };
    let run = task(&[]).expect(0);
    assert_eq!(
        run.stderr.matches("no container engine answers").count(),
        1,
        "{}",
        run.stderr
    );
    let named = task(&["--runtime", "docker"]).expect(1);
    assert!(
        named.stderr.contains("add `--runtime local`"),
        "{}",
        named.stderr
    );
    home.write(".glovebox/config.toml", "[core]\nruntime = \"docker\"\n");
    task(&[]).expect(1);
    home.assert_nothing_runs();
}

#[test]
fn picture_is_attached_to_the_task() {
    let home = Home::new();
    let picture = home.write("shot.png", b"\x89PNG\r\n\x1a\n");
    let picture = picture.to_str().unwrap();
    let more = ["work", "--json", "--image-file", picture];
    let run = run_to_end(&home, &mut run(&home, &json!([finish()]), &more)).expect(0);
    let task = run
        .events()
        .into_iter()
        .find(|event| event["action"] == "message")
        .unwrap();
    assert_eq!(
        task["args"]["image_urls"],
        json!(["data:image/png;base64,iVBORw0KGgo="])
    );
    let wrong = home.write("shot.txt", b"no picture");
    let refused = home
        .run(&["run", "work", "--image-file", wrong.to_str().unwrap()])
        .expect(2);
    assert!(
        refused.stderr.contains("not a PNG, JPEG, GIF or WebP"),
        "{}",
        refused.stderr
    );
    home.assert_nothing_runs();
}

#[test]
fn warning_is_shown_when_two_runs_share_a_folder() {
    let home = Home::new();
    let waits = json!([
        bash("touch started; until [ -e go ]; do sleep 0.05; done"),
        finish()
    ]);
    let first = run(&home, &waits, &["work"]).spawn().unwrap();
    wait_until("the first run has started", || {
        home.workspace().join("started").exists()
    });
    let second = run_to_end(&home, &mut run(&home, &json!([finish()]), &["work"])).expect(0);
    let warning = format!(
        "another run uses {}",
        home.workspace().canonicalize().unwrap().display()
    );
    assert!(second.stderr.contains(&warning), "{}", second.stderr);
    std::fs::write(home.workspace().join("go"), "").unwrap();
    let first = first.wait_with_output().unwrap();
    assert!(first.status.success(), "{first:?}");
    assert!(!String::from_utf8_lossy(&first.stderr).contains("another run uses"));
    home.assert_nothing_runs();
}

#[test]
fn resume_shows_live_output_after_a_crash() {
    let home = Home::new();
    let script = json!([
        bash("touch started; echo first; until [ -e go ]; do sleep 0.05; done; echo second"),
        finish()
    ]);
    let mut child = run(&home, &script, &["work"]).spawn().unwrap();
    wait_until("the command runs", || {
        home.workspace().join("started").exists()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let mut resumed = home.glovebox(&["resume", &home.conversations()[0]]);
    let mut resumed = resumed
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut shown = String::new();
    let mut stderr = BufReader::new(resumed.stderr.take().unwrap());
    // The output is shown before the command exits.
    while !shown.contains("\n  first\n") {
        assert_ne!(stderr.read_line(&mut shown).unwrap(), 0, "{shown}");
    }
    assert!(
        shown.contains("continuing with an action that had not ended"),
        "{shown}"
    );
    std::fs::write(home.workspace().join("go"), "").unwrap();
    std::io::Read::read_to_string(&mut stderr, &mut shown).unwrap();
    assert!(
        resumed.wait().unwrap().success() && shown.contains("\n  second\n"),
        "{shown}"
    );
    home.assert_nothing_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debug_log_has_own_spans_and_no_http2_frames() {
    let home = Home::new();
    let server =
        ModelServer::start([ModelReply::call("finish", &json!({"message": "done"}))]).await;
    let mut command = home.glovebox(&[
        "run",
        "work",
        "-l",
        "test",
        "--runtime",
        "local",
        "--log-level",
        "debug",
    ]);
    let run = run_to_end(&home, command.env("LLM_BASE_URL", &server.base_url)).expect(0);
    let id = &home.conversations()[0];
    assert!(
        run.stderr.contains(&format!("conversation{{id={id}}}")),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.contains("received a response of the model"),
        "{}",
        run.stderr
    );
    assert!(
        !run.stderr.contains("h2::") && !run.stderr.contains("hyper"),
        "{}",
        run.stderr
    );
    home.assert_nothing_runs();
}

#[test]
fn info_log_in_json_has_a_line_per_step_without_contents() {
    let home = Home::new();
    let responses = json!([bash("echo a-secret-text"), finish()]);
    let mut run = run(&home, &responses, &["work", "--log-format", "json"]);
    let run = run_to_end(&home, run.env("RUST_LOG", "glovebox=info")).expect(0);
    let log: Vec<Value> = run
        .stderr
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let id = &home.conversations()[0];
    let lines = |message: &str| -> Vec<&Value> {
        log.iter()
            .filter(|line| line["fields"]["message"] == message)
            .collect()
    };
    let steps = lines("took a step");
    assert_eq!(
        steps
            .iter()
            .map(|line| &line["fields"]["kind"])
            .collect::<Vec<_>>(),
        ["run", "finish"]
    );
    assert!(
        steps
            .iter()
            .all(|line| line["spans"][0]["id"] == **id && line["level"] == "INFO"),
        "{steps:?}"
    );
    assert_eq!(lines("leased a sandbox").len(), 1, "{log:?}");
    assert_eq!(
        lines("changed the agent's state").last().unwrap()["fields"]["to"],
        "finished"
    );
    assert!(
        !log.iter()
            .any(|line| line.to_string().contains("a-secret-text")),
        "{log:?}"
    );
    home.assert_nothing_runs();
}

#[test]
fn task_is_accepted_as_a_single_argument() {
    let home = Home::new();
    assert!(
        home.run(&["run", "work", "-t", "work"])
            .expect(2)
            .stderr
            .contains("cannot be used with")
    );
    let run = run_to_end(
        &home,
        &mut run(&home, &json!([finish()]), &["two words", "--json"]),
    )
    .expect(0);
    let task = run
        .events()
        .into_iter()
        .find(|event| event["action"] == "message")
        .unwrap();
    assert_eq!(task["args"]["content"], "two words");
    home.assert_nothing_runs();
}

#[test]
fn doctor_names_an_engine_that_does_not_answer() {
    let home = Home::new();
    let engine = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("tcp://{}", engine.local_addr().unwrap());
    let mut command = home.glovebox(&["doctor", "--runtime", "docker"]);
    let ended = run_to_end(
        &home,
        command.env("DOCKER_HOST", &host).stderr(Stdio::piped()),
    )
    .expect(1);
    let line = ended
        .stdout
        .lines()
        .find(|line| line.starts_with("failed    engine"))
        .unwrap();
    assert!(
        line.contains(&format!("the engine at {host} does not answer")),
        "{line}"
    );
    assert!(line.contains("is Docker running?"), "{line}");
}

#[test]
fn host_chooses_the_runtime_ssh() {
    let home = Home::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let host = format!("me@{closed}");
    let unreachable = home.run(&["exec", "--host", &host, "--", "true"]).expect(1);
    assert!(
        unreachable.stderr.contains(&closed.to_string()),
        "{}",
        unreachable.stderr
    );
    let refused = home
        .run(&["exec", "--runtime", "local", "--host", &host, "--", "true"])
        .expect(2);
    assert!(
        refused
            .stderr
            .contains("--host is for the runtime ssh, not for local"),
        "{}",
        refused.stderr
    );
}

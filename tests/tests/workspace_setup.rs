//! Set-up of workspaces before the agent starts: clones, new repositories and scripts.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::glovebox::{CompletedRun, Home, bash, finish, wait_until};
use tests::sandbox_contract::Backend as _;
use tests::sandbox_contract::docker::DockerBackend;

use crate::skip::skip_without;

/// Returns a home with a repository to clone, which has a branch `side` and V0's files. `None`, and
/// the test is skipped, without git.
fn home_with_origin(setup: &str) -> Option<Home> {
    if skip_without("git") {
        return None;
    }
    let home = Home::new();
    // An isolated sandbox does not see the repository in the home.
    home.write(".glovebox/config.toml", "[sandbox]\nunsafe_local = true\n");
    home.write(
        ".gitconfig",
        "[user]\nname = t\nemail = t@t\n[init]\ndefaultBranch = main\n",
    );
    std::fs::create_dir_all(home.path().join("origin/.openhands")).unwrap();
    home.write("origin/.openhands/setup.sh", setup);
    home.write("origin/.openhands/pre-commit.sh", "echo hook >> ../hooks\n");
    for arguments in [
        ["init", "-q"].as_slice(),
        &["add", "."],
        &["commit", "-qm", "x"],
        &["checkout", "-qb", "side"],
    ] {
        git(&home, arguments);
    }
    home.write("origin/on-side", "");
    git(&home, &["add", "."]);
    git(&home, &["commit", "-qm", "y"]);
    git(&home, &["checkout", "-q", "main"]);
    Some(home)
}

fn git(home: &Home, arguments: &[&str]) {
    git_in(home, "origin", arguments);
}

fn git_in(home: &Home, folder: &str, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.args(arguments)
        .current_dir(home.path().join(folder))
        .env("HOME", home.path());
    assert!(git.status().unwrap().success(), "{arguments:?}");
}

fn arguments(home: &Home, model: &str, repository: &str) -> Vec<String> {
    let workspace = home.workspace();
    let workspace = workspace.to_str().unwrap();
    [
        "run",
        "--json",
        "-t",
        "work",
        "-l",
        model,
        "--runtime",
        "local",
        "-d",
        workspace,
        "--selected-repo",
        repository,
    ]
    .map(String::from)
    .into()
}

fn borrowed(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

fn origin(home: &Home) -> String {
    home.path().join("origin").to_str().unwrap().to_owned()
}

/// Returns the steps of the set-up, each with its observations.
fn steps(events: &[Value]) -> Vec<(String, Vec<Value>)> {
    let started = events
        .iter()
        .filter(|event| event["action"] == "run" && event["source"] == "environment");
    started
        .map(|step| {
            let ended = events
                .iter()
                .filter(|event| event["cause"] == step["id"])
                .cloned()
                .collect();
            (step["args"]["thought"].as_str().unwrap().to_owned(), ended)
        })
        .collect()
}

fn exit_codes(events: &[Value]) -> Vec<i64> {
    let code = |(thought, ended): (String, Vec<Value>)| {
        assert_eq!(ended.len(), 1, "{thought} has exactly one terminal event");
        ended[0]["extras"]["metadata"]["exit_code"]
            .as_i64()
            .unwrap_or(-1)
    };
    steps(events).into_iter().map(code).collect()
}

/// Returns the outputs of the agent's own commands.
fn agent_outputs(events: &[Value]) -> Vec<String> {
    let own = events
        .iter()
        .filter(|event| event["action"] == "run" && event["source"] == "agent");
    own.map(|action| {
        let ended = events
            .iter()
            .find(|event| event["cause"] == action["id"])
            .unwrap();
        ended["content"].as_str().unwrap().to_owned()
    })
    .collect()
}

/// Returns the id and the stored log of the only conversation.
fn log(home: &Home) -> (String, Vec<Value>) {
    let list: Value =
        serde_json::from_str(&home.run(&["conversations", "ls", "--json"]).stdout).unwrap();
    let id = list[0]["conversation_id"].as_str().unwrap().to_owned();
    let events = home
        .run(&["conversations", "show", &id, "--json"])
        .expect(0)
        .events();
    (id, events)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn repository_is_cloned_and_set_up_before_the_agent_starts() {
    let Some(home) = home_with_origin("echo made > made; export FROM_SETUP=kept; cd /\n") else {
        return;
    };
    let model = home.script(&json!([
        bash("basename $PWD; cat made; echo $FROM_SETUP; ls on-side; git branch --show-current"),
        bash("git commit -q --allow-empty -m x && cat ../hooks"),
        finish(),
    ]));
    let repository = format!("file://{}#side", origin(&home));
    let run = home
        .run(&borrowed(&arguments(&home, &model, &repository)))
        .expect(0);
    let events = run.events();
    assert_eq!(exit_codes(&events), [0, 0, 0]);
    let titles: Vec<_> = steps(&events).into_iter().map(|(title, _)| title).collect();
    let cloning = format!("Cloning file://{}, branch side", origin(&home));
    assert_eq!(
        titles,
        [
            &cloning,
            "Running the set-up script",
            "Installing the commit hook"
        ]
    );
    assert_eq!(
        agent_outputs(&events),
        ["origin\nmade\nkept\non-side\nside", "hook"]
    );
    // The user's own commits do not run the repository's script.
    let clone = home.workspace().join("origin");
    let commit = ["commit", "-q", "--allow-empty", "-m", "own"];
    git_in(&home, clone.to_str().unwrap(), &commit);
    assert_eq!(read(&home.workspace().join("hooks")), "hook\n");
    let states: Vec<_> = events
        .iter()
        .filter_map(|event| event["extras"]["agent_state"].as_str())
        .collect();
    assert_eq!(states, ["loading", "running", "finished"]);

    // A resume reads this record.
    let setup =
        json!({"from": "repository", "url": format!("file://{}", origin(&home)), "branch": "side"});
    assert_eq!(events[0]["args"]["setup"], setup);
    let (id, _) = log(&home);
    let transcript = home.run(&["conversations", "show", &id]).expect(0).stdout;
    assert!(
        transcript.contains(&cloning) && !transcript.contains("unfinished="),
        "{transcript}"
    );
    home.assert_nothing_runs();
}

#[test]
fn setup_continues_when_the_host_was_killed() {
    let script = "echo run >> ../counter\ni=0; while [ $i -lt 30 ]; do i=$((i+1)); echo line $i; sleep 0.1; done\necho made > made\n";
    let Some(home) = home_with_origin(script) else {
        return;
    };
    let model = home.script(&json!([bash("cat made"), finish()]));
    let run = home.start(&mut home.glovebox(&borrowed(&arguments(&home, &model, &origin(&home)))));
    let counter = home.workspace().join("counter");
    wait_until("the script runs", || counter.exists());
    run.kill();

    let (id, before) = log(&home);
    assert_eq!(
        steps(&before).last().unwrap().1.len(),
        0,
        "the step has not ended"
    );
    home.run(&["resume", &id, "--json"]).expect(0);
    let (_, events) = log(&home);
    assert_eq!(read(&counter), "run\n", "the script ran once");
    assert_eq!(exit_codes(&events), [0, 0, 0]);
    assert_eq!(agent_outputs(&events), ["made"]);
    home.assert_nothing_runs();
}

#[test]
fn setup_starts_again_when_the_sandbox_was_killed() {
    // The shell's parent is the server.
    let script =
        "echo run >> ../counter\n[ $(wc -l < ../counter) -gt 1 ] || { kill -9 $PPID; sleep 60; }\n";
    let Some(home) = home_with_origin(script) else {
        return;
    };
    let model = home.script(&json!([finish()]));
    let run = home
        .run(&borrowed(&arguments(&home, &model, &origin(&home))))
        .expect(0);
    let events = run.events();
    assert_eq!(
        exit_codes(&events),
        [0, -1, 0, 0, 0],
        "{:#?}",
        steps(&events)
    );
    assert_eq!(
        steps(&events)[1].1[0]["extras"]["error_id"],
        "ACTION$INTERRUPTED"
    );
    assert_eq!(read(&home.workspace().join("counter")), "run\nrun\n");
    home.assert_nothing_runs();
}

#[test]
fn setup_step_runs_again_on_resume_when_it_was_interrupted() {
    let Some(home) =
        home_with_origin("echo run >> ../counter; [ -e ../go ] || sleep 600; echo made > made\n")
    else {
        return;
    };
    let model = home.script(&json!([bash("cat made"), finish()]));
    let run = home.start(&mut home.glovebox(&borrowed(&arguments(&home, &model, &origin(&home)))));
    let counter = home.workspace().join("counter");
    wait_until("the script runs", || counter.exists());
    run.signal(Signal::INT);
    let events = run.end().expect(130).events();
    assert_eq!(exit_codes(&events), [0, 137]);
    home.assert_nothing_runs();

    home.write("work/go", "");
    let (id, _) = log(&home);
    let resumed = home.run(&["resume", &id, "--json"]).expect(0).events();
    // In another sandbox, the clone is found and the remaining steps run.
    assert_eq!(exit_codes(&resumed), [0, 0, 0]);
    assert_eq!(agent_outputs(&resumed), ["made"]);
    assert_eq!(read(&counter), "run\nrun\n");
    home.assert_nothing_runs();
}

#[test]
fn setup_script_has_no_silence_timeout() {
    // Longer than the silence timeout of an agent's command, 10 s.
    let Some(home) = home_with_origin("sleep 12; echo made > made\n") else {
        return;
    };
    let model = home.script(&json!([bash("cat made"), finish()]));
    let run = home
        .run(&borrowed(&arguments(&home, &model, &origin(&home))))
        .expect(0);
    assert_eq!(agent_outputs(&run.events()), ["made"]);
    home.assert_nothing_runs();
}

#[test]
fn agent_starts_and_is_notified_when_setup_fails() {
    // The script exits its shell too.
    let Some(home) = home_with_origin("echo 'no such package'; exit 3\n") else {
        return;
    };
    let model = home.script(&json!([
        bash("basename $PWD; ls .git/hooks/pre-commit"),
        finish()
    ]));
    let run = home
        .run(&borrowed(&arguments(&home, &model, &origin(&home))))
        .expect(0);
    let events = run.events();
    assert_eq!(exit_codes(&events), [0, 3, 0]);
    assert_eq!(agent_outputs(&events), ["origin\n.git/hooks/pre-commit"]);
    home.assert_nothing_runs();
}

/// Checks that the run failed with these parts in its error.
#[track_caller]
fn stopped(ended: &CompletedRun, parts: &[&str]) {
    assert_eq!(ended.code, 1, "{ended:?}");
    for part in parts {
        assert!(ended.stderr.contains(part), "{part} in: {}", ended.stderr);
    }
}

#[test]
fn failed_clone_is_reported_without_credentials_and_retryable() {
    let Some(home) = home_with_origin("") else {
        return;
    };
    let model = home.script(&json!([finish()]));
    // No server listens on this port.
    let repository = "http://me:hunter2@127.0.0.1:1/o/project.git";
    let run = [
        "run",
        "-t",
        "x",
        "-l",
        &model,
        "--runtime",
        "local",
        "--selected-repo",
        repository,
    ];
    let ended = home.run(&run);
    stopped(
        &ended,
        &[
            "stopped: Cloning http://127.0.0.1:1/o/project.git failed with exit code 1",
            "resume with: glovebox resume",
        ],
    );
    let (id, events) = log(&home);
    let transcript = home.run(&["conversations", "show", &id]).stdout;
    let everything = format!(
        "{}{}{}{transcript}",
        ended.stderr,
        ended.stdout,
        json!(events)
    );
    assert!(!everything.contains("hunter2"), "{everything}");
    let again = home.run(&["resume", &id]);
    stopped(&again, &["Cloning http://127.0.0.1:1/o/project.git failed"]);
    home.assert_nothing_runs();

    let missing = format!("{}#no-such-branch", origin(&home));
    stopped(
        &home.run(&[
            "run",
            "-t",
            "x",
            "-l",
            &model,
            "--runtime",
            "local",
            "--selected-repo",
            &missing,
        ]),
        &["no-such-branch"],
    );
    let wrong = home
        .run(&[
            "run",
            "-t",
            "x",
            "-l",
            &model,
            "--runtime",
            "local",
            "--selected-repo",
            "origin",
        ])
        .expect(2);
    assert!(wrong.stderr.contains("neither a URL"), "{}", wrong.stderr);
}

#[test]
fn empty_workspace_becomes_a_repository_when_configured() {
    let Some(home) = home_with_origin("") else {
        return;
    };
    home.write(
        ".glovebox/config.toml",
        "[core]\ninit_git_in_empty_workspace = true\n",
    );
    let model = home.script(&json!([
        bash("git status --short && git branch --show-current"),
        finish()
    ]));
    let run = home
        .run(&[
            "run",
            "--json",
            "-t",
            "x",
            "-l",
            &model,
            "--runtime",
            "local",
        ])
        .expect(0);
    assert_eq!(
        (exit_codes(&run.events()), agent_outputs(&run.events())),
        (vec![0], vec!["main".to_owned()])
    );
    home.assert_nothing_runs();
}

#[test]
fn setup_skips_git_steps_when_image_has_no_git() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let home = Home::new();
    let image = backend.image().unwrap();
    let model = home.script(&json!([bash("cat made"), finish()]));
    let docker = [
        "run",
        "--json",
        "-t",
        "x",
        "-l",
        &model,
        "--runtime",
        "docker",
        "--image",
        &image,
    ];
    let clone = home.run(&[&docker, ["--selected-repo", "o/project"].as_slice()].concat());
    let events = clone.expect(1).events();
    let reason = events
        .iter()
        .rev()
        .find_map(|event| event["extras"]["reason"].as_str())
        .unwrap();
    assert!(
        reason.contains(
            "https://github.com/o/project.git failed with exit code 127: This sandbox has no git"
        ),
        "{reason}"
    );

    // The folder's own script needs no git.
    std::fs::create_dir(home.workspace().join(".glovebox")).unwrap();
    home.write("work/.glovebox/setup.sh", "echo made > made\n");
    home.write("work/.glovebox/pre-commit.sh", "true\n");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(home.workspace(), Some(54_321), None).unwrap();
    }
    let folder = home.workspace();
    let run = home
        .run(&[&docker, ["-d", folder.to_str().unwrap()].as_slice()].concat())
        .expect(0);
    assert_eq!(
        (exit_codes(&run.events()), agent_outputs(&run.events())),
        (vec![0, 127], vec!["made".to_owned()])
    );
    home.assert_nothing_runs();
}

/// V0's repository of an organization is `OWNER/.openhands`.
#[test]
fn organizations_knowledge_is_recalled() {
    let Some(home) = home_with_origin("") else {
        return;
    };
    std::fs::create_dir_all(home.path().join("organization/microagents")).unwrap();
    home.write("organization/microagents/house.md", "House rules.");
    home.write("organization/microagents/repo.md", "Of the organization.");
    std::fs::create_dir_all(home.path().join("origin/.openhands/microagents")).unwrap();
    home.write(
        "origin/.openhands/microagents/repo.md",
        "Of the repository.",
    );
    for folder in ["organization", "origin"] {
        git_in(&home, folder, &["init", "-q"]);
        git_in(&home, folder, &["add", "."]);
        git_in(&home, folder, &["commit", "-qm", "z"]);
    }
    let urls = [("origin", "origin"), ("organization", ".openhands")].map(|(folder, name)| {
        format!(
            "[url \"file://{}/{folder}\"]\ninsteadOf = https://h/owner/{name}\n",
            home.path().display()
        )
    });
    let gitconfig = std::fs::read_to_string(home.path().join(".gitconfig")).unwrap();
    home.write(".gitconfig", &(gitconfig + &urls.concat()));
    let model = home.script(&json!([finish()]));
    let arguments = arguments(&home, &model, "https://h/owner/origin");
    let events = home.run(&borrowed(&arguments)).expect(0).events();
    assert_eq!(exit_codes(&events), [0, 0, 0, 0]);
    let recalled = events
        .iter()
        .find(|event| event["observation"] == "recall")
        .unwrap();
    assert_eq!(
        recalled["extras"]["repo_instructions"],
        "House rules.\n\nOf the repository."
    );
    home.assert_nothing_runs();
}

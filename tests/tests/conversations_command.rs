//! `glovebox conversations`: id prefixes, trajectories, lists and removal.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish, tool_call, wait_until};

use crate::skip::skip_without;

fn run(home: &Home, responses: &Value, more: &[&str]) {
    let model = home.script(responses);
    let arguments = [
        "run",
        "--json",
        "--runtime",
        "local",
        "-t",
        "work",
        "-l",
        &model,
    ];
    home.run(&[&arguments, more].concat()).expect(0);
}

fn names(folder: &Path) -> Vec<PathBuf> {
    folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}

#[test]
fn id_prefix_is_accepted_when_it_is_unique() {
    let home = Home::new();
    (0..2).for_each(|_| run(&home, &json!([finish()]), &[]));
    let [later, earlier] = home.conversations().try_into().unwrap();
    let shared = later
        .bytes()
        .zip(earlier.bytes())
        .take_while(|(one, other)| one == other)
        .count();
    let whole = home
        .run(&["conversations", "show", &earlier, "--json"])
        .expect(0)
        .stdout;
    let started = home
        .run(&["conversations", "show", &earlier[..=shared], "--json"])
        .expect(0)
        .stdout;
    assert_eq!(started, whole);
    for arguments in [
        ["conversations", "show", &later[..shared]].as_slice(),
        &["conversations", "fork", &later[..shared]],
        &["conversations", "export", &later[..shared]],
        &["resume", &later[..shared]],
    ] {
        let stderr = home.run(arguments).expect(2).stderr;
        assert!(
            stderr.contains(&later) && stderr.contains(&earlier),
            "{stderr}"
        );
        assert!(
            home.run(&[&arguments[..arguments.len() - 1], &["x"]].concat())
                .expect(2)
                .stderr
                .contains("no conversation x")
        );
    }
    let model = home.script(&json!([finish(), finish()]));
    home.run(&["resume", &later[..=shared], "-t", "more", "-l", &model])
        .expect(0);
    for words in ["glovebox resume", "glovebox conversations export"] {
        let offered = home.completed(words, None);
        assert!(
            [&later, &earlier]
                .iter()
                .all(|id| offered.contains(id.as_str())),
            "{offered}"
        );
    }
    home.assert_nothing_runs();
}

#[test]
fn end_of_an_id_is_accepted() {
    let home = Home::new();
    (0..2).for_each(|_| run(&home, &json!([finish()]), &[]));
    let [later, earlier] = home.conversations().try_into().unwrap();
    for id in [&later, &earlier] {
        let end = &id[id.len() - 8..];
        assert!(
            home.run(&["conversations", "show", end])
                .expect(0)
                .stdout
                .contains(id.as_str())
        );
    }
    home.run(&["conversations", "show", &later[later.len() - 5..]])
        .expect(2);
    assert_eq!(
        home.run(&["conversations", "rm", &earlier[earlier.len() - 6..]])
            .expect(0)
            .stdout,
        format!("{earlier}\n")
    );
    home.assert_nothing_runs();
}

#[test]
fn show_starts_with_the_state_and_numbers_the_events() {
    let home = Home::new();
    let workspace = home.workspace();
    run(
        &home,
        &json!([bash("echo one"), finish()]),
        &["-d", workspace.to_str().unwrap(), "-n", "Release"],
    );
    let id = &home.conversations()[0];
    let shown = home.run(&["conversations", "show", id]).expect(0).stdout;
    let (head, transcript) = shown.split_once("\n\n").unwrap();
    let line = |name: &str| {
        let line = head
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_else(|| panic!("{name}: {head}"));
        line.trim().to_owned()
    };
    assert_eq!(
        (line("conversation"), line("title")),
        (id.clone(), "Release".to_owned())
    );
    assert_eq!(
        (line("state"), line("folder")),
        ("finished".to_owned(), workspace.display().to_string())
    );
    assert_eq!(
        (line("runtime"), line("sandbox")),
        ("local, network none".to_owned(), "none".to_owned())
    );
    assert!(
        line("model").starts_with("scripted:") && line("cost").ends_with("2 of 500 steps"),
        "{head}"
    );
    assert!(line("created") <= line("updated"), "{head}");

    let json = home.run(&["conversations", "show", id, "--json"]).expect(0);
    let head: Value = serde_json::from_str(json.stdout.lines().next().unwrap()).unwrap();
    let head = &head["conversation"];
    assert_eq!(
        (&head["conversation_id"], &head["status"]),
        (&json!(id), &json!("finished"))
    );
    assert_eq!(
        (&head["runtime"], &head["folder"], &head["steps"]),
        (&json!("local"), &json!(workspace), &json!(2))
    );
    let events = json.events();
    let command = events
        .iter()
        .find(|event| event["action"] == "run")
        .unwrap();
    assert!(
        transcript.contains(&format!("\n#{} $ echo one\n", command["id"])),
        "{transcript}"
    );
    let fork = home
        .run(&[
            "conversations",
            "fork",
            id,
            "--at",
            &command["id"].to_string(),
        ])
        .expect(0)
        .stdout;
    let fork = home
        .run(&["conversations", "show", fork.trim()])
        .expect(0)
        .stdout;
    assert!(
        fork.contains("$ echo one") && !fork.contains("Done."),
        "{fork}"
    );
    home.assert_nothing_runs();
}

/// Changes the runtime, and the path of the workspace in its sandbox, in the log of a conversation.
fn pretend_runtime(home: &Home, runtime: &str) {
    let database = rusqlite::Connection::open(home.path().join(".glovebox/glovebox.db")).unwrap();
    let sql = "UPDATE events SET json = replace(json, '\"runtime\":\"local\"', ?1)";
    let changed = database
        .execute(sql, [format!("\"runtime\":\"{runtime}\"")])
        .unwrap();
    assert!(changed > 1);
    let sql = "UPDATE events SET json = json_set(json, '$.args.working_dir', '/elsewhere')
               WHERE json ->> '$.record' = 'sandbox_leased'";
    assert_eq!(database.execute(sql, []).unwrap(), 1);
}

#[test]
fn resume_changes_the_runtime_and_keeps_the_workspace() {
    let home = Home::new();
    let workspace = home.workspace();
    run(
        &home,
        &json!([bash("echo 1 > file"), finish()]),
        &["-d", workspace.to_str().unwrap()],
    );
    pretend_runtime(&home, "docker");
    let id = home.conversations()[0].clone();
    let model = home.script(&json!([
        finish(),
        finish(),
        bash("cat file"),
        finish(),
        bash("pwd"),
        finish()
    ]));
    let nowhere = format!("unix://{}/no-engine", home.path().display());
    let resume = |more: &[&str]| {
        let arguments = [&["resume", &id, "-t", "more", "-l", &model, "--json"], more].concat();
        let mut command = home.glovebox(&arguments);
        home.start(command.env("DOCKER_HOST", &nowhere)).end()
    };
    resume(&[]).expect(1);
    let events = resume(&["--runtime", "local"]).expect(0).events();
    let ran = events
        .iter()
        .find(|event| event["observation"] == "run")
        .unwrap();
    assert_eq!(ran["content"].as_str().unwrap().trim(), "1");
    // The message of the first attempt follows the notice.
    let log = home
        .run(&["conversations", "show", &id, "--json"])
        .expect(0)
        .events();
    let is_notice = |event: &&Value| {
        event["content"]
            .to_string()
            .contains("was replaced by a new one")
    };
    assert_eq!(
        log.iter().filter(is_notice).count(),
        1,
        "the agent is notified of the new sandbox"
    );
    let is_move = |event: &&Value| {
        event["content"]
            .to_string()
            .contains(", no longer at /elsewhere.")
    };
    assert_eq!(
        log.iter().filter(is_move).count(),
        1,
        "and of the workspace's path"
    );
    // A later resume stays with the new runtime.
    resume(&[]).expect(0);

    let head = home.run(&["conversations", "show", &id]).expect(0).stdout;
    assert!(
        head.contains("runtime       local, network none\n"),
        "{head}"
    );

    let refused = resume(&["--runtime", "ssh", "--host", "me@127.0.0.1:1"]).expect(2);
    assert!(
        refused
            .stderr
            .contains("from local to ssh: sandboxes of ssh have their files on another machine"),
        "{refused:?}"
    );
    home.assert_nothing_runs();
}

#[test]
fn exported_trajectory_equals_the_saved_one_and_is_replayable() {
    let home = Home::new();
    let saved = home.path().join("saved.json");
    run(
        &home,
        &json!([bash("echo 1"), finish()]),
        &["--save-trajectory", saved.to_str().unwrap()],
    );
    let saved = std::fs::read_to_string(saved).unwrap();
    let id = &home.conversations()[0];
    assert_eq!(
        home.run(&["conversations", "export", id]).expect(0).stdout,
        saved
    );
    assert_eq!(
        home.run(&["conversations", "export", id, "-o", "-"])
            .expect(0)
            .stdout,
        saved
    );
    assert_eq!(
        home.run(&["conversations", "export", id, "-o", "."])
            .expect(0)
            .stdout,
        ""
    );
    let exported = home.path().join(format!("{id}.json"));
    assert_eq!(std::fs::read_to_string(&exported).unwrap(), saved);
    for target in ["missing/t.json", "missing/"] {
        let refused = home
            .run(&["conversations", "export", id, "-o", target])
            .expect(2);
        assert!(
            refused.stderr.contains("there is no folder missing"),
            "{}",
            refused.stderr
        );
        assert!(!home.path().join("missing").exists());
    }
    home.run(&[
        "replay",
        "--diff",
        "--runtime",
        "local",
        exported.to_str().unwrap(),
    ])
    .expect(0);
    home.write(
        "wrong.json",
        r#"[{"action": "run", "args": {"command": "true"}}]"#,
    );
    let stderr = home
        .run(&["replay", "wrong.json", "--runtime", "local"])
        .expect(2)
        .stderr;
    assert!(
        stderr.contains("entry 0, counted from 0: missing field `id`"),
        "{stderr}"
    );
    home.assert_nothing_runs();
}

#[test]
fn killed_run_is_listed_as_interrupted() {
    let home = Home::new();
    let model = home.script(&json!([bash("sleep 1000"), finish()]));
    let mut run = home.start(&mut home.glovebox(&[
        "run",
        "--json",
        "--runtime",
        "local",
        "-t",
        "work",
        "-l",
        &model,
    ]));
    run.wait_for("the command", |event| event["action"] == "run");
    let status = |home: &Home| {
        let list = home
            .run(&["conversations", "ls", "--json"])
            .expect(0)
            .stdout;
        let list: Vec<Value> = serde_json::from_str(&list).unwrap();
        let text = home.run(&["conversations", "ls"]).expect(0).stdout;
        (
            list[0]["agent_state"].clone(),
            list[0]["interrupted"].clone(),
            text.contains("  interrupted  "),
        )
    };
    assert_eq!(status(&home), (json!("running"), json!(false), false));
    run.kill();
    assert_eq!(status(&home), (json!("running"), json!(true), true));
    home.run(&["sandbox", "prune", "--runtime", "local"])
        .expect(0);
    home.assert_nothing_runs();
}

#[test]
fn run_is_refused_when_the_trajectory_cannot_be_saved() {
    let home = Home::new();
    home.write("file", "");
    let model = home.script(&json!([finish()]));
    let arguments = [
        "run",
        "--runtime",
        "local",
        "-t",
        "work",
        "-l",
        &model,
        "--save-trajectory",
    ];
    let stderr = home
        .run(&[arguments.as_slice(), &["file/saved.json"]].concat())
        .expect(2)
        .stderr;
    assert!(
        stderr.contains("cannot save the trajectory to file/saved.json"),
        "{stderr}"
    );
    assert!(home.conversations().is_empty());
    home.run(&[arguments.as_slice(), &["new/folder/saved.json"]].concat())
        .expect(0);
    assert!(home.path().join("new/folder/saved.json").is_file());
    home.run(&[arguments.as_slice(), &["another/"]].concat())
        .expect(0);
    assert_eq!(names(&home.path().join("another")).len(), 1);
    home.assert_nothing_runs();
}

#[test]
fn empty_workspace_is_removed_and_created_again_on_resume() {
    let home = Home::new();
    let [locks, workspaces] =
        ["locks", "workspaces"].map(|name| home.path().join(".glovebox").join(name));
    run(&home, &json!([bash("true"), finish()]), &[]);
    assert_eq!((names(&locks), names(&workspaces)), (vec![], vec![]));
    let id = &home.conversations()[0];
    let model = home.script(&json!([
        finish(),
        finish(),
        bash("echo 1 > file"),
        finish()
    ]));
    home.run(&["resume", id, "-t", "write", "-l", &model])
        .expect(0);
    assert_eq!(
        (names(&locks), names(&workspaces)),
        (vec![], vec![workspaces.join(id)])
    );
    assert_eq!(
        std::fs::read_to_string(workspaces.join(id).join("file")).unwrap(),
        "1\n"
    );
    // A fork has its own copy; a fork of a conversation in a given folder has none.
    let fork = home.run(&["conversations", "fork", id]).expect(0).stdout;
    assert!(workspaces.join(fork.trim()).join("file").exists());
    run(
        &home,
        &json!([finish()]),
        &["-d", home.workspace().to_str().unwrap()],
    );
    home.run(&["conversations", "fork", &home.conversations()[0]])
        .expect(0);
    assert_eq!(names(&workspaces).len(), 2);
    home.assert_nothing_runs();
}

/// Returns the conversations that `ls` lists with these arguments.
fn list(home: &Home, more: &[&str]) -> Vec<Value> {
    let listed = home
        .run(&[&["conversations", "ls", "--json"], more].concat())
        .expect(0);
    serde_json::from_str(&listed.stdout).unwrap()
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter()
        .map(|row| row["conversation_id"].as_str().unwrap())
        .collect()
}

#[test]
fn list_shows_and_filters_conversations() {
    let home = Home::new();
    let work = home.workspace();
    run(
        &home,
        &json!([bash("true"), finish()]),
        &["-d", work.to_str().unwrap(), "-n", " Release 1.0 "],
    );
    let model = home.script(&json!([{"text": "Which?"}]));
    home.run(&[
        "run",
        "--runtime",
        "local",
        "-t",
        "Mend the LOGIN",
        "-l",
        &model,
        "--no-auto-continue",
    ])
    .expect(4);
    let rows = list(&home, &[]);
    let [asking, done] = ids(&rows)[..] else {
        panic!("{rows:?}")
    };
    assert_eq!(
        (&rows[0]["title"], &rows[0]["agent_state"]),
        (&json!("Mend the LOGIN"), &json!("awaiting_user_input"))
    );
    assert_eq!(
        (&rows[1]["model"], &rows[1]["cost"], &rows[1]["error"]),
        (&json!(model), &json!(0.0), &json!(null))
    );
    assert_eq!(
        (&rows[1]["folder"], &rows[1]["title"]),
        (&json!(work), &json!("Release 1.0"))
    );
    for (more, expected) in [
        (["-n", "1"].as_slice(), &[asking][..]),
        (&["--state", "finished,error"], &[done]),
        (&["--state", "interrupted"], &[]),
        (&["-d", "work"], &[done]),
        (&["--here"], &[]),
        (&["login"], &[asking]),
        (&["login", "--state", "finished"], &[]),
        (&["/WORK"], &[asking, done]),
    ] {
        assert_eq!(ids(&list(&home, more)), expected, "{more:?}");
    }
    let here = ["conversations", "ls", "--here", "--json"];
    let here = home.glovebox(&here).current_dir(&work).output().unwrap();
    assert_eq!(
        ids(&serde_json::from_slice::<Vec<Value>>(&here.stdout).unwrap()),
        [done]
    );
    let table = home.run(&["conversations", "ls"]).expect(0).stdout;
    let lines: Vec<_> = table.lines().collect();
    assert!(
        lines[0].starts_with("ID") && lines[0].ends_with("TITLE"),
        "{table}"
    );
    assert!(
        lines[2].starts_with(done)
            && lines[2].contains("  finished  ")
            && lines[2].ends_with("  Release 1.0"),
        "{table}"
    );
    home.run(&["conversations", "ls", "--state", "moon"])
        .expect(2);
}

#[test]
fn latest_conversation_is_chosen_by_last() {
    let home = Home::new();
    for command in [["conversations", "show"].as_slice(), &["resume"]] {
        let ended = home.run(&[command, &["--last"]].concat()).expect(2);
        assert!(
            ended.stderr.contains("there is no conversation yet"),
            "{ended:?}"
        );
        home.run(command).expect(2);
    }
    (0..2).for_each(|_| run(&home, &json!([finish()]), &[]));
    let [later, earlier] = home.conversations().try_into().unwrap();
    for command in ["show", "export"] {
        let chosen = |which: &str| {
            home.run(&["conversations", command, which])
                .expect(0)
                .stdout
        };
        assert_eq!(chosen("--last"), chosen(&later), "{command}");
        home.run(&["conversations", command, "--last", &later])
            .expect(2);
    }
    let model = home.script(&json!([finish(), finish()]));
    home.run(&["resume", &earlier, "-t", "more", "-l", &model])
        .expect(0);
    let resumed = home.run(&["resume", "--last", "--json"]).expect(0);
    assert!(resumed.stderr.contains(&earlier), "{resumed:?}");
    let fork = home
        .run(&["conversations", "fork", "--last"])
        .expect(0)
        .stdout;
    let events = home
        .run(&["conversations", "show", fork.trim(), "--json"])
        .expect(0)
        .events();
    assert_eq!(
        events[0]["args"]["forked_from"]["conversation"],
        json!(earlier)
    );
}

#[test]
fn removed_conversation_leaves_neither_log_nor_sandbox() {
    let home = Home::new();
    run(&home, &json!([bash("echo 1 > file"), finish()]), &[]);
    let model = home.script(&json!([bash("echo $$ > started; sleep 1000"), finish()]));
    let running = [
        "run",
        "--json",
        "--runtime",
        "local",
        "-t",
        "work",
        "-l",
        &model,
    ];
    let mut running = home.start(&mut home.glovebox(&running));
    running.wait_for("the command", |event| event["action"] == "run");
    let [left, finished] = home.conversations().try_into().unwrap();
    let workspaces = home.path().join(".glovebox/workspaces");
    wait_until("the command runs", || {
        workspaces.join(&left).join("started").exists()
    });
    let remove = |more: &[&str]| home.run(&[&["conversations", "rm"], more].concat());
    assert_eq!(remove(&["missing"]).code, 2);
    let removed = remove(&[&left, "missing", &finished, &finished]).expect(1);
    assert_eq!(removed.stdout, format!("{finished}\n"));
    assert!(
        removed.stderr.contains("there is no conversation missing"),
        "{}",
        removed.stderr
    );
    assert!(
        removed.stderr.contains("is being run by another process"),
        "{}",
        removed.stderr
    );
    assert_eq!(
        remove(&["--older-than", "0s", "--yes"]).expect(0).stdout,
        "",
        "a running conversation was removed"
    );
    running.kill();
    assert_eq!(remove(&["--older-than", "1d"]).expect(0).stdout, "");
    assert!(
        remove(&["--older-than", "0s"])
            .expect(2)
            .stderr
            .contains("--yes")
    );
    assert_eq!(
        remove(&["--older-than", "0s", "--yes"]).expect(0).stdout,
        format!("{left}\n")
    );
    assert_eq!(home.conversations(), Vec::<String>::new());
    let sandboxes = home
        .run(&["sandbox", "ls", "--runtime", "local", "--json"])
        .expect(0)
        .stdout;
    assert_eq!((names(&workspaces), sandboxes.as_str()), (vec![], "[]\n"));
    home.assert_nothing_runs();
}

#[test]
fn terminal_controls_do_not_reach_standard_output() {
    const HOSTILE: &str = "a\u{9b}2Jb\u{202e}c\u{85}d\u{200f}e\u{1b}]0;t\u{7}f";
    let home = Home::new();
    let saved = home.path().join("saved.json");
    let responses = json!([
        bash("printf 'o\\302\\2332Jo\\342\\200\\256o'"),
        tool_call("finish", &json!({"message": HOSTILE}))
    ]);
    let model = home.script(&responses);
    let arguments = [
        "run",
        "--json",
        "--runtime",
        "local",
        "-t",
        HOSTILE,
        "-l",
        &model,
        "--save-trajectory",
    ];
    let ran = home
        .run(&[&arguments[..], &[saved.to_str().unwrap()]].concat())
        .expect(0);
    let shown = |arguments: &[&str]| {
        let ended = home
            .run(&[&["conversations"], arguments].concat())
            .expect(0);
        ended.stdout + &ended.stderr
    };
    let exported = shown(&["export", "--last"]);
    for text in [
        &ran.stdout,
        &exported,
        &shown(&["show", "--last"]),
        &shown(&["show", "--last", "--json"]),
        &shown(&["ls"]),
        &shown(&["ls", "--json"]),
    ] {
        let is_hostile = |character: &char| match character {
            '\n' | '\t' => false,
            '\u{200f}' | '\u{202e}' => true,
            character => character.is_control(),
        };
        assert_eq!(text.chars().find(is_hostile), None, "{text:?}");
    }
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(saved).unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&exported).unwrap(), saved);
    assert!(
        saved.to_string().contains('\u{9b}'),
        "the trajectory is not escaped"
    );
}

#[test]
fn damaged_conversation_is_named_and_hides_no_other() {
    let home = Home::new();
    (0..3).for_each(|_| run(&home, &json!([finish()]), &[]));
    let database = home.path().join(".glovebox/glovebox.db");
    // The second one as an older version of Glovebox left it: without an overview.
    let sql = "UPDATE conversations SET id = '../x\u{9b}' WHERE number = 1;
               UPDATE events SET json = '{' WHERE conversation = 2 AND id = 0;
               UPDATE conversations SET overview_events = 0 WHERE number = 2";
    rusqlite::Connection::open(database)
        .unwrap()
        .execute_batch(sql)
        .unwrap();
    let rows = list(&home, &[]);
    let states: Vec<_> = rows
        .iter()
        .map(|row| row["agent_state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["finished", "damaged", "damaged"]);
    assert_eq!(rows[2]["conversation_id"], "../x\u{9b}");
    let error = rows[1]["error"].as_str().unwrap();
    assert!(
        error.contains("event 0 of conversation") && error.contains("is damaged"),
        "{error}"
    );
    assert_eq!(list(&home, &["--state", "damaged"]).len(), 2);
    let table = home.run(&["conversations", "ls"]).expect(0).stdout;
    assert!(
        table.contains("../x ") && !table.contains('\u{9b}'),
        "{table}"
    );
    home.run(&["conversations", "show", "--last"]).expect(0);
}

#[test]
fn conversations_are_read_when_their_file_is_read_only() {
    if rustix::process::geteuid().is_root() && skip_without("setpriv") {
        return;
    }
    let home = Home::new();
    run(&home, &json!([bash("echo 1"), finish()]), &[]);
    let [id] = home.conversations().try_into().unwrap();
    let commands = [
        ["conversations", "ls", "--json"].as_slice(),
        &["conversations", "show", &id],
        &["conversations", "export", &id],
    ];
    let before = commands.map(|command| home.run(command).expect(0).stdout);
    let check = |file, folder| {
        home.set_state_modes(file, folder);
        for (command, before) in commands.iter().zip(&before) {
            assert_eq!(
                &home.run_without_capabilities(command).expect(0).stdout,
                before,
                "{file:o} {folder:o}"
            );
        }
        let ended = home
            .run_without_capabilities(&["conversations", "fork", &id])
            .expect(2);
        assert!(ended.stderr.contains("glovebox.db"), "{ended:?}");
        home.set_state_modes(0o600, 0o700);
    };
    check(0o400, 0o700);
    check(0o400, 0o500);
    // While another process has the file open and appends to it.
    let model = home.script(&json!([bash("sleep 1000")]));
    let arguments = [
        "run",
        "--json",
        "--runtime",
        "local",
        "-t",
        "work",
        "-l",
        &model,
    ];
    let mut running = home.start(&mut home.glovebox(&arguments));
    running.wait_for("the command", |event| event["action"] == "run");
    running.kill();
    home.set_state_modes(0o400, 0o500);
    let list = home
        .run_without_capabilities(&["conversations", "ls", "--json"])
        .expect(0)
        .stdout;
    assert_eq!(
        serde_json::from_str::<Vec<Value>>(&list).unwrap()[0]["interrupted"],
        true
    );
    home.set_state_modes(0o600, 0o700);
    home.run(&["sandbox", "prune", "--runtime", "local"])
        .expect(0);
    home.assert_nothing_runs();
}

/// Stores events as V0 does, and returns the folder of the conversation.
fn write_v0_conversation(sessions: &Path, id: &str, events: &[Value]) -> PathBuf {
    let folder = sessions.join(id);
    std::fs::create_dir_all(folder.join("events")).unwrap();
    for event in events {
        std::fs::write(
            folder.join(format!("events/{}.json", event["id"])),
            event.to_string(),
        )
        .unwrap();
    }
    folder
}

#[test]
fn conversations_of_v0_are_imported_and_resumed() {
    let home = Home::new();
    let trajectory = home.path().join("saved.json");
    run(
        &home,
        &json!([bash("echo 1"), finish()]),
        &["--save-trajectory", trajectory.to_str().unwrap()],
    );
    let events: Vec<Value> = serde_json::from_slice(&std::fs::read(&trajectory).unwrap()).unwrap();
    let original = home.conversations()[0].clone();
    let v0 = home.path().join("v0");
    let [finished, working, broken] = ["1b", "2c", "3d"].map(|digits| digits.repeat(16));
    let folder = write_v0_conversation(&v0.join("sessions"), &finished, &events);
    std::fs::write(
        folder.join("metadata.json"),
        r#"{"title": "From V0", "created_at": NaN}"#,
    )
    .unwrap();
    std::fs::write(
        folder.join("events/99.json"),
        r#"{"action": "unheard_of", "args": {}}"#,
    )
    .unwrap();
    let until_run = events
        .iter()
        .position(|event| event["action"] == "run")
        .unwrap();
    write_v0_conversation(
        &v0.join("users/ada/conversations"),
        &working,
        &events[..=until_run],
    );
    std::fs::create_dir_all(v0.join("sessions").join(&broken).join("events")).unwrap();

    let v0 = v0.to_str().unwrap();
    let import = home
        .run(&["conversations", "import", "--runtime", "local", v0])
        .expect(1);
    let imported: Vec<_> = import.stdout.lines().collect();
    assert_eq!(imported, [&working, &finished], "{}", import.stderr);
    for text in [
        "99.json: unknown action `unheard_of`",
        &format!("cannot import conversation {broken}"),
    ] {
        assert!(import.stderr.contains(text), "{}", import.stderr);
    }
    let again = home
        .run(&["conversations", "import", v0, "--json"])
        .expect(1)
        .stdout;
    let statuses: Vec<_> = again
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["status"].clone())
        .collect();
    assert_eq!(statuses, ["exists", "exists", "failed"]);

    // Everything but the ids is as before.
    let exported = |id: &str| -> Vec<Value> {
        let text = home.run(&["conversations", "export", id]).expect(0).stdout;
        let mut events: Vec<Value> = serde_json::from_str(&text).unwrap();
        for event in &mut events {
            ["id", "cause", "events_seen"]
                .into_iter()
                .for_each(|name| event[name] = Value::Null);
        }
        events
    };
    assert_eq!(exported(&finished), exported(&original));
    let list = home
        .run(&["conversations", "ls", "--json"])
        .expect(0)
        .stdout;
    assert!(list.contains("From V0"), "{list}");
    // A scripted model skips what was answered before.
    let model = home.script(&json!([bash("echo 1"), finish()]));
    home.run(&["resume", &working, "-t", "go on", "-l", &model])
        .expect(0);
    let transcript = home
        .run(&["conversations", "show", &working])
        .expect(0)
        .stdout;
    assert!(
        transcript.contains("echo 1") && transcript.contains("go on"),
        "{transcript}"
    );
    home.assert_nothing_runs();
}

#[test]
fn folder_without_conversations_of_v0_is_rejected() {
    let home = Home::new();
    for (folder, problem) in [
        (".", "has no conversations of V0"),
        ("none", "cannot read the folder none"),
    ] {
        let stderr = home
            .run(&["conversations", "import", folder])
            .expect(2)
            .stderr;
        assert!(stderr.contains(problem), "{stderr}");
    }
}

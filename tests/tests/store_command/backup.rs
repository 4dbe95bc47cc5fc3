//! Backups and their restoration.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish, wait_until};
use tests::host_server::{HostServer, is_state};
use tests::postgres::TestDatabase;

use crate::skip::skip_without;

use super::{copy_secrets_key, counts, events, names, report, resume, run};

/// Part of each secret of these tests.
const NEEDLE: &str = "needle-in-the-backup";

/// Starts a server, and stores a secret of a new user ada. Returns her key.
async fn start(home: &Home, responses: &Value, arguments: &[&str]) -> (HostServer, String) {
    let server = HostServer::start(home, &home.script(responses), arguments);
    let ada = home.add_user("ada");
    let secret = json!({"name": "OWN", "value": NEEDLE, "description": "mine"});
    let (status, body) = server
        .send_as(&ada, Method::POST, "/api/secrets", Some(&secret))
        .await;
    assert_eq!(status, 201, "{body}");
    (server, ada)
}

/// Returns the names of the secrets of a user.
async fn secrets(server: &HostServer, key: &str) -> Value {
    server
        .send_as(key, Method::GET, "/api/secrets", None)
        .await
        .1
}

fn back_up(home: &Home, store: &[&str]) -> PathBuf {
    let file = home.path().join("backup.tar.gz");
    home.run(&[&["store", "backup", file.to_str().unwrap()], store].concat())
        .expect(0);
    file
}

fn restore(home: &Home, file: &Path, more: &[&str]) -> tests::glovebox::CompletedRun {
    home.run(
        &[
            &["store", "restore", "--json", file.to_str().unwrap()],
            more,
        ]
        .concat(),
    )
}

#[tokio::test]
async fn backup_is_taken_while_a_server_runs() {
    let home = Home::new();
    let responses = json!([bash("until [ -e gate ]; do sleep 0.1; done"), finish()]);
    let (server, ada) = start(&home, &responses, &[]).await;
    let body = json!({"initial_user_msg": "Work."});
    let created = server
        .send_as(&ada, Method::POST, "/api/conversations", Some(&body))
        .await
        .1;
    let id = created["conversation_id"].as_str().unwrap();
    server
        .wait_for_event(id, |event| event["action"] == "run")
        .await;

    let file = home.path().join("backup.tar.gz");
    let backup = home
        .run(&["store", "backup", "--json", file.to_str().unwrap()])
        .expect(0);
    let totals: Value = serde_json::from_str(&backup.stdout).unwrap();
    assert_eq!(
        (&totals["conversations"], &totals["users"], &totals["keys"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(totals["settings"], 1);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let unpacked = home.path().join("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    let tar = Command::new("tar")
        .arg("xzf")
        .arg(&file)
        .arg("-C")
        .arg(&unpacked)
        .status()
        .unwrap();
    assert!(tar.success());
    let text = |name: &str| std::fs::read_to_string(unpacked.join(name)).unwrap();
    for name in [
        "users.jsonl",
        "keys.jsonl",
        "settings.jsonl",
        "audit.jsonl",
        "manifest.json",
    ] {
        let text = text(name);
        assert!(!text.contains(NEEDLE) && !text.contains(&ada), "{text}");
    }
    let stored = text(&format!("conversations/{id}/events.jsonl"));

    std::fs::write(
        home.path()
            .join(".glovebox/workspaces")
            .join(id)
            .join("gate"),
        "",
    )
    .unwrap();
    server
        .wait_for_event(id, |event| is_state(event, "finished"))
        .await;
    let all = events(&home, id, &[]);
    let stored: Vec<Value> = stored
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        stored.len() < all.len() && all.starts_with(&stored),
        "{stored:#?}"
    );
    server
        .post(&format!("/api/conversations/{id}/stop"), &json!({}))
        .await;
    server.terminate();
    home.assert_nothing_runs();
}

#[tokio::test]
async fn backup_of_files_is_restored_into_postgres() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (home, other) = (Home::new(), Home::new());
    let (server, ada) = start(&home, &json!([finish()]), &[]).await;
    let body = json!({"initial_user_msg": "Work."});
    let created = server
        .send_as(&ada, Method::POST, "/api/conversations", Some(&body))
        .await
        .1;
    let id = created["conversation_id"].as_str().unwrap();
    server
        .wait_for_event(id, |event| is_state(event, "finished"))
        .await;
    server.terminate();
    let file = back_up(&home, &[]);

    let address = database.address();
    let store = ["--store", &address];
    copy_secrets_key(&home, &other);
    let dry = restore(&other, &file, &[&store[..], &["--dry-run"]].concat())
        .expect(0)
        .stdout;
    assert_eq!(
        database.execute("SELECT count(*) FROM conversations, users"),
        "0"
    );
    let restored = restore(&other, &file, &store).expect(0).stdout;
    assert_eq!(dry, restored, "the dry run reports the same");
    let (statuses, summary) = report(&restored);
    assert_eq!(statuses, [(id.to_owned(), "added".to_owned())]);
    for kind in ["users", "keys", "settings"] {
        assert_eq!(counts(&summary, kind), [1, 0, 0], "{kind}");
    }
    let (statuses, summary) = report(&restore(&other, &file, &store).expect(0).stdout);
    assert_eq!(statuses, [(id.to_owned(), "exists".to_owned())]);
    for kind in ["conversations", "users", "keys", "settings"] {
        assert_eq!(counts(&summary, kind), [0, 1, 0], "{kind}");
    }
    assert_eq!(counts(&summary, "audit_entries")[0], 0);
    assert_eq!(events(&other, id, &store), events(&home, id, &[]));
    let log = |home: &Home, store: &[&str]| {
        home.run(&[&["audit", "--json"], store].concat())
            .expect(0)
            .stdout
    };
    assert!(log(&other, &store).starts_with(&log(&home, &[])));

    let server = HostServer::start(&other, &other.script(&json!([finish()])), &store);
    let (status, page) = server
        .send_as(&ada, Method::GET, "/api/conversations", None)
        .await;
    assert_eq!(
        (status.as_u16(), &page["results"][0]["conversation_id"]),
        (200, &json!(id)),
        "{page}"
    );
    assert_eq!(
        secrets(&server, &ada).await["custom_secrets"][0]["name"],
        "OWN"
    );
    server.terminate();
    // And back into files.
    let third = Home::new();
    copy_secrets_key(&home, &third);
    let file = back_up(&other, &store);
    restore(&third, &file, &[]).expect(0);
    assert_eq!(events(&third, id, &[]), events(&home, id, &[]));
    let server = HostServer::start(&third, &third.script(&json!([finish()])), &[]);
    assert_eq!(
        secrets(&server, &ada).await["custom_secrets"][0]["name"],
        "OWN"
    );
    server.terminate();
}

#[test]
fn nothing_is_restored_when_the_backup_is_damaged() {
    let (home, other) = (Home::new(), Home::new());
    run(&home, "work");
    let file = back_up(&home, &[]);
    let whole = std::fs::read(&file).unwrap();
    let mut altered = whole.clone();
    altered[whole.len() / 2] ^= 1;
    for (bytes, problem) in [
        (&whole[..whole.len() - 1], "damaged"),
        (&whole[..whole.len() / 2], "damaged"),
        (&altered, "damaged"),
        (b"no backup", "no backup"),
    ] {
        let damaged = other.write("damaged", bytes);
        let ended = restore(&other, &damaged, &[]).expect(1);
        assert!(
            ended.stderr.contains(problem) && ended.stdout.is_empty(),
            "{ended:?}"
        );
        assert_eq!(other.conversations(), Vec::<String>::new());
    }
    for missing in ["none", "."] {
        restore(&other, Path::new(missing), &[]).expect(2);
    }
}

#[test]
fn existing_conversation_is_extended_or_kept() {
    let (home, other) = (Home::new(), Home::new());
    let id = run(&home, "work");
    restore(&other, &back_up(&home, &[]), &[]).expect(0);
    resume(&home, &id, "more");
    let grown = events(&home, &id, &[]);
    let file = back_up(&home, &["--force"]);
    let (statuses, _) = report(&restore(&other, &file, &[]).expect(0).stdout);
    assert_eq!(statuses, [(id.clone(), "extended".to_owned())]);
    assert_eq!(events(&other, &id, &[]), grown);
    // Its further events are kept, and differ from those in the next backup. It has a new
    // workspace.
    resume(&other, &id, "other");
    let own = events(&other, &id, &[]);
    let (statuses, _) = report(&restore(&other, &file, &[]).expect(0).stdout);
    assert_eq!(statuses, [(id.clone(), "exists".to_owned())]);
    resume(&home, &id, "another");
    let ended = restore(&other, &back_up(&home, &["--force"]), &[]).expect(1);
    assert_eq!(
        report(&ended.stdout).0,
        [(id.clone(), "differs".to_owned())]
    );
    assert_eq!(events(&other, &id, &[]), own);
    home.assert_nothing_runs();
    other.assert_nothing_runs();
}

#[tokio::test]
async fn settings_are_restored_only_with_their_key() {
    let home = Home::new();
    let (server, _) = start(&home, &json!([finish()]), &[]).await;
    server.terminate();
    let file = back_up(&home, &[]);
    for key in [None, Some("another key of an operator\n")] {
        let other = Home::new();
        key.map(|key| other.write(".glovebox/secrets-key", key));
        let refused = restore(&other, &file, &[]).expect(2);
        assert!(refused.stderr.contains("secrets-key"), "{refused:?}");
        let users = other.run(&["user", "ls", "--json"]).expect(0);
        assert_eq!(users.stdout, "[]\n");
        let restored = restore(&other, &file, &["--without-settings"])
            .expect(0)
            .stdout;
        let (_, summary) = report(&restored);
        assert_eq!(
            (counts(&summary, "users"), counts(&summary, "settings")),
            ([1, 0, 0], [0, 0, 0])
        );
    }
}

#[test]
fn backup_is_piped_from_one_machine_to_another() {
    let (home, other) = (Home::new(), Home::new());
    let id = run(&home, "work");
    let mut backup = home
        .glovebox(&["store", "backup", "-"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = backup.stdout.take().unwrap();
    let restored = other
        .glovebox(&["store", "restore", "-"])
        .stdin(stdin)
        .output()
        .unwrap();
    assert!(
        backup.wait().unwrap().success() && restored.status.success(),
        "{restored:?}"
    );
    assert!(
        String::from_utf8_lossy(&restored.stdout).contains("conversations  1"),
        "{restored:?}"
    );
    assert_eq!(events(&other, &id, &[]), events(&home, &id, &[]));
    assert!(
        home.run(&["store", "backup", "-", "--json"])
            .expect(2)
            .stderr
            .contains("needs a FILE")
    );
}

#[test]
fn incomplete_backup_replaces_no_other_one() {
    let home = Home::new();
    let id = run(&home, "work");
    let folder = home.path().join("backups");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("backup");
    std::fs::write(&file, "the last one").unwrap();
    let database = home.path().join(".glovebox/glovebox.db");
    rusqlite::Connection::open(database)
        .unwrap()
        .execute_batch("UPDATE events SET json = '{' WHERE id = 1")
        .unwrap();
    let backup = |file: &Path| {
        home.run(&[
            "store",
            "backup",
            "--json",
            "--force",
            file.to_str().unwrap(),
        ])
        .expect(1)
    };
    let existing = home
        .run(&["store", "backup", file.to_str().unwrap()])
        .expect(2)
        .stderr;
    assert!(existing.contains("--force replaces it"), "{existing}");
    let refused = backup(&file).stderr;
    assert!(
        refused.contains(&id) && refused.contains("event 1") && refused.contains("a new file"),
        "{refused}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "the last one");
    assert_eq!(names(&folder), ["backup"]);
    // The rest is backed up into a new file.
    let ended = backup(&folder.join("rest"));
    assert!(ended.stdout.contains("\"conversations\":0"), "{ended:?}");
    assert_eq!(names(&folder), ["backup", "rest"]);
    for wrong in ["backups", "none/backup", "/dev/null"] {
        home.run(&["store", "backup", wrong]).expect(2);
    }
}

#[tokio::test]
async fn folder_that_cannot_be_written_is_backed_up() {
    if rustix::process::geteuid().is_root() && skip_without("setpriv") {
        return;
    }
    let home = Home::new();
    let (server, _) = start(&home, &json!([finish()]), &[]).await;
    server.terminate();
    run(&home, "work");
    let file = home.path().join("backup.tar.gz");
    let backup = [
        "store",
        "backup",
        "--json",
        "--force",
        file.to_str().unwrap(),
    ];
    let commands = [
        backup.as_slice(),
        &["audit", "--json"],
        &["user", "ls", "--json"],
        &["user", "key", "ls", "--json"],
    ];
    let before = commands.map(|command| home.run(command).expect(0).stdout);
    assert!(before[0].contains("\"settings\":1"), "{before:?}");
    home.set_state_modes(0o400, 0o500);
    let after = commands.map(|command| home.run_without_capabilities(command).expect(0).stdout);
    assert_eq!(after, before);
    home.run_without_capabilities(&["user", "add", "eve"])
        .expect(2);
    home.set_state_modes(0o600, 0o700);
}

#[test]
fn restore_is_interrupted_while_it_reads_standard_input() {
    let home = Home::new();
    let mut restoring = home.glovebox(&["store", "restore", "-"]);
    let mut restoring = restoring
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Open until the end: waiting for a child closes its standard input, and an end competes with
    // the interrupt.
    let _input = restoring.stdin.take();
    let status = format!("/proc/{}/status", restoring.id());
    let caught = |line: &str| {
        line.strip_prefix("SigCgt:").is_some_and(|mask| {
            mask.trim()
                .ends_with(['2', '3', '6', '7', 'a', 'b', 'e', 'f'])
        })
    };
    wait_until("SIGINT is caught", || {
        std::fs::read_to_string(&status)
            .unwrap()
            .lines()
            .any(caught)
    });
    rustix::process::kill_process(rustix::process::Pid::from_child(&restoring), Signal::INT)
        .unwrap();
    assert_eq!(restoring.wait().unwrap().code(), Some(130));
}

//! Migrations of schemas, and copies to another store.

use reqwest::Method;
use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish};
use tests::host_server::{HostServer, is_state};
use tests::postgres::TestDatabase;

use super::{copy_secrets_key, counts, events, report, resume, run};

/// The first schema of the event logs.
const FIRST_SCHEMA: &str = include_str!("../../../orchestrator/storage/migrations/0001_events.sql");

fn versions(home: &Home, more: &[&str]) -> Vec<(String, i64, i64)> {
    let printed = home
        .run(&[&["store", "migrate", "--json"], more].concat())
        .expect(0)
        .stdout;
    let rows: Vec<Value> = serde_json::from_str(&printed).unwrap();
    let number = |value: &Value| value.as_i64().unwrap();
    rows.iter()
        .map(|row| {
            (
                row["store"].as_str().unwrap().to_owned(),
                number(&row["from"]),
                number(&row["to"]),
            )
        })
        .collect()
}

#[test]
fn versions_of_the_schema_are_printed() {
    let home = Home::new();
    assert_eq!(versions(&home, &[]), [], "there is no file yet");
    let file = home.write(".glovebox/glovebox.db", "");
    let database = rusqlite::Connection::open(&file).unwrap();
    database
        .execute_batch(&format!("{FIRST_SCHEMA}; PRAGMA user_version = 1"))
        .unwrap();
    drop(database);
    let [(store, from, to)] = versions(&home, &[]).try_into().unwrap();
    assert!(
        store == "glovebox.db" && from == 1 && to > 1,
        "{store} {from} {to}"
    );
    assert_eq!(versions(&home, &[]), [(store, to, to)]);
    home.run(&["user", "add", "ada"]).expect(0);
    let stores: Vec<_> = versions(&home, &[])
        .into_iter()
        .map(|(store, ..)| store)
        .collect();
    assert_eq!(stores, ["glovebox.db", "accounts.db"]);
    rusqlite::Connection::open(&file)
        .unwrap()
        .execute_batch("PRAGMA user_version = 99")
        .unwrap();
    assert!(
        home.run(&["store", "migrate"])
            .expect(2)
            .stderr
            .contains("has version 99")
    );
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let address = database.address();
    let [(store, from, to)] = versions(&home, &["--store", &address]).try_into().unwrap();
    assert!(
        store == "the database" && from == 0 && to > 1,
        "{store} {from} {to}"
    );
    assert_eq!(versions(&home, &["--store", &address]), [(store, to, to)]);
}

#[tokio::test]
async fn users_keys_and_settings_work_after_a_migration() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let server = HostServer::start(&home, &model, &[]);
    let ada = home.add_user("ada");
    let (revoked, revoked_id) = home.add_key("ada", &[]);
    home.run(&["user", "key", "revoke", &revoked_id]).expect(0);
    let secret = json!({"name": "OWN", "value": "a needle", "description": "mine"});
    server
        .send_as(&ada, Method::POST, "/api/secrets", Some(&secret))
        .await;
    let body = json!({"initial_user_msg": "Work."});
    let created = server
        .send_as(&ada, Method::POST, "/api/conversations", Some(&body))
        .await
        .1;
    let id = created["conversation_id"].as_str().unwrap().to_owned();
    server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    server.terminate();

    let address = home.write("address", format!("{}\n", database.address()));
    let migrate = [
        "store",
        "migrate",
        "--json",
        "--to-file",
        address.to_str().unwrap(),
    ];
    let (statuses, summary) = report(&home.run(&migrate).expect(0).stdout);
    assert_eq!(statuses, [(id.clone(), "added".to_owned())]);
    for kind in ["users", "keys", "settings"] {
        assert_eq!(counts(&summary, kind), [1, 0, 0], "{kind}");
    }
    let again = home
        .glovebox(&["store", "migrate", "--json"])
        .env("STORE_TO", database.address())
        .output();
    let (statuses, summary) = report(&String::from_utf8(again.unwrap().stdout).unwrap());
    assert_eq!(statuses, [(id.clone(), "exists".to_owned())]);
    assert_eq!(counts(&summary, "audit_entries")[0], 0, "{summary}");

    let address = database.address();
    let store = ["--store", &address];
    assert_eq!(events(&home, &id, &store), events(&home, &id, &[]));
    let server = HostServer::start(&home, &model, &store);
    let (status, page) = server
        .send_as(&ada, Method::GET, "/api/conversations", None)
        .await;
    assert_eq!(
        (status.as_u16(), &page["results"][0]["conversation_id"]),
        (200, &json!(id)),
        "{page}"
    );
    let secrets = server
        .send_as(&ada, Method::GET, "/api/secrets", None)
        .await
        .1;
    assert_eq!(secrets["custom_secrets"][0]["name"], "OWN");
    assert_eq!(
        server
            .status_with_key("/api/conversations", Some(&revoked))
            .await,
        401
    );
    let log = |store: &[&str]| {
        home.run(&[&["audit", "--json"], store].concat())
            .expect(0)
            .stdout
    };
    assert!(log(&store).starts_with(&log(&[])), "{}", log(&store));
    server.terminate();

    // Back into files, where another conversation may be.
    let other = Home::new();
    copy_secrets_key(&home, &other);
    let own = run(&other, "own");
    let folder = other.path().join(".glovebox");
    home.run(&[
        "store",
        "migrate",
        "--store",
        &address,
        "--to",
        folder.to_str().unwrap(),
    ])
    .expect(0);
    assert_eq!(events(&other, &id, &[]), events(&home, &id, &[]));
    assert_eq!(other.conversations().len(), 2);
    // The same folder, whose conversations exist.
    let folder = home.path().join(".glovebox");
    let back = [
        "store",
        "migrate",
        "--json",
        "--store",
        &address,
        "--to",
        folder.to_str().unwrap(),
    ];
    assert_eq!(
        report(&home.run(&back).expect(0).stdout).0,
        [(id, "exists".to_owned())]
    );
    assert!(!home.conversations().contains(&own));
}

#[tokio::test]
async fn repeated_migration_revokes_keys_of_a_folder() {
    let (home, other) = (Home::new(), Home::new());
    let folder = other.path().join(".glovebox");
    repeated_migration(&home, folder.to_str().unwrap(), &other, &[]).await;
}

#[tokio::test]
async fn repeated_migration_revokes_keys_of_a_database() {
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let (home, address) = (Home::new(), database.address());
    repeated_migration(&home, &address, &home, &["--store", &address]).await;
}

/// `target` is the home of the target, whose commands need the options `store`.
async fn repeated_migration(home: &Home, to: &str, target: &Home, store: &[&str]) {
    let model = home.script(&json!([finish()]));
    let server = HostServer::start(home, &model, &[]);
    let (ada, ben) = (home.add_user("ada"), home.add_user("ben"));
    let (revoked, revoked_id) = home.add_key("ada", &[]);
    let (early, early_id) = home.add_key("ada", &[]);
    let secret = |name| json!({"name": name, "value": "a needle", "description": ""});
    let add_secret = async |server: &HostServer, key: &str, name| {
        let body = secret(name);
        let added = server.send_as(key, Method::POST, "/api/secrets", Some(&body));
        let (status, body) = added.await;
        assert!(status.is_success(), "{status} {body}");
    };
    add_secret(&server, &ada, "FIRST").await;
    add_secret(&server, &ben, "FIRST").await;
    if !std::ptr::eq(home, target) {
        copy_secrets_key(home, target);
    }
    let migrate = ["store", "migrate", "--json", "--to", to];
    home.run(&migrate).expect(0);

    home.run(&["user", "key", "revoke", &revoked_id]).expect(0);
    home.run(&["user", "rm", "ben", "-y"]).expect(0);
    let (late, _) = home.add_key("ada", &[]);
    add_secret(&server, &ada, "SECOND").await;
    let (_, summary) = report(&home.run(&migrate).expect(0).stdout);
    let changes = |kind: &str| {
        ["added", "changed", "removed", "different"].map(|name| summary[kind][name].as_u64())
    };
    assert_eq!(changes("users"), [0, 0, 1, 0].map(Some), "{summary}");
    assert_eq!(changes("keys"), [1, 0, 2, 0].map(Some), "{summary}");
    assert_eq!(changes("settings"), [0, 1, 0, 0].map(Some), "{summary}");
    server.terminate();

    let server = HostServer::start(target, &model, store);
    for (key, expected) in [
        (&ada, 200),
        (&early, 200),
        (&late, 200),
        (&revoked, 401),
        (&ben, 401),
    ] {
        let status = server.status_with_key("/api/conversations", Some(key));
        assert_eq!(status.await, expected);
    }
    let secrets = server
        .send_as(&ada, Method::GET, "/api/secrets", None)
        .await;
    let secrets = &secrets.1["custom_secrets"];
    assert_eq!(secrets.as_array().map(Vec::len), Some(2), "{secrets}");

    // The target is used: a key is revoked, one is added, and settings change in both.
    let in_target = |arguments: &[&str]| target.run(&[arguments, store].concat()).expect(0);
    in_target(&["user", "key", "revoke", &early_id]);
    let own = in_target(&["user", "key", "add", "ada", "--json"]).stdout;
    let own: Value = serde_json::from_str(&own).unwrap();
    add_secret(&server, &ada, "OF_TARGET").await;
    server.terminate();
    let server = HostServer::start(home, &model, &["--store", "file"]);
    add_secret(&server, &ada, "OF_SOURCE").await;
    server.terminate();
    let refused = home.run(&migrate).expect(1).stdout;
    let problems: Vec<Value> = refused
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["user"] == "ada" && line["status"] == "differs")
        .collect();
    let [settings, keys] = problems.as_slice() else {
        panic!("{refused}");
    };
    for (problem, expected) in [
        (settings, "settings were changed in the target too"),
        (keys, own["id"].as_str().unwrap()),
    ] {
        let problem = problem["problem"].as_str().unwrap();
        assert!(problem.contains(expected), "{problem}");
    }
    let server = HostServer::start(target, &model, store);
    for (key, expected) in [
        (own["key"].as_str().unwrap(), 200),
        (early.as_str(), 401),
        (revoked.as_str(), 401),
    ] {
        let status = server.status_with_key("/api/conversations", Some(key));
        assert_eq!(status.await, expected);
    }
    let secrets = server
        .send_as(&ada, Method::GET, "/api/secrets", None)
        .await;
    assert!(secrets.1.to_string().contains("OF_TARGET"), "{}", secrets.1);
    server.terminate();

    // The settings of a user who is removed in the target stay removed.
    in_target(&["user", "rm", "ada", "-y"]);
    // The source is the file, whatever its last server has used.
    home.write("empty.toml", "");
    let insisting = [&migrate[..], &["--config-file", "empty.toml"]].concat();
    home.run(&insisting).expect(1);
    in_target(&["user", "add", "--restore", "ada"]);
    let (key, _) = target.add_key("ada", store);
    let server = HostServer::start(target, &model, store);
    let secrets = server
        .send_as(&key, Method::GET, "/api/secrets", None)
        .await;
    assert_eq!(secrets.1["custom_secrets"], json!([]));
    server.terminate();
}

#[test]
fn running_conversation_is_migrated_after_its_end() {
    let (home, other) = (Home::new(), Home::new());
    let done = run(&home, "work");
    let model = home.script(&json!([bash("sleep 1000"), finish()]));
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
    let id = home.conversations()[0].clone();
    let folder = other.path().join(".glovebox");
    let migrate = [
        "store",
        "migrate",
        "--json",
        "--to",
        folder.to_str().unwrap(),
    ];
    let (statuses, summary) = report(&home.run(&migrate).expect(1).stdout);
    assert_eq!(
        statuses,
        [
            (done.clone(), "added".to_owned()),
            (id.clone(), "running".to_owned())
        ]
    );
    assert_eq!(counts(&summary, "conversations"), [1, 0, 1]);
    assert_eq!(other.conversations(), [done.as_str()]);
    running.kill();
    resume(&home, &done, "more");
    let (mut statuses, _) = report(&home.run(&migrate).expect(0).stdout);
    statuses.sort_by_key(|(_, status)| status.clone());
    assert_eq!(
        statuses,
        [
            (id.clone(), "added".to_owned()),
            (done.clone(), "extended".to_owned())
        ]
    );
    for id in [&id, &done] {
        assert_eq!(events(&other, id, &[]), events(&home, id, &[]));
    }
    home.run(&["conversations", "rm", &id]).expect(0);
    home.assert_nothing_runs();
}

#[test]
fn target_is_refused_when_it_cannot_be_one() {
    let home = Home::new();
    let own = home.path().join(".glovebox");
    for (to, problem) in [
        (own.to_str().unwrap(), "the store itself"),
        ("mysql://u:hunter2@host/db", "must be a folder"),
        ("", "empty"),
    ] {
        let refused = home.run(&["store", "migrate", "--to", to]).expect(2);
        assert!(
            refused.stderr.contains(problem) && !refused.stderr.contains("hunter2"),
            "{refused:?}"
        );
    }
    let Some(database) = TestDatabase::create() else {
        return;
    };
    let address = database.address();
    let refused = home
        .run(&["store", "migrate", "--store", &address, "--to", &address])
        .expect(2);
    assert!(
        refused.stderr.contains("both stores are databases"),
        "{refused:?}"
    );
}

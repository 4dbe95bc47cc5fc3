//! What makes conversations fail, and is reported when the server starts.

use std::os::unix::fs::FileExt as _;

use serde_json::{Value, json};
use tests::glovebox::{Home, finish};
use tests::host_server::HostServer;

const SERVE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--runtime", "local"];

/// A service must not be restarted for ever because of it.
#[test]
fn invalid_configuration_ends_the_server_with_code_2() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    for (name, value, expected) in [
        (
            "STORE_URL",
            "postgres://u:p@h/n?sslmode=foo",
            "cannot parse the address of the database",
        ),
        ("STORE_URL", "postgres://u:p@/", "names no host"),
        ("STORE_BLOBS", "s3://", "is no name of a bucket"),
        (
            "STORE_BLOBS",
            "/proc/nope",
            "check the folder /proc/nope, which --blobs",
        ),
        (
            "GLOVEBOX_SECRETS_KEY_FILE",
            "/nope",
            "GLOVEBOX_SECRETS_KEY_FILE: cannot read the key /nope",
        ),
        (
            "FILE_STORE_PATH",
            "/proc/nope",
            "cannot create the folder /proc/nope",
        ),
        (
            "FILE_STORE_PATH",
            "/proc",
            "cannot write to the folder /proc",
        ),
        (
            "LLM_BASE_URL",
            "localhost:4000/v1",
            "`base_url` localhost:4000 lacks `http://`",
        ),
    ] {
        let model = if name == "LLM_BASE_URL" {
            "openai/m"
        } else {
            &model
        };
        let mut command = home.glovebox(&[&SERVE[..], &["-l", model]].concat());
        let output = command.env(name, value).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && error.contains(expected),
            "{name}={value}: {error}"
        );
    }
}

#[test]
fn damaged_store_is_reported_at_the_start_and_by_doctor() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    home.run(&["run", "--runtime", "local", "-t", "work", "-l", &model])
        .expect(0);
    let file = home.path().join(".glovebox/glovebox.db");
    let length = file.metadata().unwrap().len();
    // All pages but the first, which has the schema.
    let database = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    database
        .write_all_at(&vec![0xAA; usize::try_from(length).unwrap() - 4096], 4096)
        .unwrap();
    let failed = home.run(&[&SERVE[..], &["-l", &model]].concat()).expect(1);
    let expected = format!("cannot use the store {}", file.display());
    assert!(failed.stderr.contains(&expected), "{}", failed.stderr);
    assert!(failed.stderr.contains("malformed"), "{}", failed.stderr);
    let doctor = home
        .run(&["doctor", "--json", "--runtime", "local", "-l", &model])
        .expect(1);
    let checks: Value = serde_json::from_str(&doctor.stdout).unwrap();
    let store = checks
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["check"] == "store")
        .unwrap();
    assert_eq!(store["status"], "failed", "{checks}");
}

/// The server would fail again if it was restarted.
#[test]
fn damaged_file_of_the_server_ends_it_with_code_2() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    HostServer::start(&home, &model, &[]).terminate();
    for name in ["glovebox.db", "accounts.db", "settings.db", "server-key"] {
        let file = home.path().join(".glovebox").join(name);
        let content = std::fs::read(&file).unwrap();
        std::fs::write(&file, "damaged").unwrap();
        for (arguments, code) in [(&SERVE[..], 2), (&["doctor", "--runtime", "local"], 1)] {
            let failed = home
                .run(&[arguments, &["-l", &model]].concat())
                .expect(code);
            let shown = [failed.stdout, failed.stderr].concat();
            assert!(shown.contains(name), "{shown}");
        }
        std::fs::write(&file, content).unwrap();
    }
}

#[test]
fn server_warns_when_sandboxes_or_the_budget_cannot_work() {
    let home = Home::new();
    let engine = format!("unix://{}/no-engine", home.path().display());
    let mut command = home.glovebox(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--runtime",
        "docker",
        "-l",
        "openai/m",
    ]);
    command.envs([
        ("DOCKER_HOST", engine.as_str()),
        ("LLM_BASE_URL", "http://127.0.0.1:1/v1"),
    ]);
    let server = HostServer::from_command(&home, command.env("MAX_BUDGET_PER_TASK", "5.0"));
    let log = std::fs::read_to_string(home.path().join("serve.log")).unwrap();
    assert!(
        log.contains("no conversation gets a sandbox: check it with `glovebox doctor"),
        "{log}"
    );
    assert!(
        log.contains("the limit of $5 has no effect, because the price of openai/m is unknown"),
        "{log}"
    );
    server.terminate();
}

//! A state folder without space.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::{Method, StatusCode};
use serde_json::json;
use tests::glovebox::{Home, bash, finish, wait_until};
use tests::host_server::{HostServer, is_state};

use crate::skip::{Requirement, skip};

/// A small file system, unmounted on drop.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one. `None`, and the test is skipped, if the user may not.
    fn mount(path: PathBuf) -> Option<Self> {
        std::fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=256m,mode=700", "small"])
            .arg(&path);
        let is_root = rustix::process::geteuid().is_root();
        if !is_root || !mount.status().is_ok_and(|status| status.success()) {
            skip(
                Requirement::Mount,
                "this user cannot create a small file system",
            );
            return None;
        }
        Some(Self(path))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    fn fill(&self) {
        let mut file = File::create(self.filler()).unwrap();
        for size in [1 << 20, 1 << 12, 1] {
            let error = loop {
                if let Err(error) = file.write_all(&vec![0; size]) {
                    break error;
                }
            };
            assert_eq!(error.kind(), ErrorKind::StorageFull);
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount, because a server that a failed test left may have open files in it.
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}

fn runs(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

#[tokio::test]
async fn conversation_continues_when_there_is_space_again() {
    let home = Home::new();
    let Some(disk) = SmallDisk::mount(home.path().join(".glovebox")) else {
        return;
    };
    let (marker, gate) = (home.workspace().join("runs"), home.workspace().join("gate"));
    let command = format!(
        "echo run >> {}; until [ -e {} ]; do sleep 0.05; done; echo done",
        marker.display(),
        gate.display()
    );
    home.write(
        ".glovebox/config.toml",
        format!(
            "[core]\nworkspace_base = \"{}\"\n",
            home.workspace().display()
        ),
    );
    let model = home.script(&json!([bash(&command), finish()]));
    let server = HostServer::start(&home, &model, &[]);
    let id = server.create("Work.").await;
    wait_until("the command runs", || marker.exists());

    assert_eq!(server.status_with_key("/ready", None).await, StatusCode::OK);
    disk.fill();
    let path = format!("/api/conversations/{id}");
    let message = json!({"message": "x".repeat(100_000)});
    let (status, error) = server
        .send(Method::POST, &format!("{path}/message"), Some(&message))
        .await;
    assert_eq!(
        (status, &error["msg_id"]),
        (
            StatusCode::INSUFFICIENT_STORAGE,
            &json!("SERVER$STORAGE_FULL")
        ),
        "{error}"
    );
    assert_eq!(error["message"], "the server's disk is full");
    let (status, error) = server
        .send(Method::POST, "/api/conversations", Some(&json!({})))
        .await;
    assert_eq!(status, StatusCode::INSUFFICIENT_STORAGE, "{error}");
    let (status, error) = server
        .send(
            Method::POST,
            "/api/settings",
            Some(&json!({"language": "de"})),
        )
        .await;
    assert_eq!(status, StatusCode::INSUFFICIENT_STORAGE, "{error}");
    let (status, error) = server
        .send(Method::POST, &format!("{path}/stop"), Some(&json!({})))
        .await;
    assert_eq!(
        status,
        StatusCode::INSUFFICIENT_STORAGE,
        "a change without an entry in the audit log: {error}"
    );
    // The store is checked once per second.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let (status, error) = server.send(Method::GET, "/ready", None).await;
    let cause = (
        &json!("SERVER$STORAGE_FULL"),
        &json!("the server's disk is full"),
    );
    assert_eq!(
        (status, (&error["msg_id"], &error["message"])),
        (StatusCode::SERVICE_UNAVAILABLE, cause)
    );
    let log = runs(&home.path().join("serve.log"));
    assert!(!log.contains("cannot be reached"), "{log}");
    let run = home
        .run(&["run", "--runtime", "local", "-t", "work", "-l", &model])
        .expect(1);
    assert_eq!(
        run.stderr.matches("disk is full").count(),
        1,
        "{}",
        run.stderr
    );
    // It is tried again now and then.
    let stopped = async {
        while server.get(&path).await["status"] != "STOPPED" {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(tests::glovebox::TEST_TIMEOUT, stopped)
        .await
        .expect("the conversation cannot run");
    std::fs::write(gate, "").unwrap();

    std::fs::remove_file(disk.filler()).unwrap();
    let events = server
        .wait_for_event(&id, |event| is_state(event, "finished"))
        .await;
    let results: Vec<_> = events
        .iter()
        .filter(|event| event["observation"] == "run")
        .collect();
    assert_eq!(
        (results.len(), &results[0]["content"]),
        (1, &json!("done")),
        "{events:#?}"
    );
    assert_eq!(runs(&marker), "run\n");
    server.post(&format!("{path}/stop"), &json!({})).await;
    let audit = home.run(&["audit", "--json"]).expect(0).stdout;
    assert!(
        audit.contains("\"status\":507"),
        "the entries that could not be stored are: {audit}"
    );
    server.terminate();
    home.assert_nothing_runs();
}

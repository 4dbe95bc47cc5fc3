//! Lists, status and searches over HTTP.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use hyper::Method;
use protocol::sandbox_api::{FileKind, FileList, FileStatus, GrepMatches};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{ask, names};
use crate::harness::{HttpReply, TestServer};

async fn get(server: &TestServer, path: &str) -> HttpReply {
    ask(server, Method::GET, path, &[], "").await
}

async fn post(server: &TestServer, path: &str, body: serde_json::Value) -> HttpReply {
    ask(server, Method::POST, path, &[], body.to_string()).await
}

fn read<T: DeserializeOwned>(answered: &HttpReply) -> T {
    serde_json::from_slice(&answered.body)
        .unwrap_or_else(|error| panic!("{error}: {:?}", answered.body))
}

#[tokio::test(flavor = "multi_thread")]
async fn status_describes_files_folders_and_links() {
    let server = TestServer::start();
    fs::write(server.file("file"), "12345").unwrap();
    symlink("file", server.file("link")).unwrap();
    let metadata = fs::metadata(server.file("file")).unwrap();
    let status: FileStatus = read(&get(&server, "/v1/files/stat?path=file").await);
    assert_eq!(
        (status.kind, status.size, status.mode.bits()),
        (FileKind::File, 5, metadata.mode() & 0o7777)
    );
    assert_eq!((status.uid, status.gid), (metadata.uid(), metadata.gid()));
    assert_eq!(
        status.modified_ns,
        metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec()
    );
    let link: FileStatus = read(&get(&server, "/v1/files/stat?path=link").await);
    assert_eq!(
        (link.kind, link.target.as_deref()),
        (FileKind::Symlink, Some("file"))
    );
    let followed: FileStatus = read(&get(&server, "/v1/files/stat?path=link&follow=true").await);
    assert_eq!((followed.kind, followed.size), (FileKind::File, 5));
    assert_eq!(
        get(&server, "/v1/files/stat?path=missing").await.status,
        404
    );
    assert_eq!(
        get(&server, "/v1/files/stat?path=/dev/null").await.json()["kind"],
        "character_device"
    );
    let list: FileList = read(&get(&server, "/v1/files/list?path=").await);
    let paths: Vec<_> = list
        .entries
        .iter()
        .map(|entry| entry.path.as_str())
        .collect();
    assert_eq!(
        (paths, list.truncated),
        (vec!["file", "link", "run"], false)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn relative_paths_refer_to_the_shell_s_directory() {
    let server = TestServer::start();
    server.run("a", "mkdir -p deep/er && cd deep/er").await;
    ask(&server, Method::PUT, "/v1/files?path=f", &[], "x").await;
    assert_eq!(fs::read(server.file("deep/er/f")).unwrap(), b"x");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_created_moved_changed_and_removed() {
    let server = TestServer::start();
    let made = post(&server, "/v1/files/mkdir", json!({"path": "a/b"})).await;
    assert_eq!(made.status, 404);
    let made = post(
        &server,
        "/v1/files/mkdir",
        json!({"path": "a/b", "parents": true, "mode": "0701"}),
    )
    .await;
    assert_eq!(
        (made.status, made.json()["mode"].as_str()),
        (201, Some("0701"))
    );
    assert_eq!(
        post(
            &server,
            "/v1/files/mkdir",
            json!({"path": "a/b", "parents": true})
        )
        .await
        .status,
        200
    );
    assert_eq!(
        post(&server, "/v1/files/mkdir", json!({"path": "a/b"}))
            .await
            .status,
        409
    );

    fs::write(server.file("a/f"), "x").unwrap();
    let moved = post(
        &server,
        "/v1/files/move",
        json!({"from": "a/f", "to": "c/g"}),
    )
    .await;
    assert_eq!(
        (moved.status, fs::read(server.file("c/g")).unwrap()),
        (200, b"x".to_vec())
    );
    assert_eq!(
        post(
            &server,
            "/v1/files/move",
            json!({"from": "a/f", "to": "c/g"})
        )
        .await
        .status,
        404
    );
    fs::write(server.file("a/f"), "y").unwrap();
    assert_eq!(
        post(
            &server,
            "/v1/files/move",
            json!({"from": "a/f", "to": "c/g"})
        )
        .await
        .status,
        409
    );
    let over = json!({"from": "a/f", "to": "c/g", "overwrite": true});
    assert_eq!(post(&server, "/v1/files/move", over).await.status, 200);
    assert_eq!(fs::read(server.file("c/g")).unwrap(), b"y");
    assert_eq!(
        post(&server, "/v1/files/move", json!({"from": "c"}))
            .await
            .status,
        422
    );

    let changed = post(
        &server,
        "/v1/files/chmod",
        json!({"path": "c", "mode": "0711", "recursive": true}),
    )
    .await;
    assert_eq!(changed.json()["changed"], 2);
    assert_eq!(
        fs::metadata(server.file("c/g")).unwrap().mode() & 0o7777,
        0o711
    );
    assert_eq!(
        post(
            &server,
            "/v1/files/chmod",
            json!({"path": "c", "mode": "rwx"})
        )
        .await
        .status,
        422
    );

    let remove = async |query: &str| {
        ask(
            &server,
            Method::DELETE,
            &format!("/v1/files?path={query}"),
            &[],
            "",
        )
        .await
        .status
    };
    symlink("c", server.file("link")).unwrap();
    assert_eq!(remove("link&recursive=true").await, 204);
    assert!(server.file("c/g").exists());
    assert_eq!(remove("c").await, 409);
    assert_eq!(remove("c&recursive=true").await, 204);
    assert_eq!((remove("c").await, remove("a/b").await), (404, 204));
    assert_eq!(names(&server), ["a"]);
}

/// As in git: a home that ignores everything can hold projects.
#[tokio::test(flavor = "multi_thread")]
async fn rules_above_a_repository_do_not_apply_in_it() {
    let server = TestServer::start();
    let paths = async |query: &str| {
        let found: FileList =
            read(&get(&server, &format!("/v1/files/glob?pattern=*.rs&{query}")).await);
        found
            .entries
            .into_iter()
            .map(|entry| entry.path)
            .collect::<Vec<_>>()
    };
    fs::create_dir_all(server.file("project/src")).unwrap();
    fs::write(server.file(".gitignore"), "*\n").unwrap();
    fs::write(server.file("project/src/a.rs"), "").unwrap();
    assert_eq!(paths("path=project").await, [""; 0]);
    fs::create_dir(server.file("project/.git")).unwrap();
    fs::write(server.file("project/.gitignore"), "b.rs\n").unwrap();
    fs::write(server.file("project/src/b.rs"), "").unwrap();
    assert_eq!(paths("path=project").await, ["src/a.rs"]);
    assert_eq!(paths("path=project/src").await, ["a.rs"]);
    // Rules that are not git's do.
    fs::write(server.file(".ignore"), "a.rs\n").unwrap();
    assert_eq!(paths("path=project").await, [""; 0]);
    // A line with many braces is left out.
    let nested = format!("{}a{}", "{".repeat(30_000), "}".repeat(30_000));
    fs::write(server.file(".ignore"), nested).unwrap();
    assert_eq!(paths("path=project").await, ["src/a.rs"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn glob_and_grep_return_matches() {
    let server = TestServer::start();
    fs::create_dir(server.file("src")).unwrap();
    fs::write(server.file("src/a.rs"), "fn a() {\n    b();\n}\n").unwrap();
    fs::write(server.file(".gitignore"), "*.log").unwrap();
    fs::write(server.file("src/a.log"), "b();\n").unwrap();
    let globbed: FileList = read(&get(&server, "/v1/files/glob?path=&pattern=src/*").await);
    assert_eq!(
        globbed
            .entries
            .iter()
            .map(|entry| entry.path.as_str())
            .collect::<Vec<_>>(),
        ["src/a.rs"]
    );
    let grepped: GrepMatches = read(
        &get(
            &server,
            "/v1/files/grep?path=src&pattern=b%5C(&before=1&after=1",
        )
        .await,
    );
    let [found] = grepped.matches.as_slice() else {
        panic!("{grepped:?}")
    };
    assert_eq!(
        (
            found.path.as_str(),
            found.line,
            found.column,
            found.text.as_str()
        ),
        ("a.rs", 2, 5, "    b();")
    );
    assert_eq!(
        (found.before.as_slice(), found.after.as_slice()),
        (&["fn a() {".to_owned()][..], &["}".to_owned()][..])
    );
    let wrong = get(&server, "/v1/files/grep?path=src&pattern=(").await;
    assert_eq!(
        (
            wrong.status,
            wrong.json()["detail"].as_str().unwrap().contains("pattern")
        ),
        (400, true)
    );
    assert_eq!(
        get(&server, "/v1/files/grep?path=missing&pattern=x")
            .await
            .status,
        404
    );
    assert_eq!(
        get(&server, "/v1/files/glob?path=src/a.rs&pattern=x")
            .await
            .status,
        409
    );
}

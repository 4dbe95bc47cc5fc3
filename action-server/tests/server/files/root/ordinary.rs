//! Files beneath the root are served as usual, and reported with the paths that the client knows.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use hyper::Method;
use serde_json::json;

use super::{ConfinedServer, archive};
use crate::files::watch::WatchStream;
use protocol::sandbox_api::WatchEvent;

#[tokio::test(flavor = "multi_thread")]
async fn files_are_transferred_by_every_path_beneath_the_root() {
    let confined = ConfinedServer::start();
    let server = &confined.server;
    let work = server.dir.path().canonicalize().unwrap();
    let work_name = work.file_name().unwrap().to_str().unwrap();
    fs::create_dir(server.file("real")).unwrap();
    confined.link("real", "link");
    confined.link("real/new", "dangling");
    let put = async |path: String| {
        confined
            .ask(Method::PUT, &format!("/v1/files?path={path}"), "content")
            .await
    };
    for (path, file, is_new) in [
        ("a/b/f".to_owned(), "a/b/f", true),
        (format!("{}/a/b/f", work.display()), "a/b/f", false),
        (format!("../{work_name}/a/b/../g"), "a/g", true),
        ("link/f".to_owned(), "real/f", true),
        ("dangling".to_owned(), "real/new", true),
        ("dangling".to_owned(), "real/new", false),
        ("link/x/../../real/deep/f".to_owned(), "", false),
    ] {
        let answered = put(path.clone()).await;
        if file.is_empty() {
            assert_eq!(answered.status, 404, "{path}: {:?}", answered.body);
            continue;
        }
        let status = if is_new { 201 } else { 200 };
        assert_eq!(answered.status, status, "{path}: {:?}", answered.body);
        // The client's path, relative to the working directory.
        assert_eq!(
            answered.json()["path"],
            json!(work.join(&path).to_str().unwrap())
        );
        assert_eq!(fs::read(server.file(file)).unwrap(), b"content", "{path}");
        let got = confined
            .ask(Method::GET, &format!("/v1/files?path={path}"), "")
            .await;
        assert_eq!(
            (got.status, &got.body[..]),
            (200, &b"content"[..]),
            "{path}"
        );
    }
    // A file at the root itself, above the working directory.
    assert_eq!(put("../at-the-root".to_owned()).await.status, 201);
    assert_eq!(
        fs::read(confined.root().join("at-the-root")).unwrap(),
        b"content"
    );
    // A replaced file keeps its attributes.
    fs::hard_link(server.file("a/g"), server.file("a/h")).unwrap();
    let shorter = confined
        .ask(Method::PUT, "/v1/files?path=a/g&mode=0640", "new")
        .await;
    assert_eq!(
        (shorter.status, fs::read(server.file("a/h")).unwrap()),
        (200, b"new".to_vec())
    );
    assert_eq!(
        fs::metadata(server.file("a/h")).unwrap().mode() & 0o7777,
        0o640
    );
    let names = |folder: &str| fs::read_dir(server.file(folder)).unwrap().count();
    assert_eq!((names("a"), names("a/b"), names("real")), (3, 1, 2));
    for (path, status) in [
        ("a", 409),
        ("missing", 404),
        ("a/g/below", 404),
        ("..", 409),
    ] {
        let refused = confined
            .ask(Method::GET, &format!("/v1/files?path={path}"), "")
            .await;
        assert_eq!(refused.status, status, "{path}: {:?}", refused.body);
        assert!(
            refused.json()["detail"]
                .as_str()
                .unwrap()
                .contains(work.join(path).to_str().unwrap())
        );
    }
    assert_eq!(put(String::new()).await.status, 409);
    assert_eq!(put("..".to_owned()).await.status, 409);
    assert_eq!(put("a/g/below".to_owned()).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn absolute_path_may_use_the_given_or_the_canonical_root() {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().canonicalize().unwrap().join(name);
    fs::create_dir(at("root")).unwrap();
    for link in ["given", "other"] {
        std::os::unix::fs::symlink("root", at(link)).unwrap();
    }
    fs::write(at("root/f"), "content").unwrap();
    let dir = tempfile::TempDir::new_in(at("given")).unwrap();
    let server = crate::harness::TestServer::start_in(
        dir,
        None,
        &["--root", at("given/").to_str().unwrap()],
    );
    for (root, status) in [
        ("given", 200),
        ("root", 200),
        ("other", 403),
        ("given/../root", 403),
    ] {
        let path = format!("/v1/files?path={}/f", at(root).display());
        assert_eq!(
            super::ask(&server, Method::GET, &path, &[], "")
                .await
                .status,
            status,
            "{root}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_beneath_the_root_are_managed() {
    let confined = ConfinedServer::start();
    let server = &confined.server;
    let work = server.dir.path().canonicalize().unwrap();
    let made = confined
        .post(
            "/v1/files/mkdir",
            json!({"path": "a/b", "parents": true, "mode": "0750"}),
        )
        .await;
    assert_eq!(
        (made.status, &made.json()["path"]),
        (201, &json!(work.join("a/b").to_str().unwrap()))
    );
    assert_eq!(
        fs::metadata(server.file("a/b")).unwrap().mode() & 0o7777,
        0o750
    );
    let again = |parents: bool| {
        confined.post(
            "/v1/files/mkdir",
            json!({"path": "a/b", "parents": parents}),
        )
    };
    assert_eq!(
        (again(true).await.status, again(false).await.status),
        (200, 409)
    );
    assert_eq!(
        confined
            .post("/v1/files/mkdir", json!({"path": "x/y"}))
            .await
            .status,
        404
    );
    let root = json!({"path": confined.root().to_str().unwrap(), "parents": true});
    assert_eq!(confined.post("/v1/files/mkdir", root).await.status, 200);
    fs::write(server.file("a/b/f"), "12345").unwrap();
    confined.link("a/b", "link");

    let listed = confined
        .ask(Method::GET, "/v1/files/list?path=&depth=3", "")
        .await
        .json();
    let paths: Vec<_> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["path"])
        .collect();
    assert_eq!(
        paths,
        ["a", "a/b", "a/b/f", "link", "run", "run/server.sock"]
    );
    let listed = confined
        .ask(Method::GET, "/v1/files/list?path=link", "")
        .await
        .json();
    assert_eq!(
        (&listed["entries"][0]["path"], &listed["entries"][0]["size"]),
        (&json!("f"), &json!(5))
    );
    let listed = confined
        .ask(Method::GET, "/v1/files/list?path=..", "")
        .await
        .json();
    assert_eq!(
        listed["entries"].as_array().unwrap().len(),
        0,
        "a hidden name is listed"
    );
    let status = async |query: &str| {
        confined
            .ask(Method::GET, &format!("/v1/files/stat?path={query}"), "")
            .await
            .json()
    };
    assert_eq!(status("link").await["target"], "a/b");
    assert_eq!(status("link&follow=true").await["kind"], "directory");
    assert_eq!(
        status("link/f").await["path"],
        json!(work.join("link/f").to_str().unwrap())
    );
    assert_eq!(status("..").await["kind"], "directory");

    let moved = confined
        .post("/v1/files/move", json!({"from": "link/f", "to": "new/g"}))
        .await;
    assert_eq!(
        (moved.status, &moved.json()["path"]),
        (200, &json!(work.join("new/g").to_str().unwrap()))
    );
    fs::write(server.file("h"), "").unwrap();
    let moved = async |from: &str, to: &str| {
        confined
            .post("/v1/files/move", json!({"from": from, "to": to}))
            .await
            .status
    };
    assert_eq!(moved("h", "new/g").await, 409);
    assert_eq!(moved("a", "a/b/c").await, 409);
    assert_eq!(moved("missing", "x").await, 404);
    let root = confined.root();
    assert_eq!(
        (
            moved(root.to_str().unwrap(), "x").await,
            moved("h", root.to_str().unwrap()).await
        ),
        (409, 409)
    );
    let modes = json!({"path": "new", "mode": "0700", "recursive": true});
    assert_eq!(
        confined.post("/v1/files/chmod", modes).await.json()["changed"],
        2
    );
    assert_eq!(
        fs::metadata(server.file("new/g")).unwrap().mode() & 0o7777,
        0o700
    );

    let removed = async |query: &str| {
        confined
            .ask(Method::DELETE, &format!("/v1/files?path={query}"), "")
            .await
            .status
    };
    assert_eq!(
        (removed("new").await, removed("new&recursive=true").await),
        (409, 204)
    );
    assert_eq!(
        (
            removed("link").await,
            removed("link").await,
            removed("a/b").await
        ),
        (204, 404, 204)
    );
    let root = format!("{}&recursive=true", root.display());
    assert_eq!(
        (removed(&root).await, removed("a/..&recursive=true").await),
        (409, 409)
    );
    assert!(server.file("h").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn file_actions_work_beneath_the_root() {
    let confined = ConfinedServer::start();
    let server = &confined.server;
    confined.link("real", "link");
    let result = server
        .dir
        .path()
        .canonicalize()
        .unwrap()
        .join("link/f")
        .to_str()
        .unwrap()
        .to_owned();
    let written = confined
        .act(json!({"action": "write", "args": {"path": "real/f", "content": "one\ntwo\n"}}))
        .await;
    assert!(written.contains(r#""observation":"write""#), "{written}");
    let read = confined
        .act(json!({"action": "read", "args": {"path": "link/f", "start": 1}}))
        .await;
    assert!(
        read.contains(r#""content":"two\n""#) && read.contains(&result),
        "{read}"
    );
    let edit = async |path: &str, command: &str| {
        let args = json!({"path": path, "command": command, "file_text": "new\n", "old_str": "two",
            "new_str": "three", "insert_line": 0, "impl_source": "oh_aci"});
        confined.act(json!({"action": "edit", "args": args})).await
    };
    let content = || fs::read_to_string(server.file("real/f")).unwrap();
    assert!(edit("link/f", "str_replace").await.contains(&result));
    assert_eq!(content(), "one\nthree\n");
    edit("real/f", "insert").await;
    assert_eq!(content(), "three\none\nthree\n");
    // Both edits are in the history of the file, whichever path was used.
    let undone = edit("link/f", "undo_edit").await;
    assert!(
        undone.contains(&result) && !undone.contains("/proc/self/fd"),
        "{undone}"
    );
    assert_eq!(content(), "one\nthree\n");
    edit("real/../link/f", "undo_edit").await;
    assert_eq!(content(), "one\ntwo\n");
    assert!(
        edit("link/f", "undo_edit")
            .await
            .contains("No edit history")
    );
    assert!(edit("link/f", "create").await.contains("already exists"));
    edit("new/folder/f", "create").await;
    assert_eq!(
        fs::read_to_string(server.file("new/folder/f")).unwrap(),
        "new\n"
    );
    let viewed = edit("", "view").await;
    assert!(
        viewed.contains("/real/") && viewed.contains("/link/f") && viewed.contains("/new/folder/"),
        "{viewed}"
    );
    assert!(edit("link/f", "view").await.contains("two"));
    assert!(edit("missing", "view").await.contains("does not exist"));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_edits_by_two_paths_are_serialized() {
    let confined = ConfinedServer::start();
    fs::create_dir(confined.server.file("real")).unwrap();
    fs::write(confined.server.file("real/f"), "").unwrap();
    confined.link("real", "link");
    confined.link("real/f", "other");
    let insert = async |path: &str| {
        for _ in 0..25 {
            let args =
                json!({"path": path, "command": "insert", "new_str": "line", "insert_line": 0});
            confined.act(json!({"action": "edit", "args": args})).await;
        }
    };
    tokio::join!(
        insert("real/f"),
        insert("link/f"),
        insert("other"),
        insert("link/../link/f")
    );
    assert_eq!(
        fs::read_to_string(confined.server.file("real/f"))
            .unwrap()
            .lines()
            .count(),
        100
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ignore_rules_are_the_same_with_and_without_a_root() {
    let confined = ConfinedServer::start();
    let server = &confined.server;
    let free = crate::harness::TestServer::start_in(
        tempfile::TempDir::new_in(confined.root()).unwrap(),
        None,
        &[],
    );
    for dir in [server.dir.path(), free.dir.path()] {
        let write = |name: &str, content: &str| {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write(
            ".gitignore",
            "*.log\n/only-here\ntarget/\n!.shown\n#comment\n[broken\n",
        );
        write(".ignore", "ignored\n!kept.log\n");
        write("sub/.gitignore", "!again.log\nx/y\n");
        write("sub/nested/.git/info/exclude", "excluded\n");
        write("sub/nested/.gitignore", "z\n");
        for name in [
            "a.log",
            "kept.log",
            "only-here",
            "ignored",
            ".shown",
            ".hidden",
            "target/f",
            "f",
            "sub/a.log",
            "sub/again.log",
            "sub/only-here",
            "sub/x/y",
            "sub/y",
            "sub/ignored",
            "sub/target/f",
            "sub/f",
            "sub/nested/a.log",
            "sub/nested/ignored",
            "sub/nested/excluded",
            "sub/nested/z",
            "sub/nested/f",
        ] {
            write(name, "word\n");
        }
    }
    let mut result = 0;
    for path in ["", "sub", "sub/nested", "sub/x", "target"] {
        for more in [
            "",
            "&hidden=true",
            "&ignored=true",
            "&hidden=true&ignored=true",
        ] {
            for query in ["glob?pattern=**", "grep?pattern=word"] {
                let query = format!("/v1/files/{query}&path={path}{more}");
                let kept = confined.ask(Method::GET, &query, "").await;
                let anywhere = super::ask(&free, Method::GET, &query, &[], "").await;
                let paths = |json: serde_json::Value| -> Vec<String> {
                    let all = json
                        .get("entries")
                        .or(json.get("matches"))
                        .unwrap()
                        .as_array()
                        .unwrap()
                        .clone();
                    all.iter()
                        .map(|one| one["path"].as_str().unwrap().to_owned())
                        .collect()
                };
                let kept = paths(kept.json());
                assert_eq!(kept, paths(anywhere.json()), "{query}");
                result += kept.len();
            }
        }
    }
    assert!(result > 100, "{result}");
    let one = confined
        .ask(Method::GET, "/v1/files/grep?path=sub/f&pattern=word", "")
        .await
        .json();
    assert_eq!(one["matches"][0]["path"], "f");
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_are_transferred_for_the_root_itself() {
    let confined = ConfinedServer::start();
    let server = &confined.server;
    fs::create_dir_all(server.file("from/a")).unwrap();
    fs::write(server.file("from/a/f"), "x").unwrap();
    confined.link("a/f", "from/link");
    confined.link("from", "link");
    let packed = confined
        .ask(Method::GET, "/v1/files/tree?path=link", "")
        .await;
    assert_eq!(packed.status, 200);
    for to in ["new/folder", "from", "link", ".."] {
        let unpacked = confined
            .ask(
                Method::PUT,
                &format!("/v1/files/tree?path={to}"),
                packed.body.clone(),
            )
            .await;
        assert_eq!(unpacked.status, 204, "{to}: {:?}", unpacked.body);
        assert_eq!(fs::read(server.file(to).join("a/f")).unwrap(), b"x", "{to}");
        assert_eq!(
            fs::read_link(server.file(to).join("link"))
                .unwrap()
                .to_str(),
            Some("a/f")
        );
    }
    let names = |folder: &std::path::Path| fs::read_dir(folder).unwrap().count();
    assert_eq!(
        (names(&confined.root()), names(confined.base.path())),
        (3, 2),
        "nothing else is left"
    );
    let conflict = confined
        .ask(Method::PUT, "/v1/files/tree?path=from/a", archive("f", "y"))
        .await;
    assert_eq!(
        (conflict.status, fs::read(server.file("from/a/f")).unwrap()),
        (204, b"y".to_vec())
    );
    let refused = confined
        .ask(
            Method::PUT,
            "/v1/files/tree?path=from/a/f",
            archive("f", "y"),
        )
        .await;
    assert_eq!(refused.status, 409, "{:?}", refused.body);
    assert_eq!(
        confined
            .ask(Method::GET, "/v1/files/tree?path=from/a/f", "")
            .await
            .status,
        409
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_in_new_folders_are_reported() {
    let confined = ConfinedServer::start();
    let server = &confined.server;
    fs::create_dir_all(server.file("watched/sub")).unwrap();
    confined.link("watched", "link");
    confined.link("../../../outside", "watched/out");
    let mut watch = WatchStream::open(server, "path=link&recursive=true").await;
    fs::write(server.file("watched/sub/f"), "").unwrap();
    assert_eq!(
        watch.next().await,
        Some(WatchEvent::Created {
            path: "sub/f".into()
        })
    );
    // The target of a link is not watched.
    fs::write(confined.outside().join("new"), "").unwrap();
    fs::create_dir(server.file("watched/new")).unwrap();
    assert_eq!(
        watch.next().await,
        Some(WatchEvent::Created { path: "new".into() })
    );
    fs::remove_dir(server.file("watched/new")).unwrap();
    assert_eq!(
        watch.next().await,
        Some(WatchEvent::Removed { path: "new".into() })
    );
}

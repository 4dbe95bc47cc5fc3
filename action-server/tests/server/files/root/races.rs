//! Races: a folder or file is repeatedly replaced by a link to the outside while every route uses
//! it.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use hyper::Method;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::json;

use protocol::sandbox_api::WatchEvent;
use tokio::time::timeout;

use super::{ConfinedServer, SECRET, archive, is_in};
use crate::files::watch::WatchStream;

/// Duration of the race of one kind of request.
const RACE_TIME: Duration = Duration::from_millis(400);

/// Maximum time until a request of one kind is served.
const MAX_RACE_TIME: Duration = Duration::from_secs(20);

type RequestKinds = Vec<Vec<(Method, String, Vec<u8>)>>;

/// Swaps two paths, one of which is a link, until it is dropped.
struct PathSwapper {
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl PathSwapper {
    fn start(one: &Path, link: &Path) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (one, other, is_asked) = (one.to_owned(), link.to_owned(), Arc::clone(&is_over));
        let target = fs::read_link(link).unwrap();
        let thread = thread::spawn(move || {
            let mut count = 0;
            while !is_asked.load(Ordering::Relaxed) {
                if renameat2(
                    AT_FDCWD,
                    &one,
                    AT_FDCWD,
                    &other,
                    RenameFlags::RENAME_EXCHANGE,
                )
                .is_ok()
                {
                    count += 1;
                }
                // A request may have removed or replaced the entry at the link's path.
                if fs::read_link(&one).is_err() && fs::read_link(&other).is_err() {
                    _ = fs::remove_file(&other);
                    _ = fs::remove_dir_all(&other);
                    _ = symlink(&target, &other);
                }
            }
            count
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }

    fn end(mut self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for PathSwapper {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Creates the folder `w/sub`, and one with the same names outside, each with several levels.
fn start(link: impl AsRef<Path>) -> ConfinedServer {
    let confined = ConfinedServer::start();
    for folder in [
        confined.server.file("w/sub"),
        confined.outside().join("sub"),
    ] {
        let is_outside = folder.starts_with(confined.outside());
        fs::create_dir_all(folder.join("deep/er")).unwrap();
        for name in ["f", "g", "deep/f", "deep/er/f"] {
            fs::write(
                folder.join(name),
                if is_outside {
                    "SECRET content\n"
                } else {
                    "inner content\n"
                },
            )
            .unwrap();
        }
        if is_outside {
            fs::write(folder.join("SECRET"), "").unwrap();
            fs::write(folder.join("deep/SECRET"), "").unwrap();
        }
    }
    confined.link(link, "w/link");
    confined
}

fn get(path: &str) -> (Method, String, Vec<u8>) {
    (Method::GET, path.to_owned(), Vec::new())
}

fn post(path: &str, body: serde_json::Value) -> (Method, String, Vec<u8>) {
    (Method::POST, path.to_owned(), body.to_string().into_bytes())
}

fn put(path: &str) -> (Method, String, Vec<u8>) {
    (Method::PUT, path.to_owned(), b"inner put\n".to_vec())
}

fn delete(path: &str) -> (Method, String, Vec<u8>) {
    (Method::DELETE, path.to_owned(), Vec::new())
}

fn unpack(path: &str) -> (Method, String, Vec<u8>) {
    (
        Method::PUT,
        path.to_owned(),
        archive("f", "inner unpacked\n"),
    )
}

fn act(action: serde_json::Value) -> (Method, String, Vec<u8>) {
    post("/execute_action", json!({"action": action}))
}

fn edit(path: &str, command: &str) -> (Method, String, Vec<u8>) {
    act(
        json!({"action": "edit", "args": {"path": path, "command": command, "file_text": "inner",
        "old_str": "inner content", "new_str": "inner content ", "insert_line": 0, "impl_source": "oh_aci"}}),
    )
}

/// Returns requests for the folder `w/sub`.
fn in_a_folder() -> RequestKinds {
    vec![
        vec![
            get("/v1/files?path=w/sub/f"),
            get("/v1/files?path=w/sub/deep/f"),
        ],
        vec![
            get("/v1/files/stat?path=w/sub/deep/f"),
            get("/v1/files/stat?path=w/sub/SECRET&follow=true"),
        ],
        vec![
            get("/v1/files/list?path=w&depth=9"),
            get("/v1/files/list?path=w/sub/deep"),
        ],
        vec![
            get("/v1/files/glob?path=w&pattern=**"),
            get("/v1/files/glob?path=w/sub&pattern=*"),
        ],
        vec![
            get("/v1/files/grep?path=w&pattern=."),
            get("/v1/files/grep?path=w/sub&pattern=."),
        ],
        vec![
            get("/v1/files/tree?path=w"),
            get("/v1/files/tree?path=w/sub"),
        ],
        vec![
            put("/v1/files?path=w/sub/f"),
            put("/v1/files?path=w/sub/deep/new/f"),
        ],
        vec![
            act(json!({"action": "read", "args": {"path": "w/sub/f"}})),
            act(json!({"action": "read", "args": {"path": "w/sub", "impl_source": "oh_aci"}})),
            act(json!({"action": "read", "args": {"path": "w", "impl_source": "oh_aci"}})),
        ],
        vec![
            act(json!({"action": "write", "args": {"path": "w/sub/f", "content": "inner\n"}})),
            act(
                json!({"action": "write", "args": {"path": "w/sub/f", "content": "inner\n", "start": 0, "end": 1}}),
            ),
        ],
        vec![
            edit("w/sub/g", "str_replace"),
            edit("w/sub/g", "insert"),
            edit("w/sub/g", "undo_edit"),
            edit("w/sub/g", "view"),
            edit("w/sub/g", "create"),
        ],
        vec![
            post(
                "/v1/files/mkdir",
                json!({"path": "w/sub/made/by/me", "parents": true, "mode": "0711"}),
            ),
            delete("/v1/files?path=w/sub/made&recursive=true"),
        ],
        vec![
            post(
                "/v1/files/move",
                json!({"from": "w/sub/f", "to": "w/sub/deep/moved", "overwrite": true}),
            ),
            post(
                "/v1/files/move",
                json!({"from": "w/sub/deep/moved", "to": "w/sub/f", "overwrite": true}),
            ),
        ],
        vec![
            post(
                "/v1/files/chmod",
                json!({"path": "w/sub/f", "mode": "0600"}),
            ),
            post(
                "/v1/files/chmod",
                json!({"path": "w", "mode": "0711", "recursive": true}),
            ),
        ],
        vec![
            unpack("/v1/files/tree?path=w/sub"),
            unpack("/v1/files/tree?path=w/sub/deep/unpacked"),
        ],
        vec![
            delete("/v1/files?path=w/sub/deep&recursive=true"),
            put("/v1/files?path=w/sub/deep/er/f"),
        ],
        vec![
            delete("/v1/files?path=w/sub/f"),
            put("/v1/files?path=w/sub/f"),
        ],
    ]
}

/// Returns requests for the file `w/file`.
fn to_a_file() -> RequestKinds {
    let path = "w/file";
    vec![
        vec![
            get("/v1/files?path=w/file"),
            get("/v1/files/stat?path=w/file&follow=true"),
        ],
        vec![
            get("/v1/files/grep?path=w&pattern=."),
            get("/v1/files/grep?path=w/file&pattern=."),
        ],
        vec![
            get("/v1/files/tree?path=w"),
            get("/v1/files/list?path=w"),
            get("/v1/files/glob?path=w&pattern=*"),
        ],
        vec![
            put("/v1/files?path=w/file"),
            put("/v1/files?path=w/file&mode=0640"),
        ],
        vec![
            act(json!({"action": "read", "args": {"path": path}})),
            act(json!({"action": "write", "args": {"path": path, "content": "inner content\n"}})),
            act(
                json!({"action": "write", "args": {"path": path, "content": "inner\n", "start": 0, "end": 1}}),
            ),
        ],
        vec![
            edit(path, "insert"),
            edit(path, "undo_edit"),
            edit(path, "str_replace"),
            edit(path, "view"),
        ],
        vec![post(
            "/v1/files/chmod",
            json!({"path": path, "mode": "0604"}),
        )],
        vec![
            post(
                "/v1/files/move",
                json!({"from": path, "to": "w/moved", "overwrite": true}),
            ),
            post(
                "/v1/files/move",
                json!({"from": "w/moved", "to": path, "overwrite": true}),
            ),
        ],
        vec![
            put("/v1/files?path=w/file"),
            delete("/v1/files?path=w/file"),
        ],
    ]
}

/// Returns requests that create the folder `w/new`, which may be a link by then.
fn to_a_new_folder() -> RequestKinds {
    let removed = delete("/v1/files?path=w/new&recursive=true");
    let made = post("/v1/files/mkdir", json!({"path": "w/new", "mode": "0777"}));
    vec![
        vec![made, removed.clone()],
        vec![put("/v1/files?path=w/new/and/f"), removed.clone()],
        vec![unpack("/v1/files/tree?path=w/new"), removed.clone()],
        vec![unpack("/v1/files/tree?path=w/new/and"), removed],
    ]
}

async fn race(confined: &ConfinedServer, (one, link): (&str, &str), kinds: RequestKinds) {
    let before = confined.outside_state();
    let exchange = PathSwapper::start(&confined.server.file(one), &confined.server.file(link));
    let mut all_refused = 0;
    for kind in kinds {
        let started = Instant::now();
        let (mut served, mut refused) = (0, 0);
        // On a busy machine, all requests of that time may meet the link.
        while started.elapsed() < RACE_TIME || (served == 0 && started.elapsed() < MAX_RACE_TIME) {
            for (method, path, body) in &kind {
                let answered = confined.ask(method.clone(), path, body.clone()).await;
                let body = &answered.body;
                // An error contains the requested path.
                let never = if answered.status == 404 || answered.status == 403 {
                    "SECRET content"
                } else {
                    SECRET
                };
                assert!(!is_in(never, body), "{method} {path}: {body:?}");
                assert!(!is_in("/proc/self/fd", body), "{method} {path}: {body:?}");
                assert!(answered.status < 500, "{method} {path}: {body:?}");
                let is_refused = answered.status == 403 || is_in("not beneath the root", body);
                if is_refused {
                    refused += 1;
                } else {
                    served += 1;
                }
            }
        }
        all_refused += refused;
        assert!(served > 0, "{} {}", kind[0].0, kind[0].1);
    }
    let count = exchange.end();
    assert!(
        count > 100 && all_refused > 0,
        "{count} exchanges, {all_refused} refused"
    );
    assert_eq!(confined.outside_state(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_escape_when_a_folder_becomes_a_relative_link() {
    race(
        &start("../../../outside/sub"),
        ("w/sub", "w/link"),
        in_a_folder(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_escape_when_a_folder_becomes_an_absolute_link() {
    let confined = start("to be replaced");
    fs::remove_file(confined.server.file("w/link")).unwrap();
    confined.link(confined.outside().join("sub"), "w/link");
    race(&confined, ("w/sub", "w/link"), in_a_folder()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_escape_when_a_file_becomes_a_link() {
    let confined = start("../../../outside/f");
    fs::write(confined.server.file("w/file"), "inner content\n").unwrap();
    race(&confined, ("w/file", "w/link"), to_a_file()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_escape_when_a_file_written_in_place_becomes_a_link() {
    let confined = start("../../../outside/f");
    fs::write(confined.server.file("w/file"), "inner content\n").unwrap();
    fs::hard_link(
        confined.server.file("w/file"),
        confined.server.file("other-name"),
    )
    .unwrap();
    race(&confined, ("w/file", "w/link"), to_a_file()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_escape_when_a_new_folder_becomes_a_link() {
    race(
        &start("../../../outside/sub"),
        ("w/new", "w/link"),
        to_a_new_folder(),
    )
    .await;
}

/// The kernel returns EAGAIN during a rename.
#[tokio::test(flavor = "multi_thread")]
async fn path_with_two_dots_is_resolved_during_renames() {
    let confined = start("../../../outside/sub");
    fs::write(confined.server.file("kept"), "kept").unwrap();
    let exchange = PathSwapper::start(
        &confined.server.file("w/sub"),
        &confined.server.file("w/link"),
    );
    for _ in 0..300 {
        let found = confined
            .ask(Method::GET, "/v1/files?path=w/../w/../kept", "")
            .await;
        assert_eq!((found.status, &found.body[..]), (200, &b"kept"[..]));
    }
    assert!(exchange.end() > 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_outside_change_is_reported_when_a_folder_becomes_a_link() {
    let confined = start("../../../outside/sub");
    let mut watch = WatchStream::open(&confined.server, "path=w&recursive=true").await;
    let mut result = 0;
    let mut look = |event: Option<WatchEvent>| {
        let event = serde_json::to_string(&event.expect("the watch continues")).unwrap();
        assert!(!event.contains(SECRET), "{event}");
        result += 1;
        event.contains("the-end")
    };
    let exchange = PathSwapper::start(
        &confined.server.file("w/sub"),
        &confined.server.file("w/link"),
    );
    let started = Instant::now();
    for number in 0.. {
        // Each is created inside or outside, depending on the race, and then inspected.
        let folder = confined.server.file(&format!("w/sub/{number}/deep"));
        _ = fs::create_dir_all(&folder);
        _ = fs::create_dir_all(confined.outside().join(format!("sub/{number}/deep")));
        fs::write(
            confined.outside().join(format!("sub/{number}/deep/SECRET")),
            "",
        )
        .unwrap();
        fs::write(confined.outside().join(format!("sub/{number}/SECRET")), "").unwrap();
        while let Ok(event) = timeout(Duration::from_millis(1), watch.next()).await {
            look(event);
        }
        if started.elapsed() > 3 * RACE_TIME {
            break;
        }
    }
    assert!(exchange.end() > 100);
    // After lost events, new ones are reported again.
    for number in 0.. {
        fs::write(confined.server.file(&format!("w/the-end-{number}")), "").unwrap();
        let mut is_over = false;
        while let Ok(event) = timeout(Duration::from_millis(50), watch.next()).await {
            is_over |= look(event);
        }
        if is_over {
            break;
        }
    }
    assert!(result > 100, "{result}");
}

//! Downloads and uploads.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use hyper::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::{ask, names, noise};
use crate::harness::{TestServer, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn content_is_downloaded_whole_and_in_ranges() {
    let server = TestServer::start();
    let content = noise(10_000_019);
    let put = ask(
        &server,
        Method::PUT,
        "/v1/files?path=new/folder/big",
        &[],
        content.clone(),
    )
    .await;
    assert_eq!(
        (put.status, put.json()["size"].as_u64()),
        (201, Some(10_000_019))
    );
    assert!(fs::read(server.file("new/folder/big")).unwrap() == content);
    assert_eq!(names(&server), ["new"]);
    assert_eq!(fs::read_dir(server.file("new/folder")).unwrap().count(), 1);

    let got = ask(
        &server,
        Method::GET,
        "/v1/files?path=new/folder/big",
        &[],
        "",
    )
    .await;
    assert_eq!(
        (got.status, got.header("content-length")),
        (200, "10000019")
    );
    assert_eq!(got.header("accept-ranges"), "bytes");
    assert!(got.header("last-modified").ends_with(" GMT"));
    assert!(got.body == content);

    for (range, part) in [
        ("bytes=0-0", 0..1),
        ("bytes=262143-524289", 262_143..524_290),
        ("bytes=9999999-", 9_999_999..10_000_019),
        ("bytes=-19", 10_000_000..10_000_019),
    ] {
        let got = ask(
            &server,
            Method::GET,
            "/v1/files?path=new/folder/big",
            &[("range", range)],
            "",
        )
        .await;
        assert_eq!(got.status, 206, "{range}");
        let result = format!("bytes {}-{}/10000019", part.start, part.end - 1);
        assert_eq!(got.header("content-range"), result);
        assert_eq!(got.header("content-length"), part.len().to_string());
        assert!(got.body == content[part], "{range}");
    }
    let outside = [("range", "bytes=10000019-")];
    let got = ask(
        &server,
        Method::GET,
        "/v1/files?path=new/folder/big",
        &outside,
        "",
    )
    .await;
    assert_eq!(
        (got.status, got.header("content-range")),
        (416, "bytes */10000019")
    );
    assert_eq!(got.json()["code"], "range");
}

#[tokio::test(flavor = "multi_thread")]
async fn response_is_not_modified_when_the_client_has_the_content() {
    let server = TestServer::start();
    fs::write(server.file("f"), "content").unwrap();
    let head = ask(&server, Method::HEAD, "/v1/files?path=f", &[], "").await;
    assert_eq!(
        (head.status, head.header("content-length"), head.body.len()),
        (200, "7", 0)
    );
    let tag = head.header("etag").to_owned();
    let known = ask(
        &server,
        Method::GET,
        "/v1/files?path=f",
        &[("if-none-match", &tag)],
        "",
    )
    .await;
    assert_eq!((known.status, known.body.len()), (304, 0));
    let started = [("range", "bytes=3-"), ("if-range", tag.as_str())];
    assert_eq!(
        ask(&server, Method::GET, "/v1/files?path=f", &started, "")
            .await
            .body,
        "tent"
    );
    fs::write(server.file("f"), "changed content").unwrap();
    assert_eq!(
        ask(&server, Method::GET, "/v1/files?path=f", &started, "")
            .await
            .body,
        "changed content"
    );
    let known = ask(
        &server,
        Method::GET,
        "/v1/files?path=f",
        &[("if-none-match", &tag)],
        "",
    )
    .await;
    assert_eq!(known.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn file_without_a_length_is_downloaded() {
    let server = TestServer::start();
    assert_eq!(
        ask(&server, Method::PUT, "/v1/files?path=empty", &[], "")
            .await
            .status,
        201
    );
    let got = ask(&server, Method::GET, "/v1/files?path=empty", &[], "").await;
    assert_eq!(
        (got.status, got.header("content-length"), got.body.len()),
        (200, "0", 0)
    );
    let got = ask(
        &server,
        Method::GET,
        "/v1/files?path=/proc/self/status",
        &[],
        "",
    )
    .await;
    assert_eq!(got.status, 200);
    assert!(got.body.starts_with(b"Name:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_file_keeps_its_mode_links_and_name() {
    let server = TestServer::start();
    fs::write(server.file("script"), "old").unwrap();
    fs::set_permissions(server.file("script"), Permissions::from_mode(0o750)).unwrap();
    symlink("script", server.file("link")).unwrap();
    let put = ask(&server, Method::PUT, "/v1/files?path=link", &[], "new").await;
    assert_eq!(put.status, 200);
    assert!(
        fs::symlink_metadata(server.file("link"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(fs::read(server.file("script")).unwrap(), b"new");
    assert_eq!(
        fs::metadata(server.file("script")).unwrap().mode() & 0o7777,
        0o750
    );
    fs::hard_link(server.file("script"), server.file("other")).unwrap();
    ask(&server, Method::PUT, "/v1/files?path=script", &[], "newer").await;
    assert_eq!(fs::read(server.file("other")).unwrap(), b"newer");
    ask(
        &server,
        Method::PUT,
        "/v1/files?path=script&mode=0600",
        &[],
        "private",
    )
    .await;
    assert_eq!(
        fs::metadata(server.file("script")).unwrap().mode() & 0o7777,
        0o600
    );
    ask(
        &server,
        Method::PUT,
        "/v1/files?path=tool&mode=0755",
        &[],
        "#!",
    )
    .await;
    assert_eq!(
        fs::metadata(server.file("tool")).unwrap().mode() & 0o7777,
        0o755
    );
    assert_eq!(names(&server), ["link", "other", "script", "tool"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_file_is_kept_when_an_upload_is_incomplete() {
    let server = TestServer::start();
    fs::write(server.file("f"), "before").unwrap();
    for path in ["f", "new/folder/f"] {
        let mut stream = UnixStream::connect(server.socket()).await.unwrap();
        let head = format!(
            "PUT /v1/files?path={path} HTTP/1.1\r\nhost: sandbox\r\ncontent-length: 9000000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&noise(3_000_000)).await.unwrap();
        wait_until("a part was written", || {
            names(&server)
                .iter()
                .any(|name| name.starts_with(".glovebox-"))
        });
        drop(stream);
        wait_until("the partial file is removed", || names(&server) == ["f"]);
        assert_eq!(fs::read(server.file("f")).unwrap(), b"before");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_download_does_not_block_other_requests() {
    let server = TestServer::start();
    fs::write(server.file("big"), noise(4_000_000)).unwrap();
    let mut stalled = Vec::new();
    for _ in 0..64 {
        let mut stream = UnixStream::connect(server.socket()).await.unwrap();
        stream
            .write_all(b"GET /v1/files?path=big HTTP/1.1\r\nhost: sandbox\r\n\r\n")
            .await
            .unwrap();
        // The download has started.
        let mut first = [0];
        stream.read_exact(&mut first).await.unwrap();
        stalled.push(stream);
    }
    let busy = ask(&server, Method::GET, "/v1/files?path=big", &[], "").await;
    assert_eq!(
        (busy.status, busy.json()["code"].as_str()),
        (429, Some("busy"))
    );
    let status = ask(&server, Method::GET, "/v1/files/stat?path=big", &[], "").await;
    assert_eq!(status.json()["size"], 4_000_000);
    assert_eq!(server.run("a", "echo fine").await.text(), "fine\n");
    drop(stalled);
    let mut got = busy;
    while got.status == 429 {
        got = ask(&server, Method::GET, "/v1/files?path=big", &[], "").await;
    }
    assert_eq!(got.body.len(), 4_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_refused_when_the_path_is_not_a_file() {
    let server = TestServer::start();
    fs::create_dir(server.file("folder")).unwrap();
    fs::write(server.file("f"), "").unwrap();
    server.gate("pipe");
    let table = [
        (Method::GET, "/v1/files?path=missing", 404, "missing"),
        (Method::GET, "/v1/files?path=folder", 409, "folder"),
        (Method::GET, "/v1/files?path=pipe", 409, "pipe"),
        (Method::GET, "/v1/files?path=/dev/zero", 409, "/dev/zero"),
        (Method::GET, "/v1/files?path=a%00b", 409, "a"),
        (Method::GET, "/v1/files", 400, "path"),
        (Method::GET, "/v1/files?path=f&mood=good", 400, "mood"),
        (Method::GET, "/v1/files?path=%ff", 400, "UTF-8"),
        (Method::PUT, "/v1/files?path=folder", 409, "folder"),
        (Method::PUT, "/v1/files?path=pipe", 409, "pipe"),
        (Method::PUT, "/v1/files?path=f/below", 404, "f"),
        (Method::PUT, "/v1/files?path=/", 409, "/"),
        (Method::PUT, "/v1/files?path=f&mode=999", 400, "mode"),
        (Method::DELETE, "/v1/files?path=missing", 404, "missing"),
        (Method::DELETE, "/v1/files?path=/", 409, "/"),
        (
            Method::DELETE,
            "/v1/files?path=f&recursive=perhaps",
            400,
            "recursive",
        ),
        (Method::POST, "/v1/files?path=f", 405, "method"),
    ];
    for (method, path, status, named) in table {
        let refused = ask(&server, method.clone(), path, &[], "x").await;
        assert_eq!(
            refused.status, status,
            "{method} {path}: {:?}",
            refused.body
        );
        assert!(
            refused.json()["detail"].as_str().unwrap().contains(named),
            "{method} {path}: {:?}",
            refused.body
        );
    }
    assert_eq!(names(&server), ["f", "folder", "pipe"]);
}

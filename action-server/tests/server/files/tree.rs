//! Folders as archives over HTTP.

use std::fs;
use std::process::Command;

use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Method, Request};
use protocol::sandbox_api::{SKIPPED_TRAILER, SkippedEntries};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};

use super::{ask, names, noise};
use crate::harness::{TestServer, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn folder_is_downloaded_and_uploaded_as_an_archive() {
    let server = TestServer::start();
    fs::create_dir_all(server.file("from/a/b")).unwrap();
    fs::write(server.file("from/a/b/big"), noise(3_000_000)).unwrap();
    fs::write(server.file("from/small"), "x").unwrap();
    let archive = ask(&server, Method::GET, "/v1/files/tree?path=from", &[], "").await;
    assert_eq!(
        (archive.status, archive.header("content-type")),
        (200, "application/x-tar")
    );
    // Unpacked by the `tar` program.
    fs::write(server.file("archive"), &archive.body).unwrap();
    let listed = Command::new("tar")
        .arg("tf")
        .arg(server.file("archive"))
        .output()
        .unwrap()
        .stdout;
    assert_eq!(
        String::from_utf8(listed).unwrap(),
        "a\na/b\na/b/big\nsmall\n"
    );
    let put = ask(
        &server,
        Method::PUT,
        "/v1/files/tree?path=to",
        &[],
        archive.body,
    )
    .await;
    assert_eq!(put.status, 204, "{:?}", put.body);
    assert!(fs::read(server.file("to/a/b/big")).unwrap() == noise(3_000_000));
    assert_eq!(names(&server), ["archive", "from", "to"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn left_out_entries_are_listed_in_a_trailer() {
    let server = TestServer::start();
    fs::create_dir(server.file("from")).unwrap();
    fs::write(server.file("from/big"), noise(3_000_000)).unwrap();
    let trailers = async || {
        let request = Request::get("http://sandbox/v1/files/tree?path=from")
            .body(Full::default())
            .unwrap();
        let reply = server.http2().await.send_request(request).await.unwrap();
        let reply = reply.into_body().collect().await.unwrap();
        let trailers = reply.trailers().cloned().unwrap_or_default();
        assert!(reply.to_bytes().len() > 3_000_000);
        trailers
    };
    assert_eq!(trailers().await, HeaderMap::new());
    let _socket = UnixListener::bind(server.file("from/ü\u{7f}\n")).unwrap();
    let trailers = trailers().await;
    let skipped = SkippedEntries::from_trailer(trailers[SKIPPED_TRAILER].as_bytes()).unwrap();
    let named = vec!["ü\u{7f}\n: neither a file, a folder nor a link".to_owned()];
    assert_eq!(skipped, SkippedEntries { count: 1, named });
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_refused_when_it_is_not_an_archive_or_a_folder() {
    let server = TestServer::start();
    fs::write(server.file("f"), "x").unwrap();
    let refused = ask(
        &server,
        Method::PUT,
        "/v1/files/tree?path=to",
        &[],
        "x".repeat(3000),
    )
    .await;
    assert_eq!(
        (refused.status, refused.json()["code"].as_str()),
        (422, Some("invalid"))
    );
    assert_eq!(
        ask(&server, Method::PUT, "/v1/files/tree?path=f", &[], "")
            .await
            .status,
        409
    );
    assert_eq!(
        ask(&server, Method::GET, "/v1/files/tree?path=f", &[], "")
            .await
            .status,
        409
    );
    assert_eq!(
        ask(&server, Method::GET, "/v1/files/tree?path=missing", &[], "")
            .await
            .status,
        404
    );
    assert_eq!(names(&server), ["f"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_when_the_client_of_an_archive_disconnects() {
    let server = TestServer::start();
    fs::create_dir(server.file("from")).unwrap();
    fs::write(server.file("from/big"), noise(3_000_000)).unwrap();
    let archive = ask(&server, Method::GET, "/v1/files/tree?path=from", &[], "")
        .await
        .body;
    let mut stream = UnixStream::connect(server.socket()).await.unwrap();
    let head = format!(
        "PUT /v1/files/tree?path=to HTTP/1.1\r\nhost: s\r\ncontent-length: {}\r\n\r\n",
        archive.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
        .write_all(&archive[..archive.len() / 2])
        .await
        .unwrap();
    wait_until("the archive is being unpacked", || {
        names(&server)
            .iter()
            .any(|name| name.starts_with(".glovebox-"))
    });
    drop(stream);
    wait_until("the partial folder is removed", || {
        names(&server) == ["from"]
    });
}

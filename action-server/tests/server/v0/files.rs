//! Uploads, downloads and lists, as `copy_to`, `copy_from` and `list_files` of V0's client use
//! them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use hyper::Method;
use serde_json::{Value, json};

use super::V0Sandbox;
use crate::harness::HttpReply;
use crate::skip::{Requirement, skip};

/// Returns an archive as Python's zipfile writes it: stored, with lengths before the data.
fn zip(entries: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let (mut data, mut directory) = (Vec::new(), Vec::new());
    for (name, mode, content) in entries {
        let mut checksum = flate2::Crc::new();
        checksum.update(content);
        let length = (content.len() as u32).to_le_bytes();
        let facts = [&[0; 4], &checksum.sum().to_le_bytes()[..], &length, &length].concat();
        let names = [(name.len() as u16).to_le_bytes(), [0; 2]].concat();
        let offset = (data.len() as u32).to_le_bytes();
        data.extend(
            [
                b"PK\x03\x04\x14\0\0\0\0\0",
                &facts[..],
                &names,
                name.as_bytes(),
                content,
            ]
            .concat(),
        );
        let attributes = (mode << 16).to_le_bytes();
        let head = b"PK\x01\x02\x14\x03\x14\0\0\0\0\0";
        directory.extend(
            [
                &head[..],
                &facts,
                &names,
                &[0; 6],
                &attributes,
                &offset,
                name.as_bytes(),
            ]
            .concat(),
        );
    }
    let count = (entries.len() as u16).to_le_bytes();
    let (length, offset) = (
        (directory.len() as u32).to_le_bytes(),
        (data.len() as u32).to_le_bytes(),
    );
    [
        &data[..],
        &directory,
        b"PK\x05\x06\0\0\0\0",
        &count,
        &count,
        &length,
        &offset,
        &[0, 0],
    ]
    .concat()
}

async fn upload(sandbox: &V0Sandbox, query: &str, filename: &str, content: &[u8]) -> HttpReply {
    let body = [
        format!(
            "--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{filename}\"\r\n"
        )
        .as_bytes(),
        b"Content-Type: application/octet-stream\r\n\r\n",
        content,
        b"\r\n--xyz--\r\n",
    ]
    .concat();
    let mut request = sandbox.request(Method::POST, &format!("/upload_file?{query}"), body);
    request.headers_mut().insert(
        "content-type",
        "multipart/form-data; boundary=xyz".parse().unwrap(),
    );
    sandbox.send(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn file_is_uploaded() {
    let sandbox = V0Sandbox::start();
    let destination = sandbox.path("new/folder");
    let content: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let reply = upload(
        &sandbox,
        &format!("destination={destination}&recursive=false"),
        "a b.bin",
        &content,
    )
    .await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(
        reply.json(),
        json!({"filename": "a b.bin", "destination": destination, "recursive": false})
    );
    assert!(fs::read(sandbox.path("new/folder/a b.bin")).unwrap() == content);
    assert_eq!(fs::read_dir(&destination).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_is_uploaded_as_an_archive() {
    let sandbox = V0Sandbox::start();
    let archive = zip(&[
        ("project/run", 0o100_755, b"#!/bin/sh\n"),
        ("project/src/a", 0o100_644, b"a"),
    ]);
    let reply = upload(
        &sandbox,
        &format!("destination={}&recursive=true", sandbox.path("w")),
        "t.zip",
        &archive,
    )
    .await;
    assert_eq!(
        (reply.status, reply.json()["recursive"].as_bool()),
        (200, Some(true)),
        "{reply:?}"
    );
    assert_eq!(fs::read(sandbox.path("w/project/src/a")).unwrap(), b"a");
    assert_ne!(
        fs::metadata(sandbox.path("w/project/run"))
            .unwrap()
            .permissions()
            .mode()
            & 0o100,
        0
    );
    assert!(!fs::exists(sandbox.path("w/t.zip")).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_parameters_may_be_in_the_form() {
    let sandbox = V0Sandbox::start();
    let field = |name: &str, value: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let body = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n\r\n{}{}--b--\r\n",
        field("destination", &sandbox.path("d")),
        field("recursive", "False"),
    );
    let mut request = sandbox.request(Method::POST, "/upload_file", body);
    request.headers_mut().insert(
        "content-type",
        "multipart/form-data; boundary=b".parse().unwrap(),
    );
    let reply = sandbox.send(request).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(fs::read(sandbox.path("d/f")).unwrap(), b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_upload_is_refused_and_writes_nothing() {
    let sandbox = V0Sandbox::start();
    let destination = sandbox.path("inside");
    let good = ("good", 0o100_644, &b"x"[..]);
    let archives: &[(&str, Vec<u8>)] = &[
        ("leads out", zip(&[good, ("../outside", 0o100_644, b"x")])),
        ("absolute", zip(&[good, ("/tmp/outside", 0o100_644, b"x")])),
        (
            "link",
            zip(&[
                good,
                ("l", 0o120_777, b"/etc"),
                ("l/passwd", 0o100_644, b"x"),
            ]),
        ),
        ("neither", zip(&[good, ("device", 0o020_666, b"")])),
        ("setuid", zip(&[good, ("su", 0o104_755, b"")])),
        ("too short", Vec::new()),
        ("no directory", vec![0; 1 << 20]),
    ];
    for (expected, archive) in archives {
        let reply = upload(
            &sandbox,
            &format!("destination={destination}&recursive=true"),
            "t.zip",
            archive,
        )
        .await;
        assert_eq!(reply.status, 422, "{expected}: {reply:?}");
        assert!(
            reply.json()["errors"].as_str().unwrap().contains(expected),
            "{expected}: {reply:?}"
        );
        assert!(!fs::exists(&destination).unwrap(), "{expected}");
    }
    for name in ["../outside", "/outside", "..", "", "a/b"] {
        let reply = upload(&sandbox, &format!("destination={destination}"), name, b"x").await;
        assert_eq!(reply.status, 422, "{name}: {reply:?}");
    }
    let inside: Vec<_> = fs::read_dir(sandbox.dir.path()).unwrap().collect();
    assert!(inside.is_empty(), "{inside:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_upload_is_refused_with_the_field_name() {
    let sandbox = V0Sandbox::start();
    let there = format!("destination={}", sandbox.path(""));
    for (query, name, status, named) in [
        ("destination=relative", "f", 400, "absolute"),
        (
            &format!("{there}&recursive=maybe"),
            "f.zip",
            422,
            "recursive",
        ),
        (&format!("{there}&recursive=true"), "f.tar", 400, "zip"),
        ("destination=/dev/null/x", "f", 422, "/dev/null/x"),
    ] {
        let reply = upload(&sandbox, query, name, b"x").await;
        let result = reply.json();
        assert_eq!(reply.status, status, "{result}");
        assert!(result.to_string().contains(named), "{result}");
    }
    for (content_type, body) in [
        ("application/json", "{}"),
        ("multipart/form-data", ""),
        ("multipart/form-data; boundary=b", "--b--"),
        (
            "multipart/form-data; boundary=b",
            "--b\r\nContent-Disposition: form-data; name=file; filename=f\r\n\r\ncut",
        ),
    ] {
        let mut request =
            sandbox.request(Method::POST, "/upload_file?destination=/tmp/never", body);
        request
            .headers_mut()
            .insert("content-type", content_type.parse().unwrap());
        let reply = sandbox.send(request).await;
        assert_eq!(
            (reply.status, reply.json()["errors"].is_string()),
            (422, true),
            "{body} {reply:?}"
        );
    }
}

/// Unpacks a download with a program of this machine. `None`, and the test is skipped, if there is
/// none.
fn unpacked(archive: &[u8]) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("d.zip"), archive).unwrap();
    let readers: [&[&str]; 3] = [
        &["unzip", "-q", "d.zip"],
        &["busybox", "unzip", "-q", "d.zip"],
        &["python3", "-m", "zipfile", "-e", "d.zip", "."],
    ];
    let mut has_reader = false;
    let is_unpacked = readers.iter().any(|reader| {
        let output = std::process::Command::new(reader[0])
            .args(&reader[1..])
            .current_dir(dir.path())
            .output();
        has_reader |= output.is_ok();
        output.is_ok_and(|output| output.status.success())
    });
    if !has_reader {
        skip(
            Requirement::Program("unzip"),
            "neither unzip nor busybox nor python3 was found",
        );
        return None;
    }
    assert!(is_unpacked, "no program unpacks the archive");
    fs::remove_file(dir.path().join("d.zip")).unwrap();
    Some(dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_is_downloaded_as_an_archive() {
    let sandbox = V0Sandbox::start();
    fs::create_dir_all(sandbox.path("tree/a/b")).unwrap();
    let long: Vec<u8> = (0..2_000_000_u32)
        .flat_map(|number| number.to_le_bytes())
        .collect();
    fs::write(sandbox.path("tree/a/b/long"), &long).unwrap();
    fs::write(sandbox.path("tree/.hidden"), "h").unwrap();
    symlink("a/b/long", sandbox.path("tree/link")).unwrap();
    symlink("/", sandbox.path("tree/root")).unwrap();
    nix::unistd::mkfifo(
        sandbox.path("tree/pipe").as_str(),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .unwrap();
    let reply = sandbox
        .get(&format!("/download_files?path={}", sandbox.path("tree/")))
        .await;
    assert_eq!(reply.status, 200, "{}", reply.body.len());
    assert_eq!(reply.headers["content-type"], "application/zip");
    assert_eq!(
        reply.headers["content-disposition"],
        "attachment; filename=\"tree.zip\""
    );
    let Some(there) = unpacked(&reply.body) else {
        return;
    };
    assert!(fs::read(there.path().join("a/b/long")).unwrap() == long);
    assert!(fs::read(there.path().join("link")).unwrap() == long);
    assert_eq!(fs::read(there.path().join(".hidden")).unwrap(), b"h");
    assert_eq!(fs::read_dir(there.path()).unwrap().count(), 3);
    // Uploaded again.
    let query = format!("destination={}&recursive=true", sandbox.path("again"));
    assert_eq!(
        upload(&sandbox, &query, "tree.zip", &reply.body)
            .await
            .status,
        200
    );
    assert!(fs::read(sandbox.path("again/a/b/long")).unwrap() == long);
}

#[tokio::test(flavor = "multi_thread")]
async fn file_is_downloaded_as_an_archive() {
    let sandbox = V0Sandbox::start();
    fs::write(sandbox.path("f.txt"), "content").unwrap();
    let reply = sandbox
        .get(&format!("/download_files?path={}", sandbox.path("f.txt")))
        .await;
    assert_eq!(
        reply.headers["content-disposition"],
        "attachment; filename=\"f.txt.zip\""
    );
    let Some(there) = unpacked(&reply.body) else {
        return;
    };
    assert_eq!(fs::read(there.path().join("f.txt")).unwrap(), b"content");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_download_is_refused() {
    let sandbox = V0Sandbox::start();
    for (query, status) in [
        ("path=relative", 400),
        ("path=/none", 404),
        ("", 422),
        ("other=/", 422),
    ] {
        let reply = sandbox.get(&format!("/download_files?{query}")).await;
        assert_eq!(
            (reply.status, reply.json()["detail"].is_string()),
            (status, true),
            "{query}: {reply:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_files_returns_folders_first() {
    let sandbox = V0Sandbox::start();
    for folder in ["b", "Z", ".git"] {
        fs::create_dir(sandbox.path(folder)).unwrap();
    }
    for file in ["a", "B", "c", "Z/inner"] {
        fs::write(sandbox.path(file), "").unwrap();
    }
    symlink("nowhere", sandbox.path("dangling")).unwrap();
    symlink("b", sandbox.path("link")).unwrap();
    let all = json!([".git/", "b/", "link/", "Z/", "a", "B", "c"]);
    for (body, names) in [
        (json!({}), all.clone()),
        (json!({"path": null}), all.clone()),
        (json!({"path": sandbox.path("")}), all),
        (json!({"path": "Z"}), json!(["inner"])),
        (json!({"path": "missing"}), json!([])),
        (json!({"path": "a"}), json!([])),
    ] {
        let reply = sandbox.post("/list_files", body.clone()).await;
        assert_eq!((reply.status, reply.json()), (200, names), "{body}");
    }
    assert_eq!(sandbox.post("/list_files", Value::Null).await.status, 422);
}

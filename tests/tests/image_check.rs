//! `glovebox image check`: the features of images, and unsuitable images.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tests::glovebox::Home;
use tests::sandbox_contract::Backend as _;
use tests::sandbox_contract::docker::DockerBackend;

/// Returns the result of the check as JSON.
fn check(backend: &DockerBackend) -> Value {
    let home = Home::new();
    let image = backend.image().unwrap();
    let found = home.run(&["image", "check", &image, "--json"]).expect(0);
    home.assert_nothing_runs();
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(found["image"], image);
    found
}

#[test]
fn busybox_image_has_a_shell_and_no_other_tool() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let found = check(&backend);
    let facts = &found["facts"];
    assert!(facts["shell"].as_str().unwrap().ends_with("sh"), "{facts}");
    assert_eq!(
        [
            &facts["libc"],
            &facts["git"],
            &facts["python"],
            &facts["package_manager"]
        ],
        [&Value::Null; 4]
    );
    assert_eq!(
        [&facts["uid"], &facts["workspace_writable"]],
        [&json!("0"), &json!("yes")]
    );
    assert_eq!(
        found["parts"]["jupyter"],
        json!({"usable": false, "missing": ["python", "ipython"]})
    );
    assert_eq!(
        found["parts"]["git"],
        json!({"usable": false, "missing": ["git"]})
    );
}

#[test]
fn doctor_says_whether_the_engine_has_the_image() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let home = Home::new();
    let image = backend.image().unwrap();
    for (image, found) in [
        (image.as_str(), format!("it has the image {image}")),
        (
            "localhost/none:1",
            "it does not have the image localhost/none:1, and pulls it".to_owned(),
        ),
    ] {
        let mut doctor = home.glovebox(&["doctor", "--runtime", "docker"]);
        let doctor = home
            .start(doctor.env("SANDBOX_RUNTIME_CONTAINER_IMAGE", image))
            .end();
        let engine = doctor
            .stdout
            .lines()
            .find(|line| line.contains("  engine  "));
        assert!(
            engine.is_some_and(|line| line.starts_with("ok ") && line.contains(&found)),
            "{doctor:?}"
        );
    }
}

#[test]
fn debian_and_alpine_are_distinguished() {
    if let Some(backend) = DockerBackend::debian() {
        let facts = check(&backend)["facts"].clone();
        assert!(
            facts["libc"].as_str().unwrap().starts_with("glibc 2."),
            "{facts}"
        );
        assert_eq!(facts["package_manager"], "apt-get");
        assert!(
            facts["system"].as_str().unwrap().starts_with("Debian"),
            "{facts}"
        );
        assert!(
            facts["shell"].as_str().unwrap().ends_with("/bash"),
            "{facts}"
        );
    }
    if let Some(backend) = DockerBackend::alpine() {
        let facts = check(&backend)["facts"].clone();
        assert!(
            facts["libc"].as_str().unwrap().starts_with("musl 1."),
            "{facts}"
        );
        assert_eq!(facts["package_manager"], "apk");
    }
}

#[test]
fn check_prints_a_table_without_json() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let home = Home::new();
    let image = backend.image().unwrap();
    let table = home.run(&["image", "check", &image]).expect(0).stdout;
    for part in [
        &format!("{image} can be a sandbox."),
        "Chromium              none",
        "browser               lacks chromium",
    ] {
        assert!(table.contains(part), "{part} in:\n{table}");
    }
    home.assert_nothing_runs();
}

/// An image with a single file and no shell, removed on drop.
struct ImageWithoutShell(String);

impl ImageWithoutShell {
    fn import() -> Self {
        let name = format!("glovebox-test/no-shell-{}:latest", std::process::id());
        let mut import = Command::new("docker");
        let mut import = import
            .args(["import", "-", &name])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        import.stdin.take().unwrap().write_all(&archive()).unwrap();
        assert!(import.wait().unwrap().success(), "importing {name}");
        Self(name)
    }
}

impl Drop for ImageWithoutShell {
    fn drop(&mut self) {
        let _ = Command::new("docker")
            .args(["rmi", "--force", &self.0])
            .stdout(Stdio::null())
            .status();
    }
}

/// Returns a tar archive with one short file.
fn archive() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "not a shell").unwrap();
    let made = Command::new("tar")
        .arg("-C")
        .arg(folder.path())
        .args(["-cf", "-", "file"])
        .output()
        .unwrap();
    assert!(made.status.success());
    made.stdout
}

#[test]
fn error_is_one_line_when_image_is_missing_or_has_no_shell() {
    if DockerBackend::busybox().is_none() {
        return;
    }
    let home = Home::new();
    let without = ImageWithoutShell::import();
    // No registry listens on this loopback port.
    for (image, part) in [
        (without.0.as_str(), "shell"),
        ("127.0.0.1:1/no/image:1", "cannot be pulled"),
    ] {
        let ended = home.run(&["image", "check", image]).expect(1);
        assert!(
            ended.stderr.contains(image) && ended.stderr.contains(part),
            "{}",
            ended.stderr
        );
        assert_eq!(
            ended.stderr.trim_end().lines().count(),
            1,
            "{}",
            ended.stderr
        );
        assert_eq!(ended.stdout, "");
    }
    home.assert_nothing_runs();
}

//! Images and servers that cannot run on this engine: a typed error with advice and the log's tail,
//! in time, and nothing left.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use engine::sandbox::{SandboxError, SandboxProvider as _, SandboxSpec};
use protocol::observation::ErrorObservation;
use protocol::{ObservationKind, SandboxId};
use sandbox_client::ServerBinary;
use sandbox_docker::{DockerConfig, DockerProvider};
use tempfile::TempDir;
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::{Backend as _, command, error, id, remove, spec};

/// ELF machine number of a processor that this engine does not have.
const AARCH64: [u8; 2] = [183, 0];
const MACHINE_OFFSET: usize = 18;

/// Maximum time from a start's timeout to its error: half a second for the logs, and a removal,
/// which takes seconds on an engine that other tests keep busy.
const ERROR_TIMEOUT: Duration = Duration::from_secs(10);

/// An image with the files of a folder, removed on drop.
struct ImportedImage {
    name: String,
}

impl ImportedImage {
    fn import(folder: &Path, name: &str) -> Self {
        let name = format!("glovebox-test/{name}:{}", std::process::id());
        let mut tar = Command::new("tar");
        let mut tar = tar
            .arg("--create")
            .arg("--directory")
            .arg(folder)
            .arg(".")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut import = Command::new("docker");
        let import = import
            .args(["import", "-", &name])
            .stdin(tar.stdout.take().unwrap())
            .stdout(Stdio::null());
        assert!(import.status().unwrap().success() && tar.wait().unwrap().success());
        Self { name }
    }
}

impl Drop for ImportedImage {
    fn drop(&mut self) {
        let removed = Command::new("docker")
            .args(["image", "rm", &self.name])
            .stdout(Stdio::null())
            .status();
        eprintln!("removing {}: {removed:?}", self.name);
    }
}

/// Writes a program for another processor.
fn foreign_program(folder: &Path) -> PathBuf {
    let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    bytes.truncate(1 << 20); // the kernel reads only the header
    bytes[MACHINE_OFFSET..MACHINE_OFFSET + 2].copy_from_slice(&AARCH64);
    program(folder, "foreign", &bytes)
}

fn program(folder: &Path, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn sandbox_id_for(spec: &SandboxSpec) -> SandboxId {
    format!("glovebox-{}", spec.conversation).parse().unwrap()
}

/// Returns the error of the first command.
async fn first_command(backend: &DockerBackend, image: &ImportedImage) -> String {
    let mut spec = spec(backend);
    spec.image = Some(image.name.clone());
    let started = Instant::now();
    let sandbox = backend.provider().create(&spec, &|_| {}).await.unwrap();
    let observed = sandbox
        .execute(&id(1), &command("true"), &|_| {})
        .await
        .unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    let expected = ErrorObservation {
        error_id: "shell_start".into(),
    };
    assert_eq!(
        observed.kind,
        ObservationKind::Error(expected),
        "{}",
        observed.content
    );
    assert_eq!(observed.content.lines().count(), 1, "{}", observed.content);
    remove(backend, sandbox).await;
    observed.content
}

#[tokio::test]
async fn first_command_fails_when_image_has_no_shell() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("readme"), "no shell\n").unwrap();
    let image = ImportedImage::import(root.path(), "no-shell");
    let error = first_command(&backend, &image).await;
    assert!(error.contains("Use an image that has /bin/sh"), "{error}");
}

#[tokio::test]
async fn first_command_fails_when_image_is_for_another_processor() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bin")).unwrap();
    let program = foreign_program(root.path());
    std::fs::rename(program, root.path().join("bin/sh")).unwrap();
    let image = ImportedImage::import(root.path(), "foreign");
    let error = first_command(&backend, &image).await;
    assert!(error.contains("Use an image for this machine"), "{error}");
}

/// Starts a sandbox with this program as its server. Returns the error, its log and the time that
/// it took.
async fn failed_start(
    backend: &DockerBackend,
    server: &Path,
    start_timeout: Duration,
) -> (String, String, Duration) {
    let config = DockerConfig {
        start_timeout,
        server: ServerBinary::from_file(server),
        ..backend.config()
    };
    let provider = DockerProvider::new(config);
    let spec = spec(backend);
    provider.destroy(&sandbox_id_for(&spec)).await.unwrap(); // connects, so that the time of it is not measured
    let started = Instant::now();
    let failed = error(provider.create(&spec, &|_| {}).await);
    let took = started.elapsed();
    assert_eq!(
        backend.remains(&sandbox_id_for(&spec)).await,
        Vec::<String>::new()
    );
    let line = failed.to_string();
    assert_eq!(line.lines().count(), 1, "{line}");
    match failed {
        SandboxError::Start { logs, .. } => (line, logs, took),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn start_fails_when_server_is_for_another_processor() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let folder: TempDir = tempfile::tempdir().unwrap();
    let server = foreign_program(folder.path());
    let (line, logs, took) = failed_start(&backend, &server, Duration::from_secs(10)).await;
    assert!(
        line.contains("built for arm64, but the engine's machine is amd64"),
        "{line}\n{logs}"
    );
    assert!(took < Duration::from_secs(10) + ERROR_TIMEOUT, "{took:?}");
}

#[tokio::test]
async fn start_fails_in_time_with_log_tail_when_server_is_silent() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = "#!/bin/sh\ni=0; while [ $i -lt 2100 ]; do i=$((i+1)); echo \"this is the line $i of its log\"; done >&2\n\
                  trap '' TERM; while :; do sleep 1; done\n";
    let server = program(folder.path(), "silent", script.as_bytes());
    let limit = Duration::from_secs(5);
    let (line, logs, took) = failed_start(&backend, &server, limit).await;
    assert!(line.contains("was not ready within 5 s"), "{line}");
    assert_eq!(logs.len(), 64 << 10);
    assert!(
        logs.ends_with("this is the line 2100 of its log\n"),
        "{}",
        &logs[logs.len() - 200..]
    );
    eprintln!("an error {:?} after the start's timeout", took - limit);
    assert!(took < limit + ERROR_TIMEOUT, "{took:?}");
}

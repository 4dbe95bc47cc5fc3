//! Folders of the host and volumes of the engine in containers: the owner of new files, and
//! unusable mounts.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use bollard::query_parameters::RemoveVolumeOptions;
use engine::sandbox::{SandboxError, SandboxSpec, Volume};
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::{Backend, error, id, remove, run, spec, write};

/// Returns the user id for folders: the greatest that a container can have, if this process may
/// change owners.
fn folder_owner() -> u32 {
    let caller = rustix::process::geteuid();
    if caller.is_root() {
        i32::MAX.unsigned_abs()
    } else {
        caller.as_raw()
    }
}

fn mounted(source: &Path, target: &str, read_only: bool) -> Volume {
    Volume {
        source: source.to_str().unwrap().into(),
        target: target.into(),
        read_only,
    }
}

#[tokio::test]
async fn files_in_a_workspace_of_the_host_have_its_owner() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    for owner in if rustix::process::geteuid().is_root() {
        vec![1, 54_321, folder_owner()]
    } else {
        vec![folder_owner()]
    } {
        let workspace = tempfile::tempdir().unwrap();
        chown(workspace.path(), Some(owner), None).unwrap();
        let spec = SandboxSpec {
            workspace: Some(workspace.path().into()),
            ..spec(&backend)
        };
        let sandbox = backend.provider().create(&spec, &|_| {}).await.unwrap();
        let ran = run(
            &*sandbox,
            1,
            "echo made > file && echo ok > $HOME/x && cat $HOME/x",
        )
        .await;
        assert_eq!(ran.content.trim(), "ok");
        remove(&backend, sandbox).await;
        let file = workspace.path().join("file");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "made\n");
        assert_eq!(file.metadata().unwrap().uid(), owner);
    }
}

#[tokio::test]
async fn home_is_that_of_the_user_in_the_image() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let workspace = tempfile::tempdir().unwrap();
    // Root has a home in the image. Another owner has none, and gets a writable folder.
    let home = match rustix::process::geteuid().is_root() {
        true => "/root",
        false => "/.glovebox/home",
    };
    let spec = SandboxSpec {
        workspace: Some(workspace.path().into()),
        ..spec(&backend)
    };
    let sandbox = backend.provider().create(&spec, &|_| {}).await.unwrap();
    let ran = run(&*sandbox, 1, "echo $HOME && touch ~/new && sh -c 'ls ~'").await;
    assert_eq!(ran.content.trim(), format!("{home}\nnew"));
    remove(&backend, sandbox).await;
}

#[tokio::test]
async fn mounted_server_cannot_be_replaced() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let spec = spec(&backend);
    let sandbox = backend.provider().create(&spec, &|_| {}).await.unwrap();
    for (number, command) in [
        (1, "mv -f /.glovebox /other"),
        (2, "mv -f /.glovebox/action-server /.glovebox/other"),
        (3, "mv -f /.glovebox/run /.glovebox/other"),
        (4, "rm -f /.glovebox/action-server"),
        (5, ": > /.glovebox/action-server"),
    ] {
        let ran = run(&*sandbox, number, &format!("id -u; {command}")).await;
        assert!(
            ran.content.starts_with('0') && ran.exit_code != 0,
            "{command}: {ran:?}"
        );
    }
    remove(&backend, sandbox).await;
}

#[tokio::test]
async fn volumes_are_written_as_their_owner_or_read_only() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let (written, read) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    chown(written.path(), Some(folder_owner()), None).unwrap();
    std::fs::write(read.path().join("file"), "read").unwrap();
    std::fs::set_permissions(read.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut spec = spec(&backend);
    spec.volumes = vec![
        mounted(read.path(), "/read", true),
        mounted(written.path(), "/deep/er/written", false),
    ];
    let sandbox = backend.provider().create(&spec, &|_| {}).await.unwrap();
    assert_eq!(
        run(&*sandbox, 1, "cat /read/file").await.content.trim(),
        "read"
    );
    assert_ne!(run(&*sandbox, 2, "touch /read/new").await.exit_code, 0);
    assert_eq!(
        run(&*sandbox, 3, "touch /deep/er/written/new")
            .await
            .exit_code,
        0
    );
    remove(&backend, sandbox).await;
    assert_eq!(
        written.path().join("new").metadata().unwrap().uid(),
        folder_owner()
    );
    assert!(!read.path().join("new").exists());
}

#[tokio::test]
async fn named_volume_outlives_its_sandboxes() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let mut spec = spec(&backend);
    let name = format!("glovebox-test-{}", spec.conversation);
    spec.volumes = vec![Volume {
        source: name.clone(),
        target: "/cache".into(),
        read_only: false,
    }];
    for (number, command) in [(1, "echo kept > /cache/file"), (2, "cat /cache/file")] {
        let sandbox = backend.provider().create(&spec, &|_| {}).await.unwrap();
        let ran = run(&*sandbox, number, command).await;
        assert_eq!(ran.exit_code, 0, "{}", ran.content);
        assert_eq!(ran.content.trim(), if number == 1 { "" } else { "kept" });
        remove(&backend, sandbox).await;
    }
    backend
        .engine()
        .await
        .remove_volume(&name, None::<RemoveVolumeOptions>)
        .await
        .unwrap();
}

#[tokio::test]
async fn start_error_names_the_workspace_when_it_is_unusable() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut spec = spec(&backend);
    spec.workspace = Some(folder.path().join("missing"));
    let failed = error(backend.provider().create(&spec, &|_| {}).await);
    assert!(
        matches!(&failed, SandboxError::Start { detail, .. } if detail.contains("missing")),
        "{failed}"
    );
}

#[tokio::test]
async fn start_error_names_the_volume_when_it_is_unusable() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut spec = spec(&backend);
    let missing = folder.path().join("missing");
    let mut cases = vec![
        (
            mounted(&missing, "/data", false),
            missing.to_str().unwrap().to_owned(),
        ),
        (
            mounted(&missing, "/data", true),
            missing.to_str().unwrap().to_owned(),
        ),
        (
            mounted(folder.path(), "/.glovebox/run", false),
            "/.glovebox/run".to_owned(),
        ),
    ];
    if rustix::process::geteuid().is_root() {
        // The server runs as the workspace's owner, who may not write to this folder.
        let (workspace, others) = (
            folder.path().join("workspace"),
            folder.path().join("others"),
        );
        for (path, owner) in [(&workspace, folder_owner()), (&others, 1)] {
            std::fs::create_dir(path).unwrap();
            chown(path, Some(owner), Some(owner)).unwrap();
        }
        spec.workspace = Some(workspace);
        cases.push((
            mounted(&others, "/data", false),
            others.to_str().unwrap().to_owned(),
        ));
    }
    for (volume, named) in cases {
        spec.volumes = vec![volume];
        let failed = error(backend.provider().create(&spec, &|_| {}).await);
        assert!(
            matches!(&failed, SandboxError::Invalid { detail } if detail.contains(&named) && !detail.contains('\n')),
            "{failed}"
        );
    }
    assert!(!missing.exists(), "the engine created it");
}

#[tokio::test]
async fn server_survives_when_a_file_reaches_the_disk_limit() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let mut spec = spec(&backend);
    spec.resources.disk_bytes = 1 << 20;
    let sandbox = backend.provider().create(&spec, &|_| {}).await.unwrap();
    let ran = run(
        &*sandbox,
        1,
        "dd if=/dev/zero of=/tmp/runaway bs=64k count=64; stat -c %s /tmp/runaway",
    )
    .await;
    assert!(ran.content.trim().ends_with("1048576"), "{}", ran.content);
    // The server's own write, whose signal SIGXFSZ would kill it by default.
    let text = "x".repeat(2 << 20);
    let write = write("/tmp/large", &text);
    let written = sandbox.execute(&id(2), &write, &|_| {}).await.unwrap();
    assert!(
        matches!(written.kind, protocol::ObservationKind::Error(_)),
        "{:?}",
        written.kind
    );
    assert_eq!(
        run(&*sandbox, 3, "echo alive").await.content.trim(),
        "alive"
    );
    remove(&backend, sandbox).await;
}

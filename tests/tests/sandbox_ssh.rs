//! The contract of sandboxes on the SSH backend, and its own features.

mod disconnects;
mod login;
mod refusals;

use std::future::ready;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::Duration;

use engine::sandbox::{Lifetime, SandboxError, SandboxProvider, SandboxState, sweep};
use sandbox_client::HostSecret;
use sandbox_ssh::{SshConfig, SshProvider};
use tests::sandbox_contract::ssh::SshBackend;
use tests::sandbox_contract::{Backend, error, remove, run, spec};
use tests::sshd::{SshdOptions, UID};

tests::sandbox_contract!(SshBackend::new());

/// The contract on a server without socket forwarding, where each stream is a command's.
mod without_sockets {
    use super::{SshBackend, SshdOptions};
    fn backend() -> Option<SshBackend> {
        SshBackend::with(&SshdOptions {
            settings: "AllowStreamLocalForwarding no",
            ..SshdOptions::default()
        })
    }
    tests::sandbox_contract!(backend());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_connection_uploads_nothing() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let first = backend
        .provider()
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    remove(&backend, first).await;
    let folder = backend.sshd.home().join(".glovebox/bin");
    let files = || {
        let files = std::fs::read_dir(&folder)
            .unwrap()
            .map(|file| file.unwrap());
        files
            .map(|file| (file.file_name(), file.metadata().unwrap().ino()))
            .collect::<Vec<_>>()
    };
    let uploaded = files();
    assert_eq!(uploaded.len(), 1, "{uploaded:?}");
    // Nothing can be uploaded from now on.
    chown(&folder, Some(0), Some(UID)).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o750)).unwrap();
    let second = backend
        .provider()
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    assert_eq!(run(&*second, 1, "echo again").await.content.trim(), "again");
    remove(&backend, second).await;
    assert_eq!(files(), uploaded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_server_file_is_uploaded_again() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let first = backend
        .provider()
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    remove(&backend, first).await;
    let file = std::fs::read_dir(backend.sshd.home().join(".glovebox/bin"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, whole.get(..1000).unwrap()).unwrap();
    let second = backend
        .provider()
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    remove(&backend, second).await;
    assert!(std::fs::read(&file).unwrap() == whole);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_is_uploaded_by_a_command_without_sftp() {
    let Some(backend) = SshBackend::with(&SshdOptions {
        without_sftp: true,
        ..SshdOptions::default()
    }) else {
        return;
    };
    let sandbox = backend
        .provider()
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    assert_eq!(run(&*sandbox, 1, "echo far").await.content.trim(), "far");
    remove(&backend, sandbox).await;
    let files = std::fs::read_dir(backend.sshd.home().join(".glovebox/bin")).unwrap();
    assert_eq!(files.count(), 1, "no partial file is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sandboxes_share_one_connection_and_one_upload() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let provider = backend.provider();
    let specs: Vec<_> = (0..12).map(|_| spec(&backend)).collect();
    let starts = specs.iter().map(|spec| async {
        let sandbox = provider.create(spec, &|_| {}).await.unwrap();
        assert_eq!(
            run(&*sandbox, 1, "echo $PWD").await.content.trim(),
            sandbox.lease().working_dir
        );
        sandbox
    });
    let sandboxes = futures_util::future::join_all(starts).await;
    assert_eq!(backend.sshd.log().matches("Accepted publickey").count(), 1);
    assert_eq!(provider.list().await.unwrap().len(), sandboxes.len());
    for sandbox in sandboxes {
        provider.destroy(&sandbox.lease().sandbox_id).await.unwrap();
        assert_eq!(
            backend.remains(&sandbox.lease().sandbox_id).await,
            Vec::<String>::new()
        );
    }
    assert!(provider.list().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_queued_when_the_host_limits_them() {
    let settings = "MaxSessions 2";
    let Some(backend) = SshBackend::with(&SshdOptions {
        settings,
        ..SshdOptions::default()
    }) else {
        return;
    };
    let provider = backend.provider();
    let specs: Vec<_> = (0..4).map(|_| spec(&backend)).collect();
    let starts = specs
        .iter()
        .map(|spec| async { provider.create(spec, &|_| {}).await.unwrap() });
    for sandbox in futures_util::future::join_all(starts).await {
        assert_eq!(
            run(&*sandbox, 1, "echo there").await.content.trim(),
            "there"
        );
        remove(&backend, sandbox).await;
    }
    let refused = backend.sshd.log().matches("no more sessions").count();
    assert!(refused > 0, "no session was refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remote_workspace_is_used_and_never_removed() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let workspace = backend.sshd.home().join("it's a $(project)");
    std::fs::create_dir(&workspace).unwrap();
    chown(&workspace, Some(UID), Some(UID)).unwrap();
    let mut spec = spec(&backend);
    for named in [workspace.clone(), "~/it's a $(project)".into()] {
        spec.workspace = Some(named);
        let sandbox = backend.provider().create(&spec, &|_| {}).await.unwrap();
        assert_eq!(sandbox.lease().working_dir, workspace.display().to_string());
        run(&*sandbox, 1, "echo kept > file").await;
        remove(&backend, sandbox).await;
        let file = workspace.join("file");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept\n");
        assert_eq!(
            (
                file.metadata().unwrap().uid(),
                file.metadata().unwrap().mode() & 0o777
            ),
            (UID, 0o644)
        );
    }
    for (named, reason) in [
        ("/etc", "cannot use the workspace"),
        ("~/missing", "missing"),
        ("relative", "begin with"),
    ] {
        spec.workspace = Some(named.into());
        let failed = error(backend.provider().create(&spec, &|_| {}).await);
        assert!(matches!(&failed, SandboxError::Start { .. }), "{failed}");
        assert!(
            failed.to_string().contains(named) && failed.to_string().contains(reason),
            "{failed}"
        );
    }
    assert!(backend.provider().list().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweep_removes_only_our_sandboxes_that_are_unused() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let other = SshProvider::new(SshConfig {
        secret: HostSecret::new([8; 32]),
        ..backend.config(backend.server())
    });
    let provider = backend.provider();
    let [mut kept, used, unused, others] = [(); 4].map(|()| spec(&backend));
    kept.lifetime = Lifetime::UntilRemoved;
    for spec in [&kept, &used, &unused] {
        provider.create(spec, &|_| {}).await.unwrap();
    }
    let theirs = other.create(&others, &|_| {}).await.unwrap();
    let listed = provider.list().await.unwrap();
    assert_eq!(listed.len(), 3);
    assert!(
        listed
            .iter()
            .all(|summary| summary.condition == SandboxState::Running
                && summary.created_at.is_some())
    );

    let swept = sweep(&*provider, |summary| {
        ready(summary.conversation.as_ref() == Some(&used.conversation))
    })
    .await
    .unwrap();
    assert_eq!(
        swept,
        [format!("glovebox-{}", unused.conversation).parse().unwrap()]
    );
    let taken = error(provider.create(&others, &|_| {}).await).to_string();
    assert!(taken.contains("belongs to another installation"), "{taken}");
    assert_eq!(run(&*theirs, 1, "echo there").await.content.trim(), "there");
    for summary in provider.list().await.unwrap() {
        let found = provider.find(&summary.sandbox).await.unwrap();
        assert_eq!(run(&*found, 1, "true").await.exit_code, 0);
        remove(&backend, found).await;
    }
    other.destroy(&theirs.lease().sandbox_id).await.unwrap();
    let gone = error(provider.find(&theirs.lease().sandbox_id).await);
    assert!(matches!(gone, SandboxError::Lost { .. }), "{gone}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_are_outside_of_a_home_with_a_long_path() {
    let name =
        "a-home-folder-whose-path-is-so-long-that-no-socket-below-it-can-be-listened-to-by-anyone";
    let Some(backend) = SshBackend::with(&SshdOptions {
        home_name: Some(name),
        ..SshdOptions::default()
    }) else {
        return;
    };
    let sandbox = backend
        .provider()
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    let folder = backend
        .sshd
        .home()
        .join(".glovebox/sandboxes")
        .join(sandbox.lease().sandbox_id.as_str());
    let elsewhere =
        std::path::PathBuf::from(std::fs::read_to_string(folder.join("at")).unwrap().trim());
    assert_eq!(elsewhere.metadata().unwrap().mode() & 0o777, 0o700);
    assert_eq!(
        elsewhere.join("s").metadata().unwrap().mode() & 0o777,
        0o600
    );
    let found = backend.provider().attach(sandbox.lease()).await.unwrap();
    assert_eq!(run(&*found, 1, "echo far").await.content.trim(), "far");
    remove(&backend, sandbox).await;
    assert!(!elsewhere.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_is_hidden_in_the_sandbox_and_socket_is_the_users() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let sandbox = backend
        .provider()
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap();
    // The server's own memory and descriptors are closed to everyone; a key has 64 hexadecimal
    // digits.
    let search = "for p in /proc/[0-9]*; do [ -O $p ] && cat $p/environ $p/cmdline; done 2>/dev/null | tr '\\0' '\\n' \
                  | grep -cE '^[0-9a-f]{64}$'; grep -rlE '[0-9a-f]{64}' ~/.glovebox/sandboxes; env | grep ^SSH_";
    assert_eq!(run(&*sandbox, 1, search).await.content.trim(), "0");
    let folder = backend
        .sshd
        .home()
        .join(".glovebox/sandboxes")
        .join(sandbox.lease().sandbox_id.as_str());
    let modes = [&folder, &folder.join("s")].map(|path| path.metadata().unwrap().mode() & 0o777);
    assert_eq!(modes, [0o700, 0o600]);
    assert_eq!(
        backend
            .provider()
            .monitoring()
            .unwrap()
            .logs(&sandbox.lease().sandbox_id)
            .await
            .unwrap(),
        ""
    );
    remove(&backend, sandbox).await;
}

/// A dropped provider closes its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_ends_when_the_provider_is_dropped() {
    let Some(backend) = SshBackend::new() else {
        return;
    };
    let provider = backend.provider();
    let sandbox = provider.create(&spec(&backend), &|_| {}).await.unwrap();
    provider.destroy(&sandbox.lease().sandbox_id).await.unwrap();
    drop((sandbox, provider));
    let ended = async {
        while !backend.sshd.log().contains("Disconnected from user")
            && !backend.sshd.log().contains("Connection closed")
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), ended)
        .await
        .expect("the connection ends");
}

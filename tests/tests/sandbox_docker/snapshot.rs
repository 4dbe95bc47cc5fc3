//! Snapshots of sandboxes, and forks, which are created from them.

use std::collections::HashMap;
use std::future::ready;

use bollard::query_parameters::{ListImagesOptionsBuilder, RemoveImageOptions};
use engine::sandbox::{
    SandboxError, SandboxProvider, SandboxSpec, SnapshotPurpose, sweep_snapshots,
};
use sandbox_docker::{DockerConfig, DockerProvider};
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::{Backend, create_sandbox, error, remove, run, spec};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fork_has_the_files_and_runs_independently() {
    let Some(backend) = DockerBackend::debian() else {
        return;
    };
    let engine = backend.engine().await;
    let first = create_sandbox(&backend).await;
    run(
        &*first,
        1,
        "echo one > file; mkdir -p /opt/tool && echo two > /opt/tool/file",
    )
    .await;
    let snapshot = backend
        .provider()
        .snapshots()
        .unwrap()
        .create_snapshot(&first.lease().sandbox_id, SnapshotPurpose::Keep(None))
        .await
        .unwrap();
    assert!(snapshot.starts_with("glovebox-snapshot:"), "{snapshot}");
    run(&*first, 2, "echo later > file").await;

    let fork = SandboxSpec {
        image: Some(snapshot.clone()),
        ..spec(&backend)
    };
    let fork = backend.provider().create(&fork, &|_| {}).await.unwrap();
    assert_eq!(
        run(&*fork, 1, "cat file /opt/tool/file; pwd; echo $HOME")
            .await
            .content
            .trim(),
        "one\r\ntwo\r\n/workspace\r\n/root".replace('\r', "")
    );
    run(&*fork, 2, "echo forked > file").await;
    let refusing = |default_image: &str| {
        DockerProvider::new(DockerConfig {
            refuses_snapshots: true,
            default_image: default_image.to_owned(),
            ..backend.config()
        })
    };
    let from_snapshot = SandboxSpec {
        image: Some(snapshot.clone()),
        ..spec(&backend)
    };
    let refused = error(refusing("other").create(&from_snapshot, &|_| {}).await);
    assert!(
        matches!(&refused, SandboxError::Invalid { detail } if detail.contains("is a snapshot")),
        "{refused}"
    );
    let default = refusing(&snapshot)
        .create(&from_snapshot, &|_| {})
        .await
        .unwrap();
    remove(&backend, default).await;
    // A fork of the fork starts too, although its image contains our files.
    let again = backend
        .provider()
        .snapshots()
        .unwrap()
        .create_snapshot(
            &fork.lease().sandbox_id,
            SnapshotPurpose::Keep(Some("glovebox-test-fork:again")),
        )
        .await
        .unwrap();
    assert_eq!(again, "glovebox-test-fork:again");
    let second = SandboxSpec {
        image: Some(again.clone()),
        ..spec(&backend)
    };
    let second = backend.provider().create(&second, &|_| {}).await.unwrap();
    assert_eq!(run(&*second, 1, "cat file").await.content.trim(), "forked");
    assert_eq!(run(&*first, 3, "cat file").await.content.trim(), "later");

    // The image has our label. A container that a user starts from it is not ours.
    let owner = format!("glovebox.snapshot={}", backend.config().owner);
    let filters = HashMap::from([("label", vec![owner])]);
    let options = ListImagesOptionsBuilder::default()
        .filters(&filters)
        .build();
    let tags: Vec<_> = engine
        .list_images(Some(options))
        .await
        .unwrap()
        .into_iter()
        .flat_map(|image| image.repo_tags)
        .collect();
    assert!(
        tags.contains(&snapshot) && tags.contains(&again),
        "{tags:?}"
    );
    let labels = engine
        .inspect_image(&snapshot)
        .await
        .unwrap()
        .config
        .unwrap()
        .labels
        .unwrap();
    assert_eq!(labels["glovebox.owner"], "");

    for sandbox in [first, fork, second] {
        remove(&backend, sandbox).await;
    }
    for image in [again, snapshot] {
        engine
            .remove_image(&image, None::<RemoveImageOptions>, None)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fork_has_the_images_settings_when_it_has_a_workspace() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let engine = backend.engine().await;
    let workspace = tempfile::tempdir().unwrap();
    let caller = rustix::process::geteuid();
    let owner = if caller.is_root() {
        54_321
    } else {
        caller.as_raw()
    };
    std::os::unix::fs::chown(workspace.path(), Some(owner), Some(owner)).unwrap();
    let spec_with = SandboxSpec {
        workspace: Some(workspace.path().into()),
        ..spec(&backend)
    };
    let first = backend
        .provider()
        .create(&spec_with, &|_| {})
        .await
        .unwrap();
    run(&*first, 1, "echo mounted > file").await;
    let snapshot = backend
        .provider()
        .snapshots()
        .unwrap()
        .create_snapshot(&first.lease().sandbox_id, SnapshotPurpose::Keep(None))
        .await
        .unwrap();
    let fork = SandboxSpec {
        image: Some(snapshot.clone()),
        ..spec(&backend)
    };
    let fork = backend.provider().create(&fork, &|_| {}).await.unwrap();
    let ran = run(&*fork, 1, "id -u; ls; touch new $HOME/new && echo fine").await;
    assert_eq!(
        ran.content.split_whitespace().collect::<Vec<_>>(),
        ["0", "fine"],
        "{}",
        ran.content
    );
    // Of a user who may not write to the image's folders.
    let image = Some(snapshot.clone());
    let owned = SandboxSpec {
        image,
        workspace: Some(workspace.path().into()),
        ..spec(&backend)
    };
    let owned = backend.provider().create(&owned, &|_| {}).await.unwrap();
    let ran = run(&*owned, 1, "id -u; cat file; touch $HOME/new && echo fine").await;
    let words: Vec<_> = ran.content.split_whitespace().collect();
    assert_eq!(
        words,
        [&owner.to_string(), "mounted", "fine"],
        "{}",
        ran.content
    );
    for sandbox in [first, fork, owned] {
        remove(&backend, sandbox).await;
    }
    engine
        .remove_image(&snapshot, None::<RemoveImageOptions>, None)
        .await
        .unwrap();
}

#[tokio::test]
async fn failed_snapshot_leaves_no_image() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let sandbox = create_sandbox(&backend).await;
    let owner = format!("glovebox.snapshot={}", backend.config().owner);
    let purpose = SnapshotPurpose::Keep(Some("No Name!"));
    let failed = error(
        backend
            .provider()
            .snapshots()
            .unwrap()
            .create_snapshot(&sandbox.lease().sandbox_id, purpose)
            .await,
    );
    assert!(failed.to_string().contains("No Name!"), "{failed}");
    let filters = HashMap::from([
        ("label", vec![owner]),
        ("dangling", vec!["true".to_owned()]),
    ]);
    let options = ListImagesOptionsBuilder::default()
        .filters(&filters)
        .build();
    let left = backend
        .engine()
        .await
        .list_images(Some(options))
        .await
        .unwrap();
    assert!(left.is_empty(), "{left:?}");
    remove(&backend, sandbox).await;
}

/// Returns a provider with a unique owner.
fn lone_provider(backend: &DockerBackend, name: &str) -> DockerProvider {
    let owner = format!("{name}-{}", std::process::id());
    DockerProvider::new(DockerConfig {
        owner,
        ..backend.config()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forks_leave_no_image_in_any_order_of_removal() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let provider = lone_provider(&backend, "forks");
    let first = spec(&backend);
    let root = provider
        .create(&first, &|_| {})
        .await
        .unwrap()
        .lease()
        .sandbox_id
        .clone();
    for oldest_first in [true, false] {
        // A fork and a fork of the fork.
        let (mut origin, mut forks) = (root.clone(), Vec::new());
        for generation in 1..=2 {
            let wanted = spec(&backend);
            let purpose = SnapshotPurpose::Fork(&wanted.conversation);
            let image = provider
                .snapshots()
                .unwrap()
                .create_snapshot(&origin, purpose)
                .await
                .unwrap();
            let wanted = SandboxSpec {
                image: Some(image.clone()),
                ..wanted
            };
            let fork = provider.create(&wanted, &|_| {}).await.unwrap();
            run(&*fork, 1, "echo more >> file").await;
            assert_eq!(
                run(&*fork, 2, "grep -c more file").await.content.trim(),
                generation.to_string()
            );
            assert!(matches!(
                error(provider.snapshots().unwrap().remove_snapshot(&image).await),
                SandboxError::InUse { .. }
            ));
            assert_eq!(
                sweep_snapshots(&provider, |_| ready(false)).await.unwrap(),
                Vec::<String>::new()
            );
            origin = fork.lease().sandbox_id.clone();
            forks.push(origin.clone());
        }
        if !oldest_first {
            forks.reverse();
        }
        for fork in forks {
            assert_ne!(
                provider
                    .snapshots()
                    .unwrap()
                    .list_snapshots()
                    .await
                    .unwrap(),
                []
            );
            provider.destroy(&fork).await.unwrap();
        }
        assert_eq!(
            provider
                .snapshots()
                .unwrap()
                .list_snapshots()
                .await
                .unwrap(),
            [],
            "the oldest first: {oldest_first}"
        );
    }
    provider.destroy(&root).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweep_removes_only_snapshots_of_killed_forks() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let provider = lone_provider(&backend, "swept");
    let sandbox = provider
        .create(&spec(&backend), &|_| {})
        .await
        .unwrap()
        .lease()
        .sandbox_id
        .clone();
    let (killed, working) = (spec(&backend).conversation, spec(&backend).conversation);
    let left = provider
        .snapshots()
        .unwrap()
        .create_snapshot(&sandbox, SnapshotPurpose::Fork(&killed))
        .await
        .unwrap();
    let used = provider
        .snapshots()
        .unwrap()
        .create_snapshot(&sandbox, SnapshotPurpose::Fork(&working))
        .await
        .unwrap();
    let kept = provider
        .snapshots()
        .unwrap()
        .create_snapshot(&sandbox, SnapshotPurpose::Keep(None))
        .await
        .unwrap();
    let is_used = |conversation| ready(conversation == working);
    assert_eq!(sweep_snapshots(&provider, is_used).await.unwrap(), [left]);
    assert_eq!(
        provider
            .snapshots()
            .unwrap()
            .list_snapshots()
            .await
            .unwrap()
            .len(),
        2
    );

    // Images of another installation and other images are kept.
    for (provider, image) in [
        (&lone_provider(&backend, "others"), &kept),
        (&provider, &backend.image().unwrap()),
    ] {
        let refused = error(provider.snapshots().unwrap().remove_snapshot(image).await);
        assert!(
            matches!(&refused, SandboxError::NoSuchImage { .. }),
            "{refused}"
        );
    }
    for image in [&used, &kept, &kept] {
        provider
            .snapshots()
            .unwrap()
            .remove_snapshot(image)
            .await
            .unwrap(); // idempotent
    }
    assert_eq!(
        provider
            .snapshots()
            .unwrap()
            .list_snapshots()
            .await
            .unwrap(),
        []
    );
    provider.destroy(&sandbox).await.unwrap();
}

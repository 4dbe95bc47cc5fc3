//! A snapshot of a sandbox, and forks: sandboxes that are placed from it.

use std::collections::HashMap;

use bollard::query_parameters::{ListImagesOptionsBuilder, RemoveImageOptions};
use engine::sandbox::SandboxSpec;
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::{Backend, error, place, remove, run, spec};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_has_the_files_and_a_life_of_its_own() {
    let Some(backend) = DockerBackend::debian() else { return };
    let engine = backend.engine().await;
    let first = place(&backend).await;
    run(&*first, 1, "echo one > file; mkdir -p /opt/tool && echo two > /opt/tool/file").await;
    let snapshot = backend.provider().snapshot(&first.lease().sandbox_id, None).await.unwrap();
    assert!(snapshot.starts_with("glovebox-snapshot:"), "{snapshot}");
    run(&*first, 2, "echo later > file").await;

    let fork = SandboxSpec { image: Some(snapshot.clone()), ..spec(&backend) };
    let fork = backend.provider().create(&fork, &|_| {}).await.unwrap();
    assert_eq!(
        run(&*fork, 1, "cat file /opt/tool/file; pwd; echo $HOME").await.content.trim(),
        "one\r\ntwo\r\n/workspace\r\n/root".replace('\r', "")
    );
    run(&*fork, 2, "echo forked > file").await;
    // A fork of the fork: nothing of ours is in its way either.
    let again = backend
        .provider()
        .snapshot(&fork.lease().sandbox_id, Some("glovebox-test-fork:again"))
        .await
        .unwrap();
    assert_eq!(again, "glovebox-test-fork:again");
    let second = SandboxSpec { image: Some(again.clone()), ..spec(&backend) };
    let second = backend.provider().create(&second, &|_| {}).await.unwrap();
    assert_eq!(run(&*second, 1, "cat file").await.content.trim(), "forked");
    assert_eq!(run(&*first, 3, "cat file").await.content.trim(), "later");

    // Ours by its label, and what is started from it by hand is not.
    let owner = format!("glovebox.snapshot={}", backend.config().owner);
    let filters = HashMap::from([("label", vec![owner])]);
    let options = ListImagesOptionsBuilder::default().filters(&filters).build();
    let tags: Vec<_> = engine
        .list_images(Some(options))
        .await
        .unwrap()
        .into_iter()
        .flat_map(|image| image.repo_tags)
        .collect();
    assert!(tags.contains(&snapshot) && tags.contains(&again), "{tags:?}");
    let labels = engine.inspect_image(&snapshot).await.unwrap().config.unwrap().labels.unwrap();
    assert_eq!(labels["glovebox.owner"], "");

    for sandbox in [first, fork, second] {
        remove(&backend, sandbox).await;
    }
    for image in [again, snapshot] {
        engine.remove_image(&image, None::<RemoveImageOptions>, None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_of_a_sandbox_with_a_workspace_is_set_up_as_its_image_was() {
    let Some(backend) = DockerBackend::busybox() else { return };
    let engine = backend.engine().await;
    let workspace = tempfile::tempdir().unwrap();
    let caller = rustix::process::geteuid();
    let owner = if caller.is_root() { 54_321 } else { caller.as_raw() };
    std::os::unix::fs::chown(workspace.path(), Some(owner), Some(owner)).unwrap();
    let spec_with = SandboxSpec { workspace: Some(workspace.path().into()), ..spec(&backend) };
    let first = backend.provider().create(&spec_with, &|_| {}).await.unwrap();
    run(&*first, 1, "echo mounted > file").await;
    let snapshot = backend.provider().snapshot(&first.lease().sandbox_id, None).await.unwrap();
    let fork = SandboxSpec { image: Some(snapshot.clone()), ..spec(&backend) };
    let fork = backend.provider().create(&fork, &|_| {}).await.unwrap();
    let ran = run(&*fork, 1, "id -u; ls; touch new $HOME/new && echo fine").await;
    assert_eq!(ran.content.split_whitespace().collect::<Vec<_>>(), ["0", "fine"], "{}", ran.content);
    for sandbox in [first, fork] {
        remove(&backend, sandbox).await;
    }
    engine.remove_image(&snapshot, None::<RemoveImageOptions>, None).await.unwrap();
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_named_leaves_no_image() {
    let Some(backend) = DockerBackend::busybox() else { return };
    let sandbox = place(&backend).await;
    let owner = format!("glovebox.snapshot={}", backend.config().owner);
    let failed = error(backend.provider().snapshot(&sandbox.lease().sandbox_id, Some("No Name!")).await);
    assert!(failed.to_string().contains("No Name!"), "{failed}");
    let filters = HashMap::from([("label", vec![owner]), ("dangling", vec!["true".to_owned()])]);
    let options = ListImagesOptionsBuilder::default().filters(&filters).build();
    let left = backend.engine().await.list_images(Some(options)).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    remove(&backend, sandbox).await;
}

//! The warm pool of sandboxes.

use std::sync::Arc;
use std::time::Duration;

use bollard::query_parameters::RemoveVolumeOptions;
use engine::sandbox::{
    ResourceLimits, Sandbox, SandboxProvider, SandboxSpec, SandboxState, SandboxSummary,
};
use protocol::SandboxId;
use sandbox_docker::{DockerConfig, DockerProvider, Pool, pool_entry_holder};
use sandbox_host::{SandboxHost, SandboxHostConfig};
use tests::glovebox::TEST_TIMEOUT;
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::remote::SandboxHostBackend;
use tests::sandbox_contract::{Backend, remove_with, run, spec};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Returns a configuration with a pool and a unique owner.
fn pooled(backend: &DockerBackend, name: &str, size: usize, image: Option<String>) -> DockerConfig {
    DockerConfig {
        owner: format!("pool-{name}-{}", std::process::id()),
        holder: "holder-1".into(),
        pool: Some(Pool {
            size,
            image,
            resources: ResourceLimits::default(),
        }),
        ..backend.config()
    }
}

/// Returns a spec that entries of the pool fit.
fn poolable_spec(backend: &DockerBackend) -> SandboxSpec {
    SandboxSpec {
        resources: ResourceLimits::default(),
        ..spec(backend)
    }
}

/// Waits until the pool has this number of running entries, and returns their ids.
async fn wait_until_filled(provider: &DockerProvider, count: usize) -> Vec<SandboxId> {
    let full = async {
        loop {
            let mut entries = provider.list().await.unwrap();
            entries.retain(|entry| entry.conversation.is_none());
            assert!(entries.len() <= count, "{entries:?}");
            let are_running = entries
                .iter()
                .all(|entry| entry.condition == SandboxState::Running);
            if entries.len() == count && are_running {
                return entries.into_iter().map(|entry| entry.sandbox).collect();
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(30), full).await.unwrap()
}

/// Creates sandboxes until one comes from the pool: a running entry may not be connected yet.
async fn create_from_pool(
    backend: &DockerBackend,
    provider: &DockerProvider,
) -> (SandboxSpec, Box<dyn Sandbox>) {
    for _ in 0..20 {
        let spec = poolable_spec(backend);
        let sandbox = provider.create(&spec, &|_| {}).await.unwrap();
        if backend.is_from_pool(&sandbox.lease().sandbox_id).await {
            return (spec, sandbox);
        }
        remove_with(provider, backend, sandbox).await;
    }
    panic!("no sandbox comes from the pool");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pooled_sandbox_belongs_to_its_conversation_when_leased() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let provider = DockerProvider::new(pooled(&backend, "lease", 1, None));
    let [entry] = &wait_until_filled(&provider, 1).await[..] else {
        panic!("one pool entry")
    };
    assert_eq!(pool_entry_holder(entry), Some("holder-1"));

    let (spec, sandbox) = create_from_pool(&backend, &provider).await;
    assert_eq!(sandbox.lease().sandbox_id, backend.id_of(&spec));
    assert_eq!(
        run(&*sandbox, 1, "echo kept > file; cat file")
            .await
            .content
            .trim(),
        "kept"
    );
    let listed = provider.list().await.unwrap();
    assert!(
        listed
            .iter()
            .any(|summary| summary.conversation.as_ref() == Some(&spec.conversation)),
        "{listed:?}"
    );

    // A restarted host knows neither the pool nor the entry's original name.
    let lease = sandbox.lease().clone();
    drop(sandbox);
    let sandbox = backend.provider().attach(&lease).await.unwrap();
    assert_eq!(run(&*sandbox, 2, "cat file").await.content.trim(), "kept");
    let found = backend.provider().find(&lease.sandbox_id).await.unwrap();
    assert_eq!(*found.lease(), lease);

    // A leftover sandbox is replaced by a pool entry too. The pool lasts while a client waits for
    // an abandoned start.
    provider.wait_for_cleanup().await;
    wait_until_filled(&provider, 1).await;
    let second = provider.create(&spec, &|_| {}).await.unwrap();
    assert_ne!(second.lease().boot_id, lease.boot_id);
    assert_eq!(second.lease().sandbox_id, lease.sandbox_id);
    assert_ne!(run(&*second, 1, "cat file").await.exit_code, 0);
    remove_with(&provider, &backend, second).await;

    provider.shut_down().await;
    assert_eq!(provider.list().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pool_is_not_used_when_spec_has_more_than_an_image() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let provider = DockerProvider::new(pooled(&backend, "fits", 1, None));
    wait_until_filled(&provider, 1).await;
    let small = ResourceLimits {
        pids: 100,
        ..ResourceLimits::default()
    };
    let until_removed = engine::sandbox::Lifetime::UntilRemoved;
    let workspace = tempfile::tempdir().unwrap();
    for spec in [
        SandboxSpec {
            resources: small,
            ..poolable_spec(&backend)
        },
        SandboxSpec {
            lifetime: until_removed,
            ..poolable_spec(&backend)
        },
        SandboxSpec {
            workspace: Some(workspace.path().into()),
            ..poolable_spec(&backend)
        },
        SandboxSpec {
            volumes: vec!["cache:/cache:ro".parse().unwrap()],
            ..poolable_spec(&backend)
        },
    ] {
        let sandbox = provider.create(&spec, &|_| {}).await.unwrap();
        assert!(
            !backend.is_from_pool(&sandbox.lease().sandbox_id).await,
            "{spec:?}"
        );
        remove_with(&provider, &backend, sandbox).await;
    }
    provider.shut_down().await;
    backend
        .engine()
        .await
        .remove_volume("cache", None::<RemoveVolumeOptions>)
        .await
        .unwrap();
    assert_eq!(provider.list().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_pool_entry_is_replaced() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let provider = DockerProvider::new(pooled(&backend, "died", 1, None));
    let dead = wait_until_filled(&provider, 1).await;
    provider.destroy(&dead[0]).await.unwrap();
    // With or without the pool: a create never fails because of the pool and never waits for it.
    let sandbox = provider
        .create(&poolable_spec(&backend), &|_| {})
        .await
        .unwrap();
    assert_eq!(run(&*sandbox, 1, "echo here").await.content.trim(), "here");
    remove_with(&provider, &backend, sandbox).await;
    assert_ne!(wait_until_filled(&provider, 1).await, dead);
    drop(provider); // removes its pool entries
    let other = DockerProvider::new(DockerConfig {
        pool: None,
        ..pooled(&backend, "died", 1, None)
    });
    let gone = async {
        while !other.list().await.unwrap().is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(20), gone).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_is_not_delayed_when_the_pool_cannot_be_filled() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    // No registry listens on this loopback port.
    let provider = DockerProvider::new(pooled(
        &backend,
        "none",
        2,
        Some("127.0.0.1:1/no/image:1".into()),
    ));
    let sandbox = provider
        .create(&poolable_spec(&backend), &|_| {})
        .await
        .unwrap();
    assert!(!backend.is_from_pool(&sandbox.lease().sandbox_id).await);
    remove_with(&provider, &backend, sandbox).await;
    timeout(Duration::from_secs(10), provider.shut_down())
        .await
        .unwrap();
    assert_eq!(provider.list().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entry_of_a_killed_sandbox_host_is_removed_by_the_next() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let killed = DockerProvider::new(pooled(&backend, "killed", 1, None));
    let left = wait_until_filled(&killed, 1).await;
    let owned = || DockerConfig {
        pool: None,
        ..pooled(&backend, "killed", 1, None)
    };
    let next = DockerProvider::new(owned());
    let listing = DockerProvider::new(owned());
    let config = SandboxHostConfig {
        is_warm_in_use: |summary| pool_entry_holder(&summary.sandbox) != Some("holder-1"),
        ..SandboxHostBackend::<DockerBackend>::host_config()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stop = CancellationToken::new();
    let host = tokio::spawn(SandboxHost::new(Arc::new(next), config).serve(listener, stop.clone()));
    let gone = async {
        let is_left = |entry: &SandboxSummary| left.contains(&entry.sandbox);
        while listing.list().await.unwrap().iter().any(is_left) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TEST_TIMEOUT, gone).await.unwrap();
    stop.cancel();
    host.await.unwrap().unwrap();
    drop(killed);
}

//! Networks of containers.

use bollard::models::NetworkCreateRequest;
use engine::sandbox::{SandboxError, SandboxProvider};
use sandbox_docker::{DockerConfig, DockerProvider};
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::{Backend, error, remove, run, spec};

#[tokio::test]
async fn container_joins_the_configured_networks() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let spec = spec(&backend);
    let networks = [1, 2].map(|number| format!("glovebox-{}-{number}", spec.conversation));
    let engine = backend.engine().await;
    for name in &networks {
        let request = NetworkCreateRequest {
            name: name.clone(),
            internal: Some(true),
            ..Default::default()
        };
        engine.create_network(request).await.unwrap();
    }
    let [first, second] = networks.clone();
    let provider = DockerProvider::new(DockerConfig {
        network: Some(first),
        additional_networks: vec![second],
        ..backend.config()
    });
    let sandbox = provider.create(&spec, &|_| {}).await.unwrap();
    let interfaces = run(&*sandbox, 1, "ls /sys/class/net | tr '\\n' ' '")
        .await
        .content;
    remove(&backend, sandbox).await;
    for name in &networks {
        engine.remove_network(name).await.unwrap();
    }
    assert_eq!(interfaces.trim(), "eth0 eth1 lo");
}

#[tokio::test]
async fn start_error_advises_the_user_when_network_does_not_exist() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let name = "glovebox-no-such-network";
    for (network, additional_networks) in [
        (Some(name.to_owned()), vec![]),
        (None, vec![name.to_owned()]),
    ] {
        let config = DockerConfig {
            network,
            additional_networks,
            ..backend.config()
        };
        let spec = spec(&backend);
        let failed = error(DockerProvider::new(config).create(&spec, &|_| {}).await);
        let SandboxError::Start { detail, .. } = &failed else {
            panic!("{failed}")
        };
        assert!(
            detail.contains(&format!("docker network create {name}")) && !detail.contains('\n'),
            "{detail}"
        );
        assert_eq!(
            backend.remains(&backend.id_of(&spec)).await,
            Vec::<String>::new()
        );
    }
}

//! Images of another platform, and missing devices.

use bollard::query_parameters::{RemoveImageOptions, TagImageOptionsBuilder};
use engine::sandbox::{SandboxError, SandboxProvider, SandboxSpec};
use sandbox_docker::{DockerConfig, DockerProvider, Gpus};
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::{Backend, error, remove, run, spec};

use crate::skip::{Requirement, skip};

#[tokio::test]
async fn image_is_pulled_when_local_one_is_for_another_platform() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let engine = backend.engine().await;
    let image = backend.image().unwrap();
    let found = engine.inspect_image(&image).await.unwrap();
    let own = format!("{}/{}", found.os.unwrap(), found.architecture.unwrap());
    let with = |platform: &str| {
        DockerProvider::new(DockerConfig {
            platform: Some(platform.into()),
            ..backend.config()
        })
    };
    let sandbox = with(&own).create(&spec(&backend), &|_| {}).await.unwrap();
    assert_eq!(run(&*sandbox, 1, "echo here").await.content.trim(), "here");
    remove(&backend, sandbox).await;

    // The same image under a name whose registry does not exist.
    let repository = "127.0.0.1:1/glovebox-test/platform";
    let tagged = TagImageOptionsBuilder::default()
        .repo(repository)
        .tag("1")
        .build();
    engine.tag_image(&image, Some(tagged)).await.unwrap();
    let spec = SandboxSpec {
        image: Some(format!("{repository}:1")),
        ..spec(&backend)
    };
    let failed = error(with("linux/s390x").create(&spec, &|_| {}).await);
    engine
        .remove_image(&format!("{repository}:1"), None::<RemoveImageOptions>, None)
        .await
        .unwrap();
    assert!(
        matches!(failed, SandboxError::NoSuchImage { .. }),
        "{failed}"
    );
    assert!(failed.to_string().contains("linux/s390x"), "{failed}");
}

#[tokio::test]
async fn start_error_names_the_requirement_when_gpus_are_missing() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let info = backend.engine().await.info().await.unwrap();
    if info
        .runtimes
        .iter()
        .flatten()
        .any(|(name, _)| name.contains("nvidia"))
    {
        return skip(
            Requirement::EngineWithoutGpus,
            "this one has the runtime of NVIDIA",
        );
    }
    let provider = DockerProvider::new(DockerConfig {
        gpus: Some(Gpus::All),
        ..backend.config()
    });
    let spec = spec(&backend);
    let failed = error(provider.create(&spec, &|_| {}).await);
    assert!(matches!(failed, SandboxError::Start { .. }), "{failed:?}");
    assert!(
        failed.to_string().contains("NVIDIA Container Toolkit"),
        "{failed}"
    );
    assert_eq!(
        backend.remains(&backend.id_of(&spec)).await,
        Vec::<String>::new()
    );
}

//! Pulls from a fake registry on loopback.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bollard::query_parameters::RemoveImageOptions;
use engine::sandbox::{SandboxError, SandboxProvider, SandboxSpec, StartProgress};
use ring::digest::{SHA256, digest};
use sandbox_docker::{DockerConfig, DockerProvider};
use serde_json::json;
use tests::glovebox::Home;
use tests::sandbox_contract::docker::DockerBackend;
use tests::sandbox_contract::{Backend, error, spec};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const LAYERS: usize = 2;
const LAYER_BYTES: usize = 3 << 20;
/// Pieces of a layer. The pause after each is long enough for the engine to report progress.
const PIECES: usize = 20;
const PIECE_PAUSE: Duration = Duration::from_millis(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pull_progress_has_received_and_total_bytes() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let registry = TestRegistry::start(RegistryBehaviour::Serves).await;
    let spec = SandboxSpec {
        image: Some(registry.image()),
        ..spec(&backend)
    };
    let reports = Mutex::new(Vec::new());
    let on_progress = |progress: StartProgress| {
        if let StartProgress::Pulling {
            received_bytes,
            total_bytes,
            ..
        } = progress
        {
            reports.lock().unwrap().push((received_bytes, total_bytes));
        }
    };
    // The image has only random bytes, so the start fails afterwards.
    let created = backend
        .provider()
        .create(&spec, &on_progress)
        .await
        .map(drop);
    assert!(
        !matches!(created, Err(SandboxError::NoSuchImage { .. })),
        "{created:?}"
    );
    backend
        .provider()
        .destroy(&backend.id_of(&spec))
        .await
        .unwrap();
    backend
        .engine()
        .await
        .remove_image(&registry.image(), None::<RemoveImageOptions>, None)
        .await
        .unwrap();

    let reports = reports.into_inner().unwrap();
    let all = u64::try_from(registry.layers_length).unwrap();
    assert!(
        reports.is_sorted_by_key(|(received, _)| *received),
        "{reports:?}"
    );
    assert!(
        reports
            .iter()
            .any(|(received, total)| *total == Some(all) && *received > 0 && *received < all),
        "{reports:?}"
    );
    assert!(
        reports
            .iter()
            .all(|(received, total)| received <= &all && total.is_none_or(|total| total <= all)),
        "{reports:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pull_fails_in_time_when_registry_refuses_or_hangs() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    for (behaviour, reason) in [
        (RegistryBehaviour::Refuses, "docker login"),
        (RegistryBehaviour::Hangs, "not pulled within 2 s"),
    ] {
        let registry = TestRegistry::start(behaviour).await;
        let spec = SandboxSpec {
            image: Some(registry.image()),
            ..spec(&backend)
        };
        let config = DockerConfig {
            pull_timeout: Duration::from_secs(2),
            ..backend.config()
        };
        let provider = DockerProvider::new(config);
        let failed = timeout(Duration::from_secs(4), provider.create(&spec, &|_| {}))
            .await
            .unwrap();
        let failed = error(failed);
        assert!(
            matches!(failed, SandboxError::NoSuchImage { .. }),
            "{failed:?}"
        );
        let text = failed.to_string();
        assert!(text.contains(reason) && !text.contains('\n'), "{text}");
    }
}

/// Credentials of the registry, and the header in which a client sends them.
const USER: &str = "me";
const PASSWORD: &str = "a:secret";
const SHOWN: &str = "basic bWU6YTpzZWNyZXQ=";

/// Creates a sandbox from an image of this registry, with this client configuration and credential
/// helper. Returns stderr.
fn create(
    registry: &TestRegistry,
    client_config: &str,
    helper: Option<&str>,
    has_config_variable: bool,
) -> String {
    let home = Home::new();
    let folder = home.path().join(if has_config_variable {
        "elsewhere"
    } else {
        ".docker"
    });
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("config.json"), client_config).unwrap();
    let mut command = home.glovebox(&[
        "sandbox",
        "create",
        "--runtime",
        "docker",
        "--image",
        &registry.image(),
    ]);
    if has_config_variable {
        command.env("DOCKER_CONFIG", &folder);
    }
    if let Some(helper) = helper {
        let program = home.write("docker-credential-glovebox-test", helper);
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", home.path().display()));
    }
    let stderr = String::from_utf8(command.output().unwrap().stderr).unwrap();
    home.run(&["sandbox", "rm", "--runtime", "docker", "--all"])
        .expect(0);
    stderr
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_login_is_read_from_docker_config_and_helpers() {
    let Some(backend) = DockerBackend::busybox() else {
        return;
    };
    let registry = TestRegistry::start(RegistryBehaviour::WantsLogin).await;
    let place = registry.address.to_string();
    let without = create(&registry, "{}", None, false);
    assert!(
        without.contains("cannot be pulled") && without.contains("docker login"),
        "{without}"
    );

    let auth = SHOWN.trim_start_matches("basic ");
    let written = json!({"auths": {&place: {"auth": auth}}}).to_string();
    let store = json!({"auths": {&place: {}}, "credsStore": "glovebox-test"}).to_string();
    let own = json!({"credHelpers": {&place: "glovebox-test"}, "credsStore": "no-such-helper"})
        .to_string();
    let answer = json!({"ServerURL": &place, "Username": USER, "Secret": PASSWORD});
    let helper = format!("#!/bin/sh\n[ \"$1 $(cat)\" = 'get {place}' ] && echo '{answer}'\n");
    for (config, helper, has_config_variable) in [
        (&written, None, false),
        (&written, None, true),
        (&store, Some(&helper), false),
        (&own, Some(&helper), true),
    ] {
        let output = create(
            &registry,
            config,
            helper.map(String::as_str),
            has_config_variable,
        );
        // The image has only random bytes, so the start fails afterwards.
        assert!(!output.contains("does not exist"), "{output}");
        backend
            .engine()
            .await
            .remove_image(&registry.image(), None::<RemoveImageOptions>, None)
            .await
            .unwrap();
    }
    let broken = create(
        &registry,
        &store,
        Some("#!/bin/sh\necho the keychain is locked; exit 1\n"),
        false,
    );
    assert!(
        broken.contains("docker login") && broken.contains("the keychain is locked"),
        "{broken}"
    );
}

#[derive(Clone, Copy)]
enum RegistryBehaviour {
    Serves,
    WantsLogin,
    Refuses,
    Hangs,
}

/// A registry with one image over plain HTTP, which engines allow on loopback. It ends with the
/// test's runtime.
struct TestRegistry {
    address: std::net::SocketAddr,
    layers_length: usize,
}

impl TestRegistry {
    async fn start(behaviour: RegistryBehaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let documents = Arc::new(documents());
        let layers_length = documents
            .iter()
            .filter(|document| document.is_layer)
            .map(|layer| layer.body.len())
            .sum();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, behaviour, Arc::clone(&documents)));
            }
        });
        Self {
            address,
            layers_length,
        }
    }

    fn image(&self) -> String {
        format!("{}/glovebox/noise:1", self.address)
    }
}

struct RegistryDocument {
    path: String,
    kind: &'static str,
    is_layer: bool,
    body: Vec<u8>,
}

/// Returns the manifest and the documents that it references by digest.
fn documents() -> Vec<RegistryDocument> {
    let blob = |kind, is_layer, body: Vec<u8>| RegistryDocument {
        path: format!("/v2/glovebox/noise/blobs/{}", digest_of(&body)),
        kind,
        is_layer,
        body,
    };
    let layers: Vec<_> = (0..LAYERS).map(layer).collect();
    let digests: Vec<_> = layers.iter().map(|layer| digest_of(layer)).collect();
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": digests},
    })
    .to_string();
    let layer_kind = "application/vnd.docker.image.rootfs.diff.tar";
    let sized = |kind: &str, body: &[u8]| json!({"mediaType": kind, "size": body.len(), "digest": digest_of(body)});
    let config_kind = "application/vnd.docker.container.image.v1+json";
    let kind = "application/vnd.docker.distribution.manifest.v2+json";
    let manifest = json!({
        "schemaVersion": 2, "mediaType": kind, "config": sized(config_kind, config.as_bytes()),
        "layers": layers.iter().map(|layer| sized(layer_kind, layer)).collect::<Vec<_>>(),
    })
    .to_string();
    let mut documents = vec![
        blob(config_kind, false, config.into()),
        RegistryDocument {
            path: "/v2/".into(),
            kind: "application/json",
            is_layer: false,
            body: "{}".into(),
        },
    ];
    for name in ["1".to_owned(), digest_of(manifest.as_bytes())] {
        let (path, body) = (
            format!("/v2/glovebox/noise/manifests/{name}"),
            manifest.clone().into(),
        );
        documents.push(RegistryDocument {
            path,
            kind,
            is_layer: false,
            body,
        });
    }
    documents.extend(
        layers
            .into_iter()
            .map(|layer| blob(layer_kind, true, layer)),
    );
    documents
}

/// Returns an archive of random bytes. They are unique, because an engine does not request a layer
/// that it has.
fn layer(number: usize) -> Vec<u8> {
    let mut noise = vec![0; LAYER_BYTES];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut noise).unwrap();
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(noise.len() as u64);
    header.set_mode(0o644);
    archive
        .append_data(&mut header, format!("noise-{number}"), &noise[..])
        .unwrap();
    archive.into_inner().unwrap()
}

fn digest_of(bytes: &[u8]) -> String {
    let hash = digest(&SHA256, bytes);
    let digits: String = hash
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{digits}")
}

async fn answer(
    mut stream: TcpStream,
    behaviour: RegistryBehaviour,
    documents: Arc<Vec<RegistryDocument>>,
) -> std::io::Result<()> {
    let (reading, mut writing) = stream.split();
    let mut lines = BufReader::new(reading).lines();
    let request = lines.next_line().await?.unwrap_or_default();
    let mut shows_login = false;
    while let Some(line) = lines.next_line().await?.filter(|line| !line.is_empty()) {
        // The scheme `Basic` is case-insensitive.
        let value = line
            .split_once(": ")
            .map(|(_, value)| value.replacen("Basic", "basic", 1));
        shows_login |=
            line.to_lowercase().starts_with("authorization: ") && value.as_deref() == Some(SHOWN);
    }
    let mut words = request.split(' ');
    let (method, path) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let found = documents.iter().find(|document| document.path == path);
    let (status, kind, body): (_, _, &[u8]) = match (behaviour, found) {
        (RegistryBehaviour::Hangs, _) => return std::future::pending().await,
        (RegistryBehaviour::WantsLogin, _) if !shows_login => {
            ("401 Unauthorized", "application/json", b"{}")
        }
        (RegistryBehaviour::Refuses, _) => ("401 Unauthorized", "application/json", b"{}"),
        (RegistryBehaviour::Serves | RegistryBehaviour::WantsLogin, Some(found)) => {
            ("200 OK", found.kind, &found.body)
        }
        (RegistryBehaviour::Serves | RegistryBehaviour::WantsLogin, None) => {
            ("404 Not Found", "application/json", b"{}")
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nwww-authenticate: Basic realm=\"test\"\r\ndocker-distribution-api-version: registry/2.0\r\n\
         docker-content-digest: {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        digest_of(body),
        body.len()
    );
    writing.write_all(head.as_bytes()).await?;
    if method != "HEAD" {
        let is_layer = found.is_some_and(|found| found.is_layer);
        for piece in body.chunks(body.len().div_ceil(PIECES).max(1)) {
            writing.write_all(piece).await?;
            if is_layer {
                sleep(PIECE_PAUSE).await;
            }
        }
    }
    writing.shutdown().await
}

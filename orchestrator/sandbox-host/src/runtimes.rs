//! The requests about sandboxes: start, find, list, pause, resume, stop.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use engine::sandbox::{Lifetime, ResourceLimits, SandboxError, SandboxSpec, SandboxSummary};
use http::header;
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use protocol::SandboxId;
use protocol::runtime_api::{
    API_KEY_HEADER, Runtime, RuntimeRequest, RuntimeStatus, Runtimes, StartRequest,
};
use sandbox_client::provisioning::SNAPSHOT_REPOSITORY;
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::clients::Client;
use super::error::HostError;
use super::images;
use super::keys::KeyName;
use super::registry::{Lease, Reservation, SandboxRegistry};
use super::{SandboxHostConfig, Shared};
use engine::errors::format_chain;

type JsonResult<T> = Result<Json<T>, HostError>;

/// Enough for an environment of 1 MiB in JSON.
const MAX_BODY_BYTES: usize = 4 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The registry prefix of images that V0's client builds. This host builds none.
const REGISTRY_PREFIX: &str = "localhost/glovebox";

/// The client of a request, authenticated by its key.
pub(super) struct Caller {
    key: KeyName,
    /// `http://HOST`, by which the caller reaches this host.
    origin: String,
}

impl FromRequestParts<Arc<Shared>> for Caller {
    type Rejection = HostError;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, HostError> {
        let given = parts
            .headers
            .get(API_KEY_HEADER)
            .ok_or(HostError::Forbidden)?;
        let key = shared
            .config
            .keys
            .authenticate(given.as_bytes())
            .ok_or(HostError::Forbidden)?
            .clone();
        Client::authenticate(&parts.extensions);
        let origin = match &shared.config.public_url {
            Some(url) => url.to_string(),
            // Not verified, because only this caller receives it.
            None => {
                let host = parts
                    .headers
                    .get(header::HOST)
                    .and_then(|host| host.to_str().ok());
                format!(
                    "http://{}",
                    host.ok_or_else(|| HostError::Invalid("the header Host is missing".into()))?
                )
            }
        };
        Ok(Self { key, origin })
    }
}

pub(super) async fn alive() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// Starts a sandbox, which replaces the existing one of the session. The start is aborted if the
/// caller disconnects.
pub(super) async fn start(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: Body,
) -> JsonResult<Runtime> {
    let request: StartRequest = read_json(body).await?;
    let lease = Lease {
        key: caller.key.clone(),
        session: request.session_id.clone(),
    };
    let spec = spec(&lease, request, &shared.config)?;
    let sandbox = lease.sandbox()?;
    let reservation = shared.registry.reserve(&lease)?;
    // A task, which keeps the reservation until an aborted start has been cleaned up.
    let disconnected = shared.stop.child_token();
    let start = create_sandbox(
        Arc::clone(&shared),
        reservation,
        sandbox,
        spec,
        disconnected.clone(),
    );
    let _disconnect_guard = disconnected.drop_guard();
    let created = shared.tasks.spawn(start).await;
    let created = created.unwrap_or_else(|panic| Err(HostError::BadGateway(panic.to_string())))?;
    Ok(Json(caller.describe(&shared, &lease, &created).await?))
}

async fn create_sandbox(
    shared: Arc<Shared>,
    reservation: Reservation,
    sandbox: SandboxId,
    spec: SandboxSpec,
    disconnected: CancellationToken,
) -> Result<SandboxSummary, HostError> {
    let created = disconnected
        .run_until_cancelled(shared.provider.create(&spec, &|_| {}))
        .await;
    match created {
        Some(Ok(_sandbox)) => {
            reservation.lease();
            Ok(SandboxSummary {
                lifetime: spec.lifetime,
                image: spec.image,
                ..SandboxSummary::new(sandbox, Some(spec.conversation))
            })
        }
        Some(Err(error)) => Err(error.into()),
        None => {
            shared.provider.wait_for_cleanup().await;
            Err(HostError::InTransition)
        }
    }
}

/// Removes a sandbox, even if the caller disconnects.
pub(super) async fn stop(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: Body,
) -> JsonResult<Runtime> {
    let (lease, sandbox) = caller.read_own_sandbox(&shared, body).await?;
    let removal = shared.registry.start_removal(&sandbox)?;
    let removing = Arc::clone(&shared);
    let removed = shared.tasks.spawn(async move {
        removing.provider.destroy(removal.sandbox()).await?;
        removal.done();
        Ok::<_, SandboxError>(())
    });
    removed
        .await
        .unwrap_or_else(|panic| Err(removal_panic(panic)))?;
    Ok(Json(Runtime {
        status: RuntimeStatus::Stopped,
        ..new_runtime(&lease, &sandbox)
    }))
}

pub(super) async fn pause(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: Body,
) -> JsonResult<Runtime> {
    let (lease, sandbox) = caller.read_own_sandbox(&shared, body).await?;
    shared.provider.pausing()?.pause(&sandbox).await?;
    Ok(Json(Runtime {
        status: RuntimeStatus::Paused,
        ..new_runtime(&lease, &sandbox)
    }))
}

pub(super) async fn resume(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: Body,
) -> JsonResult<Runtime> {
    let (lease, sandbox) = caller.read_own_sandbox(&shared, body).await?;
    // Restarts the idle timeout.
    let _use = shared.registry.start_use(&sandbox)?;
    shared.provider.pausing()?.resume(&sandbox).await?;
    Ok(Json(Runtime {
        status: RuntimeStatus::Running,
        ..new_runtime(&lease, &sandbox)
    }))
}

pub(super) async fn session(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(session): Path<String>,
) -> JsonResult<Runtime> {
    caller
        .find(&shared, |lease, _| lease.session == session)
        .await
}

pub(super) async fn runtime(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(runtime): Path<String>,
) -> JsonResult<Runtime> {
    caller
        .find(&shared, |_, summary| summary.sandbox.as_str() == runtime)
        .await
}

pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
) -> JsonResult<Runtimes> {
    let mut runtimes = Vec::new();
    for (lease, summary) in
        SandboxRegistry::filter_by_key(&caller.key, shared.provider.list().await?)
    {
        runtimes.push(caller.describe(&shared, &lease, &summary).await?);
    }
    Ok(Json(Runtimes { runtimes }))
}

pub(super) async fn registry_prefix(_caller: Caller) -> Json<Value> {
    Json(json!({"registry_prefix": REGISTRY_PREFIX}))
}

/// Always true: a missing image is reported when a sandbox is started.
pub(super) async fn image_exists(_caller: Caller) -> Json<Value> {
    Json(json!({"exists": true}))
}

impl Caller {
    /// Reads a [`RuntimeRequest`] for one of the caller's own sandboxes.
    async fn read_own_sandbox(
        &self,
        shared: &Shared,
        body: Body,
    ) -> Result<(Lease, SandboxId), HostError> {
        let RuntimeRequest { runtime_id } = read_json(body).await?;
        let sandbox: SandboxId = runtime_id.parse().map_err(|_| HostError::NoSuchSandbox)?;
        let lease = shared
            .registry
            .find_lease(&self.key, &sandbox)
            .ok_or(HostError::NoSuchSandbox)?;
        Ok((lease, sandbox))
    }

    async fn find(
        &self,
        shared: &Shared,
        matches: impl Fn(&Lease, &SandboxSummary) -> bool,
    ) -> JsonResult<Runtime> {
        let summary = SandboxRegistry::filter_by_key(&self.key, shared.provider.list().await?);
        let found = summary
            .iter()
            .find(|(lease, summary)| matches(lease, summary));
        let (lease, summary) = found.ok_or(HostError::NoSuchSandbox)?;
        Ok(Json(self.describe(shared, lease, summary).await?))
    }

    /// Returns a sandbox with the address and key of its server.
    async fn describe(
        &self,
        shared: &Shared,
        lease: &Lease,
        summary: &SandboxSummary,
    ) -> Result<Runtime, HostError> {
        let access = shared.provider.server_access(&summary.sandbox).await?;
        let url = format!("{}/sandboxes/{}", self.origin, summary.sandbox);
        let status = match summary.condition.into() {
            RuntimeStatus::Running if shared.registry.is_starting(&summary.sandbox) => {
                RuntimeStatus::Starting
            }
            status => status,
        };
        let pod_status = match status {
            RuntimeStatus::Running => "ready",
            RuntimeStatus::Starting => "pending",
            RuntimeStatus::Paused => "paused",
            RuntimeStatus::Stopped | RuntimeStatus::Unknown => "failed",
        };
        Ok(Runtime {
            stream_url: Some(format!("{url}/stream")),
            url,
            session_api_key: Some(access.key.expose_secret().to_owned()),
            status,
            pod_status: Some(pod_status.into()),
            lifetime: Some(summary.lifetime.into()),
            image: summary.image.clone(),
            created_at: summary.created_at.map(|time| time.to_string()),
            ..new_runtime(lease, &summary.sandbox)
        })
    }
}

/// A runtime without details.
fn new_runtime(lease: &Lease, sandbox: &SandboxId) -> Runtime {
    Runtime {
        runtime_id: sandbox.to_string(),
        session_id: lease.session.clone(),
        url: String::new(),
        session_api_key: None,
        status: RuntimeStatus::Unknown,
        pod_status: None,
        stream_url: None,
        lifetime: None,
        image: None,
        created_at: None,
    }
}

/// Whether an image may be one that the operator, or another installation on the same engine, has
/// made for itself: their names cannot be guessed, but short starts of ids can.
fn may_be_of_others(image: &str) -> bool {
    let id = image.strip_prefix("sha256:").unwrap_or(image);
    // Also as `docker.io/library/NAME`.
    let name = image.rsplit('/').next().unwrap_or_default();
    id.bytes().all(|byte| byte.is_ascii_hexdigit())
        || name.split([':', '@']).next() == Some(SNAPSHOT_REPOSITORY)
}

fn may_start(image: &str, config: &SandboxHostConfig) -> bool {
    let allowed = &config.allowed_images;
    allowed.is_empty()
        || config
            .default_image
            .as_deref()
            .is_some_and(|default| images::is_same(default, image))
        || allowed.iter().any(|pattern| pattern.matches(image))
}

/// Minimum resources of a sandbox.
const MIN_RESOURCES: ResourceLimits = ResourceLimits {
    memory_bytes: 16 << 20,
    cpus: 0.01,
    pids: 1,
    disk_bytes: 1 << 20,
};

/// Converts a request. Ignores the command and the class: the host has its own action server and
/// runtime.
fn spec(
    lease: &Lease,
    request: StartRequest,
    config: &SandboxHostConfig,
) -> Result<SandboxSpec, HostError> {
    let (factor, max_factor) = (request.resource_factor, config.max_resource_factor);
    if !(factor > 0.0 && factor <= max_factor) {
        return Err(HostError::Invalid(format!(
            "the resource_factor is {factor}: the maximum of this host is {max_factor}"
        )));
    }
    let image = request.image.filter(|image| !image.is_empty());
    if let Some(image) = image.as_deref().filter(|image| may_be_of_others(image)) {
        return Err(HostError::Invalid(format!(
            "the image {image} is a snapshot, or an id instead of a name"
        )));
    }
    if let Some(image) = &image
        && !may_start(image, config)
    {
        return Err(HostError::Invalid(format!(
            "this host does not allow the image {image}"
        )));
    }
    // Clients of V0 send no resources.
    if let Some(image) = &image
        && !config.has_images
        && request.resources.is_some()
    {
        return Err(HostError::Invalid(format!(
            "the sandboxes of this host have no images, and {image} is requested: leave it out"
        )));
    }
    let resources = request.resources.map_or(config.resources, |requested| {
        with_defaults(requested, &config.resources)
    });
    let resources = scaled(resources, factor);
    if exceeds(&resources, &scaled(config.resources, max_factor)) {
        return Err(HostError::Invalid(format!(
            "more resources are requested than this host allows for one sandbox: at most {max_factor} times its own limits"
        )));
    }
    if is_below_minimum(&resources, &config.resources) {
        return Err(HostError::Invalid(
            "fewer resources are requested than a sandbox needs".to_owned(),
        ));
    }
    let lifetime = match request.lifetime {
        Some(lifetime) => Lifetime::try_from(lifetime)
            .map_err(|error| HostError::Invalid(format!("the body is invalid: {error}")))?,
        None => Lifetime::Conversation,
    };
    Ok(SandboxSpec {
        lifetime,
        image: image.or_else(|| config.default_image.clone()),
        environment: request.environment,
        resources,
        ..SandboxSpec::new(lease.conversation()?)
    })
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an approximate limit suffices"
)]
fn scaled(
    ResourceLimits {
        memory_bytes,
        cpus,
        pids,
        disk_bytes,
    }: ResourceLimits,
    factor: f64,
) -> ResourceLimits {
    let bytes = |bytes: u64| (bytes as f64 * factor) as u64;
    ResourceLimits {
        memory_bytes: bytes(memory_bytes),
        cpus: cpus * factor,
        pids,
        disk_bytes: bytes(disk_bytes),
    }
}

/// Replaces what a client has left at its default, which it sends too.
fn with_defaults(requested: ResourceLimits, defaults: &ResourceLimits) -> ResourceLimits {
    fn choose<T: PartialEq>(requested: T, sent_by_default: &T, default: T) -> T {
        if requested == *sent_by_default {
            default
        } else {
            requested
        }
    }
    let sent = ResourceLimits::default();
    ResourceLimits {
        memory_bytes: choose(
            requested.memory_bytes,
            &sent.memory_bytes,
            defaults.memory_bytes,
        ),
        cpus: choose(requested.cpus, &sent.cpus, defaults.cpus),
        pids: choose(requested.pids, &sent.pids, defaults.pids),
        disk_bytes: choose(requested.disk_bytes, &sent.disk_bytes, defaults.disk_bytes),
    }
}

/// Whether a limit is so low that a runtime could take it for none. The host may have configured a
/// lower one.
fn is_below_minimum(requested: &ResourceLimits, own: &ResourceLimits) -> bool {
    requested.memory_bytes < MIN_RESOURCES.memory_bytes.min(own.memory_bytes)
        || requested.cpus < MIN_RESOURCES.cpus.min(own.cpus)
        || requested.pids < MIN_RESOURCES.pids.min(own.pids)
        || requested.disk_bytes < MIN_RESOURCES.disk_bytes.min(own.disk_bytes)
}

fn exceeds(requested: &ResourceLimits, max: &ResourceLimits) -> bool {
    requested.memory_bytes > max.memory_bytes
        || !(requested.cpus > 0.0 && requested.cpus <= max.cpus)
        || requested.pids > max.pids
        || requested.disk_bytes > max.disk_bytes
}

async fn read_json<T: DeserializeOwned>(body: Body) -> Result<T, HostError> {
    let body = timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await;
    let body = match body.map_err(|_| HostError::SlowBody(BODY_TIMEOUT.as_secs()))? {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Err(HostError::TooLarge(MAX_BODY_BYTES));
        }
        Err(error) => {
            return Err(HostError::Invalid(format!(
                "the body broke off: {}",
                format_chain(error.as_ref())
            )));
        }
    };
    serde_json::from_slice(&body)
        .map_err(|error| HostError::Invalid(format!("the body is invalid: {error}")))
}

fn removal_panic(panic: tokio::task::JoinError) -> SandboxError {
    SandboxError::host("remove", "a sandbox", panic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_leaves_at_its_default_is_bounded_by_the_host() {
        let config = SandboxHostConfig {
            resources: ResourceLimits {
                memory_bytes: 256 << 20,
                pids: 100,
                ..ResourceLimits::default()
            },
            ..SandboxHostConfig::new("k:0123456789abcdef0123456789abcdef".parse().unwrap())
        };
        let lease = Lease::from_conversation(&"k.session".parse().unwrap()).unwrap();
        let resources = |requested: Option<ResourceLimits>| {
            let mut request: StartRequest =
                serde_json::from_value(serde_json::json!({"session_id": "session"})).unwrap();
            request.resources = requested;
            spec(&lease, request, &config).map(|spec| spec.resources)
        };
        for requested in [None, Some(ResourceLimits::default())] {
            assert_eq!(resources(requested).unwrap(), config.resources);
        }
        let small = ResourceLimits {
            memory_bytes: 128 << 20,
            ..ResourceLimits::default()
        };
        let expected = ResourceLimits {
            memory_bytes: small.memory_bytes,
            ..config.resources
        };
        assert_eq!(resources(Some(small)).unwrap(), expected);
        let large = ResourceLimits {
            memory_bytes: 512 << 20,
            ..ResourceLimits::default()
        };
        assert!(resources(Some(large)).is_err());
        let default = ResourceLimits::default;
        for unbounded in [
            ResourceLimits {
                memory_bytes: 0,
                ..default()
            },
            ResourceLimits {
                cpus: 1e-12,
                ..default()
            },
            ResourceLimits {
                pids: 0,
                ..default()
            },
            ResourceLimits {
                disk_bytes: 0,
                ..default()
            },
        ] {
            assert!(resources(Some(unbounded)).is_err(), "{unbounded:?}");
        }
    }

    #[test]
    fn sandbox_is_bounded_when_the_resource_factor_is_tiny() {
        let config = SandboxHostConfig::new("k:0123456789abcdef0123456789abcdef".parse().unwrap());
        let lease = Lease::from_conversation(&"k.session".parse().unwrap()).unwrap();
        let request = serde_json::json!({"session_id": "session", "resource_factor": 1e-13});
        let request = serde_json::from_value(request).unwrap();
        assert!(spec(&lease, request, &config).is_err());
    }

    #[test]
    fn image_of_others_is_refused() {
        for (image, is_refused) in [
            ("8d", true),
            ("sha256:8d1f", true),
            ("glovebox-snapshot:8d48", true),
            ("docker.io/library/glovebox-snapshot@sha256:8d48", true),
            ("debian:bookworm-slim", false),
            ("registry.example:5000/a/b@sha256:8d48", false),
            ("glovebox-test/debian:latest", false),
        ] {
            assert_eq!(may_be_of_others(image), is_refused, "{image}");
        }
    }

    #[test]
    fn only_the_default_and_allowed_images_are_started() {
        let config = SandboxHostConfig {
            allowed_images: vec!["team/*".parse().unwrap()],
            default_image: Some("debian:13".into()),
            ..SandboxHostConfig::new("k:0123456789abcdef0123456789abcdef".parse().unwrap())
        };
        let lease = Lease::from_conversation(&"k.session".parse().unwrap()).unwrap();
        let image = |image: &str| {
            let request = serde_json::json!({"session_id": "session", "image": image});
            let request = serde_json::from_value(request).unwrap();
            spec(&lease, request, &config).map(|spec| spec.image)
        };
        for (requested, started) in [
            ("", "debian:13"),
            ("debian:13", "debian:13"),
            ("team/a", "team/a"),
        ] {
            assert_eq!(image(requested).unwrap().as_deref(), Some(started));
        }
        let refused = image("debian:12").unwrap_err().to_string();
        assert!(refused.contains("debian:12"), "{refused}");
    }

    #[test]
    fn image_is_refused_when_the_host_has_none() {
        let config = SandboxHostConfig {
            has_images: false,
            ..SandboxHostConfig::new("k:0123456789abcdef0123456789abcdef".parse().unwrap())
        };
        let lease = Lease::from_conversation(&"k.session".parse().unwrap()).unwrap();
        let of_v0 = serde_json::json!({"session_id": "session", "image": "ours:1"});
        let request = || serde_json::from_value::<StartRequest>(of_v0.clone()).unwrap();
        assert!(spec(&lease, request(), &config).is_ok());
        let mut request = request();
        request.resources = Some(ResourceLimits::default());
        let refused = spec(&lease, request, &config).unwrap_err().to_string();
        assert!(refused.contains("ours:1"), "{refused}");
    }
}

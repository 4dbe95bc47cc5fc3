//! Sandboxes as their owners see and ask for them: started, found, paused, resumed, stopped.

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
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::clients::Client;
use super::error::HostError;
use super::keys::KeyName;
use super::register::{Lending, Register, Reservation};
use super::{SandboxHostConfig, Shared};
use crate::placement::chain;
use crate::remote::wire::{API_KEY_HEADER, Runtime, RuntimeRequest, Runtimes, StartRequest, Status};

type Answer<T> = Result<Json<T>, HostError>;

/// An environment of a megabyte, in JSON's words.
const MAX_BODY: usize = 4 << 20;
const BODY_WAIT: Duration = Duration::from_secs(30);

/// What V0's client builds images under. Nothing is ever built here.
const REGISTRY_PREFIX: &str = "localhost/glovebox";

/// Who asks, by the key in the request.
pub(super) struct Caller {
    key: KeyName,
    /// `http://HOST`, as the caller reaches this host.
    origin: String,
}

impl FromRequestParts<Arc<Shared>> for Caller {
    type Rejection = HostError;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, HostError> {
        let given = parts.headers.get(API_KEY_HEADER).ok_or(HostError::Forbidden)?;
        let key = shared.config.keys.name_of(given.as_bytes()).ok_or(HostError::Forbidden)?.clone();
        Client::authenticate(&parts.extensions);
        let origin = match &shared.config.public_url {
            Some(url) => url.to_string(),
            // Only the caller is told what the caller says.
            None => {
                let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
                format!(
                    "http://{}",
                    host.ok_or_else(|| HostError::Invalid("there is no header Host".into()))?
                )
            }
        };
        Ok(Self { key, origin })
    }
}

pub(super) async fn alive() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// Places the session's sandbox, in the place of one that it has. A caller that goes away ends the start.
pub(super) async fn start(State(shared): State<Arc<Shared>>, caller: Caller, body: Body) -> Answer<Runtime> {
    let request: StartRequest = read(body).await?;
    let lending = Lending { key: caller.key.clone(), session: request.session_id.clone() };
    let spec = spec(&lending, request, &shared.config)?;
    let sandbox = lending.sandbox()?;
    let reservation = shared.register.reserve(&lending)?;
    // In a task of its own: the place is held until what an abandoned start has left is removed.
    let caller_left = shared.stop.child_token();
    let start = place(Arc::clone(&shared), reservation, sandbox, spec.clone(), caller_left.clone());
    let _leaving = caller_left.drop_guard();
    let placed =
        shared.tasks.spawn(start).await.unwrap_or_else(|panic| Err(HostError::Broken(panic.to_string())))?;
    Ok(Json(caller.tell(&shared, &lending, &placed).await?))
}

async fn place(
    shared: Arc<Shared>,
    reservation: Reservation,
    sandbox: SandboxId,
    spec: SandboxSpec,
    caller_left: tokio_util::sync::CancellationToken,
) -> Result<SandboxSummary, HostError> {
    let created = caller_left.run_until_cancelled(shared.provider.create(&spec, &|_| {})).await;
    match created {
        Some(Ok(_sandbox)) => {
            reservation.lend();
            Ok(SandboxSummary {
                sandbox,
                conversation: Some(spec.conversation),
                lifetime: spec.lifetime,
                image: spec.image,
                condition: engine::sandbox::SandboxState::Running,
                created_at: None,
            })
        }
        Some(Err(error)) => Err(error.into()),
        None => {
            shared.provider.wait_for_cleanup().await;
            Err(HostError::InMotion)
        }
    }
}

/// Removes it, to the end also when the caller goes away.
pub(super) async fn stop(State(shared): State<Arc<Shared>>, caller: Caller, body: Body) -> Answer<Runtime> {
    let (lending, sandbox) = caller.own(&shared, body).await?;
    let removal = shared.register.begin_removal(&sandbox)?;
    let removing = Arc::clone(&shared);
    let removed = shared.tasks.spawn(async move {
        removing.provider.destroy(removal.sandbox()).await?;
        removal.done();
        Ok::<_, SandboxError>(())
    });
    removed.await.unwrap_or_else(|panic| Err(broken(panic)))?;
    Ok(Json(Runtime { status: Status::Stopped, ..told(&lending, &sandbox) }))
}

pub(super) async fn pause(State(shared): State<Arc<Shared>>, caller: Caller, body: Body) -> Answer<Runtime> {
    let (lending, sandbox) = caller.own(&shared, body).await?;
    shared.provider.pausing()?.pause(&sandbox).await?;
    Ok(Json(Runtime { status: Status::Paused, ..told(&lending, &sandbox) }))
}

pub(super) async fn resume(State(shared): State<Arc<Shared>>, caller: Caller, body: Body) -> Answer<Runtime> {
    let (lending, sandbox) = caller.own(&shared, body).await?;
    // One that goes on has just been spoken to.
    let _use = shared.register.begin_use(&sandbox)?;
    shared.provider.pausing()?.resume(&sandbox).await?;
    Ok(Json(Runtime { status: Status::Running, ..told(&lending, &sandbox) }))
}

pub(super) async fn session(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(session): Path<String>,
) -> Answer<Runtime> {
    caller.find(&shared, |lending, _| lending.session == session).await
}

pub(super) async fn runtime(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(runtime): Path<String>,
) -> Answer<Runtime> {
    caller.find(&shared, |_, placed| placed.sandbox.as_str() == runtime).await
}

pub(super) async fn list(State(shared): State<Arc<Shared>>, caller: Caller) -> Answer<Runtimes> {
    let mut runtimes = Vec::new();
    for (lending, placed) in Register::of_key(&caller.key, shared.provider.list().await?) {
        runtimes.push(caller.tell(&shared, &lending, &placed).await?);
    }
    Ok(Json(Runtimes { runtimes }))
}

pub(super) async fn registry_prefix(_caller: Caller) -> Json<Value> {
    Json(json!({"registry_prefix": REGISTRY_PREFIX}))
}

/// Images are looked for and pulled when a sandbox is started, which says so when there is none.
pub(super) async fn image_exists(_caller: Caller) -> Json<Value> {
    Json(json!({"exists": true}))
}

impl Caller {
    /// The caller's own sandbox that the body names.
    async fn own(&self, shared: &Shared, body: Body) -> Result<(Lending, SandboxId), HostError> {
        let RuntimeRequest { runtime_id } = read(body).await?;
        let sandbox: SandboxId = runtime_id.parse().map_err(|_| HostError::NoSuchSandbox)?;
        let lending = shared.register.lending_of(&self.key, &sandbox).ok_or(HostError::NoSuchSandbox)?;
        Ok((lending, sandbox))
    }

    async fn find(
        &self,
        shared: &Shared,
        is_meant: impl Fn(&Lending, &SandboxSummary) -> bool,
    ) -> Answer<Runtime> {
        let placed = Register::of_key(&self.key, shared.provider.list().await?);
        let found = placed.iter().find(|(lending, placed)| is_meant(lending, placed));
        let (lending, placed) = found.ok_or(HostError::NoSuchSandbox)?;
        Ok(Json(self.tell(shared, lending, placed).await?))
    }

    /// A sandbox with everything that its owner needs to speak to it.
    async fn tell(
        &self,
        shared: &Shared,
        lending: &Lending,
        placed: &SandboxSummary,
    ) -> Result<Runtime, HostError> {
        let access = shared.provider.server_access(&placed.sandbox).await?;
        let url = format!("{}/sandboxes/{}", self.origin, placed.sandbox);
        let status = match placed.condition.into() {
            Status::Running if shared.register.is_starting(&placed.sandbox) => Status::Starting,
            status => status,
        };
        let pod_status = match status {
            Status::Running => "ready",
            Status::Starting => "pending",
            Status::Paused => "paused",
            Status::Stopped | Status::Unknown => "failed",
        };
        Ok(Runtime {
            stream_url: Some(format!("{url}/stream")),
            url,
            session_api_key: Some(access.key.expose_secret().to_owned()),
            status,
            pod_status: Some(pod_status.into()),
            lifetime: Some(placed.lifetime.into()),
            image: placed.image.clone(),
            created_at: placed.created_at.map(|time| time.to_string()),
            ..told(lending, &placed.sandbox)
        })
    }
}

fn told(lending: &Lending, sandbox: &SandboxId) -> Runtime {
    Runtime {
        runtime_id: sandbox.to_string(),
        session_id: lending.session.clone(),
        url: String::new(),
        session_api_key: None,
        status: Status::Unknown,
        pod_status: None,
        stream_url: None,
        lifetime: None,
        image: None,
        created_at: None,
    }
}

/// What is to be placed. The command and the class are for other services: here the server is ours, and the runtime the
/// machine's.
fn spec(
    lending: &Lending,
    request: StartRequest,
    config: &SandboxHostConfig,
) -> Result<SandboxSpec, HostError> {
    let (factor, max_factor) = (request.resource_factor, config.max_resource_factor);
    if !(factor > 0.0 && factor <= max_factor) {
        return Err(HostError::Invalid(format!(
            "the resource_factor is {factor}: this host gives at most {max_factor}"
        )));
    }
    let resources = match request.resources {
        Some(bounds) => scaled(bounds.into(), factor),
        None => scaled(ResourceLimits::default(), factor),
    };
    if exceeds(&resources, &scaled(ResourceLimits::default(), max_factor)) {
        return Err(HostError::Invalid(format!(
            "more resources are asked for than this host gives one sandbox: {max_factor} times the default at most"
        )));
    }
    Ok(SandboxSpec {
        lifetime: request.lifetime.map_or(Lifetime::Conversation, Lifetime::from),
        image: request.image.filter(|image| !image.is_empty()).or_else(|| config.default_image.clone()),
        environment: request.environment,
        resources,
        ..SandboxSpec::new(lending.conversation()?)
    })
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bound needs no more"
)]
fn scaled(
    ResourceLimits { memory_bytes, cpus, pids, disk_bytes }: ResourceLimits,
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

fn exceeds(asked: &ResourceLimits, most: &ResourceLimits) -> bool {
    asked.memory_bytes > most.memory_bytes
        || !(asked.cpus > 0.0 && asked.cpus <= most.cpus)
        || asked.pids > most.pids
        || asked.disk_bytes > most.disk_bytes
}

async fn read<T: DeserializeOwned>(body: Body) -> Result<T, HostError> {
    let body = timeout(BODY_WAIT, Limited::new(body, MAX_BODY).collect()).await;
    let body = match body.map_err(|_| HostError::SlowBody(BODY_WAIT.as_secs()))? {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(HostError::TooLarge(MAX_BODY)),
        Err(error) => {
            return Err(HostError::Invalid(format!("the body broke off: {}", chain(error.as_ref()))));
        }
    };
    serde_json::from_slice(&body)
        .map_err(|error| HostError::Invalid(format!("the body cannot be read: {error}")))
}

fn broken(panic: tokio::task::JoinError) -> SandboxError {
    SandboxError::Host { doing: "removing a sandbox".into(), source: panic.into() }
}

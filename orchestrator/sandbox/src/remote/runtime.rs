//! Sandboxes of a runtime API, as OpenHands V0 knows it: started, found again, paused, resumed and stopped by requests,
//! and spoken to at the address and with the key that each of them comes with.
//!
//! The session is the conversation. A sandbox-host's sandbox is reached through a stream that it upgrades; another
//! service's at its `url`, where an action server must listen: [`DEFAULT_REMOTE_COMMAND`] starts one in an image that has
//! it. Like V0's client it tries again what fails for the moment, until its time is over.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::{
    Lifetime, Sandbox, SandboxError, SandboxMonitoring, SandboxPausing, SandboxProvider, SandboxSnapshots,
    SandboxSpec, SandboxState, SandboxSummary, ServerAccess, StartProgress,
};
use protocol::SandboxId;
use protocol::record::SandboxLeased;
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;

use super::api::{ApiError, RuntimeApi, secret_header, unavailable};
use super::direct::Direct;
use super::endpoint::Endpoint;
use super::lent_stream::LentStream;
use super::retry::Retries;
use super::trust::Trust;
use super::wire::{Runtime, RuntimeRequest, Runtimes, StartRequest, Status};
use super::{RUNTIME, refuse_what_stays_here};
use crate::action_client::{ActionClient, Address};
use crate::connect::{Connector, ServerUrl};
use crate::placement::{conversation_of, sandbox_id_of, start_error};
use crate::unfinished_start::{Steps, UnfinishedStart};

/// What a service that is not a sandbox-host runs in an image that has `action-server` on its path: V0's port, and the
/// key that V0's services put into the environment, which is taken out of the server's own.
pub const DEFAULT_REMOTE_COMMAND: [&str; 3] = [
    "sh",
    "-c",
    "mkdir -p /workspace && printf '%s\\n' \"$SESSION_API_KEY\" | env -u SESSION_API_KEY \
     action-server serve --listen 0.0.0.0:60000 --key-stdin --working-dir /workspace",
];

/// Where V0's services run that.
const WORKING_DIR: &str = "/";

/// V0's other class is what its services use anyway.
const SYSBOX: &str = "sysbox";
const SYSBOX_RUNTIME: &str = "sysbox-runc";

/// Between two looks at a sandbox that is not ready.
const READY_PAUSE: Duration = Duration::from_secs(1);

/// How often an abandoned sandbox is tried to be stopped; what stays then has the service's own idle limit.
const REMOVAL_TIME: Duration = Duration::from_secs(30);

/// How a runtime API is used. The fields have V0's names, without `remote_runtime_` where it has that.
#[derive(Debug)]
pub struct RemoteRuntimeConfig {
    /// `remote_runtime_api_url`. Over plain `http` keys and everything else can be read on the way.
    pub api_url: ServerUrl,
    /// `api_key`.
    pub api_key: SecretString,
    /// `remote_runtime_init_timeout`: from asking for a sandbox to its answer.
    pub init_timeout: Duration,
    /// `remote_runtime_api_timeout`: for one request.
    pub api_timeout: Duration,
    /// `remote_runtime_enable_retries`.
    pub enable_retries: bool,
    /// `remote_runtime_class`: `sysbox`, or whatever the service uses.
    pub class: Option<String>,
    /// `remote_runtime_resource_factor`; V0's services take 1, 2, 4 and 8.
    pub resource_factor: f64,
    /// The image when a spec names none; nothing: the service's own default, which V0's services do not have.
    pub default_image: Option<String>,
    /// What a service that is not a sandbox-host runs in it.
    pub command: Vec<String>,
    /// A file of PEM certificates that are believed beside the machine's own.
    pub additional_ca: Option<PathBuf>,
}

impl RemoteRuntimeConfig {
    /// V0's defaults.
    pub fn new(api_url: ServerUrl, api_key: SecretString) -> Self {
        Self {
            api_url,
            api_key,
            init_timeout: Duration::from_secs(180),
            api_timeout: Duration::from_secs(180),
            enable_retries: true,
            class: None,
            resource_factor: 1.0,
            default_image: None,
            command: DEFAULT_REMOTE_COMMAND.map(String::from).into(),
            additional_ca: None,
        }
    }
}

/// Asks a runtime API for sandboxes.
pub struct RemoteRuntimeProvider {
    service: Arc<Service>,
    removals: TaskTracker,
}

/// What a start's removal needs too.
struct Service {
    config: RemoteRuntimeConfig,
    api: RuntimeApi,
}

impl RemoteRuntimeProvider {
    /// Does not speak to the service yet.
    ///
    /// # Errors
    /// No header can carry the key.
    pub fn new(config: RemoteRuntimeConfig) -> Result<Self, SandboxError> {
        let trust = Arc::new(Trust::new(config.additional_ca.clone()));
        let api = RuntimeApi::new(Endpoint::new(config.api_url.clone(), trust), &config.api_key)?;
        Ok(Self { service: Arc::new(Service { config, api }), removals: TaskTracker::new() })
    }

    /// From asking to an answer of the sandbox's server, before the deadline.
    async fn place(
        &self,
        sandbox: &SandboxId,
        spec: &SandboxSpec,
        steps: Steps,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<ActionClient, SandboxError> {
        let service = &self.service;
        let deadline = Instant::now() + service.config.init_timeout;
        on_progress(StartProgress::Starting);
        let mut retries = Retries::until(deadline, service.config.enable_retries);
        let runtime = loop {
            let request = service.start_request(spec);
            let starting = Arc::clone(service);
            // A step that is taken to its end: the service starts it also when nobody waits for its answer any more.
            let step = async move { Ok(starting.start(&request, deadline).await) };
            match steps.take(step).await? {
                Ok(runtime) => break runtime,
                Err(error) if error.may_pass() => {
                    tracing::info!(%sandbox, %error, "asking again for a sandbox");
                    if !retries.wait(error.retry_after()).await {
                        return Err(error.of(spec.image.as_deref()));
                    }
                }
                Err(error) => return Err(error.of(spec.image.as_deref())),
            }
        };
        on_progress(StartProgress::Connecting);
        let ready = timeout_at(deadline, service.ready(runtime)).await;
        let runtime = ready.unwrap_or_else(|_| Err(start_error(service.out_of_time("is not ready"))))?;
        let address = service.address(sandbox, runtime)?;
        ActionClient::connect(address, deadline.saturating_duration_since(Instant::now())).await
    }

    /// The sandbox, running: one that is paused is resumed.
    async fn running(&self, sandbox: &SandboxId) -> Result<Address, SandboxError> {
        let service = &self.service;
        let runtime = match service.session_of(sandbox).await? {
            None => return Err(lost(sandbox, "there is none of that name")),
            Some(runtime) => runtime,
        };
        match runtime.status {
            Status::Stopped => Err(lost(sandbox, "it was stopped")),
            Status::Paused => {
                service.ask(sandbox, "/resume", &runtime.runtime_id).await?;
                let ready = tokio::time::timeout(service.config.init_timeout, service.ready(runtime)).await;
                let runtime =
                    ready.unwrap_or_else(|_| Err(unavailable(service.out_of_time("does not go on"))))?;
                service.address(sandbox, runtime)
            }
            Status::Starting | Status::Running | Status::Unknown => service.address(sandbox, runtime),
        }
    }

    async fn ask_of_session(&self, sandbox: &SandboxId, path: &str) -> Result<(), SandboxError> {
        match self.service.session_of(sandbox).await? {
            None => Err(lost(sandbox, "there is none of that name")),
            Some(runtime) => self.service.ask(sandbox, path, &runtime.runtime_id).await,
        }
    }
}

impl Service {
    fn start_request(&self, spec: &SandboxSpec) -> StartRequest {
        let RemoteRuntimeConfig { class, resource_factor, default_image, command, .. } = &self.config;
        StartRequest {
            image: spec.image.clone().or_else(|| default_image.clone()),
            command: command.clone(),
            working_dir: WORKING_DIR.into(),
            environment: spec.environment.clone(),
            session_id: spec.conversation.to_string(),
            resource_factor: *resource_factor,
            runtime_class: (class.as_deref() == Some(SYSBOX)).then(|| SYSBOX_RUNTIME.to_owned()),
            lifetime: Some(spec.lifetime.into()),
            resources: Some(spec.resources.into()),
        }
    }

    /// One attempt: stops what the session had before, and starts afresh.
    async fn start(&self, request: &StartRequest, deadline: Instant) -> Result<Runtime, ApiError> {
        let wait = self.config.api_timeout.min(deadline.saturating_duration_since(Instant::now()));
        if let Some(before) = self.session(&request.session_id, wait).await?
            && before.status != Status::Stopped
        {
            self.done("/stop", &before.runtime_id, wait).await?;
        }
        self.api.post("/start", request, wait).await
    }

    /// Waits until the service says that a sandbox is ready. One that does not say will be heard from its server.
    async fn ready(&self, mut runtime: Runtime) -> Result<Runtime, SandboxError> {
        while runtime.stream_url.is_none() {
            let found: Result<Runtime, ApiError> = self
                .api
                .get(&format!("/runtime/{}", path_part(&runtime.runtime_id)?), self.config.api_timeout)
                .await;
            match found {
                Ok(found) => {
                    match found.pod_status.map(|status| status.to_lowercase()).as_deref() {
                        Some("ready") | None => break,
                        Some(failed @ ("failed" | "unknown" | "crashloopbackoff")) => {
                            let id = &runtime.runtime_id;
                            return Err(start_error(format!(
                                "the service says of the sandbox {id}: {failed}"
                            )));
                        }
                        Some(_pending) => {}
                    }
                    runtime.session_api_key = found.session_api_key.or(runtime.session_api_key);
                }
                Err(error) if error.is_not_found() || error.may_pass() => {}
                Err(error) => return Err(error.of(None)),
            }
            sleep(READY_PAUSE).await;
        }
        Ok(runtime)
    }

    fn out_of_time(&self, what: &str) -> String {
        format!(
            "the sandbox {what} within {} s (remote_runtime_init_timeout)",
            self.config.init_timeout.as_secs_f32()
        )
    }

    /// How the sandbox's server is reached.
    fn address(&self, sandbox: &SandboxId, runtime: Runtime) -> Result<Address, SandboxError> {
        let key = SecretString::from(runtime.session_api_key.unwrap_or_default());
        let endpoint = |url: &str| {
            let url: ServerUrl =
                url.parse().map_err(|error| unavailable(format!("the service answers: {error}")))?;
            if self.config.api_url.is_tls() && !url.is_tls() {
                return Err(unavailable(format!(
                    "the service is reached over TLS and its sandbox at {url} is not: its key would be sent in the clear; \
                     a sandbox-host behind a proxy needs --public-url https://…"
                )));
            }
            Ok(self.api.endpoint.beside(url))
        };
        let connector: Box<dyn Connector> = match &runtime.stream_url {
            Some(url) => {
                let key = secret_header(&key).ok_or_else(|| {
                    unavailable("the service answers with a key that no header can carry".into())
                })?;
                Box::new(LentStream::new(endpoint(url)?, key))
            }
            None => Box::new(Direct::to(endpoint(&runtime.url)?)),
        };
        Ok(Address { runtime: RUNTIME, sandbox: sandbox.clone(), key, connector })
    }

    async fn session_of(&self, sandbox: &SandboxId) -> Result<Option<Runtime>, SandboxError> {
        let Some(conversation) = conversation_of(sandbox.as_str()) else { return Ok(None) };
        let session = conversation.to_string();
        self.with_retries(|| self.session(&session, self.config.api_timeout))
            .await
            .map_err(|error| error.of(None))
    }

    async fn session(&self, session: &str, wait: Duration) -> Result<Option<Runtime>, ApiError> {
        match self.api.get(&format!("/sessions/{session}"), wait).await {
            Ok(runtime) => Ok(Some(runtime)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stops, pauses or resumes. Which of it is of no interest to a service that has lost it.
    async fn done(&self, path: &str, runtime_id: &str, wait: Duration) -> Result<(), ApiError> {
        let request = RuntimeRequest { runtime_id: runtime_id.to_owned() };
        match self.api.post::<Value>(path, &request, wait).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() && path == "/stop" => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn ask(&self, sandbox: &SandboxId, path: &str, runtime_id: &str) -> Result<(), SandboxError> {
        let asked = self.with_retries(|| self.done(path, runtime_id, self.config.api_timeout)).await;
        asked.map_err(|error| match error.of(None) {
            SandboxError::Unsupported { runtime, .. } if path == "/pause" => {
                SandboxError::Unsupported { runtime, what: "pause a sandbox of that service" }
            }
            SandboxError::Unsupported { runtime, .. } => {
                SandboxError::Unsupported { runtime, what: "resume a sandbox of that service" }
            }
            SandboxError::Lost { detail } => lost(sandbox, &detail),
            other => other,
        })
    }

    /// Stops the sandbox of a session, if it has one.
    async fn remove(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        match self.session_of(sandbox).await? {
            Some(runtime) if runtime.status != Status::Stopped || runtime.stream_url.is_some() => {
                self.ask(sandbox, "/stop", &runtime.runtime_id).await
            }
            _ => Ok(()),
        }
    }

    async fn with_retries<T, F>(&self, call: impl Fn() -> F) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let deadline = Instant::now() + self.config.api_timeout.min(REMOVAL_TIME);
        let mut retries = Retries::until(deadline, self.config.enable_retries);
        loop {
            match call().await {
                Err(error) if error.may_pass() => {
                    if !retries.wait(error.retry_after()).await {
                        return Err(error);
                    }
                }
                called => return called,
            }
        }
    }
}

#[async_trait]
impl SandboxProvider for RemoteRuntimeProvider {
    fn runtime(&self) -> &'static str {
        RUNTIME
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        let sandbox = sandbox_id_of(&spec.conversation)?;
        refuse_what_stays_here(spec)?;
        let (service, left) = (Arc::clone(&self.service), sandbox.clone());
        let unfinished = UnfinishedStart::new(&self.removals, async move {
            if let Err(error) = service.remove(&left).await {
                tracing::warn!(sandbox = %left, %error, "stopping what a failed start left");
            }
        });
        let started = self.place(&sandbox, spec, unfinished.steps(), on_progress).await;
        Ok(Box::new(unfinished.end(started).await?))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        let address = self.running(&lease.sandbox_id).await?;
        Ok(Box::new(ActionClient::reconnect(address, Some(&lease.boot_id)).await?))
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        let address = self.running(sandbox).await?;
        Ok(Box::new(ActionClient::reconnect(address, None).await?))
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        let service = &self.service;
        let listed =
            service.with_retries(|| service.api.get::<Runtimes>("/list", service.config.api_timeout)).await;
        let listed = listed.map_err(|error| error.of(None))?;
        Ok(listed.runtimes.into_iter().filter_map(placed).collect())
    }

    fn pausing(&self) -> Result<&dyn SandboxPausing, SandboxError> {
        Ok(self)
    }

    fn snapshots(&self) -> Result<&dyn SandboxSnapshots, SandboxError> {
        Err(SandboxError::Unsupported { runtime: RUNTIME, what: "make snapshots" })
    }

    fn monitoring(&self) -> Result<&dyn SandboxMonitoring, SandboxError> {
        Err(SandboxError::Unsupported { runtime: RUNTIME, what: "monitor sandboxes" })
    }

    async fn server_access(&self, sandbox: &SandboxId) -> Result<ServerAccess, SandboxError> {
        Ok(self.running(sandbox).await?.into())
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.service.remove(sandbox).await
    }

    async fn wait_for_cleanup(&self) {
        self.removals.close();
        self.removals.wait().await;
    }
}

#[async_trait]
impl SandboxPausing for RemoteRuntimeProvider {
    async fn pause(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.ask_of_session(sandbox, "/pause").await
    }

    async fn resume(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.ask_of_session(sandbox, "/resume").await
    }
}

/// A sandbox of a list, when its session can be one of our conversations. Somebody else may use the same key: what says
/// nothing of how long it stays is left alone by sweeps.
fn placed(runtime: Runtime) -> Option<SandboxSummary> {
    let conversation = runtime.session_id.parse().ok()?;
    Some(SandboxSummary {
        sandbox: sandbox_id_of(&conversation).ok()?,
        conversation: Some(conversation),
        lifetime: runtime.lifetime.map_or(Lifetime::UntilRemoved, Lifetime::from),
        image: runtime.image,
        condition: match runtime.status {
            Status::Starting | Status::Running | Status::Unknown => SandboxState::Running,
            Status::Paused => SandboxState::Paused,
            Status::Stopped => SandboxState::Ended,
        },
        created_at: runtime.created_at.and_then(|time| time.parse().ok()),
    })
}

/// An id of a service, fit for a path.
fn path_part(id: &str) -> Result<&str, SandboxError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~:".contains(&byte);
    if !id.is_empty() && id.len() <= 256 && id.bytes().all(is_plain) {
        return Ok(id);
    }
    Err(unavailable("the service answers with an id that fits into no path".into()))
}

fn lost(sandbox: &SandboxId, detail: &str) -> SandboxError {
    SandboxError::Lost { detail: format!("the sandbox {sandbox}: {detail}") }
}

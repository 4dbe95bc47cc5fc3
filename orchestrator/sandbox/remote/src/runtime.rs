//! Sandboxes of the runtime API of OpenHands V0.
//!
//! The session id is the conversation id. The action server of a sandbox host is reached through
//! upgraded requests; that of another service listens at the sandbox's `url`, started by
//! [`DEFAULT_REMOTE_COMMAND`] in an image that contains it. Transient errors are retried until a
//! timeout, as by V0's client.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::{
    Lifetime, ProviderCapabilities, SandboxError, SandboxPausing, SandboxSpec, SandboxState,
    SandboxSummary, StartProgress,
};
use protocol::SandboxId;
use protocol::runtime_api::{Runtime, RuntimeRequest, RuntimeStatus, Runtimes, StartRequest};
use sandbox_client::provisioning::{conversation_of, sandbox_id_of, secret_header, start_error};
use sandbox_client::{
    Backend, Connector, OnPaused, Provider, ProvisionRequest, Provisioned, ServerLocation,
    ServerUrl, StartedServer, Steps,
};
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::api::{ApiError, RuntimeApi};
use super::direct::DirectConnector;
use super::endpoint::Endpoint;
use super::retry::RetryBackoff;
use super::trust::TrustStore;
use super::upgrade::UpgradeConnector;
use super::{RUNTIME, reject_host_folders, unavailable};

/// The command of a service that is not a sandbox host, for an image with `action-server` on its
/// `PATH`. Uses V0's port, and the key that V0's services put into the environment, which the
/// server does not inherit.
pub const DEFAULT_REMOTE_COMMAND: [&str; 3] = [
    "sh",
    "-c",
    "mkdir -p /workspace && printf '%s\\n' \"$SESSION_API_KEY\" | env -u SESSION_API_KEY \
     action-server serve --listen 0.0.0.0:60000 --key-stdin --working-dir /workspace",
];

/// The working directory of that command.
const WORKING_DIR: &str = "/";

/// V0's other class is the default of its services.
const SYSBOX: &str = "sysbox";
const SYSBOX_RUNTIME: &str = "sysbox-runc";

const READINESS_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time of retries, other than those of a start. A sandbox that could not be stopped has
/// the service's idle timeout.
const MAX_RETRY_TIME: Duration = Duration::from_secs(30);

/// Timeout of requests that a service answers immediately, so that a silent service is reported
/// soon.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// After a start was abandoned: how long its request may still be answered, and how long its
/// sandbox is looked up. Together less than two seconds, because a user who has interrupted waits.
/// A sandbox that the service starts later has its idle timeout.
const ABANDONED_REQUEST_GRACE_PERIOD: Duration = Duration::from_millis(500);
const ABANDONED_LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Settings of [`RemoteRuntimeBackend`]. The fields have V0's names, without the prefix
/// `remote_runtime_`.
#[derive(Debug)]
pub struct RemoteRuntimeConfig {
    /// `remote_runtime_api_url`. With plain `http`, keys and all data can be intercepted.
    pub api_url: ServerUrl,
    /// `api_key`.
    pub api_key: SecretString,
    /// `remote_runtime_init_timeout`: from the request for a sandbox to the first response of its
    /// server.
    pub init_timeout: Duration,
    /// `remote_runtime_api_timeout`: for one request.
    pub api_timeout: Duration,
    /// `remote_runtime_enable_retries`.
    pub enable_retries: bool,
    /// `remote_runtime_class`: `sysbox`, or the default of the service.
    pub class: Option<String>,
    /// `remote_runtime_resource_factor`. V0's services support 1, 2, 4 and 8.
    pub resource_factor: f64,
    /// The image of a spec without one. `None` for the default of the service, which V0's services
    /// do not have.
    pub default_image: Option<String>,
    /// The command of a service that is not a sandbox host.
    pub command: Vec<String>,
    /// A PEM file of certificate authorities that are trusted in addition to those of the machine.
    pub additional_ca: Option<PathBuf>,
}

impl RemoteRuntimeConfig {
    /// Returns V0's defaults.
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

/// Provides sandboxes through a runtime API.
pub type RemoteRuntimeProvider = Provider<RemoteRuntimeBackend>;

/// Provisions action servers through a runtime API.
pub struct RemoteRuntimeBackend {
    config: RemoteRuntimeConfig,
    /// Shared with the steps of starts.
    api: Arc<RuntimeApi>,
}

impl RemoteRuntimeBackend {
    /// Creates a backend. Does not connect yet.
    ///
    /// # Errors
    /// A header cannot carry the key.
    pub fn new(config: RemoteRuntimeConfig) -> Result<Self, SandboxError> {
        let trust = Arc::new(TrustStore::new(config.additional_ca.clone()));
        let endpoint = Endpoint::new(config.api_url.clone(), trust);
        let api = Arc::new(RuntimeApi::new(endpoint, &config.api_key)?);
        Ok(Self { config, api })
    }

    async fn send_session_command(
        &self,
        sandbox: &SandboxId,
        path: &str,
    ) -> Result<(), SandboxError> {
        let runtime = self.existing_session(sandbox).await?;
        self.send_command(sandbox, path, &runtime.runtime_id).await
    }

    async fn existing_session(&self, sandbox: &SandboxId) -> Result<Runtime, SandboxError> {
        let found = self.session_of(sandbox).await?;
        found.ok_or_else(|| lost(sandbox, "it does not exist"))
    }

    fn start_request(&self, spec: &SandboxSpec) -> StartRequest {
        let RemoteRuntimeConfig {
            class,
            resource_factor,
            default_image,
            command,
            ..
        } = &self.config;
        StartRequest {
            image: spec.image.clone().or_else(|| default_image.clone()),
            command: command.clone(),
            working_dir: WORKING_DIR.into(),
            environment: spec.environment.clone(),
            session_id: spec.conversation.to_string(),
            resource_factor: *resource_factor,
            runtime_class: (class.as_deref() == Some(SYSBOX)).then(|| SYSBOX_RUNTIME.to_owned()),
            lifetime: Some(spec.lifetime.into()),
            resources: Some(spec.resources),
        }
    }

    /// Starts a sandbox. Stops an existing one of the session first.
    async fn start(
        &self,
        spec: &SandboxSpec,
        deadline: Instant,
        steps: &Steps,
        abandoned: &CancellationToken,
    ) -> Result<Result<Runtime, ApiError>, SandboxError> {
        let request = self.start_request(spec);
        let wait = self
            .config
            .api_timeout
            .min(deadline.saturating_duration_since(Instant::now()));
        let stopped = async {
            match self
                .session(&request.session_id, wait.min(LOOKUP_TIMEOUT))
                .await?
            {
                Some(before) if before.status != RuntimeStatus::Stopped => {
                    self.post_command("/stop", &before.runtime_id, wait).await
                }
                _ => Ok(()),
            }
        };
        if let Err(error) = stopped.await {
            return Ok(Err(error));
        }
        let (api, abandoned) = (Arc::clone(&self.api), abandoned.clone());
        // A step, because the service may start the sandbox even if the request is dropped.
        let step = async move {
            let unanswered = async {
                abandoned.cancelled().await;
                sleep(ABANDONED_REQUEST_GRACE_PERIOD).await;
            };
            tokio::select! {
                started = api.post("/start", &request, wait) => Ok(started),
                () = unanswered => Err(unavailable("the start was abandoned".into())),
            }
        };
        steps.run(step).await
    }

    /// Waits until the service reports that a sandbox is ready. Returns immediately if the service
    /// does not report that.
    async fn wait_until_ready(
        &self,
        mut runtime: Runtime,
        on_retry: &(dyn Fn(&ApiError) + Send + Sync),
    ) -> Result<Runtime, SandboxError> {
        while runtime.stream_url.is_none() {
            let path = format!("/runtime/{}", path_part(&runtime.runtime_id)?);
            let found: Result<Runtime, ApiError> = self.api.get(&path, self.lookup_timeout()).await;
            match found {
                Ok(found) => {
                    match found
                        .pod_status
                        .map(|status| status.to_lowercase())
                        .as_deref()
                    {
                        Some("ready") | None => break,
                        Some(failed @ ("failed" | "unknown" | "crashloopbackoff")) => {
                            let id = &runtime.runtime_id;
                            return Err(start_error(format!(
                                "the service reports the sandbox {id} as {failed}"
                            )));
                        }
                        Some(_pending) => {}
                    }
                    runtime.session_api_key = found.session_api_key.or(runtime.session_api_key);
                }
                // The service may not know it yet.
                Err(error) if error.is_not_found() => {}
                Err(error) if error.is_transient() => on_retry(&error),
                Err(error) => return Err(error.into_sandbox_error(None)),
            }
            sleep(READINESS_POLL_INTERVAL).await;
        }
        Ok(runtime)
    }

    fn init_timeout_message(&self, what: &str) -> String {
        format!(
            "the sandbox {what} within {} s (remote_runtime_init_timeout)",
            self.config.init_timeout.as_secs_f32()
        )
    }

    fn location(&self, runtime: Runtime) -> Result<ServerLocation, SandboxError> {
        let key = SecretString::from(runtime.session_api_key.unwrap_or_default());
        let endpoint = |url: &str| {
            let url: ServerUrl = url.parse().map_err(|error| {
                unavailable(format!("the service responds with an invalid URL: {error}"))
            })?;
            if self.config.api_url.is_tls() && !url.is_tls() {
                return Err(unavailable(format!(
                    "the service uses TLS and its sandbox at {url} does not: its key would be sent in plain text; \
                     a sandbox host behind a proxy needs --public-url https://…"
                )));
            }
            Ok(self.api.endpoint.with_url(url))
        };
        let connector: Box<dyn Connector> = match &runtime.stream_url {
            Some(url) => {
                let key = secret_header(&key).ok_or_else(|| {
                    unavailable(
                        "the service responds with a key that cannot be sent in a header".into(),
                    )
                })?;
                Box::new(UpgradeConnector::new(endpoint(url)?, key))
            }
            None => Box::new(DirectConnector::new(endpoint(&runtime.url)?)),
        };
        Ok(ServerLocation { key, connector })
    }

    async fn session_of(&self, sandbox: &SandboxId) -> Result<Option<Runtime>, SandboxError> {
        let Some(conversation) = conversation_of(sandbox.as_str()) else {
            return Ok(None);
        };
        let session = conversation.to_string();
        self.with_retries(|| self.session(&session, self.lookup_timeout()))
            .await
            .map_err(|error| error.into_sandbox_error(None))
    }

    fn lookup_timeout(&self) -> Duration {
        self.config.api_timeout.min(LOOKUP_TIMEOUT)
    }

    async fn session(&self, session: &str, wait: Duration) -> Result<Option<Runtime>, ApiError> {
        match self.api.get(&format!("/sessions/{session}"), wait).await {
            Ok(runtime) => Ok(Some(runtime)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stops, pauses or resumes a sandbox. Stopping one that does not exist succeeds.
    async fn post_command(
        &self,
        path: &str,
        runtime_id: &str,
        wait: Duration,
    ) -> Result<(), ApiError> {
        let request = RuntimeRequest {
            runtime_id: runtime_id.to_owned(),
        };
        match self.api.post::<Value>(path, &request, wait).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() && path == "/stop" => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn send_command(
        &self,
        sandbox: &SandboxId,
        path: &str,
        runtime_id: &str,
    ) -> Result<(), SandboxError> {
        let result = self
            .with_retries(|| self.post_command(path, runtime_id, self.config.api_timeout))
            .await;
        result.map_err(|error| match error.into_sandbox_error(None) {
            SandboxError::Unsupported { runtime, .. } if path == "/pause" => {
                SandboxError::Unsupported {
                    runtime,
                    what: "pause a sandbox of this service",
                }
            }
            SandboxError::Unsupported { runtime, .. } => SandboxError::Unsupported {
                runtime,
                what: "resume a sandbox of this service",
            },
            SandboxError::Lost { detail } => lost(sandbox, &detail),
            other => other,
        })
    }

    async fn with_retries<T, F>(&self, call: impl Fn() -> F) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let deadline = Instant::now() + self.config.api_timeout.min(MAX_RETRY_TIME);
        let mut backoff = RetryBackoff::new(deadline, self.config.enable_retries);
        loop {
            match call().await {
                Err(error)
                    if error.is_transient()
                        && backoff
                            .wait(error.retry_after(), |after| log_retry(&error, after))
                            .await => {}
                result => return result,
            }
        }
    }
}

#[async_trait]
impl Backend for RemoteRuntimeBackend {
    fn runtime(&self) -> &'static str {
        RUNTIME
    }

    async fn provision(&self, request: &ProvisionRequest<'_>) -> Result<Provisioned, SandboxError> {
        let ProvisionRequest {
            sandbox,
            spec,
            on_progress,
            ..
        } = *request;
        reject_host_folders(spec)?;
        let steps = request.steps();
        let deadline = Instant::now() + self.config.init_timeout;
        on_progress(StartProgress::Starting);
        let abandoned = CancellationToken::new();
        let _abandoned_on_drop = abandoned.clone().drop_guard();
        let mut backoff = RetryBackoff::new(deadline, self.config.enable_retries);
        let on_retry = |error: &ApiError, after| {
            tracing::warn!(%sandbox, %error, "retrying the start of a sandbox");
            on_progress(StartProgress::Retrying {
                reason: error.to_string(),
                after,
            });
        };
        let runtime = loop {
            match self.start(spec, deadline, &steps, &abandoned).await? {
                Ok(runtime) => break runtime,
                Err(error)
                    if error.is_transient()
                        && backoff
                            .wait(error.retry_after(), |after| on_retry(&error, after))
                            .await => {}
                Err(error) => return Err(error.into_sandbox_error(spec.image.as_deref())),
            }
        };
        let on_retry = |error: &ApiError| on_retry(error, READINESS_POLL_INTERVAL);
        let ready = timeout_at(deadline, self.wait_until_ready(runtime, &on_retry)).await;
        let runtime = ready
            .unwrap_or_else(|_| Err(start_error(self.init_timeout_message("is not ready"))))?;
        Ok(Provisioned::Started(StartedServer {
            location: self.location(runtime)?,
            connect_timeout: deadline.saturating_duration_since(Instant::now()),
            start_timeout: None,
            has_environment: true,
        }))
    }

    async fn locate(
        &self,
        sandbox: &SandboxId,
        on_paused: OnPaused,
    ) -> Result<ServerLocation, SandboxError> {
        let runtime = self.existing_session(sandbox).await?;
        match (runtime.status, on_paused) {
            (RuntimeStatus::Stopped, _) => Err(lost(sandbox, "it was stopped")),
            (RuntimeStatus::Paused, OnPaused::Resume) => {
                self.send_command(sandbox, "/resume", &runtime.runtime_id)
                    .await?;
                let on_retry = |error: &ApiError| {
                    tracing::warn!(%sandbox, %error, "waiting for a resumed sandbox");
                };
                let ready = self.wait_until_ready(runtime, &on_retry);
                let runtime = timeout(self.config.init_timeout, ready)
                    .await
                    .unwrap_or_else(|_| {
                        Err(unavailable(self.init_timeout_message("does not resume")))
                    })?;
                self.location(runtime)
            }
            _ => self.location(runtime),
        }
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        // Without retries: a user or a later sweep repeats it, and learns the cause soon.
        let listed = self
            .api
            .get::<Runtimes>("/list", self.lookup_timeout())
            .await;
        let listed = listed.map_err(|error| error.into_sandbox_error(None))?;
        Ok(listed.runtimes.into_iter().filter_map(summarize).collect())
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        match self.session_of(sandbox).await? {
            Some(runtime)
                if runtime.status != RuntimeStatus::Stopped || runtime.stream_url.is_some() =>
            {
                self.send_command(sandbox, "/stop", &runtime.runtime_id)
                    .await
            }
            _ => Ok(()),
        }
    }

    fn capabilities(&self) -> ProviderCapabilities<'_> {
        ProviderCapabilities {
            pausing: Some(self),
            ..ProviderCapabilities::default()
        }
    }

    /// A service that does not respond is not awaited, because a user may wait who has interrupted:
    /// its sandbox, if there is one, has the service's idle timeout.
    async fn remove_unfinished(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        let Some(conversation) = conversation_of(sandbox.as_str()) else {
            return Ok(());
        };
        match self
            .session(conversation.as_str(), ABANDONED_LOOKUP_TIMEOUT)
            .await
        {
            Ok(None) => Ok(()),
            Err(error) if !error.is_conflict() => Err(error.into_sandbox_error(None)),
            // In a transition, it is stopped afterwards.
            Ok(Some(_)) | Err(_) => self.destroy(sandbox).await,
        }
    }
}

#[async_trait]
impl SandboxPausing for RemoteRuntimeBackend {
    async fn pause(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.send_session_command(sandbox, "/pause").await
    }

    async fn resume(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        self.send_session_command(sandbox, "/resume").await
    }
}

fn log_retry(error: &ApiError, after: Duration) {
    tracing::warn!(%error, delay_ms = after.as_millis(), "retrying a request to the sandbox service");
}

/// Returns the summary of a sandbox. `None` if its session is not a conversation id. Another client
/// may use the same key, so that a sandbox without a lifetime must not be swept.
fn summarize(runtime: Runtime) -> Option<SandboxSummary> {
    let conversation = runtime.session_id.parse().ok()?;
    Some(SandboxSummary {
        sandbox: sandbox_id_of(&conversation).ok()?,
        conversation: Some(conversation),
        // A later version may know more of them. Sweeps keep what they do not understand.
        lifetime: runtime
            .lifetime
            .and_then(|lifetime| lifetime.try_into().ok())
            .unwrap_or(Lifetime::UntilRemoved),
        image: runtime.image,
        condition: match runtime.status {
            RuntimeStatus::Starting | RuntimeStatus::Running | RuntimeStatus::Unknown => {
                SandboxState::Running
            }
            RuntimeStatus::Paused => SandboxState::Paused,
            RuntimeStatus::Stopped => SandboxState::Ended,
        },
        created_at: runtime.created_at.and_then(|time| time.parse().ok()),
    })
}

/// Returns an id of the service if it is safe in a path.
fn path_part(id: &str) -> Result<&str, SandboxError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~:".contains(&byte);
    if !id.is_empty() && id.len() <= 256 && id.bytes().all(is_plain) {
        return Ok(id);
    }
    Err(unavailable(
        "the service responds with an id that is not allowed in a path".into(),
    ))
}

fn lost(sandbox: &SandboxId, detail: &str) -> SandboxError {
    SandboxError::Lost {
        detail: format!("the sandbox {sandbox}: {detail}"),
    }
}

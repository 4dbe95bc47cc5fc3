//! Start of one container: from an available image to a running server.
//!
//! On an error, the caller removes what was created.

use std::time::Duration;

use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, NetworkConnectRequest};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use engine::sandbox::{SandboxError, SandboxSpec, StartProgress};
use protocol::SandboxId;
use sandbox_client::provisioning::with_logs;
use sandbox_client::{ServerLocation, StartTimeout, StartedServer, Steps};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use super::container::{ContainerPlan, MEMORY_FOLDERS};
use super::engine::{Engine, start_failed, status};
use super::image::Image;
use super::labels::Ownership;
use super::lifecycle::foreign_container;
use super::user::{self, User};
use super::{DockerConfig, ServerSource, archive, location, machine, mounts};

/// Length of a container id in the engine's own lists.
const SHORT_ID_LENGTH: usize = 12;

/// Time to find the cause of a failure. The error is due within a second after the start timeout.
const EXPLANATION_TIMEOUT: Duration = Duration::from_millis(300);

/// Parameters of a start.
pub(super) struct ContainerStart<'a> {
    pub(super) engine: &'a Engine,
    pub(super) config: &'a DockerConfig,
    pub(super) spec: &'a SandboxSpec,
    pub(super) belongs: Ownership<'a>,
    /// Name of the container, from which its key is derived.
    pub(super) sandbox: &'a SandboxId,
    pub(super) image: &'a Image,
    pub(super) steps: Steps,
}

/// A container that was started.
pub(super) struct Started {
    /// Its server, which may not respond yet.
    pub(super) server: StartedServer,
    /// Container id, which stays the same when the container is renamed.
    pub(super) container: String,
}

impl ContainerStart<'_> {
    /// Starts the container. After the start timeout, returns an error with the container's logs.
    pub(super) async fn run(
        &self,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Started, SandboxError> {
        let limit = self.config.start_timeout;
        let timeout = StartTimeout::new(format_args!("the container {}", self.sandbox), limit);
        match timeout.bound(self.start(on_progress)).await {
            Ok((location, container)) => Ok(Started {
                server: StartedServer {
                    location,
                    connect_timeout: limit,
                    start_timeout: Some(timeout),
                    has_environment: false,
                },
                container,
            }),
            Err(error) => Err(explain(self.engine, self.config, self.sandbox, error).await),
        }
    }

    /// Returns the location of the server, and the container id.
    async fn start(
        &self,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<(ServerLocation, String), SandboxError> {
        on_progress(StartProgress::Starting);
        mounts::check_targets(&self.spec.volumes)?;
        let user = user::for_folders_of(self.engine, self.spec).await?;
        let container: String = self
            .create(user)
            .await?
            .chars()
            .take(SHORT_ID_LENGTH)
            .collect();
        self.open_folders(user).await?;
        self.join_networks().await?;
        let named = match self.belongs {
            Ownership::Conversation(_) => self.sandbox.as_str(),
            Ownership::PoolHolder(_) => &container, // its name is going to change
        };
        let location = location(self.config, self.engine, self.sandbox, named);
        self.start_with_key(&location.key).await?;
        Ok((location, container))
    }

    /// Creates the container and returns its id. Support of disk quotas is detected by requesting
    /// one, since engines do not report it.
    async fn create(&self, user: Option<User>) -> Result<String, SandboxError> {
        let is_disk_bounded = self.engine.supports_disk_quota();
        match self.create_with_server(user, is_disk_bounded != Some(false)).await {
            Err(CreateError::Engine(error)) if is_disk_bounded.is_none() && status(&error).is_some() => {
                let created = self.create_with_server(user, false).await;
                if created.is_ok() {
                    tracing::debug!(%error, "the engine's storage does not bound a container's disk");
                    self.engine.remember_disk_quota_support(false);
                }
                created
            }
            created => {
                if created.is_ok() && is_disk_bounded.is_none() {
                    self.engine.remember_disk_quota_support(true);
                }
                created
            }
        }
        .map_err(|error| {
            error.into_sandbox_error(format_args!(
                "create the container {} from {}",
                self.sandbox, self.image.name
            ))
        })
    }

    /// Creates the container with the server's binary: as a mount if the engine sees this host's
    /// files, else as a copy.
    async fn create_with_server(
        &self,
        user: Option<User>,
        is_disk_bounded: bool,
    ) -> Result<String, CreateError> {
        if self.engine.is_local {
            let mounted =
                ServerSource::Mounted(self.config.server.path().await.map_err(CreateError::Step)?);
            match self.create_from(&mounted, user, is_disk_bounded).await {
                // The engine runs in a virtual machine behind a local socket, and does not see this
                // file.
                Err(CreateError::Engine(error)) if status(&error) == Some(400) => {}
                created => return created,
            }
        }
        let id = self
            .create_from(&ServerSource::Uploaded, user, is_disk_bounded)
            .await?;
        let upload = async {
            let server = self.config.server.bytes().await?;
            self.upload(
                "the action server",
                archive::with_program(".glovebox", "action-server", &server),
            )
            .await
        };
        upload.await.map_err(CreateError::Step)?;
        Ok(id)
    }

    /// Runs as a step that completes even if the caller is cancelled, since the engine creates the
    /// container anyway.
    async fn create_from(
        &self,
        server: &ServerSource,
        user: Option<User>,
        is_disk_bounded: bool,
    ) -> Result<String, CreateError> {
        let Self {
            config,
            spec,
            image,
            belongs,
            sandbox: name,
            ..
        } = *self;
        let plan = ContainerPlan {
            config,
            name,
            belongs,
            spec,
            image,
            server,
            user,
            is_disk_bounded,
        };
        let (body, platform) = (plan.body(), config.platform.clone());
        let (engine, owner, name) = (self.engine.clone(), config.owner.clone(), name.clone());
        let created = self.steps.run(async move {
            create_replacing(&engine, &owner, &name, platform.as_deref(), body).await
        });
        created
            .await
            .map_err(CreateError::Step)?
            .map_err(CreateError::Engine)
    }

    /// Joins all networks but the first, which was set at creation.
    async fn join_networks(&self) -> Result<(), SandboxError> {
        for network in self.config.networks().skip(1) {
            let request = NetworkConnectRequest {
                container: self.sandbox.to_string(),
                endpoint_config: None,
            };
            let joined = self.engine.docker.connect_network(network, request).await;
            joined.map_err(|error| {
                start_failed(
                    format_args!(
                        "connect the container {} to the network {network}",
                        self.sandbox
                    ),
                    &error,
                )
            })?;
        }
        Ok(())
    }

    /// Makes the workspace writable for the image's user, because the engine would create it for
    /// root only. In a snapshot, the folders of our tmpfs too: the engine gives a tmpfs the mode of
    /// the folder that it covers.
    async fn open_folders(&self, user: Option<User>) -> Result<(), SandboxError> {
        let image_is_roots = matches!(
            self.image.user.split(':').next(),
            None | Some("" | "0" | "root")
        );
        let mut folders = Vec::new();
        // The permissions of a mounted folder are not changed.
        if user.is_none() && !image_is_roots && !mounts::cover_workspace(self.spec) {
            folders.push(("workspace", 0o777));
        }
        if self.image.is_snapshot {
            folders.extend(MEMORY_FOLDERS.map(|folder| (folder.trim_start_matches('/'), 0o1777)));
        }
        match folders.as_slice() {
            [] => Ok(()),
            folders => {
                self.upload("the folders of the user", archive::with_folders(folders))
                    .await
            }
        }
    }

    async fn upload(
        &self,
        what: &str,
        archive: std::io::Result<Vec<u8>>,
    ) -> Result<(), SandboxError> {
        let archive = archive.map_err(|source| SandboxError::host("pack", what, source))?;
        let options = UploadToContainerOptionsBuilder::default().path("/").build();
        let body = bollard::body_full(archive.into());
        let uploaded = self
            .engine
            .docker
            .upload_to_container(self.sandbox.as_str(), Some(options), body)
            .await;
        uploaded.map_err(|error| {
            start_failed(
                format_args!("upload {what} to the container {}", self.sandbox),
                &error,
            )
        })
    }

    /// Starts the container and writes the key to its standard input. Attached before the start, so
    /// that the key is the first line, and closed afterwards.
    async fn start_with_key(&self, key: &SecretString) -> Result<(), SandboxError> {
        let container = self.sandbox.as_str();
        let docker = &self.engine.docker;
        let options = AttachContainerOptionsBuilder::default()
            .stdin(true)
            .stream(true)
            .build();
        let attached = docker.attach_container(container, Some(options)).await;
        let attached = attached.map_err(|error| {
            start_failed(format_args!("attach to the container {container}"), &error)
        })?;
        let started = docker.start_container(container, None).await;
        started.map_err(|error| {
            start_failed(format_args!("start the container {container}"), &error)
        })?;
        let written = write_key(key, attached.input).await;
        written.map_err(|source| {
            SandboxError::host(
                "write",
                format_args!("the key to the container {container}"),
                source,
            )
        })
    }
}

/// Adds the container's logs to the error of a start, and the cause if it can be determined.
pub(super) async fn explain(
    engine: &Engine,
    config: &DockerConfig,
    sandbox: &SandboxId,
    error: SandboxError,
) -> SandboxError {
    let (logs, mismatch, missing) = tokio::join!(
        engine.log_tail(sandbox.as_str()),
        machine::mismatch(engine, &config.server),
        timeout(EXPLANATION_TIMEOUT, missing_network(engine, config)),
    );
    let (detail, logs) = match with_logs(error, logs) {
        SandboxError::Start { detail, logs } => (detail, logs),
        other => return other,
    };
    let detail = match (missing.ok().flatten(), mismatch, &config.gpus) {
        (Some(network), ..) => format!(
            "the engine has no network {network}: make it with `docker network create {network}`, or configure \
             another one"
        ),
        (None, Some(mismatch), _) => format!("{detail}: {mismatch}"),
        (None, None, Some(_)) => {
            format!("{detail} (GPUs were asked for: the engine needs the NVIDIA Container Toolkit)")
        }
        (None, None, None) => detail,
    };
    SandboxError::Start { detail, logs }
}

async fn missing_network<'a>(engine: &Engine, config: &'a DockerConfig) -> Option<&'a str> {
    for network in config.networks() {
        let found = engine.docker.inspect_network(network, None).await;
        if found.is_err_and(|error| status(&error) == Some(404)) {
            return Some(network);
        }
    }
    None
}

/// Error of the creation of a container.
enum CreateError {
    Engine(Error),
    Step(SandboxError),
}

impl CreateError {
    fn into_sandbox_error(self, operation: impl std::fmt::Display) -> SandboxError {
        match self {
            Self::Engine(error) => start_failed(operation, &error),
            Self::Step(error) => error,
        }
    }
}

/// Time until the name of a container that is being removed is free.
const NAME_TIMEOUT: Duration = Duration::from_secs(10);

const NAME_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Creates the container, replaces one that a crash has left, and returns the id.
///
/// # Errors
/// [`SandboxError::Invalid`] if another installation has a container of this name.
async fn create_replacing(
    engine: &Engine,
    owner: &str,
    sandbox: &SandboxId,
    platform: Option<&str>,
    body: ContainerCreateBody,
) -> Result<Result<String, Error>, SandboxError> {
    let options = || {
        let named = CreateContainerOptionsBuilder::default().name(sandbox.as_str());
        Some(
            platform
                .into_iter()
                .fold(named, CreateContainerOptionsBuilder::platform)
                .build(),
        )
    };
    let deadline = Instant::now() + NAME_TIMEOUT;
    loop {
        let created = engine.docker.create_container(options(), body.clone());
        match created.await {
            // The name is in use. A check in advance would cost every start a round trip.
            Err(error) if status(&error) == Some(409) && Instant::now() < deadline => {
                tracing::debug!(%sandbox, "removing the container that is left from before");
                // An error shows up again in the next request. The engine may be removing it
                // already, and then returns before its name is free.
                if let Ok(false) = engine.remove_of(owner, sandbox.as_str()).await {
                    return Err(foreign_container(sandbox.as_str()));
                }
                sleep(NAME_RETRY_INTERVAL).await;
            }
            created => return Ok(created.map(|created| created.id)),
        }
    }
}

async fn write_key(key: &SecretString, mut stdin: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    let line = SecretString::from(format!("{}\n", key.expose_secret()));
    stdin.write_all(line.expose_secret().as_bytes()).await?;
    stdin.flush().await?;
    stdin.shutdown().await
}

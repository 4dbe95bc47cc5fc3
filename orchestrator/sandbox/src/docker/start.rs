//! The start of one container, from an image that is there to a server that answers.
//!
//! Leaves what it created to its caller, who removes it when this ends in an error.

use bollard::errors::Error;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use engine::sandbox::{SandboxError, SandboxSpec, StartProgress};
use protocol::SandboxId;
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::container::ContainerPlan;
use super::engine::{Engine, failed, status};
use super::image::Image;
use super::user::{self, User};
use super::{DockerConfig, ServerSource, archive};
use crate::action_client::{ActionClient, Address};
use crate::placement::{start_error, with_logs};
use crate::unfinished_start::Steps;

/// Everything that a start needs.
pub(super) struct ContainerStart<'a> {
    pub(super) engine: &'a Engine,
    pub(super) config: &'a DockerConfig,
    pub(super) spec: &'a SandboxSpec,
    pub(super) sandbox: &'a SandboxId,
    pub(super) image: &'a Image,
    pub(super) steps: Steps,
}

impl ContainerStart<'_> {
    /// Ends in a client, or within the start's timeout in an error with the container's logs.
    pub(super) async fn run(
        &self,
        address: Address,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<ActionClient, SandboxError> {
        let (container, limit) = (self.sandbox.as_str(), self.config.start_timeout);
        let started = timeout(limit, self.start(address, on_progress)).await.unwrap_or_else(|_| {
            Err(start_error(format!("the container {container} was not ready within {} s", limit.as_secs())))
        });
        match started {
            Err(error) => Err(with_logs(error, self.engine.log_tail(container).await)),
            ready => ready,
        }
    }

    async fn start(
        &self,
        address: Address,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<ActionClient, SandboxError> {
        on_progress(StartProgress::Starting);
        let user = match &self.spec.workspace {
            Some(workspace) => Some(user::for_workspace(self.engine, workspace).await?),
            None => None,
        };
        self.create(user).await?;
        self.start_with_key(&address.key).await?;
        on_progress(StartProgress::Connecting);
        let client = ActionClient::first(address, self.config.start_timeout).await?;
        client.begin_with(&self.spec.environment).await?;
        Ok(client)
    }

    /// Creates the container with the server's file in it: mounted where the engine sees this host's files.
    async fn create(&self, user: Option<User>) -> Result<(), SandboxError> {
        let doing = || format!("creating the container {} from {}", self.sandbox, self.image.name);
        if self.engine.is_local {
            let mounted = ServerSource::Mounted(self.config.server.path().await?);
            match self.create_from(&mounted, user).await {
                Ok(()) => return self.open_workspace(user).await,
                // It does not see this file: an engine in a virtual machine behind a local socket.
                Err(CreateError::Engine(error)) if status(&error) == Some(400) => {}
                Err(error) => return Err(error.of(&doing())),
            }
        }
        self.create_from(&ServerSource::Uploaded, user).await.map_err(|error| error.of(&doing()))?;
        let server = self.config.server.bytes().await?;
        self.upload("the action server", archive::with_program(".glovebox", "action-server", &server))
            .await?;
        self.open_workspace(user).await
    }

    /// A step that is taken to its end: the engine creates the container also when nobody waits for it any more.
    async fn create_from(&self, server: &ServerSource, user: Option<User>) -> Result<(), CreateError> {
        let Self { config, spec, image, .. } = self;
        let body = ContainerPlan { config, spec, image, server, user }.body();
        let (engine, sandbox) = (self.engine.clone(), self.sandbox.clone());
        let created = self.steps.take(async move { Ok(create_in_place(&engine, &sandbox, body).await) });
        created.await.map_err(CreateError::Step)?.map_err(CreateError::Engine)
    }

    /// The engine makes a workspace that only root can write to; an image's own user needs one before the start.
    async fn open_workspace(&self, user: Option<User>) -> Result<(), SandboxError> {
        let runs_as_root = matches!(self.image.user.split(':').next(), None | Some("" | "0" | "root"));
        if user.is_some() || runs_as_root {
            return Ok(());
        }
        self.upload("the workspace's folder", archive::with_open_folder("workspace")).await
    }

    async fn upload(&self, what: &str, archive: std::io::Result<Vec<u8>>) -> Result<(), SandboxError> {
        let archive = archive.map_err(|source| SandboxError::Host {
            doing: format!("packing {what} for the container"),
            source,
        })?;
        let options = UploadToContainerOptionsBuilder::default().path("/").build();
        let body = bollard::body_full(archive.into());
        let uploaded =
            self.engine.docker.upload_to_container(self.sandbox.as_str(), Some(options), body).await;
        uploaded
            .map_err(|error| failed(&format!("uploading {what} into the container {}", self.sandbox), &error))
    }

    /// Starts the container and hands it the key through its standard input: attached before the start, so that the
    /// first line is ours, and closed after it.
    async fn start_with_key(&self, key: &SecretString) -> Result<(), SandboxError> {
        let container = self.sandbox.as_str();
        let docker = &self.engine.docker;
        let options = AttachContainerOptionsBuilder::default().stdin(true).stream(true).build();
        let attached = docker.attach_container(container, Some(options)).await;
        let attached =
            attached.map_err(|error| failed(&format!("attaching to the container {container}"), &error))?;
        let started = docker.start_container(container, None).await;
        started.map_err(|error| failed(&format!("starting the container {container}"), &error))?;
        hand_over(key, attached.input).await.map_err(|source| SandboxError::Host {
            doing: format!("handing its key to the container {container}"),
            source,
        })
    }
}

/// How creating a container failed.
enum CreateError {
    Engine(Error),
    Step(SandboxError),
}

impl CreateError {
    fn of(self, doing: &str) -> SandboxError {
        match self {
            Self::Engine(error) => failed(doing, &error),
            Self::Step(error) => error,
        }
    }
}

/// Creates the container, in the place of one that a crash has left.
async fn create_in_place(
    engine: &Engine,
    sandbox: &SandboxId,
    body: ContainerCreateBody,
) -> Result<(), Error> {
    let options = || Some(CreateContainerOptionsBuilder::default().name(sandbox.as_str()).build());
    match engine.docker.create_container(options(), body.clone()).await {
        // The name is taken. Looking first would cost every start a round trip.
        Err(error) if status(&error) == Some(409) => {
            tracing::info!(%sandbox, "removing the container that is left from before");
            // Whether that went well shows in the next line.
            let _ = engine.remove(sandbox.as_str()).await;
            engine.docker.create_container(options(), body).await.map(drop)
        }
        created => created.map(drop),
    }
}

async fn hand_over(key: &SecretString, mut stdin: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    let line = SecretString::from(format!("{}\n", key.expose_secret()));
    stdin.write_all(line.expose_secret().as_bytes()).await?;
    stdin.flush().await?;
    stdin.shutdown().await
}

//! A runtime whose sandboxes are child processes of this program, without isolation.

use async_trait::async_trait;
use engine::sandbox::{ByteStream, SandboxError, SandboxProvider, SandboxSpec, SandboxSummary};
use protocol::SandboxId;
use sandbox_client::{
    Backend, ConnectError, Connector, OnPaused, Provider, ProvisionRequest, Provisioned,
    ServerLocation, provisioning::conversation_of,
};
use std::{collections::HashMap, error::Error, path::PathBuf, time::Duration};
use tokio::{net::UnixStream, process::Child, process::Command, sync::Mutex};

pub(crate) struct ChildBackend {
    pub(crate) action_server: PathBuf,
    pub(crate) children: Mutex<HashMap<SandboxId, (Child, tempfile::TempDir)>>,
}

struct Socket(PathBuf);

#[async_trait]
impl Connector for Socket {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        let unknown = |error: std::io::Error| ConnectError::Unknown(error.to_string());
        let stream = UnixStream::connect(&self.0).await.map_err(unknown)?;
        Ok(Box::new(stream))
    }
}

#[async_trait]
impl Backend for ChildBackend {
    fn runtime(&self) -> &'static str {
        "child"
    }

    async fn provision(&self, request: &ProvisionRequest<'_>) -> Result<Provisioned, SandboxError> {
        let (id, _steps) = (request.sandbox, request.steps()); // a failure removes the sandbox
        let failed = |source| SandboxError::host("start", id, source);
        let dir = tempfile::tempdir().map_err(failed)?;
        let mut serve = Command::new(&self.action_server);
        serve.arg("serve").arg("--working-dir").arg(dir.path());
        serve.arg("--socket").arg(dir.path().join("socket"));
        let child = serve.kill_on_drop(true).spawn().map_err(failed)?;
        self.children.lock().await.insert(id.clone(), (child, dir));
        let location = self.locate(id, OnPaused::Keep).await?;
        Ok(Provisioned::started(location, Duration::from_secs(10)))
    }

    async fn locate(&self, id: &SandboxId, _: OnPaused) -> Result<ServerLocation, SandboxError> {
        let detail = format!("there is no sandbox {id}");
        let children = self.children.lock().await;
        let (_, dir) = children.get(id).ok_or(SandboxError::Lost { detail })?;
        let connector = Box::new(Socket(dir.path().join("socket")));
        let key = String::new().into(); // not needed: only this user can open the folder
        Ok(ServerLocation { key, connector })
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        let new = |id: &SandboxId| SandboxSummary::new(id.clone(), conversation_of(id.as_str()));
        Ok(self.children.lock().await.keys().map(new).collect())
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), SandboxError> {
        self.children.lock().await.remove(id);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let action_server = std::env::args_os().nth(1).ok_or("no ACTION_SERVER")?;
    let provider = Provider::<ChildBackend>::new(ChildBackend {
        action_server: action_server.into(),
        children: Mutex::default(),
    });
    let spec = SandboxSpec::new("example".parse()?);
    let sandbox = provider.create(&spec, &|_| {}).await?;
    Ok(provider.destroy(&sandbox.lease().sandbox_id).await?)
}

//! A pre-warmed sandbox that belongs to no conversation yet.
//!
//! Dropping it before it is adopted removes it. Adoption renames the container to the name of the
//! conversation's sandbox. The key is derived from the original name, which a label stores.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::sandbox::{ResourceLimits, SandboxError, SandboxSpec};
use protocol::SandboxId;
use ring::rand::{SecureRandom, SystemRandom};
use sandbox_client::provisioning::start_error;
use sandbox_client::{ActionClient, UnfinishedStart};

use super::config::MAX_HOLDER_LENGTH;
use super::engine::Engine;
use super::image::{self, Image};
use super::labels::Ownership;
use super::start::{ContainerStart, Started, explain};
use super::{Installation, RUNTIME};

/// Name prefix that no sandbox of a conversation has.
const PREFIX: &str = "glovebox_spare-";

/// A running sandbox without a conversation.
pub(super) struct PooledSandbox {
    client: ActionClient,
    /// Container id, which stays the same when the container is renamed.
    container: String,
    image_id: String,
    unadopted: UnfinishedStart,
}

/// Returns the holder of a pool entry: the process that created it, and that removes it when it
/// exits. `None` if the sandbox is no pool entry.
pub fn pool_entry_holder(sandbox: &SandboxId) -> Option<&str> {
    let (holder, _) = sandbox.as_str().strip_prefix(PREFIX)?.rsplit_once('-')?;
    Some(holder)
}

/// Checks that pool entries can be named after this holder.
pub(super) fn check_holder(holder: &str) -> Result<(), String> {
    let is_plain = holder
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if is_plain && (1..=MAX_HOLDER_LENGTH).contains(&holder.len()) {
        return Ok(());
    }
    Err(format!(
        "{holder:?} is no holder: choose 1 to {MAX_HOLDER_LENGTH} letters, digits, dots, _ and -"
    ))
}

/// Creates a pool entry.
pub(super) async fn make(
    installation: &Arc<Installation>,
    image: &str,
    resources: ResourceLimits,
) -> Result<PooledSandbox, SandboxError> {
    let config = &installation.config;
    let engine = installation.engine().await?;
    let image = image::ensure(engine, config, image, &|_| {}).await?;
    let sandbox = new_name(&config.holder)?;

    let (removing, left) = (engine.clone(), sandbox.clone());
    let unadopted = UnfinishedStart::new(&installation.removals, async move {
        if let Err(error) = removing.remove_created_as(&left).await {
            tracing::warn!(sandbox = %left, %error, "cannot remove a pool entry");
        }
    });
    let conversation = "nobody"
        .parse()
        .map_err(|error| start_error(format!("invalid conversation id: {error}")))?;
    let start = ContainerStart {
        engine,
        config,
        spec: &SandboxSpec {
            resources,
            ..SandboxSpec::new(conversation)
        },
        belongs: Ownership::PoolHolder(&config.holder),
        sandbox: &sandbox,
        image: &image,
        steps: unadopted.steps(),
    };
    let connected = async {
        let Started { server, container } = start.run(&|_| {}).await?;
        match server.connect(RUNTIME, &sandbox, &BTreeMap::new()).await {
            Ok(client) => Ok((client, container)),
            Err(error) => Err(explain(engine, config, &sandbox, error).await),
        }
    };
    match connected.await {
        Ok((client, container)) => Ok(PooledSandbox {
            client,
            container,
            image_id: image.id,
            unadopted,
        }),
        Err(error) => unadopted.finish(Err(error)).await,
    }
}

impl PooledSandbox {
    pub(super) fn was_created_from(&self, image: &Image) -> bool {
        self.image_id == image.id
    }

    /// Renames the entry to this sandbox, and replaces a container of the owner that has the name.
    /// On an error the entry is removed. Must not be dropped before it is completed.
    pub(super) async fn adopt(
        self,
        engine: Engine,
        owner: String,
        sandbox: SandboxId,
    ) -> Result<ActionClient, SandboxError> {
        let Self {
            client,
            container,
            unadopted,
            ..
        } = self;
        if !client.is_healthy().await {
            // Dropping removes it in the background, so that the next entry can be tried
            // immediately.
            return Err(SandboxError::Lost {
                detail: format!("the container {container} does not answer"),
            });
        }
        let renamed = engine
            .rename_replacing(&container, &owner, sandbox.as_str())
            .await;
        unadopted
            .finish(renamed.map(|()| client.with_sandbox_id(sandbox)))
            .await
    }
}

fn new_name(holder: &str) -> Result<SandboxId, SandboxError> {
    let mut random = [0; 8];
    let filled = SystemRandom::new().fill(&mut random);
    filled.map_err(|_| {
        start_error(format!(
            "the {RUNTIME} runtime got no random bytes from this host"
        ))
    })?;
    let name = format!("{PREFIX}{holder}-{}", hex::encode(random));
    name.parse()
        .map_err(|error| start_error(format!("{name} is no name of a sandbox: {error}")))
}

#[cfg(test)]
mod tests {
    use sandbox_client::provisioning::conversation_of;

    use super::{MAX_HOLDER_LENGTH, check_holder, new_name, pool_entry_holder};

    #[test]
    fn pool_entry_name_has_its_holder_and_no_conversation() {
        let name = new_name("host-7.boot").unwrap();
        assert_eq!(conversation_of(name.as_str()), None);
        assert_eq!(pool_entry_holder(&name), Some("host-7.boot"));
        assert_eq!(pool_entry_holder(&"glovebox-c".parse().unwrap()), None);
        assert!(new_name(&"h".repeat(MAX_HOLDER_LENGTH)).is_ok());
        assert!(check_holder("host-7.boot").is_ok());
        for holder in ["", "a b", "a/b", &"h".repeat(MAX_HOLDER_LENGTH + 1)] {
            assert!(check_holder(holder).is_err(), "{holder}");
        }
    }
}

//! A sandbox that was made ahead and is nobody's yet.
//!
//! Whoever drops it removes it, until it is adopted. Its key is derived from the name that it was made with, which a
//! label keeps: adopting gives the container the name of the conversation's sandbox.

use std::sync::Arc;

use engine::sandbox::{SandboxError, SandboxSpec};
use protocol::SandboxId;
use ring::rand::{SecureRandom, SystemRandom};

use super::config::MAX_HOLDER_LENGTH;
use super::engine::Engine;
use super::image::{self, Image};
use super::labels::Belongs;
use super::start::{ContainerStart, Started};
use super::{Installation, RUNTIME};
use crate::action_client::ActionClient;
use crate::host_secret::hex;
use crate::placement::start_error;
use crate::unfinished_start::UnfinishedStart;

/// No name of a conversation's sandbox begins so.
const PREFIX: &str = "glovebox_spare-";

/// A sandbox that answers, and that nobody has.
pub(super) struct Spare {
    client: ActionClient,
    /// Names it whatever it is called.
    container: String,
    image_id: String,
    unadopted: UnfinishedStart,
}

/// Whose spare this sandbox is: the `holder` of the process that made it ahead, and removes it at its end. Nothing when
/// it is none.
pub fn spare_holder(sandbox: &SandboxId) -> Option<&str> {
    let (holder, _) = sandbox.as_str().strip_prefix(PREFIX)?.rsplit_once('-')?;
    Some(holder)
}

/// Whether spares can be named after this holder.
pub(super) fn check_holder(holder: &str) -> Result<(), String> {
    let is_plain = holder.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if is_plain && (1..=MAX_HOLDER_LENGTH).contains(&holder.len()) {
        return Ok(());
    }
    Err(format!("{holder:?} is no holder: choose 1 to {MAX_HOLDER_LENGTH} letters, digits, dots, _ and -"))
}

/// Makes one, as any sandbox is made.
pub(super) async fn make(installation: &Arc<Installation>, image: &str) -> Result<Spare, SandboxError> {
    let config = &installation.config;
    let engine = installation.engine().await?;
    let image = image::ensure(engine, config, image, &|_| {}).await?;
    let sandbox = new_name(&config.holder)?;

    let (removing, left) = (engine.clone(), sandbox.clone());
    let unadopted = UnfinishedStart::new(&installation.removals, async move {
        if let Err(error) = removing.remove_made_as(&left).await {
            tracing::warn!(sandbox = %left, %error, "removing a sandbox that was made ahead");
        }
    });
    let nobody = "nobody".parse().map_err(|error| start_error(format!("a name that is none: {error}")))?;
    let start = ContainerStart {
        engine,
        config,
        spec: &SandboxSpec::new(nobody),
        belongs: Belongs::AheadBy(&config.holder),
        sandbox: &sandbox,
        image: &image,
        steps: unadopted.steps(),
    };
    match start.run(&|_| {}).await {
        Ok(Started { client, container }) => Ok(Spare { client, container, image_id: image.id, unadopted }),
        Err(error) => unadopted.end(Err(error)).await,
    }
}

impl Spare {
    pub(super) fn is_of(&self, image: &Image) -> bool {
        self.image_id == image.id
    }

    /// Makes it the sandbox of that name, and forgets one that was left there. An error means that it is removed.
    pub(super) async fn adopt(
        self,
        engine: &Engine,
        sandbox: &SandboxId,
    ) -> Result<ActionClient, SandboxError> {
        let Self { client, container, unadopted, .. } = self;
        if !client.answers().await {
            // Dropped, and so removed; the next spare does not wait for that.
            return Err(SandboxError::Lost { detail: format!("the container {container} does not answer") });
        }
        let (engine, name) = (engine.clone(), sandbox.clone());
        let renaming = async move { engine.rename_in_place(&container, name.as_str()).await };
        let renamed = unadopted.steps().take(renaming).await;
        unadopted.end(renamed.map(|()| client.known_as(sandbox.clone()))).await
    }
}

fn new_name(holder: &str) -> Result<SandboxId, SandboxError> {
    let mut random = [0; 8];
    let filled = SystemRandom::new().fill(&mut random);
    filled.map_err(|_| start_error(format!("the {RUNTIME} runtime got no random bytes from this host")))?;
    let name = format!("{PREFIX}{holder}-{}", hex(&random));
    name.parse().map_err(|error| start_error(format!("{name} is no name of a sandbox: {error}")))
}

#[cfg(test)]
mod tests {
    use super::{MAX_HOLDER_LENGTH, check_holder, new_name, spare_holder};
    use crate::placement::conversation_of;

    #[test]
    fn a_spare_is_no_conversations_and_names_its_holder() {
        let name = new_name("host-7.boot").unwrap();
        assert_eq!(conversation_of(name.as_str()), None);
        assert_eq!(spare_holder(&name), Some("host-7.boot"));
        assert_eq!(spare_holder(&"glovebox-c".parse().unwrap()), None);
        assert!(new_name(&"h".repeat(MAX_HOLDER_LENGTH)).is_ok());
        assert!(check_holder("host-7.boot").is_ok());
        for holder in ["", "a b", "a/b", &"h".repeat(MAX_HOLDER_LENGTH + 1)] {
            assert!(check_holder(holder).is_err(), "{holder}");
        }
    }
}

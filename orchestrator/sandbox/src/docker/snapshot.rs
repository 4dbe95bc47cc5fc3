//! Makes an image of a container's files: what a fork is placed from.
//!
//! The image is set up as the one that the container came from, not as the container: that would start our server, as
//! the user of a workspace that is not in it. What is mounted, and what lies in memory, is not in it either.

use std::time::Duration;

use bollard::models::{ContainerConfig, ImageConfig};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, RemoveImageOptionsBuilder, TagImageOptionsBuilder,
};
use engine::sandbox::{SandboxError, SnapshotPurpose};
use protocol::SandboxId;

use super::engine::{Engine, said, status};
use super::image::split_reference;
use super::labels;
use super::lifecycle::{Found, refused};
use crate::placement::start_error;

/// Names those that are given no name, with the beginning of their id behind it.
const REPOSITORY: &str = "glovebox-snapshot";
const SHORT_ID_LENGTH: usize = 12;

/// Gigabytes are copied.
const COMMIT_LIMIT: Duration = Duration::from_secs(1800);

/// Makes a snapshot; answers with its name, or with its id when it is made in passing and so has none. The container
/// stands still meanwhile.
pub(super) async fn make(
    engine: &Engine,
    owner: &str,
    sandbox: &SandboxId,
    purpose: SnapshotPurpose<'_>,
) -> Result<String, SandboxError> {
    let container = sandbox.as_str();
    let found = engine.look_at(container).await?;
    let image = engine.docker.inspect_image(&found.image).await;
    // Its image may have been removed under it: then there is nothing to go back to but what engines start with.
    let origin = image.ok().and_then(|image| image.config).unwrap_or_default();

    let patient = engine.docker.clone().with_timeout(COMMIT_LIMIT);
    let options = CommitContainerOptionsBuilder::default().container(container).pause(true).build();
    let committed = patient.commit_container(options, config_like(origin, &found, owner, purpose)).await;
    let id = committed.map_err(|error| refused("making a snapshot of", container, &error))?.id;

    let name = match purpose {
        SnapshotPurpose::Fork(_) => return Ok(id),
        SnapshotPurpose::Keep(Some(name)) => name.to_owned(),
        SnapshotPurpose::Keep(None) => format!("{REPOSITORY}:{}", short(&id)),
    };
    let (repository, tag) = split_reference(&name);
    let tagged = TagImageOptionsBuilder::default().repo(repository).tag(tag).build();
    if let Err(error) = engine.docker.tag_image(&id, Some(tagged)).await {
        let options = RemoveImageOptionsBuilder::default().build();
        if let Err(error) = engine.docker.remove_image(&id, Some(options), None).await {
            tracing::warn!(image = id, %error, "removing a snapshot that could not be named");
        }
        return Err(match status(&error) {
            Some(_) => start_error(format!("the snapshot cannot be named {name}: {}", said(&error))),
            None => refused("naming the snapshot of", container, &error),
        });
    }
    Ok(name)
}

/// The configuration of the image that the container came from. What is left empty, the engine takes from the container.
fn config_like(
    origin: ImageConfig,
    container: &Found,
    owner: &str,
    purpose: SnapshotPurpose<'_>,
) -> ContainerConfig {
    let is_other_user = container.user != origin.user.as_deref().unwrap_or_default();
    let user = origin.user.filter(|user| !user.is_empty()).unwrap_or_else(|| "root".into());
    let mut environment = origin.env.unwrap_or_default();
    let has_home = environment.iter().any(|variable| variable.starts_with("HOME="));
    if is_other_user && !has_home {
        // It was a folder in memory. Empty, it is what the passwd file says.
        environment.push("HOME=".into());
    }
    ContainerConfig {
        user: Some(user),
        env: Some(environment),
        entrypoint: Some(origin.entrypoint.unwrap_or_default()),
        cmd: Some(origin.cmd.unwrap_or_else(|| vec!["sh".into()])),
        working_dir: origin.working_dir.filter(|folder| !folder.is_empty()).or(Some("/".into())),
        labels: Some(labels::of_snapshot(owner, purpose)),
        ..ContainerConfig::default()
    }
}

fn short(id: &str) -> String {
    let digits = id.rsplit(':').next().unwrap_or(id);
    digits.chars().take(SHORT_ID_LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use bollard::models::ImageConfig;
    use engine::sandbox::SnapshotPurpose;

    use super::super::lifecycle::Found;
    use super::{config_like, short};

    #[test]
    fn a_snapshot_is_set_up_as_the_image_was() {
        let found = Found {
            key_of: None,
            is_paused: false,
            user: "1000:100".into(),
            image: "i".into(),
            is_fork: false,
        };
        let origin = ImageConfig { cmd: Some(vec!["bash".into()]), ..ImageConfig::default() };
        let config = config_like(origin, &found, "me", SnapshotPurpose::Keep(None));
        assert_eq!(config.user.as_deref(), Some("root"), "not the workspace's user");
        assert_eq!(config.env.as_deref(), Some(&["HOME=".to_owned()][..]));
        assert_eq!(config.entrypoint, Some(vec![]), "not our server");
        assert_eq!(config.cmd, Some(vec!["bash".to_owned()]));

        let own = Found { user: "app".into(), ..found };
        let origin = ImageConfig { user: Some("app".into()), ..ImageConfig::default() };
        let config = config_like(origin, &own, "me", SnapshotPurpose::Keep(None));
        assert_eq!((config.user.as_deref(), config.env), (Some("app"), Some(vec![])));
    }

    #[test]
    fn an_id_is_shortened_behind_its_algorithm() {
        assert_eq!(short("sha256:0123456789abcdef"), "0123456789ab");
    }
}

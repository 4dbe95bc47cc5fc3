//! Creation of an image from a container's files, which a fork starts from.
//!
//! The image has the configuration of the container's image. The container's own one would start
//! the action server, and would set the user of a workspace that is not part of the image. Mounts
//! and tmpfs are not included.

use std::time::Duration;

use bollard::models::{ContainerConfig, ImageConfig};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, RemoveImageOptionsBuilder, TagImageOptionsBuilder,
};
use engine::sandbox::{SandboxError, SnapshotPurpose};
use protocol::SandboxId;
use sandbox_client::provisioning::{SNAPSHOT_REPOSITORY, start_error};

use super::engine::{Engine, error_message, status};
use super::image::split_reference;
use super::labels;
use super::lifecycle::refused;

const SHORT_ID_LENGTH: usize = 12;

/// The engine may copy gigabytes.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(1800);

/// Creates a snapshot and returns its name, or its id if it is the temporary one of a fork. The
/// container is paused meanwhile.
pub(super) async fn make(
    engine: &Engine,
    owner: &str,
    sandbox: &SandboxId,
    purpose: SnapshotPurpose<'_>,
) -> Result<String, SandboxError> {
    let container = sandbox.as_str();
    let found = engine.inspect_container(container).await?;
    let image = engine.docker.inspect_image(&found.image).await;
    // The image may have been removed. Then the defaults of the engine are used.
    let origin = image
        .ok()
        .and_then(|image| image.config)
        .unwrap_or_default();

    let patient = engine.docker.clone().with_timeout(COMMIT_TIMEOUT);
    let options = CommitContainerOptionsBuilder::default()
        .container(container)
        .pause(true)
        .build();
    let committed = patient
        .commit_container(options, config_like(origin, owner, purpose))
        .await;
    let id = committed
        .map_err(|error| refused("snapshot", container, &error))?
        .id;

    let name = match purpose {
        SnapshotPurpose::Fork(_) => return Ok(id),
        SnapshotPurpose::Keep(Some(name)) => name.to_owned(),
        SnapshotPurpose::Keep(None) => format!("{SNAPSHOT_REPOSITORY}:{}", short(&id)),
    };
    let (repository, tag) = split_reference(&name);
    let tagged = TagImageOptionsBuilder::default()
        .repo(repository)
        .tag(tag)
        .build();
    if let Err(error) = engine.docker.tag_image(&id, Some(tagged)).await {
        let options = RemoveImageOptionsBuilder::default().build();
        if let Err(error) = engine.docker.remove_image(&id, Some(options), None).await {
            tracing::warn!(image = id, %error, "cannot remove a snapshot without a name");
        }
        return Err(match status(&error) {
            Some(_) => start_error(format!(
                "cannot name the snapshot {name}: {}",
                error_message(&error)
            )),
            None => refused("tag the snapshot of", container, &error),
        });
    }
    Ok(name)
}

/// Returns the configuration of the container's image. The engine fills empty fields from the
/// container.
fn config_like(origin: ImageConfig, owner: &str, purpose: SnapshotPurpose<'_>) -> ContainerConfig {
    // By its number, because an image without `/etc/passwd` has no names.
    let user = origin
        .user
        .filter(|user| !user.is_empty())
        .unwrap_or_else(|| "0".into());
    ContainerConfig {
        user: Some(user),
        env: Some(origin.env.unwrap_or_default()),
        entrypoint: Some(origin.entrypoint.unwrap_or_default()),
        cmd: Some(origin.cmd.unwrap_or_else(|| vec!["sh".into()])),
        working_dir: origin
            .working_dir
            .filter(|folder| !folder.is_empty())
            .or(Some("/".into())),
        labels: Some(labels::snapshot_labels(owner, purpose)),
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

    use super::{config_like, short};

    #[test]
    fn snapshot_has_the_configuration_of_the_image() {
        let origin = ImageConfig {
            cmd: Some(vec!["bash".into()]),
            ..ImageConfig::default()
        };
        let config = config_like(origin, "me", SnapshotPurpose::Keep(None));
        assert_eq!(
            config.user.as_deref(),
            Some("0"),
            "not the workspace's user"
        );
        assert_eq!(config.entrypoint, Some(vec![]), "not our server");
        assert_eq!(config.cmd, Some(vec!["bash".to_owned()]));

        let origin = ImageConfig {
            user: Some("app".into()),
            ..ImageConfig::default()
        };
        let config = config_like(origin, "me", SnapshotPurpose::Keep(None));
        assert_eq!(
            (config.user.as_deref(), config.env),
            (Some("app"), Some(vec![]))
        );
    }

    #[test]
    fn id_is_shortened_after_its_algorithm() {
        assert_eq!(short("sha256:0123456789abcdef"), "0123456789ab");
    }
}

//! List and removal of this installation's snapshots, which are found by their label.
//!
//! The temporary snapshot of a fork has no name. It is removed with the last container that uses
//! it. The engine then removes its unused parent images.

use std::collections::HashMap;

use bollard::models::ImageSummary;
use bollard::query_parameters::{ListImagesOptionsBuilder, RemoveImageOptions};
use engine::sandbox::{SandboxError, Snapshot};
use jiff::Timestamp;

use super::engine::{Engine, error_message, failed, status};
use super::labels::{FORK_LABEL, SNAPSHOT_LABEL};

/// Name that engines report for an image without one.
const NO_NAME: &str = "<none>:<none>";

/// Lists the snapshots of an owner, once per name.
pub(super) async fn list(engine: &Engine, owner: &str) -> Result<Vec<Snapshot>, SandboxError> {
    let filters = HashMap::from([("label", vec![format!("{SNAPSHOT_LABEL}={owner}")])]);
    let options = ListImagesOptionsBuilder::default()
        .filters(&filters)
        .build();
    let images = engine.docker.list_images(Some(options)).await;
    let images =
        images.map_err(|error| failed("list", format_args!("the snapshots of {owner}"), &error))?;
    Ok(images.into_iter().flat_map(snapshots).collect())
}

fn snapshots(image: ImageSummary) -> Vec<Snapshot> {
    let snapshot = Snapshot {
        image: image.id,
        fork: image
            .labels
            .get(FORK_LABEL)
            .and_then(|conversation| conversation.parse().ok()),
        size_bytes: u64::try_from(image.size).unwrap_or_default(),
        created_at: Timestamp::from_second(image.created).ok(),
    };
    let names: Vec<String> = image
        .repo_tags
        .into_iter()
        .filter(|name| name != NO_NAME)
        .collect();
    if names.is_empty() {
        return vec![snapshot];
    }
    // A user has named it, so that it is kept even if it was created for a fork.
    names
        .into_iter()
        .map(|image| Snapshot {
            image,
            fork: None,
            ..snapshot.clone()
        })
        .collect()
}

/// Removes a snapshot of an owner, or only the name if it has others. Succeeds if the snapshot does
/// not exist.
pub(super) async fn remove(engine: &Engine, owner: &str, image: &str) -> Result<(), SandboxError> {
    let Some(found) = inspect_image(engine, image).await? else {
        return Ok(());
    };
    if found.owner.as_deref() != Some(owner) {
        let detail = "it is no snapshot of this installation, and is not removed".into();
        return Err(SandboxError::NoSuchImage {
            image: image.to_owned(),
            detail,
        });
    }
    // Never forced: Podman would remove the containers that use the image.
    match engine
        .docker
        .remove_image(image, None::<RemoveImageOptions>, None)
        .await
    {
        Ok(_) => Ok(()),
        Err(error) if status(&error) == Some(404) => Ok(()),
        Err(error) if status(&error) == Some(409) => Err(SandboxError::InUse {
            what: format!("the snapshot {image}"),
            detail: error_message(&error),
        }),
        Err(error) => Err(failed(
            "remove",
            format_args!("the snapshot {image}"),
            &error,
        )),
    }
}

/// Removes the temporary snapshot of a forked container, unless it has a name or other containers
/// use it. If the removal fails, a later sweep repeats it.
pub(super) async fn remove_after_fork(engine: &Engine, owner: &str, image: &str) {
    let removed = match inspect_image(engine, image).await {
        Ok(Some(found)) if !found.has_name => remove(engine, owner, image).await,
        other => other.map(drop),
    };
    match removed {
        Ok(()) | Err(SandboxError::InUse { .. } | SandboxError::NoSuchImage { .. }) => {}
        Err(error) => tracing::warn!(image, %error, "cannot remove the snapshot of a fork"),
    }
}

struct SnapshotImage {
    owner: Option<String>,
    has_name: bool,
}

async fn inspect_image(
    engine: &Engine,
    image: &str,
) -> Result<Option<SnapshotImage>, SandboxError> {
    match engine.docker.inspect_image(image).await {
        Ok(found) => Ok(Some(SnapshotImage {
            has_name: found
                .repo_tags
                .is_some_and(|names| names.iter().any(|name| name != NO_NAME)),
            owner: found
                .config
                .and_then(|config| config.labels?.remove(SNAPSHOT_LABEL)),
        })),
        Err(error) if matches!(status(&error), Some(400 | 404)) => Ok(None),
        Err(error) => Err(failed("find", format_args!("the snapshot {image}"), &error)),
    }
}

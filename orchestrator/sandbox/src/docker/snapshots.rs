//! The snapshots that an engine holds for this installation: known by their label, listed, removed.
//!
//! One that was made in passing has no name. It goes when the last container that came of it goes; the engine itself
//! removes those that it was made of, once nothing else came of them.

use std::collections::HashMap;

use bollard::models::ImageSummary;
use bollard::query_parameters::{ListImagesOptionsBuilder, RemoveImageOptions};
use engine::sandbox::{SandboxError, Snapshot};
use jiff::Timestamp;

use super::engine::{Engine, failed, said, status};
use super::labels::{FORK_LABEL, SNAPSHOT_LABEL};

/// What engines call an image that has no name.
const NO_NAME: &str = "<none>:<none>";

/// All of this owner's, each under each of its names.
pub(super) async fn of(engine: &Engine, owner: &str) -> Result<Vec<Snapshot>, SandboxError> {
    let filters = HashMap::from([("label", vec![format!("{SNAPSHOT_LABEL}={owner}")])]);
    let options = ListImagesOptionsBuilder::default().filters(&filters).build();
    let images = engine.docker.list_images(Some(options)).await;
    let images = images.map_err(|error| failed(&format!("listing the snapshots of {owner}"), &error))?;
    Ok(images.into_iter().flat_map(snapshots).collect())
}

fn snapshots(image: ImageSummary) -> Vec<Snapshot> {
    let snapshot = Snapshot {
        image: image.id,
        fork: image.labels.get(FORK_LABEL).and_then(|conversation| conversation.parse().ok()),
        size_bytes: u64::try_from(image.size).unwrap_or_default(),
        created_at: Timestamp::from_second(image.created).ok(),
    };
    let names: Vec<String> = image.repo_tags.into_iter().filter(|name| name != NO_NAME).collect();
    if names.is_empty() {
        return vec![snapshot];
    }
    // Somebody gave it a name: it is to stay, whatever it was made for.
    names.into_iter().map(|image| Snapshot { image, fork: None, ..snapshot.clone() }).collect()
}

/// Removes one of this owner's, or its name when it has others. One that is not there is no error.
pub(super) async fn remove(engine: &Engine, owner: &str, image: &str) -> Result<(), SandboxError> {
    let Some(found) = look_at(engine, image).await? else { return Ok(()) };
    if found.owner.as_deref() != Some(owner) {
        let detail = "it is no snapshot of this installation, and is not removed".into();
        return Err(SandboxError::NoSuchImage { image: image.to_owned(), detail });
    }
    // Never by force: Podman would remove the containers that came of it.
    match engine.docker.remove_image(image, None::<RemoveImageOptions>, None).await {
        Ok(_) => Ok(()),
        Err(error) if status(&error) == Some(404) => Ok(()),
        Err(error) if status(&error) == Some(409) => {
            Err(SandboxError::InUse { what: format!("the snapshot {image}"), detail: said(&error) })
        }
        Err(error) => Err(failed(&format!("removing the snapshot {image}"), &error)),
    }
}

/// Removes what a container came of that was forked, unless it has got a name or other containers came of it too. What
/// cannot be removed is left to a sweep.
pub(super) async fn remove_after_fork(engine: &Engine, owner: &str, image: &str) {
    let removed = match look_at(engine, image).await {
        Ok(Some(found)) if !found.has_name => remove(engine, owner, image).await,
        other => other.map(drop),
    };
    match removed {
        Ok(()) | Err(SandboxError::InUse { .. } | SandboxError::NoSuchImage { .. }) => {}
        Err(error) => tracing::warn!(image, %error, "removing the snapshot of a fork"),
    }
}

struct Found {
    owner: Option<String>,
    has_name: bool,
}

async fn look_at(engine: &Engine, image: &str) -> Result<Option<Found>, SandboxError> {
    match engine.docker.inspect_image(image).await {
        Ok(found) => Ok(Some(Found {
            has_name: found.repo_tags.is_some_and(|names| names.iter().any(|name| name != NO_NAME)),
            owner: found.config.and_then(|config| config.labels?.remove(SNAPSHOT_LABEL)),
        })),
        Err(error) if matches!(status(&error), Some(400 | 404)) => Ok(None),
        Err(error) => Err(failed(&format!("looking for the snapshot {image}"), &error)),
    }
}

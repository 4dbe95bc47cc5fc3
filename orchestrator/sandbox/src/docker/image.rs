//! The image: found here, or pulled with progress. Never built, never changed.

use std::time::Duration;

use bollard::query_parameters::CreateImageOptionsBuilder;
use engine::sandbox::{SandboxError, StartProgress};
use futures_util::StreamExt;
use tokio::time::{Instant, timeout};

use super::engine::{Engine, failed, said, status};
use super::pull_progress::PullProgress;

/// Progress is told at least so often, also when the engine has nothing to say.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// And not more often than this.
const TOLD_AT_MOST_EVERY: Duration = Duration::from_millis(200);
/// An engine that says nothing for so long pulls nothing any more.
const STALL: Duration = Duration::from_secs(90);

/// What a start needs to know of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) name: String,
    /// Whom its containers run as unless told otherwise; root when it does not say.
    pub(super) user: String,
}

/// Finds the image, pulls it when it is missing.
pub(super) async fn ensure(
    engine: &Engine,
    name: &str,
    pull_timeout: Duration,
    on_progress: &(dyn Fn(StartProgress) + Send + Sync),
) -> Result<Image, SandboxError> {
    if let Some(image) = find(engine, name).await? {
        return Ok(image);
    }
    match timeout(pull_timeout, pull(engine, name, on_progress)).await {
        Ok(pulled) => pulled?,
        Err(_) => return Err(no_such_image(name, format!("not pulled within {} s", pull_timeout.as_secs()))),
    }
    find(engine, name).await?.ok_or_else(|| no_such_image(name, "pulled, and not there".into()))
}

async fn find(engine: &Engine, name: &str) -> Result<Option<Image>, SandboxError> {
    match engine.docker.inspect_image(name).await {
        Ok(found) => {
            let user = found.config.and_then(|config| config.user).unwrap_or_default();
            Ok(Some(Image { name: name.to_owned(), user }))
        }
        Err(error) if status(&error) == Some(404) => Ok(None),
        // A name that is not one.
        Err(error) if status(&error) == Some(400) => Err(no_such_image(name, said(&error))),
        Err(error) => Err(failed(&format!("looking for the image {name}"), &error)),
    }
}

async fn pull(
    engine: &Engine,
    name: &str,
    on_progress: &(dyn Fn(StartProgress) + Send + Sync),
) -> Result<(), SandboxError> {
    let (repository, tag) = split_reference(name);
    let options = CreateImageOptionsBuilder::default().from_image(repository).tag(tag).build();
    let mut messages = engine.docker.create_image(Some(options), None, None);
    let mut progress = PullProgress::default();
    let (mut last_message, mut last_told) = (Instant::now(), None);
    loop {
        if last_told.is_none_or(|told: Instant| told.elapsed() >= TOLD_AT_MOST_EVERY) {
            let (received_bytes, total_bytes) = progress.bytes();
            on_progress(StartProgress::Pulling { image: name.to_owned(), received_bytes, total_bytes });
            last_told = Some(Instant::now());
        }
        match timeout(HEARTBEAT, messages.next()).await {
            Ok(None) => return Ok(()),
            Ok(Some(Ok(message))) => {
                progress.hear(&message);
                last_message = Instant::now();
            }
            Ok(Some(Err(error @ bollard::errors::Error::DockerStreamError { .. }))) => {
                return Err(no_such_image(name, said(&error)));
            }
            Ok(Some(Err(error))) if status(&error).is_some() => {
                return Err(no_such_image(name, said(&error)));
            }
            Ok(Some(Err(error))) => return Err(failed(&format!("pulling the image {name}"), &error)),
            Err(_) if last_message.elapsed() > STALL => {
                return Err(no_such_image(name, format!("the pull stands still for {} s", STALL.as_secs())));
            }
            Err(_) => {}
        }
    }
}

fn no_such_image(image: &str, detail: String) -> SandboxError {
    SandboxError::NoSuchImage { image: image.to_owned(), detail }
}

/// Repository and tag. Without a tag the engine would pull all of them; a digest stays where it is.
fn split_reference(name: &str) -> (&str, &str) {
    if name.contains('@') {
        return (name, "");
    }
    match name.rsplit_once(':') {
        // A colon before a slash is that of a registry's port.
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (name, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::split_reference;

    #[test]
    fn references_are_split_at_their_tag() {
        for (name, expected) in [
            ("debian", ("debian", "latest")),
            ("debian:12", ("debian", "12")),
            ("localhost:5000/a/b", ("localhost:5000/a/b", "latest")),
            ("localhost:5000/a/b:1", ("localhost:5000/a/b", "1")),
            ("debian@sha256:0123", ("debian@sha256:0123", "")),
        ] {
            assert_eq!(split_reference(name), expected);
        }
    }
}

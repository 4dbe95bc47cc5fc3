//! The image: found here, or pulled with progress. Never built, never changed.

use std::time::Duration;

use bollard::errors::Error;
use bollard::query_parameters::CreateImageOptionsBuilder;
use engine::sandbox::{SandboxError, StartProgress};
use futures_util::StreamExt;
use tokio::time::{Instant, timeout};

use super::DockerConfig;
use super::engine::{Engine, failed, said, status};
use super::pull_progress::PullProgress;
use super::registry_login::RegistryLogin;

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
    /// What it is now: another one may get its name.
    pub(super) id: String,
    /// Whom its containers run as unless told otherwise; root when it does not say.
    pub(super) user: String,
}

/// Finds the image, pulls it when it is missing or another platform's.
pub(super) async fn ensure(
    engine: &Engine,
    config: &DockerConfig,
    name: &str,
    on_progress: &(dyn Fn(StartProgress) + Send + Sync),
) -> Result<Image, SandboxError> {
    let platform = config.platform.as_deref();
    if let Some(image) = find(engine, name, platform).await? {
        return Ok(image);
    }
    match timeout(config.pull_timeout, pull(engine, config, name, on_progress)).await {
        Ok(pulled) => pulled?,
        Err(_) => {
            let limit = config.pull_timeout.as_secs();
            return Err(no_such_image(name, format!("not pulled within {limit} s")));
        }
    }
    find(engine, name, platform).await?.ok_or_else(|| no_such_image(name, "pulled, and not there".into()))
}

async fn find(engine: &Engine, name: &str, platform: Option<&str>) -> Result<Option<Image>, SandboxError> {
    match engine.docker.inspect_image(name).await {
        Ok(found) => {
            let own = [found.os, found.architecture, found.variant].map(Option::unwrap_or_default);
            if platform.is_some_and(|wanted| !is_platform(&own, wanted)) {
                return Ok(None);
            }
            let user = found.config.and_then(|config| config.user).unwrap_or_default();
            Ok(Some(Image { name: name.to_owned(), id: found.id.unwrap_or_default(), user }))
        }
        Err(error) if status(&error) == Some(404) => Ok(None),
        // A name that is not one.
        Err(error) if status(&error) == Some(400) => Err(no_such_image(name, said(&error))),
        Err(error) => Err(failed(&format!("looking for the image {name}"), &error)),
    }
}

async fn pull(
    engine: &Engine,
    config: &DockerConfig,
    name: &str,
    on_progress: &(dyn Fn(StartProgress) + Send + Sync),
) -> Result<(), SandboxError> {
    let platform = config.platform.as_deref();
    let (repository, tag) = split_reference(name);
    let options = CreateImageOptionsBuilder::default().from_image(repository).tag(tag);
    let options = platform.into_iter().fold(options, CreateImageOptionsBuilder::platform);
    let RegistryLogin { credentials, problem } =
        RegistryLogin::find(config.client_config.as_deref(), repository).await;
    let mut messages = engine.docker.create_image(Some(options.build()), None, credentials);
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
            Ok(Some(Err(error))) => return Err(not_pulled(name, platform, problem, &error)),
            Err(_) if last_message.elapsed() > STALL => {
                return Err(no_such_image(name, format!("the pull stands still for {} s", STALL.as_secs())));
            }
            Err(_) => {}
        }
    }
}

/// The engine's words, and what they leave open: a registry says "not found" also to who has not logged in.
fn not_pulled(name: &str, platform: Option<&str>, problem: Option<String>, error: &Error) -> SandboxError {
    let platform = platform.map(|platform| format!(" for {platform}")).unwrap_or_default();
    match (error, status(error)) {
        (Error::DockerStreamError { .. }, _) | (_, Some(_)) => no_such_image(
            name,
            format!(
                "pulling it{platform}: {}; check its name, that the engine reaches its registry, and whether that \
                 wants a `docker login`{}",
                said(error),
                problem.map(|problem| format!("; {problem}")).unwrap_or_default()
            ),
        ),
        (_, None) => failed(&format!("pulling the image {name}{platform}"), error),
    }
}

fn no_such_image(image: &str, detail: String) -> SandboxError {
    SandboxError::NoSuchImage { image: image.to_owned(), detail }
}

/// Whether what is `[system, architecture, variant]` is the platform `system/architecture[/variant]`.
fn is_platform(own: &[String; 3], wanted: &str) -> bool {
    let mut wanted = wanted.split('/');
    own.iter().all(|own| wanted.next().is_none_or(|wanted| wanted == own))
}

/// Repository and tag. Without a tag the engine would pull all of them; a digest stays where it is.
pub(super) fn split_reference(name: &str) -> (&str, &str) {
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
    use super::{is_platform, split_reference};

    #[test]
    fn a_platform_is_compared_as_far_as_it_is_named() {
        let own = ["linux", "arm64", "v8"].map(String::from);
        for (wanted, expected) in
            [("linux", true), ("linux/arm64", true), ("linux/arm64/v8", true), ("linux/amd64", false)]
        {
            assert_eq!(is_platform(&own, wanted), expected, "{wanted}");
        }
    }

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

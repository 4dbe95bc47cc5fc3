//! Image lookup, and pull with progress if the image is missing. Images are never built or changed.

use std::time::Duration;

use bollard::errors::Error;
use bollard::models::ImageConfig;
use bollard::query_parameters::CreateImageOptionsBuilder;
use engine::sandbox::{SandboxError, StartProgress};
use futures_util::StreamExt;
use tokio::time::{Instant, timeout};

use super::DockerConfig;
use super::engine::{Engine, error_message, start_failed, status};
use super::labels::SNAPSHOT_LABEL;
use super::pull_progress::PullProgress;
use super::registry_login::RegistryLogin;

/// Maximum time between progress reports, even without a message of the engine.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// Minimum time between progress reports.
const MIN_PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// A pull without a message for this long fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(90);

/// Properties of an image that a start needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) name: String,
    /// Image id. The name may move to another image.
    pub(super) id: String,
    /// Default user of its containers. Root if the image sets none.
    pub(super) user: String,
    /// Whether it was made from a container, and thus has the folders over which our tmpfs were
    /// mounted.
    pub(super) is_snapshot: bool,
}

/// Returns the image, and pulls it if it is missing or is for another platform.
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
    find(engine, name, platform)
        .await?
        .ok_or_else(|| no_such_image(name, "pulled, and not there".into()))
}

/// Finds an image of the engine. `None` if there is none for the platform.
pub(super) async fn find(
    engine: &Engine,
    name: &str,
    platform: Option<&str>,
) -> Result<Option<Image>, SandboxError> {
    match engine.docker.inspect_image(name).await {
        Ok(found) => {
            let own = [found.os, found.architecture, found.variant].map(Option::unwrap_or_default);
            if platform.is_some_and(|wanted| !is_platform(&own, wanted)) {
                return Ok(None);
            }
            let ImageConfig { user, labels, .. } = found.config.unwrap_or_default();
            Ok(Some(Image {
                name: name.to_owned(),
                id: found.id.unwrap_or_default(),
                user: user.unwrap_or_default(),
                is_snapshot: labels.is_some_and(|labels| labels.contains_key(SNAPSHOT_LABEL)),
            }))
        }
        Err(error) if status(&error) == Some(404) => Ok(None),
        // The name is invalid.
        Err(error) if status(&error) == Some(400) => {
            Err(no_such_image(name, error_message(&error)))
        }
        Err(error) => Err(start_failed(format_args!("find the image {name}"), &error)),
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
    let options = CreateImageOptionsBuilder::default()
        .from_image(repository)
        .tag(tag);
    let options = platform
        .into_iter()
        .fold(options, CreateImageOptionsBuilder::platform);
    let RegistryLogin {
        credentials,
        problem,
    } = RegistryLogin::find(config.client_config.as_deref(), repository).await;
    let mut messages = engine
        .docker
        .create_image(Some(options.build()), None, credentials);
    let mut progress = PullProgress::default();
    let (mut last_message, mut last_report) = (Instant::now(), None);
    loop {
        if last_report.is_none_or(|at: Instant| at.elapsed() >= MIN_PROGRESS_INTERVAL) {
            let (received_bytes, total_bytes) = progress.bytes();
            on_progress(StartProgress::Pulling {
                image: name.to_owned(),
                received_bytes,
                total_bytes,
            });
            last_report = Some(Instant::now());
        }
        match timeout(HEARTBEAT_INTERVAL, messages.next()).await {
            Ok(None) => return Ok(()),
            Ok(Some(Ok(message))) => {
                progress.apply(&message);
                last_message = Instant::now();
            }
            Ok(Some(Err(error))) => return Err(not_pulled(name, platform, problem, &error)),
            Err(_) if last_message.elapsed() > STALL_TIMEOUT => {
                return Err(no_such_image(
                    name,
                    format!("the pull stands still for {} s", STALL_TIMEOUT.as_secs()),
                ));
            }
            Err(_) => {}
        }
    }
}

/// Builds the error of a failed pull. Registries also report "not found" for missing credentials,
/// hence the advice.
fn not_pulled(
    name: &str,
    platform: Option<&str>,
    problem: Option<String>,
    error: &Error,
) -> SandboxError {
    let platform = platform
        .map(|platform| format!(" for {platform}"))
        .unwrap_or_default();
    match (error, status(error)) {
        (Error::DockerStreamError { .. }, _) | (_, Some(_)) => no_such_image(
            name,
            format!(
                "pulling it{platform}: {}; check its name, that the engine reaches its registry, and whether that \
                 wants a `docker login`{}",
                error_message(error),
                problem
                    .map(|problem| format!("; {problem}"))
                    .unwrap_or_default()
            ),
        ),
        (_, None) => start_failed(format_args!("pull the image {name}{platform}"), error),
    }
}

fn no_such_image(image: &str, detail: String) -> SandboxError {
    SandboxError::NoSuchImage {
        image: image.to_owned(),
        detail,
    }
}

/// Whether `[system, architecture, variant]` matches the platform `system/architecture[/variant]`.
fn is_platform(own: &[String; 3], wanted: &str) -> bool {
    let mut wanted = wanted.split('/');
    own.iter()
        .all(|own| wanted.next().is_none_or(|wanted| wanted == own))
}

/// Splits a reference into repository and tag. The tag defaults to `latest`, since an engine would
/// pull all tags. A digest stays in the repository part.
pub(super) fn split_reference(name: &str) -> (&str, &str) {
    if name.contains('@') {
        return (name, "");
    }
    match name.rsplit_once(':') {
        // A colon before a slash belongs to the registry's port.
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (name, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_platform, split_reference};

    #[test]
    fn platform_matches_when_the_named_parts_are_equal() {
        let own = ["linux", "arm64", "v8"].map(String::from);
        for (wanted, expected) in [
            ("linux", true),
            ("linux/arm64", true),
            ("linux/arm64/v8", true),
            ("linux/amd64", false),
        ] {
            assert_eq!(is_platform(&own, wanted), expected, "{wanted}");
        }
    }

    #[test]
    fn reference_is_split_at_its_tag() {
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

//! `glovebox sandbox-host`: serves sandboxes of this machine to orchestrators on other machines.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::builder::NonEmptyStringValueParser;
use sandbox_client::ServerUrl;
use sandbox_docker::DEFAULT_IMAGE;
use sandbox_host::{HostKeys, ImagePattern, SandboxHost, SandboxHostConfig};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::interrupts::{Hangup, Interrupts};
use super::{prepare_server, print};
use crate::compose::{self, StateDir};
use crate::config::{Overrides, Runtime};
use crate::exit::{Exit, UsageError};
use crate::input_file::{self, MAX_SETTINGS_LENGTH};

/// State folder of the sandbox host. It is separate, so that other commands of this user do not
/// sweep its sandboxes.
const STATE_FOLDER: &str = "leases";

/// Its name in earlier versions. It has the secret of sandboxes that may still run.
const EARLIER_STATE_FOLDER: &str = "lent";

/// Environment variable with the keys, if there is no file.
const KEYS_VARIABLE: &str = "GLOVEBOX_SANDBOX_HOST_KEYS";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
To use it on another machine, set the runtime to `remote`, remote_runtime_api_url to http://THIS_HOST:PORT, and api_key to \
the secret of a key. Keys and traffic are not encrypted: on a network, use a proxy that terminates TLS and forwards \
`Upgrade`, and set its address with --public-url.

Each key can only use its own sandboxes. On ^C or SIGTERM, the sandboxes keep running, and the next start recovers them, as \
after a crash. Sandboxes without a client for --idle-timeout are removed, unless they are paused or their owner keeps them.")]
pub(super) struct SandboxHostArguments {
    /// Address to listen on; 0.0.0.0:PORT for all networks.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,

    /// File with keys, one NAME:SECRET per line. By default, GLOVEBOX_SANDBOX_HOST_KEYS, separated
    /// by commas.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,

    /// Maximum number of sandboxes of all keys.
    #[arg(long, value_name = "NUMBER", default_value_t = 16)]
    max_sandboxes: usize,

    /// Maximum number of sandboxes of each key.
    #[arg(long, value_name = "NUMBER", default_value_t = 8)]
    max_sandboxes_per_key: usize,

    /// Maximum resources of a sandbox, as a multiple of those of `[sandbox]` (by default 4 GiB and
    /// 2 processors). At least 1.
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0, value_parser = parse_factor)]
    max_resource_factor: f64,

    /// Image that clients may start, in addition to the default one: NAME, NAME:TAG, or with stars,
    /// as in 'registry.example/team/*'. Can be repeated. By default, every image.
    #[arg(long = "allow-image", value_name = "IMAGE")]
    allowed_images: Vec<ImagePattern>,

    /// Remove sandboxes without a client for this time.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    idle_timeout: u64,

    /// Address of this host for clients, if it is behind a proxy.
    #[arg(long, value_name = "URL")]
    public_url: Option<ServerUrl>,

    /// Remove all sandboxes when the program stops.
    #[arg(long)]
    remove_at_end: bool,

    /// Runtime of the sandboxes: docker, or local (processes on this machine).
    #[arg(long, value_name = "RUNTIME")]
    runtime: Option<Runtime>,

    /// Default image of sandboxes.
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    image: Option<String>,
}

pub(super) async fn run(
    arguments: SandboxHostArguments,
    overrides: Overrides,
) -> anyhow::Result<Exit> {
    let SandboxHostArguments { runtime, image, .. } = &arguments;
    let overrides = Overrides {
        runtime: *runtime,
        image: image.clone(),
        ..overrides
    };
    let (config, _) = prepare_server(&overrides).await?;
    let default_image = config.sandbox.image.clone();
    let default_image = default_image.or_else(|| Some(DEFAULT_IMAGE.to_owned()));
    let host = SandboxHostConfig {
        max_sandboxes: arguments.max_sandboxes,
        max_sandboxes_per_key: arguments.max_sandboxes_per_key,
        resources: config.sandbox.resources,
        max_resource_factor: arguments.max_resource_factor,
        idle_timeout: Duration::from_secs(arguments.idle_timeout),
        public_url: arguments.public_url,
        removes_at_end: arguments.remove_at_end,
        default_image: default_image.filter(|_| config.runtime.has_images()),
        allowed_images: arguments.allowed_images,
        has_images: config.runtime.has_images(),
        is_warm_in_use: compose::is_warm_in_use,
        ..SandboxHostConfig::new(keys(arguments.keys.as_deref())?)
    };
    let mut interrupts = Interrupts::listen_unbounded(Hangup::Interrupts)?;
    let state_dir = StateDir::open(&state_folder(&config.state_dir))?;
    let provider = compose::provider_for_clients(&config, &state_dir)?;
    let listener = TcpListener::bind(arguments.listen).await;
    let listener = listener.with_context(|| {
        format!(
            "cannot listen on {}: choose another --listen",
            arguments.listen
        )
    })?;
    print::line(&format!("listening on http://{}", listener.local_addr()?))?;

    let stop = CancellationToken::new();
    let mut serving =
        std::pin::pin!(SandboxHost::new(provider, host).serve(listener, stop.clone()));
    tokio::select! {
        result = &mut serving => result?,
        () = interrupts.next() => {
            stop.cancel();
            tokio::select! {
                result = serving => result?,
                () = interrupts.next() => return Ok(Exit::Interrupted),
            }
        }
    }
    Ok(Exit::Finished)
}

fn state_folder(state_dir: &Path) -> PathBuf {
    let earlier = state_dir.join(EARLIER_STATE_FOLDER);
    if earlier.is_dir() {
        earlier
    } else {
        state_dir.join(STATE_FOLDER)
    }
}

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().map_err(|_| "must be a number".to_owned())?;
    // With less, the default of a request would exceed the maximum.
    if !(factor >= 1.0 && f64::is_finite(factor)) {
        return Err("must be at least 1; lower limits belong in [sandbox]".to_owned());
    }
    Ok(factor)
}

fn read_keys(file: &Path) -> std::io::Result<String> {
    input_file::read_named(file, MAX_SETTINGS_LENGTH).and_then(input_file::to_text)
}

fn keys(file: Option<&Path>) -> anyhow::Result<HostKeys> {
    let (source, text) = match file {
        None => {
            let text = std::env::var(KEYS_VARIABLE);
            let missing = format!("no keys: give --keys FILE, or set {KEYS_VARIABLE}");
            (
                KEYS_VARIABLE.to_owned(),
                text.map_err(|_| UsageError(missing))?,
            )
        }
        Some(file) => {
            let unreadable = |error| {
                UsageError(format!(
                    "cannot read the keys in {}: {error}",
                    file.display()
                ))
            };
            if std::fs::metadata(file)
                .map_err(unreadable)?
                .permissions()
                .mode()
                & 0o077
                != 0
            {
                print::warning(&format!(
                    "other users can read {}: run `chmod 600 {0}`",
                    file.display()
                ));
            }
            (
                file.display().to_string(),
                read_keys(file).map_err(unreadable)?,
            )
        }
    };
    text.parse()
        .map_err(|error| UsageError(format!("{source}: {error}")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_an_earlier_version_is_found() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(state_folder(folder.path()), folder.path().join("leases"));
        std::fs::create_dir(folder.path().join("lent")).unwrap();
        assert_eq!(state_folder(folder.path()), folder.path().join("lent"));
    }
}

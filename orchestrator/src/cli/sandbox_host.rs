//! `glovebox sandbox-host`: lends this machine's sandboxes to orchestrators on others.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use sandbox::{HostKeys, SandboxHost, SandboxHostConfig, ServerUrl};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::interrupts::Interrupts;
use super::{prepare, print};
use crate::compose::{self, StateDir};
use crate::config::{Overrides, Runtime};
use crate::exit::{Exit, UsageError};
use crate::input_file::{self, MAX_SETTINGS_LENGTH};

/// Its sandboxes belong to a state of their own, so that nothing else of this user's sweeps them away.
const STATE_FOLDER: &str = "lent";

/// Where keys are when they are in no file.
const KEYS_VARIABLE: &str = "GLOVEBOX_SANDBOX_HOST_KEYS";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
An orchestrator elsewhere uses it with the runtime `remote`: remote_runtime_api_url is http://THIS_HOST:PORT, api_key the
secret of one of the keys. Keys and all that is done cross in the clear: on a network put a proxy that terminates TLS in
front, let it pass `Upgrade` on, and say its address with --public-url.

Each key sees only its own sandboxes. ^C or SIGTERM ends this program within seconds; the sandboxes stay, and its next
start takes them up, as after a crash. Those that nobody speaks to for --idle-timeout are removed; not those that are
paused, nor those that their owner asked to keep.")]
pub(super) struct SandboxHostArguments {
    /// Listen on this address; 0.0.0.0:PORT for all networks.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,

    /// Keys, one NAME:SECRET a line; without it GLOVEBOX_SANDBOX_HOST_KEYS holds them, separated by commas.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,

    /// Sandboxes of all keys together.
    #[arg(long, value_name = "NUMBER", default_value_t = 16)]
    max_sandboxes: usize,

    /// Sandboxes of each key.
    #[arg(long, value_name = "NUMBER", default_value_t = 8)]
    max_sandboxes_per_key: usize,

    /// How many times the default memory (4 GiB) and processors (2) one sandbox may ask for.
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0)]
    max_resource_factor: f64,

    /// Remove a sandbox that nobody spoke to for this long.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    idle_timeout: u64,

    /// Where clients reach this host, when that is not what they ask for: behind a proxy.
    #[arg(long, value_name = "URL")]
    public_url: Option<ServerUrl>,

    /// Remove all sandboxes at the end.
    #[arg(long)]
    remove_at_end: bool,

    /// What places the sandboxes: docker, or local (processes of this machine).
    #[arg(long, value_name = "RUNTIME")]
    runtime: Option<Runtime>,

    /// The image of sandboxes that ask for none.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
}

pub(super) async fn run(arguments: SandboxHostArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let SandboxHostArguments { runtime, image, .. } = &arguments;
    let overrides = Overrides { runtime: *runtime, image: image.clone(), ..overrides };
    let (config, _) = prepare(&overrides).await?;
    let host = SandboxHostConfig {
        max_sandboxes: arguments.max_sandboxes,
        max_sandboxes_per_key: arguments.max_sandboxes_per_key,
        max_resource_factor: arguments.max_resource_factor,
        idle_timeout: Duration::from_secs(arguments.idle_timeout),
        public_url: arguments.public_url,
        removes_at_end: arguments.remove_at_end,
        default_image: config.sandbox.image.clone(),
        ..SandboxHostConfig::new(keys(arguments.keys.as_deref())?)
    };
    let mut interrupts = Interrupts::listen()?;
    let state_dir = StateDir::open(&config.state_dir.join(STATE_FOLDER))?;
    let provider = compose::provider_with_warm_pool(&config, &state_dir, config.sandbox.warm_pool)?;
    let listener = TcpListener::bind(arguments.listen).await;
    let listener =
        listener.with_context(|| format!("listening on {}: choose another --listen", arguments.listen))?;
    print::line(&format!("listening on http://{}", listener.local_addr()?))?;

    let stop = CancellationToken::new();
    let mut serving = std::pin::pin!(SandboxHost::new(provider, host).serve(listener, stop.clone()));
    tokio::select! {
        ended = &mut serving => ended?,
        () = interrupts.next() => {
            stop.cancel();
            tokio::select! {
                ended = serving => ended?,
                () = interrupts.next() => return Ok(Exit::Interrupted),
            }
        }
    }
    Ok(Exit::Finished)
}

fn read_keys(file: &Path) -> std::io::Result<String> {
    input_file::read_named(file, MAX_SETTINGS_LENGTH).and_then(input_file::to_text)
}

fn keys(file: Option<&Path>) -> anyhow::Result<HostKeys> {
    let (source, text) = match file {
        None => {
            let text = std::env::var(KEYS_VARIABLE);
            let missing = format!("there are no keys: give --keys FILE, or set {KEYS_VARIABLE}");
            (KEYS_VARIABLE.to_owned(), text.map_err(|_| UsageError(missing))?)
        }
        Some(file) => {
            let unreadable =
                |error| UsageError(format!("cannot read the keys in {}: {error}", file.display()));
            if std::fs::metadata(file).map_err(unreadable)?.permissions().mode() & 0o077 != 0 {
                print::warning(&format!("others can look at {}: chmod 600 {0}", file.display()));
            }
            (file.display().to_string(), read_keys(file).map_err(unreadable)?)
        }
    };
    text.parse().map_err(|error| UsageError(format!("{source}: {error}")).into())
}

//! Sandboxes: their providers, their specs, and the sweep of unused ones.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conversations::{SWEEP_INTERVAL, SandboxRetention, Sweep};
use embedded_server::EmbeddedServer;
use engine::sandbox::{SandboxProvider, SandboxSpec, SandboxSummary};
use nix::unistd::{Uid, User};
use protocol::ConversationId;
use sandbox_client::{HostSecret, ServerBinary};
use sandbox_docker::{DockerBackend, DockerConfig, DockerProvider, Gpus, Pool, pool_entry_holder};
use sandbox_local::{
    BUBBLEWRAP_PROGRAMS, Bounds, CONTROL_GROUPS, Isolation, IsolationChoice, LocalBackend,
    LocalConfig, LocalProvider,
};
use sandbox_remote::{
    RemoteRuntimeBackend, RemoteRuntimeConfig, RemoteRuntimeProvider, RemoteServerConfig,
    RemoteServerProvider,
};
use sandbox_ssh::{HostKeyQuestion, InvalidSshTarget, SshConfig, SshProvider, UnknownHosts};

use super::{StateDir, Stores};
use crate::config::{
    Config, HostEnvironment, Runtime, SandboxSettings, SshSettings, UnknownHostPolicy,
};
use crate::exit::UsageError;
use crate::terminal_input::ask;

/// A local sandbox without a connected client shuts itself down after this time.
const LOCAL_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Provider of sandboxes of the configured runtime.
pub(crate) fn provider(
    config: &Config,
    state_dir: &StateDir,
) -> anyhow::Result<Arc<dyn SandboxProvider>> {
    new_provider(config, state_dir, false)
}

/// Provider of a sandbox host, whose clients share no files. Docker's has the warm pool, and starts
/// no snapshot.
pub(crate) fn provider_for_clients(
    config: &Config,
    state_dir: &StateDir,
) -> anyhow::Result<Arc<dyn SandboxProvider>> {
    new_provider(config, state_dir, true)
}

fn new_provider(
    config: &Config,
    state_dir: &StateDir,
    is_for_clients: bool,
) -> anyhow::Result<Arc<dyn SandboxProvider>> {
    let server = action_server(&config.host, state_dir)?;
    let secret = state_dir.secret()?;
    Ok(match config.runtime {
        Runtime::Docker => Arc::new(DockerProvider::new(docker(
            &config.sandbox,
            &config.host,
            server,
            secret,
            is_for_clients,
        ))),
        Runtime::Local => Arc::new(LocalProvider::new(local(
            config, state_dir, server, secret,
        )?)),
        Runtime::Ssh => Arc::new(SshProvider::new(ssh(
            &config.sandbox.ssh,
            &config.host,
            server,
            secret,
        )?)),
        Runtime::Remote => remote(&config.sandbox)?,
        Runtime::Auto => {
            let text = "the runtime auto cannot create sandboxes: add `--runtime docker` or `--runtime local`";
            return Err(UsageError(text.to_owned()).into());
        }
    })
}

fn action_server(host: &HostEnvironment, state_dir: &StateDir) -> anyhow::Result<ServerBinary> {
    if let Some(path) = &host.action_server {
        return Ok(ServerBinary::from_file(path));
    }
    let server = EmbeddedServer::get()?;
    Ok(ServerBinary::embedded(
        server.content,
        state_dir.path().join("bin").join(server.file_name()),
    ))
}

/// Replaces the runtime `auto`: Docker if there is an engine, or an image is configured, else
/// local. An engine that does not answer must not run a command with other programs.
pub(crate) async fn choose_runtime(
    config: &mut Config,
    state_dir: &StateDir,
) -> anyhow::Result<()> {
    if config.runtime == Runtime::Auto {
        let is_docker = config.sandbox.image.is_some()
            || docker_backend(config, state_dir)?.has_engine().await?;
        config.runtime = if is_docker {
            Runtime::Docker
        } else {
            Runtime::Local
        };
    }
    Ok(())
}

/// Fails if no Docker engine responds.
pub(crate) async fn check_docker(config: &Config, state_dir: &StateDir) -> anyhow::Result<()> {
    Ok(docker_backend(config, state_dir)?.answers().await?)
}

/// Whether the Docker engine has the image of new sandboxes.
pub(crate) async fn has_image(config: &Config, state_dir: &StateDir) -> anyhow::Result<bool> {
    Ok(docker_backend(config, state_dir)?.default_image().await?.1)
}

/// Describes the image of new sandboxes, and whether the Docker engine has it. Fails if no engine
/// responds.
pub(crate) async fn describe_image(
    config: &Config,
    state_dir: &StateDir,
) -> anyhow::Result<String> {
    let docker = docker_backend(config, state_dir)?;
    docker.answers().await?;
    Ok(match docker.default_image().await? {
        (image, true) => format!("it has the image {image}"),
        (image, false) => {
            format!("it does not have the image {image}, and pulls it for the first sandbox")
        }
    })
}

fn docker_backend(config: &Config, state_dir: &StateDir) -> anyhow::Result<DockerBackend> {
    let server = action_server(&config.host, state_dir)?;
    Ok(DockerBackend::from(docker(
        &config.sandbox,
        &config.host,
        server,
        state_dir.secret()?,
        false,
    )))
}

/// Description of a new sandbox's network: `none`, `host`, or names of the engine's networks.
pub(crate) fn network(runtime: Runtime, sandbox: &SandboxSettings) -> String {
    match runtime {
        Runtime::Local if sandbox.unsafe_local => "host".to_owned(),
        Runtime::Local => sandbox.network.clone().unwrap_or_else(|| "none".to_owned()),
        Runtime::Docker => {
            let networks = sandbox.network.iter().chain(&sandbox.additional_networks);
            let networks: Vec<_> = networks.map(String::as_str).collect();
            if networks.is_empty() {
                "none".to_owned()
            } else {
                networks.join(", ")
            }
        }
        Runtime::Ssh => "the machine's own".to_owned(),
        Runtime::Remote | Runtime::Auto => "chosen by the service".to_owned(),
    }
}

/// Isolation and limits of local sandboxes on this machine. `None` for other runtimes.
pub(crate) async fn isolation(
    config: &Config,
    state_dir: &StateDir,
) -> anyhow::Result<Option<(Isolation, Bounds)>> {
    if config.runtime != Runtime::Local {
        return Ok(None);
    }
    let server = action_server(&config.host, state_dir)?;
    let backend = LocalBackend::from(local(config, state_dir, server, state_dir.secret()?)?);
    Ok(Some((
        backend.isolation().await?,
        backend.bounds().await?.clone(),
    )))
}

fn docker(
    sandbox: &SandboxSettings,
    host: &HostEnvironment,
    server: ServerBinary,
    secret: HostSecret,
    is_for_clients: bool,
) -> DockerConfig {
    let owner = secret.owner();
    let default = DockerConfig::new(server, secret, owner);
    DockerConfig {
        host: host.docker_host.clone(),
        runtime_dir: host.runtime_dir.clone(),
        client_config: host
            .docker_config
            .as_ref()
            .map(|folder| folder.join("config.json")),
        holder: std::process::id().to_string(),
        default_image: sandbox
            .image
            .clone()
            .unwrap_or_else(|| default.default_image.clone()),
        platform: sandbox.platform.clone(),
        network: sandbox.network.clone(),
        additional_networks: sandbox.additional_networks.clone(),
        gpus: sandbox.gpus.as_ref().map(|ids| match ids.as_slice() {
            [] => Gpus::All,
            ids => Gpus::Ids(ids.to_vec()),
        }),
        refuses_snapshots: is_for_clients,
        pool: (is_for_clients && sandbox.warm_pool > 0).then_some(Pool {
            size: sandbox.warm_pool,
            image: None,
            resources: sandbox.resources,
        }),
        ..default
    }
}

fn local(
    config: &Config,
    state_dir: &StateDir,
    server: ServerBinary,
    secret: HostSecret,
) -> anyhow::Result<LocalConfig> {
    let network = match config.sandbox.network.as_deref() {
        None => false,
        Some("host") => true,
        // Refused, because a misspelt `none` must not open the network.
        Some(other) => {
            let text = format!(
                "[sandbox] network: a local sandbox supports `none` and `host`, not {other:?}"
            );
            return Err(UsageError(text).into());
        }
    };
    let engine = config
        .host
        .docker_host
        .as_deref()
        .and_then(|host| host.strip_prefix("unix://"));
    Ok(LocalConfig {
        state_dir: state_dir.path().into(),
        server,
        secret,
        environment: config
            .host
            .local_environment
            .iter()
            .map(|(k, v)| (k.into(), v.into()))
            .collect(),
        idle_timeout: LOCAL_IDLE_TIMEOUT,
        isolation: match config.sandbox.unsafe_local {
            true => IsolationChoice::Unsafe,
            false => IsolationChoice::Probe,
        },
        network,
        hidden: engine
            .map(PathBuf::from)
            .into_iter()
            .chain(config.files.iter().map(|file| file.path.to_path_buf()))
            .collect(),
        // This process's executable, even if its file is replaced. `/proc/self` would be that of
        // the process that starts it.
        launcher: format!("/proc/{}/exe", std::process::id()).into(),
        bubblewrap: BUBBLEWRAP_PROGRAMS.map(PathBuf::from).into(),
        control_groups: CONTROL_GROUPS.into(),
        runtime_dir: config.host.runtime_dir.clone(),
        user: config.sandbox.ssh.user.clone(),
        probes: state_dir.local_probes(),
    })
}

fn ssh(
    settings: &SshSettings,
    host: &HostEnvironment,
    server: ServerBinary,
    secret: HostSecret,
) -> anyhow::Result<SshConfig> {
    let usage = |text: &str| anyhow::Error::from(UsageError(text.to_owned()));
    let target = settings.target.as_ref().ok_or_else(|| {
        usage("no host is configured: add --host [USER@]HOST[:PORT], or set ssh_host in [sandbox] (SANDBOX_SSH_HOST)")
    })?;
    let target = target
        .parse()
        .map_err(|error: InvalidSshTarget| usage(&error.to_string()))?;
    // Falls back to the account database like `ssh`, because services and containers may lack HOME
    // and USER.
    let account = User::from_uid(Uid::current()).ok().flatten();
    let (name, folder) = account.map(|account| (account.name, account.dir)).unzip();
    let home = host.home.clone().or(folder);
    let home = home.ok_or_else(|| usage("HOME is not set, and no account has this user id"))?;
    let user = settings.user.clone().or(name);
    let user = user.ok_or_else(|| usage("USER is not set, and no account has this user id"))?;
    Ok(SshConfig {
        agent: settings.agent.clone(),
        unknown_hosts: match settings.unknown_hosts {
            Some(UnknownHostPolicy::AcceptNew) => UnknownHosts::AcceptNew,
            Some(UnknownHostPolicy::Refuse) => UnknownHosts::Refuse,
            None if !std::io::stdin().is_terminal() => UnknownHosts::Refuse,
            Some(UnknownHostPolicy::Ask) | None => UnknownHosts::Ask(Arc::new(ask_about_host)),
        },
        ..SshConfig::new(target, home, user, server, secret)
    })
}

fn ask_about_host(question: &HostKeyQuestion) -> bool {
    let HostKeyQuestion {
        host,
        algorithm,
        fingerprint,
    } = question;
    let question = format!(
        "The host {host} is unknown. Its {algorithm} key is {fingerprint}.\nType yes to trust it: "
    );
    ask(&question).is_ok_and(|answer| answer == "yes")
}

fn remote(sandbox: &SandboxSettings) -> anyhow::Result<Arc<dyn SandboxProvider>> {
    let settings = &sandbox.remote;
    let missing = |what: &str| anyhow::Error::from(UsageError(what.to_owned()));
    if let Some(url) = &settings.server_url {
        let key = settings.server_key.clone();
        let key = key.ok_or_else(|| {
            missing("no key is configured: set remote_server_key in [sandbox] (SANDBOX_REMOTE_SERVER_KEY) to the key of the server")
        })?;
        let additional_ca = settings.ca_file.clone();
        let server = RemoteServerConfig {
            url: url.clone(),
            key,
            additional_ca,
        };
        return Ok(Arc::new(RemoteServerProvider::new(server)));
    }
    let api_url = settings.api_url.clone().ok_or_else(|| {
        missing(
            "no service is configured: set remote_runtime_api_url in [sandbox] (SANDBOX_REMOTE_RUNTIME_API_URL), or \
             remote_server_url for one action server",
        )
    })?;
    let api_key = settings.api_key.clone();
    let api_key = api_key.ok_or_else(|| {
        missing("no key is configured: set api_key in [sandbox] (SANDBOX_API_KEY)")
    })?;
    let default = RemoteRuntimeConfig::new(api_url, api_key);
    let backend = RemoteRuntimeBackend::new(RemoteRuntimeConfig {
        init_timeout: settings.init_timeout.unwrap_or(default.init_timeout),
        api_timeout: settings.api_timeout.unwrap_or(default.api_timeout),
        enable_retries: settings.enable_retries,
        class: settings.class.clone(),
        resource_factor: settings.resource_factor.unwrap_or(default.resource_factor),
        default_image: sandbox.image.clone(),
        additional_ca: settings.ca_file.clone(),
        ..default
    })?;
    Ok(Arc::new(RemoteRuntimeProvider::new(backend)))
}

/// Spec of a conversation's sandbox as configured, without a workspace.
pub(crate) fn spec(settings: &SandboxSettings, conversation: ConversationId) -> SandboxSpec {
    SandboxSpec {
        image: settings.image.clone(),
        volumes: settings.volumes.clone(),
        resources: settings.resources,
        ..SandboxSpec::new(conversation)
    }
}

/// Starts to remove the sandboxes of killed processes in the background.
pub(crate) fn sweep(
    provider: &Arc<dyn SandboxProvider>,
    config: &Config,
    stores: &Stores,
) -> Sweep {
    sweep_after(Duration::ZERO, provider, config, stores)
}

/// Like [`sweep`], for a server, which first resumes the conversations of its last process: their
/// sandboxes may have waited for longer than they are kept.
pub(crate) fn sweep_later(
    provider: &Arc<dyn SandboxProvider>,
    config: &Config,
    stores: &Stores,
) -> Sweep {
    sweep_after(SWEEP_INTERVAL, provider, config, stores)
}

fn sweep_after(
    delay: Duration,
    provider: &Arc<dyn SandboxProvider>,
    config: &Config,
    stores: &Stores,
) -> Sweep {
    let retention = SandboxRetention {
        disposition: config.sandbox.disposition,
        close_delay: config.sandbox.close_delay,
        is_warm_in_use,
    };
    let (locks, stores) = (stores.locks(), stores.clone());
    Sweep::start(Arc::clone(provider), locks, retention, delay, move || {
        let stores = stores.clone();
        async move { stores.events().await }
    })
}

/// Whether the process that owns this pre-warmed sandbox still runs. True for a sandbox that is not
/// pre-warmed.
pub(crate) fn is_warm_in_use(summary: &SandboxSummary) -> bool {
    pool_entry_holder(&summary.sandbox)
        .is_none_or(|holder| Path::new("/proc").join(holder).exists())
}

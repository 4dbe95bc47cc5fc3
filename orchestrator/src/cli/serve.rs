//! `glovebox serve`: serves conversations to V0's clients.

mod certificate;
mod first_look;
mod serving;
mod startup_checks;
mod systemd;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::builder::{NonEmptyStringValueParser, RangedU64ValueParser};
use conversations::{Choices, HostError, HostedConversations, HostingOptions, UserProfiles};
use engine::agent::AgentDefinition;
use git_providers::{AddressException, AddressPolicy, BaseUrl, BaseUrls, GitClient, RequestLimits};
use secrecy::ExposeSecret as _;
use server::{
    AllowedHosts, BasePath, OtherHosts, PageSource, PortHosts, ProxyNetwork, RequestRate, Server,
    ServerConfig, TrustedProxies,
};

use self::certificate::CertificateArguments;
use self::serving::Serving;
use super::duration_argument;
use super::interrupts::{Hangup, Interrupts};
use super::trusted_config;
use super::{BackendOptions, check_not_lost, prepare_server, print};
use crate::compose::{self, KeySource, ServedStore, ServerKey, StateDir, Stores, UserConfigs};
use crate::config::{Config, Overrides};
use crate::exit::{Exit, UsageError};
use crate::metrics::Metrics;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Clients send the key as X-Session-API-Key, or as a bearer token. It is generated at the first start, unless SESSION_API_KEY \
is set, and kept in the state folder. It is the operator's key, and sees everything. `glovebox user` adds users, who have keys of \
their own and see only their own conversations and settings.

Settings and secrets of users are encrypted in the state folder, with the key in GLOVEBOX_SECRETS_KEY, else in the file that \
GLOVEBOX_SECRETS_KEY_FILE names, else with one that is generated at the first start.

On ^C or SIGTERM the server takes no requests any more, waits for the models and tool servers that are being called, and closes the \
conversations. Their sandboxes are kept, and commands continue in them. The next start resumes those whose agent was working, as \
after a crash. A second ^C ends the waiting.")]
pub(super) struct ServeArguments {
    /// Address to listen on; 0.0.0.0:PORT for all networks. A socket that systemd passes is used
    /// instead.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:3000", value_parser = parse_listen)]
    listen: SocketAddr,

    /// Name under which clients reach this server, besides localhost; * for any. Can be repeated.
    #[arg(long = "allow-host", value_name = "NAME", value_parser = AllowedHosts::parse_name)]
    allowed_hosts: Vec<String>,

    #[command(flatten)]
    certificate: CertificateArguments,

    /// URL of programs in sandboxes that listen on a port, with * for PORT-CONVERSATION. By default
    /// http://*.localhost, or https:// with a certificate, at the port of this server.
    #[arg(long, value_name = "URL", value_parser = PortHosts::parse)]
    port_url: Option<PortHosts>,

    /// URL at which the other hosts of the same --store reach this one, such as
    /// http://10.0.0.5:3000. They forward requests for its conversations to it. By default http://
    /// or https:// and the address of --listen, if that is not 0.0.0.0.
    #[arg(long, value_name = "URL", value_parser = OtherHosts::parse_url)]
    host_url: Option<String>,

    /// Maximum number of conversations that run at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    max_running: usize,

    /// Maximum time for which the end of the server waits for models and tool servers that are
    /// being called. Their calls are repeated or lost if they take longer.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration_argument::parse)]
    drain_timeout: Duration,

    /// Path below which all routes are, such as /glovebox, for a reverse proxy that does not remove
    /// it.
    #[arg(long, value_name = "PATH", default_value = "/")]
    base_path: BasePath,

    /// Network of a reverse proxy whose X-Forwarded-For and X-Forwarded-Proto are believed. Can be
    /// repeated.
    #[arg(long = "trusted-proxy", value_name = "NETWORK")]
    trusted_proxies: Vec<ProxyNetwork>,

    /// Maximum number of requests per second and client before they are delayed, or off. Above
    /// twice as many, they are rejected.
    #[arg(long, value_name = "NUMBER", default_value = "10", value_parser = parse_rate)]
    rate_limit: RateLimit,

    /// Folder of a web page to serve on the same address, such as a build of V0's front end.
    /// Browsers sign in with the key, on this machine at the host glovebox.localhost.
    #[arg(long = "static", value_name = "DIR")]
    page_folder: Option<PathBuf>,

    /// URL of a host, or of a folder at one, from which that page may load scripts, styles, fonts
    /// and pictures. Only with --static. Can be repeated.
    #[arg(long = "page-source", value_name = "URL", requires = "page_folder")]
    page_sources: Vec<PageSource>,

    /// A model, an [llm.NAME] group of the configuration, or scripted:FILE for a file of responses.
    /// Without any, a script of this program, which needs no key, shows what conversations look
    /// like.
    #[arg(short = 'l', long, alias = "llm-config", value_name = "MODEL", value_parser = NonEmptyStringValueParser::new())]
    model: Option<String>,

    /// Network, address, ADDRESS:PORT or host name that users may have models and git providers
    /// called at, besides public addresses. Can be repeated.
    #[arg(long = "allow-address", value_name = "NETWORK")]
    allowed_addresses: Vec<AddressException>,

    /// API of a git provider for tokens without a host, as NAME=URL with a name of github, gitlab,
    /// bitbucket, azure_devops, azure_devops_profile. Can be repeated.
    #[arg(long = "git-api", value_name = "NAME=URL")]
    git_apis: Vec<BaseUrl>,

    #[command(flatten)]
    backend: BackendOptions,
}

/// The value of `--rate-limit`. `None` for off.
#[derive(Debug, Clone, Copy)]
struct RateLimit(Option<RequestRate>);

fn parse_listen(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "expected an address and a port such as 127.0.0.1:3000, not a name")
}

fn parse_rate(text: &str) -> Result<RateLimit, &'static str> {
    if text == "off" {
        return Ok(RateLimit(None));
    }
    let rate = text.parse().ok().and_then(RequestRate::new);
    rate.map(|rate| RateLimit(Some(rate)))
        .ok_or("expected a number from 1, or off")
}

/// Built-in agents that users can choose, besides those of the configuration.
const BUILT_IN_AGENTS: [&str; 4] = [
    AgentDefinition::CODE_ACT,
    AgentDefinition::READ_ONLY,
    AgentDefinition::BROWSING,
    AgentDefinition::VISUAL_BROWSING,
];

pub(super) async fn run(arguments: ServeArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    if arguments.backend.directory.is_some() {
        let text = "--directory is for one conversation: on a server, each has a folder of its own";
        return Err(UsageError(text.to_owned()).into());
    }
    let inherited = systemd::inherited_socket()?;
    let overrides = arguments.backend.overrides(overrides);
    let mut overrides = Overrides {
        model: arguments.model,
        ..overrides
    };
    let (mut config, state_dir) = prepare_server(&overrides).await?;
    check_not_lost(&config, &state_dir)?;
    check(&config, &state_dir, arguments.page_folder.as_deref())?;
    if let Err(HostError::NoModel) = compose::check_model(&config) {
        print::warning(
            "no model is configured: a script replies to users who have chosen none in their settings",
        );
        overrides.model = Some(first_look::model(&state_dir)?);
        config.llm.model.clone_from(&overrides.model);
    }
    startup_checks::warn_about_budget(&config)?;
    startup_checks::warn_without_sandboxes(&config, &state_dir).await;
    let close_delay = config.sandbox.close_delay;
    let max_running_per_user = config.max_concurrent_conversations;
    let listener = systemd::listen(inherited, arguments.listen).await?;
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() && arguments.allowed_hosts.is_empty() {
        print::warning(
            "only requests to localhost are answered: add --allow-host NAME for each name or address that clients use",
        );
    }
    let certificate = arguments.certificate.load()?;
    let scheme = if certificate.is_some() {
        "https"
    } else {
        "http"
    };
    let own_url = format!("{scheme}://{address}");
    let stores = Stores::open_at(
        &config,
        &state_dir,
        host_url(arguments.host_url, address, &own_url),
    )
    .await?;
    let served = ServedStore {
        is_running: true,
        name: config.store.name(),
        config_file: config.store.url_file.clone(),
    };
    let _served = state_dir.mark_served(&served)?.or_else(|| {
        print::warning(
            "another server of this state folder is running: each refuses the conversations that the other one runs (409)",
        );
        None
    });
    let _sweep = compose::sweep_later(&compose::provider(&config, &state_dir)?, &config, &stores);
    let events = stores.events().await?;
    let unmetered = stores.conversations_of(Arc::clone(&events));
    startup_checks::check_stores(&config, &state_dir, &stores, &unmetered).await?;
    let accounts = stores.accounts().await?;
    if !accounts.users.users().await?.is_empty() {
        compose::sharing_warnings(&config)
            .iter()
            .for_each(|warning| print::warning(warning));
    }
    let addresses = AddressPolicy::new(arguments.allowed_addresses);
    let git = git_client(addresses.clone(), arguments.git_apis)?;
    let configs = user_configs(config, &overrides, addresses)?;
    let profiles = Arc::new(UserProfiles::new(
        stores.profiles().await?,
        Arc::new(configs.clone()),
    ));
    let hangup = if certificate.is_some() {
        Hangup::Ignored
    } else {
        Hangup::Interrupts
    };
    let interrupts = Interrupts::listen_unbounded(hangup)?;
    let pool_stores = stores.clone();
    let metrics = Metrics::new(
        configs.models().iter().cloned(),
        Box::new(move || pool_stores.pool_usage()),
    );
    let options = HostingOptions {
        max_running: arguments.max_running,
        max_running_per_user,
        close_delay,
    };
    let choices = choices(&configs);
    let conversations = HostedConversations::new(
        stores.conversations_of(metrics.store(events)),
        Arc::new(compose::ConfiguredFactory::new(
            configs,
            Arc::clone(&profiles),
            state_dir.clone(),
            Arc::clone(&metrics),
        )),
        options,
    );
    // Now that nothing else can fail, because a generated key is printed once.
    let key = ServerKey::load(&state_dir)?;
    print_address(&format!("{own_url}{}", arguments.base_path), &key)?;
    if arguments.page_folder.is_some() && address.ip().is_loopback() && certificate.is_none() {
        print::line(&format!(
            "page: {}",
            server::page_url(address.port(), &arguments.base_path)
        ))?;
    }
    let server_config = ServerConfig {
        key: key.secret,
        allowed_hosts: AllowedHosts::new(arguments.allowed_hosts),
        base_path: arguments.base_path,
        choices,
        port_hosts: arguments
            .port_url
            .unwrap_or_else(|| PortHosts::localhost(certificate.is_some(), address.port())),
        trusted_proxies: TrustedProxies::new(arguments.trusted_proxies),
        request_rate: arguments.rate_limit.0,
        other_hosts: stores
            .takeover_interval()
            .map(|_| other_hosts())
            .transpose()?,
        git,
        metrics,
        page_folder: arguments.page_folder,
        page_sources: arguments.page_sources,
    };
    let server = Server::new(
        Arc::clone(&conversations),
        profiles,
        accounts.users,
        accounts.audit,
        server_config,
    );
    let drain_timeout = arguments.drain_timeout;
    Serving {
        server,
        listener,
        certificate,
        conversations,
        stores,
        interrupts,
        drain_timeout,
    }
    .run()
    .await
}

/// Returns where other hosts reach this one. `None` if it is unknown.
fn host_url(given: Option<String>, address: SocketAddr, own_url: &str) -> Option<String> {
    given.or_else(|| (!address.ip().is_unspecified()).then(|| own_url.to_owned()))
}

fn other_hosts() -> anyhow::Result<OtherHosts> {
    OtherHosts::new().map_err(|error| {
        anyhow::anyhow!(error).context("cannot configure the client of other hosts")
    })
}

/// Prints the address, and a key that this process has generated, or where an earlier one is.
fn print_address(url: &str, key: &ServerKey) -> anyhow::Result<()> {
    print::line(&format!("listening on {url}"))?;
    let text = match &key.source {
        KeySource::NewFile(file) => {
            let secret = key.secret.expose_secret();
            format!(
                "key: {secret}\n(printed only this time; it is in {})",
                file.display()
            )
        }
        KeySource::File(file) => format!("key: as before, in {}", file.display()),
        KeySource::Variable(name) => format!("key: from {name}"),
    };
    Ok(print::line(&text)?)
}

/// Reports errors of the configuration now, not for each conversation. Creates the secret of
/// sandboxes, which an operator of several hosts copies.
fn check(config: &Config, state_dir: &StateDir, page_folder: Option<&Path>) -> anyhow::Result<()> {
    state_dir.check_writable()?;
    compose::agent(config)?;
    compose::provider(config, state_dir)?;
    compose::check_models(config)?;
    if let Err(error @ HostError::NoModelKey(_)) = compose::check_model(config) {
        print::warning(&format!("{error}, or configure one for all users"));
    }
    Ok(page_folder.map_or(Ok(()), check_page)?)
}

/// Checks that a folder has a page.
fn check_page(folder: &Path) -> Result<(), UsageError> {
    let page = folder.join("index.html");
    match page.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err(UsageError(format!(
            "--static: {} is not a file",
            page.display()
        ))),
        Err(error) => Err(UsageError(format!(
            "--static: cannot read {}: {error}",
            page.display()
        ))),
    }
}

/// Loads the configurations of the agents that users can choose.
fn user_configs(
    operators: Config,
    overrides: &Overrides,
    addresses: AddressPolicy,
) -> anyhow::Result<UserConfigs> {
    let names = BUILT_IN_AGENTS
        .iter()
        .map(|name| (*name).to_owned())
        .chain(operators.team.keys().cloned());
    let load = |name| -> anyhow::Result<Config> {
        let config = trusted_config::load(&Overrides {
            agent: Some(name),
            ..overrides.clone()
        })?;
        Ok(Config {
            runtime: operators.runtime,
            ..config
        })
    };
    let others = names.map(load).collect::<anyhow::Result<_>>()?;
    Ok(UserConfigs::new(operators, others, addresses))
}

/// Creates the client of git providers.
fn git_client(addresses: AddressPolicy, apis: Vec<BaseUrl>) -> anyhow::Result<GitClient> {
    let mut urls = BaseUrls::default();
    apis.into_iter().for_each(|api| urls.set(api));
    let tls = tls::http_client("https").context("cannot set up TLS for git providers")?;
    Ok(GitClient::new(
        tls,
        addresses,
        urls,
        RequestLimits::default(),
    )?)
}

/// Values of settings that clients can choose.
fn choices(configs: &UserConfigs) -> Choices {
    Choices {
        models: configs.offered_models(),
        agents: configs.agents(),
        security_analyzers: configs.security_analyzers(),
    }
}

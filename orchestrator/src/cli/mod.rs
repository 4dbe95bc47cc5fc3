//! The command line, one file per command.

mod approval;
mod audit;
mod bounded_output;
mod candidates;
mod changed_files;
mod completions;
mod config_show;
mod confirm;
mod conversation_id;
mod conversation_run;
mod conversations;
mod demo;
mod doctor;
#[cfg(test)]
mod documentation;
mod duration_argument;
mod exec;
mod follow;
mod fresh_sandbox;
mod image;
mod interrupts;
mod options;
mod palette;
mod partial_answer;
mod pictures;
pub(crate) mod print;
mod program;
mod remote;
mod replay;
mod resume;
mod run;
mod run_options;
mod runtime_change;
mod sandbox;
mod sandbox_host;
mod saved_trajectory;
mod screen;
mod serve;
mod served_store;
mod startup_files;
mod store;
mod table;
mod target_folder;
mod trajectory_file;
mod transcript;
mod trust;
mod trusted_config;
mod user;
mod write_status;

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};
use clap_complete::engine::ArgValueCandidates;
pub(crate) use completions::complete_if_requested;
pub(crate) use options::parse;
use served_store::{StoreUse, check_not_lost, open_state, open_state_of_server};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::compose::{self, StateDir};
use crate::config::{Config, Overrides, Runtime};
use crate::exit::{Exit, UsageError};
use crate::redacted_stderr;

/// Runs language-model agents whose commands and edits are isolated in a sandbox.
#[derive(Debug, Parser)]
#[command(name = "glovebox", version, after_help = EXIT_CODES, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// Configuration to read instead of ~/.glovebox/config.toml and config.toml in this folder.
    #[arg(long, global = true, hide = true, value_name = "FILE")]
    config_file: Option<PathBuf>,

    /// Database of conversations that several hosts share: postgres://USER:PASSWORD@HOST/NAME. By
    /// default a file in the state folder, and `file` where its server has used a database. A
    /// password is better given in the variable STORE_URL.
    #[arg(long, global = true, hide = true, value_name = "URL")]
    store: Option<String>,

    /// Where large events are: a folder, or s3://BUCKET/PREFIX with the variables AWS_ENDPOINT_URL,
    /// AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. By default the folder blobs in the
    /// state folder, or the database of --store.
    #[arg(long, global = true, hide = true, value_name = "PLACE")]
    blobs: Option<String>,

    /// Server whose conversations `run`, `resume` and `conversations` use, with the key that
    /// `glovebox login` stored, or the variable GLOVEBOX_KEY. By default, that of the variable
    /// GLOVEBOX_SERVER.
    #[arg(
        long,
        global = true,
        hide = true,
        value_name = "URL",
        value_parser = NonEmptyStringValueParser::new()
    )]
    server: Option<String>,

    /// Log level on standard error: error, warn, info, debug, trace, or a filter as in RUST_LOG.
    #[arg(long, global = true, hide = true, value_name = "LEVEL", value_parser = log_filter)]
    pub log_level: Option<String>,

    /// Format of the log: text, or json (one object per line).
    #[arg(
        long,
        global = true,
        hide = true,
        value_name = "FORMAT",
        default_value = "text",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub log_format: LogFormat,
}

/// Format of the log.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

const NO_SERVER_COMMAND: &str =
    "this command works on this machine: leave out --server, or unset GLOVEBOX_SERVER";

/// Crates of this program, which are the targets of its log.
const OWN_CRATES: [&str; 18] = [
    "glovebox",
    "accounts",
    "browser",
    "client",
    "conversations",
    "engine",
    "git_providers",
    "llm",
    "mcp",
    "sandbox_client",
    "sandbox_docker",
    "sandbox_host",
    "sandbox_local",
    "sandbox_remote",
    "sandbox_ssh",
    "server",
    "storage",
    "tls",
];

const EXIT_CODES: &str = "\
Exit codes: 0 finished, 1 failed, 2 wrong usage or configuration, 3 stopped by a limit, 4 waiting for your approval or \
answer, 130 interrupted.
Options of all commands, such as --config-file and --log-level: `glovebox help options`.
Try it without a key, a network or Docker: `glovebox demo`.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Give an agent a task and follow its work.
    Run(run::RunArguments),
    /// Run one command in a fresh sandbox; its output and exit code are this command's.
    Exec(exec::ExecArguments),
    /// Resume a conversation that was stopped, killed, or hit a limit.
    Resume(resume::ResumeArguments),
    /// Replay a saved trajectory, then let the agent continue, or show what differs.
    Replay(replay::ReplayArguments),
    /// Create, inspect and remove sandboxes.
    Sandbox(sandbox::SandboxArguments),
    /// Inspect images.
    #[command(subcommand)]
    Image(image::ImageCommand),
    /// List, show, export, fork and remove conversations.
    #[command(subcommand)]
    Conversations(conversations::ConversationsCommand),
    /// Show the configuration, and where each value comes from.
    #[command(subcommand)]
    Config(config_show::ConfigCommand),
    /// Check what runs need: the runtime, the model and its key, the disk.
    Doctor(doctor::DoctorArguments),
    /// Watch a scripted agent repair a small project.
    Demo(demo::DemoArguments),
    /// Migrate, back up, restore and export the store.
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Serve conversations over REST, sockets, OpenAI's API and MCP.
    Serve(serve::ServeArguments),
    /// Add, list and remove users of the server, and their keys.
    User(user::UserArguments),
    /// Store the key of a server, for --server.
    Login(remote::LoginArguments),
    /// Remove the stored key of a server.
    Logout(remote::LogoutArguments),
    /// Print who changed what through the server.
    Audit(audit::AuditArguments),
    /// Serve sandboxes of this machine to Glovebox on other machines.
    SandboxHost(sandbox_host::SandboxHostArguments),
    /// Trust or reject a config.toml of this folder, an agent file or a policy.
    Trust(trust::TrustArguments),
    /// Explain the options that all commands have: the configuration, the store and the log.
    Options,
    /// Print completions for a shell.
    Completions(completions::CompletionsArguments),
}

/// Runtime, image and workspace of a new sandbox.
#[derive(Debug, Clone, Args)]
struct BackendOptions {
    /// Runtime of the sandbox: docker; local (a process on this machine, isolated by bubblewrap or
    /// Landlock); ssh; remote; or auto (docker if an engine answers, else local).
    #[arg(long, value_name = "RUNTIME", add = ArgValueCandidates::new(candidates::runtimes))]
    runtime: Option<Runtime>,

    #[command(flatten)]
    runtime_options: RuntimeOptions,

    /// Image of the sandbox: any with a POSIX shell.
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    image: Option<String>,

    /// Folder that the agent works in; with ssh, a folder of the remote host. By default a new one,
    /// which is kept after the conversation.
    #[arg(short = 'd', long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Settings of the runtime that are not stored with a conversation.
#[derive(Debug, Clone, Args)]
struct RuntimeOptions {
    /// Host of the runtime ssh: user@host:port, or a name from ~/.ssh/config.
    #[arg(long, value_name = "HOST", value_parser = NonEmptyStringValueParser::new())]
    host: Option<String>,

    /// Network of a new sandbox: none (the default), host, or with docker a network of the
    /// engine's.
    #[arg(long, value_name = "NETWORK", value_parser = NonEmptyStringValueParser::new())]
    network: Option<String>,

    /// With the runtime local: run without isolation if this machine has none. Commands of the
    /// agent can then do what you can.
    #[arg(long)]
    unsafe_local: bool,

    /// Let the sandbox write a folder that contains your home or Glovebox's own files, or a system
    /// folder. Commands of the agent can then change what this machine runs and trusts.
    #[arg(long)]
    unsafe_directory: bool,
}

impl BackendOptions {
    /// Returns an option that was given.
    fn first_given_option(&self) -> Option<&'static str> {
        let options = [
            ("--runtime", self.runtime.is_some()),
            ("--image", self.image.is_some()),
            ("--directory", self.directory.is_some()),
        ];
        let given = options.into_iter().find(|(_, is_given)| *is_given);
        given
            .map(|(name, _)| name)
            .or_else(|| self.runtime_options.first_given_option())
    }

    /// Adds these arguments to the overrides of the configuration.
    fn overrides(&self, overrides: Overrides) -> Overrides {
        let overrides = self.runtime_options.overrides(overrides);
        Overrides {
            runtime: self.runtime,
            image: self.image.clone(),
            ..overrides
        }
    }
}

impl RuntimeOptions {
    /// Returns an option that was given.
    fn first_given_option(&self) -> Option<&'static str> {
        let options = [
            ("--host", self.host.is_some()),
            ("--network", self.network.is_some()),
            ("--unsafe-local", self.unsafe_local),
            ("--unsafe-directory", self.unsafe_directory),
        ];
        let given = options.into_iter().find(|(_, is_given)| *is_given);
        given.map(|(name, _)| name)
    }

    fn overrides(&self, overrides: Overrides) -> Overrides {
        Overrides {
            unsafe_local: self.unsafe_local,
            unsafe_directory: self.unsafe_directory,
            network: self.network.clone(),
            ssh_host: self.host.clone(),
            ..overrides
        }
    }
}

/// Parses a level or a filter. A single word that is not a level is an error; `RUST_LOG` would take
/// it for a target.
pub(crate) fn log_filter(text: &str) -> Result<String, String> {
    let is_word = text.chars().all(char::is_alphanumeric);
    let text = match text.parse::<LevelFilter>() {
        Ok(level) if is_word => log_filter_at(level),
        Err(_) if is_word => {
            return Err("expected off, error, warn, info, debug or trace".to_owned());
        }
        _ => text
            .split(',')
            .map(expand_glovebox)
            .collect::<Vec<_>>()
            .join(","),
    };
    EnvFilter::try_new(&text)
        .map(|_| text)
        .map_err(|error| error.to_string())
}

/// The filter if none is configured.
pub(crate) fn default_log_filter() -> String {
    log_filter_at(LevelFilter::ERROR)
}

/// The filter of a level: libraries log warnings and errors only, not each frame of a connection.
fn log_filter_at(level: LevelFilter) -> String {
    let libraries = level.min(LevelFilter::WARN);
    format!("{libraries},{}", own_crates_at(level))
}

/// A directive of a filter. `glovebox` is the name of the program to users: it means all of its
/// crates.
fn expand_glovebox(directive: &str) -> String {
    match directive.strip_prefix("glovebox=").map(str::parse) {
        Some(Ok(level)) => own_crates_at(level),
        _ => directive.to_owned(),
    }
}

fn own_crates_at(level: LevelFilter) -> String {
    let own = OWN_CRATES.map(|name| format!(",{name}={level}")).concat();
    // The MCP library's errors are logged by our crates, without the keys that an address may
    // contain.
    format!("rmcp=off{own}")
}

/// Whether a target of the log is in a crate of this program.
pub(crate) fn is_own_target(target: &str) -> bool {
    target
        .split("::")
        .next()
        .is_some_and(|name| OWN_CRATES.contains(&name))
}

/// Runs the command.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let Arguments {
        config_file,
        store,
        blobs,
        ..
    } = &arguments;
    let overrides = Overrides {
        config_file: config_file.clone(),
        store: store.clone(),
        blobs: blobs.clone(),
        ..Overrides::default()
    };
    let default_server = remote::default_server()?;
    if let Some(url) = arguments.server.as_ref().or(default_server.as_ref()) {
        match arguments.command {
            Command::Run(command) => return run::run_on_server(command, url, &overrides).await,
            Command::Resume(command) => {
                return resume::run_on_server(command, url, &overrides).await;
            }
            Command::Conversations(command) => {
                return conversations::run_on_server(command, url, &overrides).await;
            }
            Command::Exec(_) | Command::Sandbox(_) | Command::Replay(_) => {
                return Err(UsageError(NO_SERVER_COMMAND.to_owned()).into());
            }
            _ if arguments.server.is_some() => {
                return Err(UsageError(NO_SERVER_COMMAND.to_owned()).into());
            }
            // Of this machine, whatever the environment says.
            _ => {}
        }
    }
    match arguments.command {
        Command::Run(command) => run::run(command, overrides).await,
        Command::Exec(command) => exec::run(command, overrides).await,
        Command::Resume(command) => resume::run(command, overrides).await,
        Command::Replay(command) => replay::run(command, overrides).await,
        Command::Sandbox(command) => sandbox::run(command, &overrides).await,
        Command::Image(command) => image::run(command, overrides).await,
        Command::Conversations(command) => conversations::run(command, &overrides).await,
        Command::Config(command) => config_show::run(command, overrides),
        Command::Doctor(command) => doctor::run(command, overrides).await,
        Command::Demo(command) => demo::run(command, overrides).await,
        Command::Store(command) => store::run(command, &overrides).await,
        Command::Serve(command) => serve::run(command, overrides).await,
        Command::User(command) => user::run(command, &overrides).await,
        Command::Login(command) => remote::login(command, &overrides).await,
        Command::Logout(command) => remote::logout(&command, &overrides),
        Command::Audit(command) => audit::run(command, &overrides).await,
        Command::SandboxHost(command) => sandbox_host::run(command, overrides).await,
        Command::Trust(command) => trust::run(&command, &overrides),
        Command::Options => options::run(),
        Command::Completions(command) => completions::run(&command),
    }
}

/// Loads the configuration for a command that runs nothing, and prints its warnings.
fn load_config(overrides: &Overrides) -> anyhow::Result<Config> {
    print_warnings(trusted_config::load(overrides)?)
}

/// Like [`load_config`], for a command that only reads stored conversations: ignores an invalid
/// file of the current folder.
fn load_config_to_read(overrides: &Overrides) -> anyhow::Result<Config> {
    let config = trusted_config::load(overrides).or_else(|error| {
        let without = trusted_config::load(&Overrides {
            without_folder_file: true,
            ..overrides.clone()
        });
        if without.is_ok() {
            print::warning(&format!("{error:#}: the file is ignored here"));
        }
        without.or(Err(error))
    });
    print_warnings(config?)
}

/// Loads the configuration for a command that runs something. The user is asked about each
/// untrusted file.
fn load_trusted_config(overrides: &Overrides) -> anyhow::Result<Config> {
    print_warnings(trusted_config::load_and_ask(overrides)?)
}

fn print_warnings(config: Config) -> anyhow::Result<Config> {
    // Before anything that may contain a secret is printed or logged.
    redacted_stderr::set_redactor(compose::redactor(&config)?);
    config
        .warnings
        .iter()
        .for_each(|warning| print::warning(warning));
    trusted_config::warnings(&config).for_each(|warning| print::warning(&warning));
    Ok(config)
}

const NO_ENGINE: &str = "no container engine answers: using the runtime local (to see why: glovebox doctor --runtime docker)\n";

/// Loads the configuration for a command that creates sandboxes. Resolves `auto` and prints
/// warnings about the runtime.
async fn prepare(overrides: &Overrides) -> anyhow::Result<(Config, StateDir)> {
    let config = load_trusted_config(overrides)?;
    let requested = config.runtime;
    let (config, state_dir) = resolve_runtime(config, overrides).await?;
    if requested == Runtime::Auto && config.runtime == Runtime::Local {
        print::note(NO_ENGINE);
    }
    record_engine(&config, &state_dir).await?;
    Ok((config, state_dir))
}

/// Records that the sandboxes of this state folder may be containers, once an engine answers.
async fn record_engine(config: &Config, state_dir: &StateDir) -> anyhow::Result<()> {
    let is_new = config.runtime == Runtime::Docker && !state_dir.had_engine();
    match is_new && compose::check_docker(config, state_dir).await.is_ok() {
        true => state_dir.record_engine(),
        false => Ok(()),
    }
}

/// Like [`prepare`], for a command that uses existing sandboxes. It searches Docker as well and
/// reports its error.
async fn prepare_existing(overrides: &Overrides) -> anyhow::Result<(Config, StateDir)> {
    let mut config = load_trusted_config(overrides)?;
    if config.runtime == Runtime::Auto {
        let state_dir = StateDir::open(&config.state_dir)?;
        // The sandboxes of other runtimes are found although the engine does not answer.
        let chosen = compose::choose_runtime(&mut config, &state_dir).await;
        chosen.unwrap_or_else(|_| config.runtime = Runtime::Docker);
    }
    resolve_runtime(config, overrides).await
}

/// Like [`prepare`], for a server. An engine that is down must not replace its containers by
/// processes of this machine.
async fn prepare_server(overrides: &Overrides) -> anyhow::Result<(Config, StateDir)> {
    let config = load_trusted_config(overrides)?;
    let is_chosen = config.runtime != Runtime::Auto;
    StateDir::open(&config.state_dir)?.check_writable()?;
    let (config, state_dir) = resolve_runtime(config, overrides).await?;
    match config.runtime {
        Runtime::Docker => {
            if !is_chosen {
                compose::check_docker(&config, &state_dir).await?;
            }
            record_engine(&config, &state_dir).await?;
        }
        _ if is_chosen => {}
        _ if config.host.docker_host.is_some() || state_dir.had_engine() => anyhow::bail!(
            "the container engine does not answer (to see why: glovebox doctor --runtime docker); to use processes of this \
             machine instead, add --runtime local"
        ),
        _ => print::note(NO_ENGINE),
    }
    Ok((config, state_dir))
}

async fn resolve_runtime(
    mut config: Config,
    overrides: &Overrides,
) -> anyhow::Result<(Config, StateDir)> {
    if let (Some(runtime), Some(_)) = (overrides.runtime, &overrides.ssh_host)
        && runtime != Runtime::Ssh
    {
        return Err(UsageError(format!("--host is for the runtime ssh, not for {runtime}")).into());
    }
    let state_dir = StateDir::open(&config.state_dir)?;
    compose::choose_runtime(&mut config, &state_dir).await?;
    warn_about_runtime(&config, overrides);
    Ok((config, state_dir))
}

/// Prints the isolation and the limits of local sandboxes.
async fn print_isolation(config: &Config, state_dir: &StateDir) -> anyhow::Result<()> {
    if let Some((isolation, bounds)) = compose::isolation(config, state_dir).await? {
        print::note(&format!("isolation: {isolation}\nbounded: {bounds}\n"));
    }
    Ok(())
}

fn warn_about_runtime(config: &Config, overrides: &Overrides) {
    match config.runtime {
        Runtime::Local if config.sandbox.unsafe_local => {
            print::warning(
                "--unsafe-local does not isolate: programs in the sandbox can do what you can",
            );
        }
        Runtime::Ssh => print::warning(
            "the ssh runtime does not isolate: programs in the sandbox can do what your account on the host can",
        ),
        _ => {}
    }
    if overrides.network.is_some() && config.runtime.is_on_other_machine() {
        let runtime = &config.runtime;
        print::warning(&format!("the {runtime} runtime ignores --network"));
    }
    if config.runtime == Runtime::Ssh && !config.sandbox.volumes.is_empty() {
        print::warning("the ssh runtime ignores the volumes");
    }
    if !config.runtime.has_images() && config.sandbox.image.is_some() {
        print::warning(&format!("the {} runtime ignores the image", config.runtime));
    }
}

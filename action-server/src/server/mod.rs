//! The composition root of the server: creates all parts, serves, and shuts them down.

mod connections;
mod http;
mod lingering;
mod listener;
mod request_log;
mod stream;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getppid, setsid};
use protocol::BootId;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub(crate) use listener::bind_unix;
use listener::{InheritedSocket, ServerListener};

use crate::activity::Activity;
use crate::api::{Api, ApiParts, info};
use crate::auth::ServerKey;
use crate::config::{ApiDialect, ServeConfig};
use crate::environment::Environment;
use crate::execute::Executor;
use crate::files::Files;
use crate::ledger::{SpoolStore, expire_records};
use crate::os::children;
use crate::plugins::jupyter::Jupyter;
use crate::ports::Tunnels;
use crate::process::{ProcessDefaults, Processes};
use crate::routes::App;
use crate::sessions::Sessions;
use crate::shell::{self, ShellConfig};
use crate::terminals::Terminals;
use crate::{environment, logging, stdio, this_program};

/// More than file actions and shells need, and less than tokio's default.
const MAX_BLOCKING_THREADS: usize = 128;

/// The phases of a shutdown. With the supervisor's cleanup they take at most 2 seconds.
const ACTIONS_GRACE_PERIOD: Duration = Duration::from_millis(700);
const SHELL_GRACE_PERIOD: Duration = Duration::from_millis(500);
const CONNECTIONS_GRACE_PERIOD: Duration = Duration::from_millis(200);

/// Serves until a signal, the idle timeout or the exit of the supervisor.
pub(crate) fn run(config: ServeConfig, supervisor: Pid) -> anyhow::Result<ExitCode> {
    harden(supervisor)?;
    logging::start(config.log_level.clone(), config.log_format);
    let inherited = InheritedSocket::from_stdout(&config.address)?;
    let key = config.has_key.then(ServerKey::from_stdin).transpose()?;
    stdio::release_stdin_and_stdout()?;
    let working_dir = working_dir(&config)?;
    let environment = Environment::new(environment::for_commands(config.fallback_home.as_deref()));
    let files = Files::confined(config.root.as_deref(), &working_dir, environment.clone())?;
    // Single-threaded: tasks run briefly between two awaits, and waking a second thread would cost
    // more than it saves.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(serve(
        config,
        inherited,
        working_dir,
        environment,
        files,
        key,
    ));
    // Does not wait for threads that block on I/O.
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}

/// Protects the process. The key is in its memory, which only root may read or dump. It adopts the
/// orphans of commands, so that they are found when a command's process tree is killed.
fn harden(supervisor: Pid) -> anyhow::Result<()> {
    this_program::set_process_name()?;
    prctl::set_dumpable(false).context("cannot protect the server's memory")?;
    prctl::set_child_subreaper(true).context("cannot adopt orphans")?;
    shell::close_inherited_files_on_exec();
    // Commands must not have access to the terminal that the server was started on, or receive its
    // keys.
    setsid().context("cannot leave the terminal")?;
    // The supervisor blocks the signals that it waits for, and its children inherit that.
    SigSet::all()
        .thread_unblock()
        .context("cannot unblock signals")?;
    prctl::set_pdeathsig(Signal::SIGTERM).context("cannot follow the supervisor")?;
    if getppid() != supervisor {
        bail!("the supervisor has exited; the server cannot be started directly");
    }
    Ok(())
}

fn working_dir(config: &ServeConfig) -> anyhow::Result<PathBuf> {
    let given = &config.working_dir;
    if config.dialect == ApiDialect::V0 {
        // As V0's server does. If it fails, opening the folder fails too.
        _ = std::fs::create_dir_all(given);
    }
    let path = given
        .canonicalize()
        .with_context(|| format!("cannot open the working directory {}", given.display()))?;
    if !path.is_dir() {
        bail!(
            "the working directory {} is not a directory",
            path.display()
        );
    }
    Ok(path)
}

async fn serve(
    config: ServeConfig,
    inherited: Option<InheritedSocket>,
    working_dir: PathBuf,
    environment: Environment,
    files: Files,
    key: Option<ServerKey>,
) -> anyhow::Result<()> {
    // Before the socket is created, which an unhandled signal would leave behind.
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    // With a limit of file sizes, a write beyond it would kill the server. If the signal is
    // handled, the write fails instead. Commands still receive the signal with its default action.
    let _file_too_large =
        signal(SignalKind::from_raw(Signal::SIGXFSZ as i32)).context("cannot handle SIGXFSZ")?;
    let listener = ServerListener::open(&config.address, inherited)?;
    if config.is_detached {
        // The launcher reads the end of this stream once the socket listens.
        stdio::release_stderr()?;
    }
    let activity = Activity::default();
    let (actions, background) = (TaskTracker::new(), TaskTracker::new());
    let stop_background = CancellationToken::new();
    let sessions = Sessions::start(ShellConfig {
        working_dir: working_dir.clone(),
        environment: environment.clone(),
        no_change_timeout: config.no_change_timeout,
    });
    let spools = SpoolStore::new(&std::env::temp_dir(), &working_dir);
    let defaults = ProcessDefaults {
        working_dir: working_dir.clone(),
        environment: environment.clone(),
    };
    let processes = Processes::new(defaults.clone(), spools.clone());
    let jupyter = Jupyter::new(Processes::new(defaults, spools.clone()));
    let executor = Executor::new(
        sessions.clone(),
        files,
        jupyter.clone(),
        spools,
        actions.clone(),
        activity.clone(),
    );
    background.spawn(expire_records(
        executor.ledger.registry(),
        stop_background.clone(),
    ));
    background.spawn(expire_records(
        processes.registry(),
        stop_background.clone(),
    ));
    background.spawn(reap_orphans(stop_background.clone()));
    let ledger = executor.ledger.clone();
    let boot_id: BootId = Uuid::now_v7()
        .to_string()
        .try_into()
        .context("cannot create a boot id")?;
    let (connections, stop_connections) = (TaskTracker::new(), CancellationToken::new());
    let tunnels = Tunnels::new(connections.clone(), stop_connections.clone());
    let terminals = Terminals::new(environment.clone());
    let api = Api::new(ApiParts {
        key,
        executor,
        processes: processes.clone(),
        info: info::describe(boot_id, &working_dir),
        tunnels,
        terminals: terminals.clone(),
        environment,
    });
    let app = App::new(api, config.dialect, working_dir);
    tokio::select! {
        _ = terminate.recv() => tracing::info!("shutting down: SIGTERM"),
        _ = interrupt.recv() => tracing::info!("shutting down: SIGINT"),
        () = activity.idle_for(config.idle_timeout) => tracing::info!("shutting down: idle"),
        () = connections::accept(&listener, app, &connections, &stop_connections, &activity) => {}
    }
    drop(listener);
    ledger.cancel_all();
    actions.close();
    // Before the connections are closed, so that clients still receive the results.
    let ends = async {
        tokio::join!(
            actions.wait(),
            jupyter.shut_down(),
            processes.shut_down(),
            terminals.shut_down()
        )
    };
    _ = timeout(ACTIONS_GRACE_PERIOD, ends).await;
    _ = timeout(SHELL_GRACE_PERIOD, sessions.shut_down()).await;
    stop_connections.cancel();
    stop_background.cancel();
    connections.close();
    background.close();
    _ = timeout(CONNECTIONS_GRACE_PERIOD, async {
        tokio::join!(connections.wait(), background.wait())
    })
    .await;
    Ok(())
}

async fn reap_orphans(stop: CancellationToken) {
    if let Err(error) = children::reap_adopted(stop).await {
        tracing::error!(%error, "cannot reap orphans");
    }
}

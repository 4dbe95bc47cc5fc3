//! The server's life: made of its parts here and nowhere else, serves, and ends what it has started.

mod connections;
mod http;
mod lingering;
mod listener;
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
use listener::{Inherited, Listener};

use crate::activity::Activity;
use crate::api::{Api, Parts, info};
use crate::auth::Key;
use crate::config::{Dialect, ServeConfig};
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

/// More than file actions and shells ask for; the library's own bound is for other servers.
const MAX_BLOCKING_THREADS: usize = 128;

/// The parts of the end; together with the supervisor's sweep they fit in the promised 2 seconds.
const ACTIONS_GRACE: Duration = Duration::from_millis(700);
const SHELL_GRACE: Duration = Duration::from_millis(500);
const CONNECTIONS_GRACE: Duration = Duration::from_millis(200);

/// Serves until a signal, the idle timeout or the supervisor's death.
pub(crate) fn run(config: ServeConfig, supervisor: Pid) -> anyhow::Result<ExitCode> {
    harden(supervisor)?;
    logging::start(config.log_level.clone());
    let inherited = Inherited::from_stdout(&config.address)?;
    let key = config.has_key.then(Key::from_stdin).transpose()?;
    stdio::release_stdin_and_stdout()?;
    let working_dir = working_dir(&config)?;
    let files = Files::confined(config.root.as_deref(), &working_dir)?;
    // One thread: what it does between two waits is short, and a second one to be woken costs more than it brings.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let ended = runtime.block_on(serve(config, inherited, working_dir, files, key));
    // A thread that blocks on a dead disk is not waited for.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

/// The key is in our memory: nobody but root may look at it, or at a core dump of it. Orphans of commands come to us and
/// not to the supervisor, so that the end of a command's process tree finds them.
fn harden(supervisor: Pid) -> anyhow::Result<()> {
    this_program::set_process_name()?;
    prctl::set_dumpable(false).context("hiding the server's memory")?;
    prctl::set_child_subreaper(true).context("adopting the orphans")?;
    shell::keep_inherited_files_to_ourselves();
    // Nothing that is run here may have the terminal that the server was started on, or hear its keys.
    setsid().context("leaving the terminal")?;
    // The supervisor blocks the signals that it waits for, and what it starts inherits that.
    SigSet::all().thread_unblock().context("unblocking signals")?;
    prctl::set_pdeathsig(Signal::SIGTERM).context("following the supervisor")?;
    if getppid() != supervisor {
        bail!("the supervisor has ended; the server is not started by hand");
    }
    Ok(())
}

fn working_dir(config: &ServeConfig) -> anyhow::Result<PathBuf> {
    let given = &config.working_dir;
    if config.dialect == Dialect::V0 {
        // As V0's server does; what keeps it from being made keeps it from being opened.
        _ = std::fs::create_dir_all(given);
    }
    let path =
        given.canonicalize().with_context(|| format!("opening the working directory {}", given.display()))?;
    if !path.is_dir() {
        bail!("the working directory {} is not a directory", path.display());
    }
    Ok(path)
}

async fn serve(
    config: ServeConfig,
    inherited: Option<Inherited>,
    working_dir: PathBuf,
    files: Files,
    key: Option<Key>,
) -> anyhow::Result<()> {
    // Before the socket exists, which a signal that nobody expects would leave behind.
    let mut terminate = signal(SignalKind::terminate()).context("expecting SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("expecting SIGINT")?;
    // Where files have a limit, writing beyond it would end us. Handled, it is that write's error; what is run here gets
    // the signal as if nobody had handled it.
    let _file_too_large =
        signal(SignalKind::from_raw(Signal::SIGXFSZ as i32)).context("expecting SIGXFSZ")?;
    let listener = Listener::open(&config.address, inherited)?;
    if config.is_detached {
        // The launcher takes this as the word that the socket listens.
        stdio::release_stderr()?;
    }
    let activity = Activity::default();
    let (actions, background) = (TaskTracker::new(), TaskTracker::new());
    let stop_background = CancellationToken::new();
    let environment = Environment::new(environment::for_commands());
    let sessions = Sessions::start(ShellConfig {
        working_dir: working_dir.clone(),
        environment: environment.clone(),
        scratch_dir: std::env::temp_dir(),
        no_change_timeout: config.no_change_timeout,
    });
    let spools = SpoolStore::new(&std::env::temp_dir());
    let origin = ProcessDefaults { working_dir: working_dir.clone(), environment: environment.clone() };
    let processes = Processes::new(origin.clone(), spools.clone());
    let jupyter = Jupyter::new(Processes::new(origin, spools.clone()));
    let executor =
        Executor::new(sessions.clone(), files, jupyter.clone(), spools, actions.clone(), activity.clone());
    background.spawn(expire_records(executor.ledger.registry(), stop_background.clone()));
    background.spawn(expire_records(processes.registry(), stop_background.clone()));
    background.spawn(reap_orphans(stop_background.clone()));
    let ledger = executor.ledger.clone();
    let boot_id: BootId = Uuid::now_v7().to_string().try_into().context("making a boot id")?;
    let (connections, stop_connections) = (TaskTracker::new(), CancellationToken::new());
    let tunnels = Tunnels::new(connections.clone(), stop_connections.clone());
    let terminals = Terminals::new(environment.clone());
    let api = Api::new(Parts {
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
        _ = terminate.recv() => tracing::info!("ending: SIGTERM"),
        _ = interrupt.recv() => tracing::info!("ending: SIGINT"),
        () = activity.idle_for(config.idle_timeout) => tracing::info!("ending: idle"),
        () = connections::accept(&listener, app, &connections, &stop_connections, &activity) => {}
    }
    drop(listener);
    ledger.cancel_all();
    actions.close();
    // Before the connections, so that whoever is attached still reads how its action or process ended.
    let ends = async {
        tokio::join!(actions.wait(), jupyter.shut_down(), processes.shut_down(), terminals.shut_down())
    };
    _ = timeout(ACTIONS_GRACE, ends).await;
    _ = timeout(SHELL_GRACE, sessions.shut_down()).await;
    stop_connections.cancel();
    stop_background.cancel();
    connections.close();
    background.close();
    _ = timeout(CONNECTIONS_GRACE, async { tokio::join!(connections.wait(), background.wait()) }).await;
    Ok(())
}

async fn reap_orphans(stop: CancellationToken) {
    if let Err(error) = children::reap_adopted(stop).await {
        tracing::error!(%error, "orphans are not buried");
    }
}

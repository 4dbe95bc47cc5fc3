//! `glovebox completions SHELL`, and what the shell asks the program for afterwards: the words that may come next.
//!
//! The shell starts this program at each completion, with a variable that says so. Names of sandboxes are asked of their
//! runtime and ids of conversations of the store for a moment at most, and without a word: there is somebody typing.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::CommandFactory as _;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::{CompleteEnv, Shells};
use engine::events::EventStore as _;
use tokio::time::timeout;

use super::{Arguments, print, sandbox};
use crate::compose::{self, StateDir};
use crate::config::{Config, Overrides, Runtime};
use crate::exit::{Exit, UsageError};

/// Says in the environment that words are to be completed, and for which shell.
const VARIABLE: &str = "GLOVEBOX_COMPLETE";

/// Somebody waits for it with a finger on the key.
const PATIENCE: Duration = Duration::from_millis(1500);

/// How much of it one runtime may take that says nothing.
const SHARE: Duration = Duration::from_millis(700);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(glovebox completions bash)      # in ~/.bashrc
  source <(glovebox completions zsh)       # in ~/.zshrc, after compinit
  glovebox completions fish | source       # in ~/.config/fish/config.fish")]
pub(super) struct CompletionsArguments {
    /// The shell.
    shell: clap_complete::Shell,
}

pub(super) fn run(arguments: &CompletionsArguments) -> anyhow::Result<Exit> {
    let shell = arguments.shell.to_string();
    let shells = Shells::builtins();
    let completer = shells
        .completer(&shell)
        .ok_or_else(|| UsageError(format!("there are no completions for {shell}")))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "glovebox", "glovebox", &program(), &mut script)?;
    print::bytes(&script)?;
    Ok(Exit::Finished)
}

/// What the shell is to start: by its name, as it was found now, or by its path.
fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let path = called.components().nth(1).and_then(|_| std::env::current_exe().ok());
    path.unwrap_or(called).to_string_lossy().into_owned()
}

/// When the shell asks for words, tells them and ends. To be called before anything else is done.
pub(crate) fn answer_if_asked() {
    CompleteEnv::with_factory(Arguments::command).var(VARIABLE).complete();
}

/// The values of `--runtime`.
pub(super) fn runtimes() -> Vec<CompletionCandidate> {
    Runtime::ALL.map(|runtime| CompletionCandidate::new(runtime.name())).into()
}

/// The sandboxes whose names begin so.
pub(super) fn sandboxes(begun: &OsStr) -> Vec<CompletionCandidate> {
    asked(begun, async {
        let Some((mut config, state_dir)) = load()? else { return Ok(Vec::new()) };
        // Nobody is asked about a machine that is not known.
        config.sandbox.ssh.unknown_hosts = Some("refuse".into());
        compose::choose_runtime(&mut config, &state_dir).await?;
        let is_runtime_chosen = given("--runtime").is_some();
        sandbox::names(config, state_dir, is_runtime_chosen, SHARE).await
    })
}

/// The conversations whose ids begin so.
pub(super) fn conversations(begun: &OsStr) -> Vec<CompletionCandidate> {
    asked(begun, async {
        let Some((config, state_dir)) = load()? else { return Ok(Vec::new()) };
        let all = state_dir.store_to_read(config.durability).await?.conversations().await?;
        Ok(all.conversations.into_iter().map(|conversation| conversation.id.as_str().to_owned()).collect())
    })
}

/// Of the words that can be had in a moment, those that begin so.
fn asked(
    begun: &OsStr,
    words: impl Future<Output = anyhow::Result<Vec<String>>>,
) -> Vec<CompletionCandidate> {
    let Some(begun) = begun.to_str() else { return Vec::new() };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let words = runtime.block_on(async { timeout(PATIENCE, words).await });
    runtime.shutdown_background();
    let words = words.ok().and_then(Result::ok).unwrap_or_default();
    words.into_iter().filter(|word| word.starts_with(begun)).map(CompletionCandidate::new).collect()
}

/// The configuration and the folder that keeps everything, if there is one yet.
fn load() -> anyhow::Result<Option<(Config, StateDir)>> {
    let overrides = Overrides {
        runtime: given("--runtime").and_then(|name| name.parse().ok()),
        ssh_host: given("--host"),
        config_file: given("--config-file").map(PathBuf::from),
        ..Overrides::default()
    };
    let config = Config::load(&overrides, |name| std::env::var(name).ok())?;
    if !config.state_dir.is_dir() {
        return Ok(None);
    }
    let state_dir = StateDir::open(&config.state_dir)?;
    Ok(Some((config, state_dir)))
}

/// What was typed behind a flag on this line.
fn given(flag: &str) -> Option<String> {
    value_of(flag, std::env::args())
}

/// What stands behind a flag.
fn value_of(flag: &str, words: impl IntoIterator<Item = String>) -> Option<String> {
    let mut words = words.into_iter().skip_while(|word| !word.starts_with(flag));
    match words.next()?.strip_prefix(flag)?.strip_prefix('=') {
        Some(value) => Some(value.to_owned()),
        // bash takes the sign for a word of its own.
        None => words.find(|word| word != "="),
    }
}

#[cfg(test)]
mod tests {
    use super::value_of;

    #[test]
    fn a_flag_is_read_in_both_ways() {
        let value = |line: &str| value_of("--runtime", line.split(' ').map(str::to_owned));
        assert_eq!(value("glovebox sandbox rm --runtime local b").as_deref(), Some("local"));
        assert_eq!(value("glovebox sandbox rm --runtime=ssh b").as_deref(), Some("ssh"));
        assert_eq!(value("glovebox sandbox rm --runtime = local b").as_deref(), Some("local"));
        assert_eq!(value("glovebox sandbox rm b"), None);
    }
}

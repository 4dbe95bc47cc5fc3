//! Completion candidates for arguments: runtimes, names of sandboxes, ids of conversations.
//!
//! The shell runs this program at each completion. Candidates are listed within a time limit, and
//! errors are dropped: they would be printed into the line that the user types.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use accounts::Users;
use clap_complete::engine::CompletionCandidate;
use tokio::time::timeout;

use super::sandbox;
use crate::compose::{self, StateDir, Stores};
use crate::config::{Config, Overrides, Runtime, UnknownHostPolicy};

/// Time limit for all candidates: the user waits for them.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// Time limit for the sandboxes of one runtime.
const RUNTIME_TIMEOUT: Duration = Duration::from_millis(700);

/// The values of `--runtime`.
pub(super) fn runtimes() -> Vec<CompletionCandidate> {
    Runtime::ALL
        .map(|runtime| CompletionCandidate::new(runtime.name()))
        .into()
}

/// Names of sandboxes with this prefix.
pub(super) fn sandboxes(prefix: &OsStr) -> Vec<CompletionCandidate> {
    complete(prefix, async {
        let Some((mut config, state_dir)) = load()? else {
            return Ok(Vec::new());
        };
        // A question about an unknown host key cannot be answered here.
        config.sandbox.ssh.unknown_hosts = Some(UnknownHostPolicy::Refuse);
        compose::choose_runtime(&mut config, &state_dir).await?;
        let is_runtime_chosen = typed_value("--runtime").is_some();
        sandbox::names(config, state_dir, is_runtime_chosen, RUNTIME_TIMEOUT).await
    })
}

/// Ids of conversations with this prefix.
pub(super) fn conversations(prefix: &OsStr) -> Vec<CompletionCandidate> {
    complete(prefix, async {
        let Some((config, state_dir)) = load()? else {
            return Ok(Vec::new());
        };
        let events = Stores::open(&config, &state_dir)
            .await?
            .events_to_read()
            .await?;
        let all = events.conversations().await?;
        Ok(all
            .conversations
            .into_iter()
            .map(|conversation| conversation.id.as_str().to_owned())
            .collect())
    })
}

/// Names of users with this prefix.
pub(super) fn users(prefix: &OsStr) -> Vec<CompletionCandidate> {
    complete(prefix, async {
        let Some((config, state_dir)) = load()? else {
            return Ok(Vec::new());
        };
        let stores = Stores::open(&config, &state_dir).await?;
        let Some(accounts) = stores.accounts_to_read().await? else {
            return Ok(Vec::new());
        };
        let users = Users::new(accounts.users).list().await?;
        Ok(users.into_iter().map(|user| user.name.into()).collect())
    })
}

/// The words with this prefix; none if they are not listed in time.
fn complete(
    prefix: &OsStr,
    words: impl Future<Output = anyhow::Result<Vec<String>>>,
) -> Vec<CompletionCandidate> {
    let Some(prefix) = prefix.to_str() else {
        return Vec::new();
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    else {
        return Vec::new();
    };
    let words = runtime.block_on(async { timeout(TIMEOUT, words).await });
    runtime.shutdown_background();
    let words = words.ok().and_then(Result::ok).unwrap_or_default();
    words
        .into_iter()
        .filter(|word| word.starts_with(prefix))
        .map(CompletionCandidate::new)
        .collect()
}

/// The configuration and the state folder. `None` if that does not exist yet.
fn load() -> anyhow::Result<Option<(Config, StateDir)>> {
    let overrides = Overrides {
        runtime: typed_value("--runtime").and_then(|name| name.parse().ok()),
        ssh_host: typed_value("--host"),
        config_file: typed_value("--config-file").map(PathBuf::from),
        ..Overrides::default()
    };
    let config = Config::load(&overrides, |name| std::env::var(name).ok())?;
    if !config.state_dir.is_dir() {
        return Ok(None);
    }
    let state_dir = StateDir::open(&config.state_dir)?;
    Ok(Some((config, state_dir)))
}

/// The value of a flag in the line that is being typed.
fn typed_value(flag: &str) -> Option<String> {
    value_of(flag, std::env::args())
}

/// The value of a flag among these words.
fn value_of(flag: &str, words: impl IntoIterator<Item = String>) -> Option<String> {
    let mut words = words.into_iter().skip_while(|word| !word.starts_with(flag));
    match words.next()?.strip_prefix(flag)?.strip_prefix('=') {
        Some(value) => Some(value.to_owned()),
        // bash passes `=` as a separate word.
        None => words.find(|word| word != "="),
    }
}

#[cfg(test)]
mod tests {
    use super::value_of;

    #[test]
    fn value_of_flag_is_found_with_and_without_equals_sign() {
        let value = |line: &str| value_of("--runtime", line.split(' ').map(str::to_owned));
        assert_eq!(
            value("glovebox sandbox rm --runtime local b").as_deref(),
            Some("local")
        );
        assert_eq!(
            value("glovebox sandbox rm --runtime=ssh b").as_deref(),
            Some("ssh")
        );
        assert_eq!(
            value("glovebox sandbox rm --runtime = local b").as_deref(),
            Some("local")
        );
        assert_eq!(value("glovebox sandbox rm b"), None);
    }
}

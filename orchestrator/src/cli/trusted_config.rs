//! The configuration, once the user has decided about each file that is not trusted.

use std::io::IsTerminal as _;

use engine::sandbox::SandboxSpec;
use rustix::termios::{QueueSelector, tcflush};

use super::print;
use crate::compose::StateDir;
use crate::config::{Config, Overrides, RestrictedFile};
use crate::exit::UsageError;
use crate::trust::{Fingerprint, TrustReason, TrustStore, UndecidedFile, Verdict};
use crate::writable;

/// Keys of a file that a line names.
const MAX_NAMED_KEYS: usize = 64;

/// Longest part of a key that is shown: a group's name is the file's choice.
const MAX_KEY_CHARS: usize = 64;

/// Loads the configuration, and has the user decide about each file that waits for a decision.
pub(super) fn load_and_ask(overrides: &Overrides) -> anyhow::Result<Config> {
    loop {
        let mut config = load(overrides)?;
        let undecided: Vec<_> =
            config.restricted.iter().filter_map(RestrictedFile::undecided).cloned().collect();
        if undecided.is_empty() {
            return Ok(config);
        }
        // A file that is trusted may name another one.
        ask_about(&mut config.trust, &undecided)?;
    }
}

/// Fails if the sandbox could write what this machine trusts.
pub(super) fn check_sandbox(config: &Config, spec: &SandboxSpec) -> anyhow::Result<()> {
    let undecided = writable::check(config, spec)?;
    ask_about(&mut config.trust.clone(), &undecided)
}

/// One line about each file of which not all takes effect.
pub(super) fn warnings(config: &Config) -> impl Iterator<Item = String> {
    config.restricted.iter().map(|restricted| match restricted {
        RestrictedFile::Undecided(file) => refusal(file),
        RestrictedFile::Denied(file, keys) => {
            let keys = key_names(keys);
            format!(
                "{} is denied by `glovebox trust --deny`: without effect in it: {keys}",
                file.path.display()
            )
        }
    })
}

/// Loads the configuration, in which no file that waits for a decision has effect.
pub(super) fn load(overrides: &Overrides) -> anyhow::Result<Config> {
    Ok(Config::load(overrides, |name| std::env::var(name).ok())?)
}

fn ask_about(store: &mut TrustStore, undecided: &[UndecidedFile]) -> anyhow::Result<()> {
    for file in undecided {
        let verdict = ask(file).ok_or_else(|| UsageError(refusal(file)))?;
        decide(store, &file.file, verdict)?;
    }
    Ok(())
}

/// Keeps a decision.
pub(super) fn decide(store: &mut TrustStore, file: &Fingerprint, verdict: Verdict) -> anyhow::Result<()> {
    if let Some(folder) = store.path().parent() {
        StateDir::open(folder)?;
    }
    let failed =
        |error| UsageError(format!("cannot keep the decision about {}: {error}", file.path.display()));
    Ok(store.decide(file, verdict).map_err(failed)?)
}

/// `None` if the user does not decide, or cannot be asked.
fn ask(file: &UndecidedFile) -> Option<Verdict> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return None;
    }
    // What was typed before the question is no answer to it.
    let _ = tcflush(&stdin, QueueSelector::IFlush);
    let danger = match &file.reason {
        TrustReason::Keys(_) => {
            "That can start programs here, send your keys elsewhere, or open the sandbox. "
        }
        TrustReason::Policy | TrustReason::WritableBySandbox => "",
    };
    let denial = match &file.reason {
        TrustReason::Keys(_) => "use the rest of it",
        TrustReason::Policy | TrustReason::WritableBySandbox => "refuse this and later runs with it",
    };
    print::note(&format!(
        "{} {}.\n{danger}Trust the file until it changes?\n[y]es, [n]o ({denial}), or nothing to leave: ",
        print::for_terminal(&file.file.path.display().to_string()),
        statement(&file.reason)
    ));
    let mut answer = String::new();
    stdin.read_line(&mut answer).ok()?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(Verdict::Trusted),
        "n" | "no" => Some(Verdict::Denied),
        _ => None,
    }
}

fn refusal(UndecidedFile { file, reason }: &UndecidedFile) -> String {
    let shown = file.path.display().to_string();
    let denial = match reason {
        TrustReason::Keys(_) => ", or with --deny to use only the rest of it",
        TrustReason::Policy | TrustReason::WritableBySandbox => "",
    };
    format!(
        "{shown} is not trusted and {}: read it, then `glovebox trust {}`{denial}",
        statement(reason),
        shlex::try_quote(&shown).unwrap_or_default()
    )
}

/// What about a file needs a decision, as the rest of a sentence about it.
fn statement(reason: &TrustReason) -> String {
    match reason {
        TrustReason::Keys(keys) => format!("sets {}", key_names(keys)),
        TrustReason::Policy => {
            "is a policy in this folder, which decides what you are asked about".to_owned()
        }
        TrustReason::WritableBySandbox => "is configuration that the sandbox can write".to_owned(),
    }
}

/// The names may come from a hostile file.
fn key_names(keys: &[String]) -> String {
    let name = |key: &String| {
        let shown: String = key.chars().take(MAX_KEY_CHARS).collect();
        format!("{}{}", shown.escape_debug(), if shown == *key { "" } else { "…" })
    };
    let names: Vec<_> = keys.iter().take(MAX_NAMED_KEYS).map(name).collect();
    let more = keys.len().saturating_sub(MAX_NAMED_KEYS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}

//! Loads the configuration, and asks the user about files that are not trusted.

use engine::sandbox::SandboxSpec;

use super::print;
use crate::compose::StateDir;
use crate::config::{Config, Overrides, RestrictedFile};
use crate::exit::UsageError;
use crate::terminal_input;
use crate::trust::{Fingerprint, TrustReason, TrustStore, UndecidedFile, Verdict};
use crate::writable;

/// Maximum number of keys in a message.
const MAX_NAMED_KEYS: usize = 64;

/// Maximum length of a key in a message. The file chooses the names of groups.
const MAX_KEY_CHARS: usize = 64;

/// Loads the configuration, and asks the user about each undecided file.
pub(super) fn load_and_ask(overrides: &Overrides) -> anyhow::Result<Config> {
    loop {
        let mut config = load(overrides)?;
        let undecided: Vec<_> = config
            .restricted
            .iter()
            .filter_map(RestrictedFile::undecided)
            .cloned()
            .collect();
        if undecided.is_empty() {
            return Ok(config);
        }
        // A trusted file may name another one.
        request_decisions(&mut config.trust, &undecided)?;
    }
}

/// Fails if the sandbox could write files that this machine trusts.
pub(super) fn check_sandbox(config: &Config, spec: &SandboxSpec) -> anyhow::Result<()> {
    let undecided = writable::check(config, spec)?;
    request_decisions(&mut config.trust.clone(), &undecided)
}

/// Warnings about files that only take partial effect.
pub(super) fn warnings(config: &Config) -> impl Iterator<Item = String> {
    config.restricted.iter().map(|restricted| match restricted {
        RestrictedFile::Undecided(file) => refusal(file),
        RestrictedFile::Denied(file, keys) => {
            let keys = key_names(keys);
            format!(
                "{} is denied by `glovebox trust --deny`, so these keys have no effect: {keys}",
                file.path.display()
            )
        }
    })
}

/// Loads the configuration. Undecided files take only partial effect.
pub(super) fn load(overrides: &Overrides) -> anyhow::Result<Config> {
    Ok(Config::load(overrides, |name| std::env::var(name).ok())?)
}

fn request_decisions(store: &mut TrustStore, undecided: &[UndecidedFile]) -> anyhow::Result<()> {
    for file in undecided {
        let verdict = ask_user(file).ok_or_else(|| UsageError(refusal(file)))?;
        store_decision(store, &file.file, verdict)?;
    }
    Ok(())
}

/// Stores a decision.
pub(super) fn store_decision(
    store: &mut TrustStore,
    file: &Fingerprint,
    verdict: Verdict,
) -> anyhow::Result<()> {
    if let Some(folder) = store.path().parent() {
        StateDir::open(folder)?;
    }
    let failed = |error| {
        UsageError(format!(
            "cannot store the decision about {}: {error}",
            file.path.display()
        ))
    };
    Ok(store.decide(file, verdict).map_err(failed)?)
}

/// Asks the user. `None` without a decision or a terminal.
fn ask_user(file: &UndecidedFile) -> Option<Verdict> {
    if !terminal_input::has_user() {
        return None;
    }
    let danger = match &file.reason {
        TrustReason::Keys(_) => {
            "These keys can start programs on this machine, send your keys to other hosts, or open the sandbox. "
        }
        TrustReason::Policy | TrustReason::WritableBySandbox => "",
    };
    let denial = match &file.reason {
        TrustReason::Keys(_) => "use its other keys",
        TrustReason::Policy | TrustReason::WritableBySandbox => {
            "refuse this and later runs with it"
        }
    };
    let question = format!(
        "{} {}.\n{danger}Trust the file until it changes?\n[y]es, [n]o ({denial}), or Enter to cancel: ",
        print::for_terminal(&file.file.path.display().to_string()),
        statement(&file.reason)
    );
    match terminal_input::ask(&question)
        .ok()?
        .to_ascii_lowercase()
        .as_str()
    {
        "y" | "yes" => Some(Verdict::Trusted),
        "n" | "no" => Some(Verdict::Denied),
        _ => None,
    }
}

fn refusal(UndecidedFile { file, reason }: &UndecidedFile) -> String {
    let shown = file.path.display().to_string();
    let denial = match reason {
        TrustReason::Keys(_) => ", or add --deny to use only its other keys",
        TrustReason::Policy | TrustReason::WritableBySandbox => "",
    };
    format!(
        "{shown} is not trusted and {}: read it, then run `glovebox trust {}`{denial}",
        statement(reason),
        shlex::try_quote(&shown).unwrap_or_default()
    )
}

/// Predicate that describes why a file needs a decision.
fn statement(reason: &TrustReason) -> String {
    match reason {
        TrustReason::Keys(keys) => format!("sets {}", key_names(keys)),
        TrustReason::Policy => {
            "is a policy in this folder, which decides what you are asked about".to_owned()
        }
        TrustReason::WritableBySandbox => "is configuration that the sandbox can write".to_owned(),
    }
}

/// Joins names of keys. They may be from a hostile file.
fn key_names(keys: &[String]) -> String {
    let name = |key: &String| {
        let shown: String = key.chars().take(MAX_KEY_CHARS).collect();
        format!(
            "{}{}",
            shown.escape_debug(),
            if shown == *key { "" } else { "…" }
        )
    };
    let names: Vec<_> = keys.iter().take(MAX_NAMED_KEYS).map(name).collect();
    let more = keys.len().saturating_sub(MAX_NAMED_KEYS);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{more}", names.join(", "))
}

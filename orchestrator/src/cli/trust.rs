//! `glovebox trust`: the user's decisions about files of folders, and the question about a file without one.

use std::path::PathBuf;

use super::{print, trusted_config};
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};
use crate::input_file::{self, MAX_SETTINGS_LENGTH};
use crate::trust::{Fingerprint, Verdict};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file of the current folder may be from somebody else, or written by an agent. Until you trust it, only those of its keys
take effect that cannot widen anything. A decision holds for the file's path and content: one changed byte ends it.
  glovebox trust                       glovebox trust --deny          glovebox trust --list
  glovebox trust .glovebox/agents/reviewer.md")]
pub(super) struct TrustArguments {
    /// The file: a config.toml, an agent's file, or a policy.
    #[arg(default_value = "config.toml")]
    path: PathBuf,

    #[command(flatten)]
    operation: OtherOperation,
}

/// What is done instead of trusting the file.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct OtherOperation {
    /// Do not trust the file and do not ask again: only what cannot widen anything takes effect. What needs a denied policy,
    /// or denied configuration that the sandbox can write, is refused.
    #[arg(long)]
    deny: bool,

    /// Forget the decision about the file.
    #[arg(long)]
    revoke: bool,

    /// List all decisions.
    #[arg(long)]
    list: bool,
}

pub(super) fn run(arguments: &TrustArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    // No other file of the folder is needed, nor does it have to be valid.
    let mut store =
        trusted_config::load(&Overrides { without_folder_file: true, ..overrides.clone() })?.trust;
    let TrustArguments { path, operation } = arguments;
    if operation.list {
        for decision in store.decisions() {
            print::line(&format!("{}\t{}", name(decision.verdict), print::for_terminal(&decision.path)))?;
        }
    } else if operation.revoke {
        let absolute = path.canonicalize().or_else(|_| std::path::absolute(path))?;
        if !store.revoke(&absolute)? {
            return Err(UsageError(format!("there is no decision about {}", absolute.display())).into());
        }
    } else {
        let unreadable = |error| UsageError(format!("cannot read {}: {error}", path.display()));
        let content = input_file::read_found(path, MAX_SETTINGS_LENGTH).map_err(unreadable)?;
        let file = Fingerprint::new(path, &content).map_err(unreadable)?;
        let verdict = if operation.deny { Verdict::Denied } else { Verdict::Trusted };
        trusted_config::decide(&mut store, &file, verdict)?;
        print::note(&format!(
            "{}: {}\n",
            name(verdict),
            print::for_terminal(&file.path.display().to_string())
        ));
    }
    Ok(Exit::Finished)
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Trusted => "trusted",
        Verdict::Denied => "denied",
    }
}

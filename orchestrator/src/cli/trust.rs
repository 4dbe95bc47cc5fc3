//! `glovebox trust`: stores, removes and lists the user's decisions about files.

use std::path::PathBuf;

use super::{print, trusted_config};
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};
use crate::input_file::{self, MAX_SETTINGS_LENGTH};
use crate::trust::{Fingerprint, Verdict};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Another user or an agent may have written the files of the current folder. Until you trust such a file, only keys that grant \
nothing take effect. A decision applies to the path and the content of the file, and ends when the content changes.
  glovebox trust                       glovebox trust --deny          glovebox trust --list
  glovebox trust .glovebox/agents/reviewer.md")]
pub(super) struct TrustArguments {
    /// The file: a config.toml, an agent's file, or a policy.
    #[arg(default_value = "config.toml")]
    path: PathBuf,

    #[command(flatten)]
    operation: OtherOperation,
}

/// Operation other than trusting the file.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct OtherOperation {
    /// Deny trust, and do not ask again: only keys that grant nothing take effect. Runs that need a
    /// denied policy, or a denied file that the sandbox can write, are refused.
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
    // The file of the current folder may be invalid.
    let mut store = trusted_config::load(&Overrides {
        without_folder_file: true,
        ..overrides.clone()
    })?
    .trust;
    let TrustArguments { path, operation } = arguments;
    if operation.list {
        for decision in store.decisions() {
            print::line(&format!(
                "{}\t{}",
                name(decision.verdict),
                print::for_terminal(&decision.path)
            ))?;
        }
    } else if operation.revoke {
        let absolute = path.canonicalize().or_else(|_| std::path::absolute(path))?;
        if !store.revoke(&absolute)? {
            return Err(
                UsageError(format!("there is no decision about {}", absolute.display())).into(),
            );
        }
    } else {
        let unreadable = |error| UsageError(format!("cannot read {}: {error}", path.display()));
        let content = input_file::read_found(path, MAX_SETTINGS_LENGTH).map_err(unreadable)?;
        let file = Fingerprint::new(path, &content).map_err(unreadable)?;
        let verdict = if operation.deny {
            Verdict::Denied
        } else {
            Verdict::Trusted
        };
        trusted_config::store_decision(&mut store, &file, verdict)?;
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

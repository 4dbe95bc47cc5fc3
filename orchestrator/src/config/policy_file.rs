//! The policy file that `security_analyzer` may name.

use std::path::{Path, PathBuf};

use super::layers::RestrictedFile;
use crate::input_file::{self, MAX_SETTINGS_LENGTH};
use crate::trust::{Fingerprint, TrustReason, TrustStore, UndecidedFile, Verdict};

/// Analyzers that are no files.
const NAMES: [&str; 4] = ["none", "llm", "invariant", "grayswan"];

/// A policy file.
pub(super) struct PolicyFile {
    pub(super) text: String,
    pub(super) fingerprint: Fingerprint,
    /// The file itself, if it is one of the current folder, which the user does not trust.
    pub(super) restricted: Option<RestrictedFile>,
}

/// Reads the file, or fails with a text for the user. `None` if the analyzer is no file.
///
/// A policy decides which actions the user is asked about, so one in the current folder needs trust.
pub(super) fn read(
    analyzer: &str,
    home: Option<&Path>,
    trust: &TrustStore,
) -> Option<Result<PolicyFile, String>> {
    let is_url = analyzer.starts_with("http://") || analyzer.starts_with("https://");
    if is_url || NAMES.contains(&analyzer) {
        return None;
    }
    let path = match (analyzer.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(analyzer),
    };
    Some(read_file(&path, trust).map_err(|error| {
        format!("security.security_analyzer: cannot read the policy {}: {error}", path.display())
    }))
}

fn read_file(path: &Path, trust: &TrustStore) -> std::io::Result<PolicyFile> {
    let content = input_file::read_found(path, MAX_SETTINGS_LENGTH)?;
    let fingerprint = Fingerprint::new(path, &content)?;
    let text = input_file::to_text(content)?;
    let folder = Path::new(".").canonicalize()?;
    // Also a link in the folder to another file that agents can write.
    let is_in_folder = fingerprint.path.is_reached_through(&folder);
    let is_own = trust.path().parent().and_then(|own| own.canonicalize().ok());
    let is_own = is_own.is_some_and(|own| {
        fingerprint.path.starts_with(&own) && !fingerprint.path.starts_with(own.join("workspaces"))
    });
    let verdict = trust.verdict(&fingerprint);
    let needs_trust = is_in_folder && !is_own && verdict != Some(Verdict::Trusted);
    if needs_trust && verdict == Some(Verdict::Denied) {
        // Without it the user would be asked about fewer actions.
        return Err(std::io::Error::other("denied by `glovebox trust --deny`"));
    }
    let restricted = needs_trust.then(|| {
        RestrictedFile::Undecided(UndecidedFile { file: fingerprint.clone(), reason: TrustReason::Policy })
    });
    Ok(PolicyFile { text, fingerprint, restricted })
}

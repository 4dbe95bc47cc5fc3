//! The policy file that `security_analyzer` may name.

use std::path::{Path, PathBuf};

use super::layers::RestrictedFile;
use crate::input_file::{self, MAX_SETTINGS_LENGTH};
use crate::trust::{Fingerprint, TrustReason, TrustStore, UndecidedFile, Verdict};

/// A policy file.
#[derive(Debug, Clone)]
pub(crate) struct PolicyFile {
    pub(crate) text: String,
    pub(super) fingerprint: Fingerprint,
    /// The file, if it lies in the current folder and the user has not decided about it.
    pub(super) restricted: Option<RestrictedFile>,
}

/// Reads the file, or fails with a text for the user.
///
/// A policy decides which actions need confirmation, so a policy in the current folder needs the
/// user's trust.
pub(super) fn read(
    path: &str,
    home: Option<&Path>,
    trust: &TrustStore,
) -> Result<PolicyFile, String> {
    let path = match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    };
    read_file(&path, trust).map_err(|error| {
        format!(
            "security.security_analyzer: cannot read the policy {}: {error}",
            path.display()
        )
    })
}

fn read_file(path: &Path, trust: &TrustStore) -> std::io::Result<PolicyFile> {
    let content = input_file::read_found(path, MAX_SETTINGS_LENGTH)?;
    let fingerprint = Fingerprint::new(path, &content)?;
    let text = input_file::to_text(content)?;
    let folder = Path::new(".").canonicalize()?;
    // Includes a link in the folder to a file elsewhere, because agents can replace the link.
    let is_in_folder = fingerprint.path.is_reached_through(&folder);
    let is_own = trust
        .path()
        .parent()
        .and_then(|own| own.canonicalize().ok());
    let is_own = is_own.is_some_and(|own| {
        fingerprint.path.starts_with(&own) && !fingerprint.path.starts_with(own.join("workspaces"))
    });
    let verdict = trust.verdict(&fingerprint);
    let needs_trust = is_in_folder && !is_own && verdict != Some(Verdict::Trusted);
    if needs_trust && verdict == Some(Verdict::Denied) {
        // Without the policy, fewer actions would need confirmation.
        return Err(std::io::Error::other("denied by `glovebox trust --deny`"));
    }
    let restricted = needs_trust.then(|| {
        RestrictedFile::Undecided(UndecidedFile {
            file: fingerprint.clone(),
            reason: TrustReason::Policy,
        })
    });
    Ok(PolicyFile {
        text,
        fingerprint,
        restricted,
    })
}

//! `known_hosts` files: the keys that a host may present. A changed key is distinguished from an
//! unknown one.
//!
//! ssh-key, which russh builds on, parses the lines. The `known_hosts` module of russh 0.65 was
//! tried: it ignores patterns and `@revoked`, splits fields at single spaces only, rejects the
//! whole file for one invalid key, does not count comments as lines, and reports a key as changed
//! if another line of the host has a different one. It also creates the file with the umask's mode.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::hmac;
use russh::keys::ssh_key::known_hosts::{Entry, HostPatterns, Marker};
use russh::keys::{Algorithm, HashAlg, PublicKey, PublicKeyBase64};

use super::pattern;

/// A longer file is an error.
const MAX_FILE_LENGTH: u64 = 4 << 20;

/// Entries of all files for one host.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownKeys {
    entries: Vec<KnownHostsEntry>,
}

#[derive(Debug, Clone)]
struct KnownHostsEntry {
    file: PathBuf,
    line: usize,
    is_revoked: bool,
    key: PublicKey,
}

/// Status of a key that a host presents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyStatus {
    Known,
    /// No file has an entry for this host.
    Unknown,
    /// Another key is stored for this host, in this file and line, counted from 1.
    Changed {
        file: PathBuf,
        line: usize,
    },
    Revoked {
        file: PathBuf,
        line: usize,
    },
}

/// An unknown key, and the file that it would be appended to.
#[derive(Debug, Clone)]
pub(super) struct UnknownKey {
    pub(super) host: String,
    pub(super) key: PublicKey,
    pub(super) file: Option<PathBuf>,
}

impl KnownKeys {
    /// Reads the entries of a host, given in the form that the files use. Missing files are
    /// skipped.
    pub(super) fn load(host: &str, files: &[PathBuf]) -> io::Result<Self> {
        let mut entries = Vec::new();
        for file in files {
            let text = match read(file) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!("{}: {error}", file.display()),
                    ));
                }
            };
            let lines = text.lines().enumerate();
            entries.extend(lines.filter_map(|(number, line)| {
                let (is_revoked, key) = parse(line, host)?;
                Some(KnownHostsEntry {
                    file: file.clone(),
                    line: number + 1,
                    is_revoked,
                    key,
                })
            }));
        }
        Ok(Self { entries })
    }

    pub(super) fn key_status(&self, key: &PublicKey) -> KeyStatus {
        let is_same = |entry: &&KnownHostsEntry| entry.key.key_data() == key.key_data();
        if let Some(KnownHostsEntry { file, line, .. }) = self
            .entries
            .iter()
            .filter(is_same)
            .find(|entry| entry.is_revoked)
        {
            return KeyStatus::Revoked {
                file: file.clone(),
                line: *line,
            };
        }
        let valid = || self.entries.iter().filter(|entry| !entry.is_revoked);
        if valid().any(|entry| is_same(&entry)) {
            return KeyStatus::Known;
        }
        // A key of another algorithm is a change too: an attacker in the middle would present one.
        let same_algorithm = valid().find(|entry| entry.key.algorithm() == key.algorithm());
        match same_algorithm.or_else(|| valid().next()) {
            Some(KnownHostsEntry { file, line, .. }) => KeyStatus::Changed {
                file: file.clone(),
                line: *line,
            },
            None => KeyStatus::Unknown,
        }
    }

    /// Orders algorithms so that those of known keys come first. Otherwise the host might present
    /// an unknown key.
    pub(super) fn preferred(&self, all: &[Algorithm]) -> Vec<Algorithm> {
        let is_known = |algorithm: &&Algorithm| {
            let mut keys = self.entries.iter().filter(|entry| !entry.is_revoked);
            keys.any(|entry| uses_algorithm(&entry.key, algorithm))
        };
        let known = all.iter().filter(is_known);
        known
            .chain(all.iter().filter(|algorithm| !is_known(algorithm)))
            .cloned()
            .collect()
    }
}

/// RSA keys match every RSA signature algorithm.
fn uses_algorithm(key: &PublicKey, algorithm: &Algorithm) -> bool {
    match (key.algorithm(), algorithm) {
        (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }) => true,
        (own, other) => own == *other,
    }
}

impl UnknownKey {
    /// Fingerprint in the format of `ssh-keygen -l`.
    pub(super) fn fingerprint(&self) -> String {
        self.key.fingerprint(HashAlg::Sha256).to_string()
    }

    /// Appends the key to its file. Does nothing if no file is configured.
    pub(super) fn append_to_file(&self) -> io::Result<()> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        if let Some(folder) = path.parent() {
            std::fs::DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(folder)?;
        }
        let mut file = std::fs::OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        let line = format!(
            "{} {} {}\n",
            self.host,
            self.key.algorithm(),
            self.key.public_key_base64()
        );
        let line = if ends_with_newline(&mut file)? {
            line
        } else {
            format!("\n{line}")
        };
        file.write_all(line.as_bytes())
    }
}

fn ends_with_newline(file: &mut std::fs::File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true); // also for a device such as /dev/null
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    std::fs::File::open(file)?
        .take(MAX_FILE_LENGTH + 1)
        .read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE_LENGTH {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "longer than 4 MiB",
        ));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the key and whether it is revoked. `None` if the line is invalid, or is about another
/// host.
fn parse(line: &str, host: &str) -> Option<(bool, PublicKey)> {
    // OpenSSH accepts any blanks between the fields, ssh-key only single spaces.
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if fields.first()?.starts_with('#') {
        return None;
    }
    let entry: Entry = fields.join(" ").parse().ok()?;
    let is_revoked = match entry.marker() {
        Some(Marker::CertAuthority) => return None, // certificates are not supported
        Some(Marker::Revoked) => true,
        None => false,
    };
    let is_of_host = match entry.host_patterns() {
        HostPatterns::Patterns(hosts) => {
            pattern::list_matches(hosts.iter().map(String::as_str), host)
        }
        // SHA-1 is part of the file format. It only obscures host names; no trust depends on it.
        HostPatterns::HashedName { salt, hash } => {
            let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
            hmac::verify(&key, host.as_bytes(), hash).is_ok()
        }
    };
    is_of_host.then(|| (is_revoked, entry.into()))
}

#[cfg(test)]
mod tests;

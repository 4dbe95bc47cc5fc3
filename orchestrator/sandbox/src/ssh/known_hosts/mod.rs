//! Files of known hosts: which keys a host may show. A key that has changed is told apart from one never seen.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;
use russh::keys::{Algorithm, HashAlg, PublicKey, PublicKeyBase64, parse_public_key_base64};

use super::pattern;

/// A file of known hosts that is longer is not read.
const MAX_FILE_LENGTH: u64 = 4 << 20;

/// What files say about one host.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownKeys {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    file: PathBuf,
    line: usize,
    is_revoked: bool,
    key: PublicKey,
}

/// What a key means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Known,
    /// Nothing is written down for this host.
    Unknown,
    /// Another key is: in this file, at this line, counted from 1.
    Changed {
        file: PathBuf,
        line: usize,
    },
    Revoked {
        file: PathBuf,
        line: usize,
    },
}

/// A key that is not known, and where it would be written down.
#[derive(Debug, Clone)]
pub(super) struct UnknownKey {
    pub(super) host: String,
    pub(super) key: PublicKey,
    pub(super) file: Option<PathBuf>,
}

impl KnownKeys {
    /// Reads what the files say about a host, which is named as they name it. A missing file says nothing.
    pub(super) fn of(host: &str, files: &[PathBuf]) -> io::Result<Self> {
        let mut entries = Vec::new();
        for file in files {
            let text = match read(file) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    return Err(io::Error::new(error.kind(), format!("{}: {error}", file.display())));
                }
            };
            let lines = text.lines().enumerate();
            entries.extend(lines.filter_map(|(number, line)| {
                let (is_revoked, key) = parse(line, host)?;
                Some(Entry { file: file.clone(), line: number + 1, is_revoked, key })
            }));
        }
        Ok(Self { entries })
    }

    pub(super) fn judge(&self, key: &PublicKey) -> Verdict {
        let is_same = |entry: &&Entry| entry.key.key_data() == key.key_data();
        if let Some(Entry { file, line, .. }) =
            self.entries.iter().filter(is_same).find(|entry| entry.is_revoked)
        {
            return Verdict::Revoked { file: file.clone(), line: *line };
        }
        let valid = || self.entries.iter().filter(|entry| !entry.is_revoked);
        if valid().any(|entry| is_same(&entry)) {
            return Verdict::Known;
        }
        // Also one of another algorithm: whoever stands between us and the host would offer that.
        let same_algorithm = valid().find(|entry| entry.key.algorithm() == key.algorithm());
        match same_algorithm.or_else(|| valid().next()) {
            Some(Entry { file, line, .. }) => Verdict::Changed { file: file.clone(), line: *line },
            None => Verdict::Unknown,
        }
    }

    /// The algorithms to ask the host for: those of its known keys first, or it might show one that is not known.
    pub(super) fn preferred(&self, all: &[Algorithm]) -> Vec<Algorithm> {
        let is_known = |algorithm: &&Algorithm| {
            let mut keys = self.entries.iter().filter(|entry| !entry.is_revoked);
            keys.any(|entry| is_of(&entry.key, algorithm))
        };
        let known = all.iter().filter(is_known);
        known.chain(all.iter().filter(|algorithm| !is_known(algorithm))).cloned().collect()
    }
}

/// An RSA key signs in several ways.
fn is_of(key: &PublicKey, algorithm: &Algorithm) -> bool {
    match (key.algorithm(), algorithm) {
        (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }) => true,
        (own, other) => own == *other,
    }
}

impl UnknownKey {
    /// As `ssh-keygen -l` prints it.
    pub(super) fn fingerprint(&self) -> String {
        self.key.fingerprint(HashAlg::Sha256).to_string()
    }

    /// Writes it down at the end of the file.
    pub(super) fn learn(&self) -> io::Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        if let Some(folder) = path.parent() {
            std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
        }
        let mut file =
            std::fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let line = format!("{} {} {}\n", self.host, self.key.algorithm(), self.key.public_key_base64());
        let line = if ends_with_newline(&mut file)? { line } else { format!("\n{line}") };
        file.write_all(line.as_bytes())
    }
}

fn ends_with_newline(file: &mut std::fs::File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true); // also what is no ordinary file
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    std::fs::File::open(file)?.take(MAX_FILE_LENGTH + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE_LENGTH {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 4 MiB"));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A line that speaks of the host, and whether it revokes its key. What nobody can read says nothing.
fn parse(line: &str, host: &str) -> Option<(bool, PublicKey)> {
    let mut words = line.split_ascii_whitespace();
    let first = words.next().filter(|word| !word.starts_with('#'))?;
    let (is_revoked, hosts) = match first {
        "@revoked" => (true, words.next()?),
        _ if first.starts_with('@') => return None, // certificates are not asked for
        hosts => (false, hosts),
    };
    let key = words.nth(1)?; // after its algorithm, which it names itself
    if !speaks_of(hosts, host) {
        return None;
    }
    Some((is_revoked, parse_public_key_base64(key).ok()?))
}

fn speaks_of(hosts: &str, host: &str) -> bool {
    match hosts.strip_prefix("|1|") {
        Some(hashed) => is_hash_of(hashed, host),
        None => pattern::list_matches(hosts.split(','), host),
    }
}

fn is_hash_of(hashed: &str, host: &str) -> bool {
    let decoded = hashed.split_once('|').and_then(|(salt, hash)| {
        Some((BASE64_STANDARD.decode(salt).ok()?, BASE64_STANDARD.decode(hash).ok()?))
    });
    decoded.is_some_and(|(salt, hash)| {
        // The format is from another time; it hides names, nothing rests on it.
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
        hmac::verify(&key, host.as_bytes(), &hash).is_ok()
    })
}

#[cfg(test)]
mod tests;

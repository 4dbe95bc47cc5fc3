//! Reads backups, which are hostile.

use std::io::{self, BufRead as _, BufReader, Read};

use flate2::bufread::GzDecoder;
use serde::de::DeserializeOwned;
use tar::{Archive, Entries, Entry, EntryType};

use super::digest::{DelayedDigest, HashingReader};
use super::{
    BackupCounts, BackupFormat, BackupManifest, BackupPart, FORMAT_NAME, FORMAT_PATH,
    FORMAT_VERSION, MANIFEST_PATH, MAX_DESCRIPTION_BYTES,
};

/// Maximum length of the padding after the end of the archive, in bytes.
const MAX_PADDING_BYTES: u64 = 1 << 20;

/// Why a backup cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    /// The file is no backup.
    #[error("it is no backup of Glovebox")]
    NoBackup,
    /// A newer version of Glovebox has written it.
    #[error(
        "the backup has format {found}, and this program knows {FORMAT_VERSION}: upgrade Glovebox"
    )]
    TooNew {
        /// The version of its format.
        found: u32,
    },
    /// It ends too early, or a byte differs.
    #[error("the backup is incomplete or damaged")]
    Damaged(#[source] io::Error),
    /// An entry is none of a backup, or is misplaced.
    #[error("the backup is damaged: it has the entry {0:?} there")]
    UnexpectedEntry(String),
    /// A line cannot be parsed.
    #[error("the backup is damaged: line {line} of {path}")]
    InvalidLine {
        /// The entry.
        path: String,
        /// Number of the line, from 1.
        line: u64,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The hash or the counts of the manifest are not those of the content.
    #[error("the backup is damaged: its content does not match its manifest")]
    Mismatch,
}

type Input<R> = HashingReader<GzDecoder<BufReader<R>>>;

/// A backup that is read.
pub(crate) struct BackupReader<R: Read> {
    archive: Archive<Input<R>>,
    digest: DelayedDigest,
}

/// The parts of a backup.
pub(crate) struct BackupParts<'a, R: Read> {
    entries: Entries<'a, Input<R>>,
    digest: DelayedDigest,
    position: u8,
    /// The content of the parts that were read.
    counts: BackupCounts,
    manifest: Option<BackupManifest>,
}

/// The lines of a part.
pub(crate) struct PartLines<'a, R: Read> {
    path: String,
    part: BackupPart,
    number: u64,
    content: BufReader<Entry<'a, Input<R>>>,
}

impl<R: Read> BackupReader<R> {
    pub(crate) fn new(input: R) -> Self {
        let digest = DelayedDigest::new();
        let input = HashingReader::new(GzDecoder::new(BufReader::new(input)), digest.clone());
        Self {
            archive: Archive::new(input),
            digest,
        }
    }

    /// Reads the first entry, and returns the parts that follow.
    ///
    /// # Errors
    /// [`BackupError::NoBackup`] or [`BackupError::TooNew`].
    pub(crate) fn parts(&mut self) -> Result<(BackupFormat, BackupParts<'_, R>), BackupError> {
        // Raw: long names and other extensions, which tar holds in memory whatever their size, are
        // unexpected entries.
        let mut entries = self
            .archive
            .entries()
            .map_err(BackupError::Damaged)?
            .raw(true);
        let first = entries
            .next()
            .and_then(Result::ok)
            .ok_or(BackupError::NoBackup)?;
        if path_of(&first).as_deref() != Some(FORMAT_PATH) {
            return Err(BackupError::NoBackup);
        }
        let format: BackupFormat = read_description(first, FORMAT_PATH)?;
        match format.version {
            _ if format.format != FORMAT_NAME => Err(BackupError::NoBackup),
            found if found > FORMAT_VERSION => Err(BackupError::TooNew { found }),
            _ => {
                let (digest, counts) = (self.digest.clone(), BackupCounts::default());
                Ok((
                    format,
                    BackupParts {
                        entries,
                        digest,
                        position: 0,
                        counts,
                        manifest: None,
                    },
                ))
            }
        }
    }

    /// Checks that nothing follows the last entry, after all parts were read. This also checks the
    /// checksum of gzip.
    ///
    /// # Errors
    /// [`BackupError::Damaged`] or [`BackupError::Mismatch`].
    pub(crate) fn check_end(self) -> Result<(), BackupError> {
        let mut input = self.archive.into_inner().into_inner();
        let mut padding = Vec::new();
        input
            .by_ref()
            .take(MAX_PADDING_BYTES)
            .read_to_end(&mut padding)
            .map_err(BackupError::Damaged)?;
        let mut rest = input.into_inner();
        let is_at_end = rest.fill_buf().map_err(BackupError::Damaged)?.is_empty();
        if padding.iter().any(|byte| *byte != 0) || !is_at_end {
            Err(BackupError::Mismatch)
        } else {
            Ok(())
        }
    }
}

impl<'a, R: Read> BackupParts<'a, R> {
    /// Returns the next part with its lines, which need not be read to their end. `None` after the
    /// manifest, which was checked then.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub(crate) fn next(&mut self) -> Result<Option<(BackupPart, PartLines<'a, R>)>, BackupError> {
        let Some(entry) = self.entries.next() else {
            let error = io::Error::new(io::ErrorKind::UnexpectedEof, "it has no manifest");
            return if self.manifest.is_some() {
                Ok(None)
            } else {
                Err(BackupError::Damaged(error))
            };
        };
        let entry = entry.map_err(BackupError::Damaged)?;
        let path = path_of(&entry).unwrap_or_else(|| "?".to_owned());
        if self.manifest.is_some() {
            return Err(BackupError::UnexpectedEntry(path));
        }
        if path == MANIFEST_PATH {
            let sha256 = self.digest.digest();
            let manifest: BackupManifest = read_description(entry, MANIFEST_PATH)?;
            if manifest.sha256 != sha256 {
                return Err(BackupError::Mismatch);
            }
            self.manifest = Some(manifest);
            return self.next();
        }
        let Some(part) = BackupPart::from_path(&path) else {
            return Err(BackupError::UnexpectedEntry(path));
        };
        let is_repeated =
            part.position() == self.position && !matches!(part, BackupPart::Conversation(_));
        if part.position() < self.position || is_repeated {
            return Err(BackupError::UnexpectedEntry(path));
        }
        self.position = part.position();
        let lines = PartLines {
            path,
            part: part.clone(),
            number: 0,
            content: BufReader::new(entry),
        };
        Ok(Some((part, lines)))
    }

    /// Counts the lines of a part, for the comparison with the manifest.
    pub(crate) fn count(&mut self, part: &BackupPart, lines: u64) {
        self.counts.add(part, lines);
    }

    /// Returns how much was counted, which is as much as the manifest says.
    ///
    /// # Errors
    /// [`BackupError::Mismatch`].
    pub(crate) fn checked_counts(&self) -> Result<BackupCounts, BackupError> {
        match &self.manifest {
            Some(manifest) if manifest.counts == self.counts => Ok(self.counts),
            _ => Err(BackupError::Mismatch),
        }
    }
}

impl<R: Read> PartLines<'_, R> {
    /// Returns the value in the next line. `None` at the end.
    ///
    /// # Errors
    /// [`BackupError::InvalidLine`] or [`BackupError::Damaged`].
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, BackupError> {
        self.next_with(|text| serde_json::from_slice(text))
    }

    /// Like [`next`](Self::next), with another parser.
    pub(crate) fn next_with<T, E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<Option<T>, BackupError> {
        let max = self.part.max_line_bytes();
        let mut line = Vec::new();
        let read = self
            .content
            .by_ref()
            .take(max as u64 + 1)
            .read_until(b'\n', &mut line);
        if read.map_err(BackupError::Damaged)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        match line.strip_suffix(b"\n") {
            Some(text) => parse(text).map(Some).map_err(|error| self.invalid(error)),
            None if line.len() > max => Err(self.invalid(format!("it has more than {max} bytes"))),
            None => Err(self.invalid("its end is missing")),
        }
    }

    /// Returns the number of lines that were read.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the error of the last line.
    pub(crate) fn invalid(
        &self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> BackupError {
        BackupError::InvalidLine {
            path: self.path.clone(),
            line: self.number,
            source: source.into(),
        }
    }
}

/// Returns the path of an entry. `None` if it is no regular file, or no text.
fn path_of(entry: &Entry<'_, impl Read>) -> Option<String> {
    let is_file = entry.header().entry_type() == EntryType::Regular;
    let path = is_file.then(|| entry.header().path_bytes().into_owned())?;
    String::from_utf8(path).ok()
}

fn read_description<T: DeserializeOwned>(
    entry: Entry<'_, impl Read>,
    path: &str,
) -> Result<T, BackupError> {
    let mut text = Vec::new();
    entry
        .take(MAX_DESCRIPTION_BYTES)
        .read_to_end(&mut text)
        .map_err(BackupError::Damaged)?;
    serde_json::from_slice(&text).map_err(|source| BackupError::InvalidLine {
        path: path.to_owned(),
        line: 1,
        source: source.into(),
    })
}

//! Reads a file of any length in parts. At most one part is in memory. A file that grows is read up
//! to its length when it was opened.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::error::FileError;
use super::{Files, open};

/// Size of a part. Large enough to make the cost of a blocking thread per part negligible.
pub(crate) const PART_BYTES: usize = 256 << 10;

/// An open file and its metadata at that time.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    pub(crate) length: u64,
    /// Entity tag, quoted for HTTP. Changes with the content.
    pub(crate) tag: String,
    pub(crate) modified: Option<SystemTime>,
}

/// The rest of a file that is being read.
#[derive(Debug)]
pub(crate) struct UnreadFile {
    file: File,
    /// `None`: read to the end of the file.
    left: Option<u64>,
}

impl OpenFile {
    pub(crate) fn open(files: &Files, path: &Path) -> Result<Self, FileError> {
        let (file, metadata) = open::regular(&files.resolve(path)?)?;
        let (length, seconds) = (metadata.len(), metadata.mtime());
        let tag = format!(
            "\"{:x}-{length:x}-{seconds:x}.{:x}\"",
            metadata.ino(),
            metadata.mtime_nsec()
        );
        let since_1970 = u64::try_from(seconds).ok().map(Duration::from_secs);
        let modified = since_1970.and_then(|time| SystemTime::UNIX_EPOCH.checked_add(time));
        Ok(Self {
            file,
            length,
            tag,
            modified,
        })
    }

    /// Returns the whole file. A file that reports a length of 0, as those of `/proc`, is read to
    /// its end.
    pub(crate) fn whole(self) -> UnreadFile {
        UnreadFile {
            file: self.file,
            left: (self.length > 0).then_some(self.length),
        }
    }

    pub(crate) fn part(mut self, range: Range<u64>) -> io::Result<UnreadFile> {
        self.file.seek(SeekFrom::Start(range.start))?;
        Ok(UnreadFile {
            file: self.file,
            left: Some(range.end - range.start),
        })
    }
}

impl UnreadFile {
    /// Reads the next part, and returns it with the rest of the file. Fails if the file was
    /// truncated concurrently, because its length was already sent.
    pub(crate) fn read(mut self) -> io::Result<(Bytes, Option<Self>)> {
        let part_bytes = self.left.unwrap_or(u64::MAX).min(PART_BYTES as u64);
        let mut part = Vec::with_capacity(usize::try_from(part_bytes).unwrap_or(PART_BYTES));
        let count = (&self.file).take(part_bytes).read_to_end(&mut part)? as u64;
        let is_more = match &mut self.left {
            None => count > 0,
            Some(left) if count == part_bytes => {
                *left -= count;
                *left > 0
            }
            Some(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        Ok((part.into(), is_more.then_some(self)))
    }
}

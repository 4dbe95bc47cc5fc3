//! A file that is read in parts, of any length. Never holds more than a part, never more of a file than it had when it
//! was opened.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::error::FileError;
use super::{Files, open};

/// Large enough that a part's way through a thread costs little beside it.
pub(crate) const PART_BYTES: usize = 256 << 10;

/// An open file and what it was when it was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    file: File,
    pub(crate) length: u64,
    /// The same as long as the content is, quoted as HTTP has it.
    pub(crate) tag: String,
    pub(crate) modified: Option<SystemTime>,
}

/// What is still to be read.
#[derive(Debug)]
pub(crate) struct Rest {
    file: File,
    /// Nothing: until the file's end, wherever that is.
    left: Option<u64>,
}

impl Opened {
    pub(crate) fn at(files: &Files, path: &Path) -> Result<Self, FileError> {
        let (file, metadata) = open::regular(&files.found(path)?)?;
        let (length, seconds) = (metadata.len(), metadata.mtime());
        let tag = format!("\"{:x}-{length:x}-{seconds:x}.{:x}\"", metadata.ino(), metadata.mtime_nsec());
        let since_1970 = u64::try_from(seconds).ok().map(Duration::from_secs);
        let modified = since_1970.and_then(|time| SystemTime::UNIX_EPOCH.checked_add(time));
        Ok(Self { file, length, tag, modified })
    }

    /// All of it. Files of /proc say that they are empty: what says so is read to its end.
    pub(crate) fn whole(self) -> Rest {
        Rest { file: self.file, left: (self.length > 0).then_some(self.length) }
    }

    pub(crate) fn part(mut self, range: Range<u64>) -> io::Result<Rest> {
        self.file.seek(SeekFrom::Start(range.start))?;
        Ok(Rest { file: self.file, left: Some(range.end - range.start) })
    }
}

impl Rest {
    /// The next part and what is left after it. A file that has become shorter meanwhile is an error: its length has
    /// been told already.
    pub(crate) fn read(mut self) -> io::Result<(Bytes, Option<Self>)> {
        let wanted = self.left.unwrap_or(u64::MAX).min(PART_BYTES as u64);
        let mut part = Vec::with_capacity(usize::try_from(wanted).unwrap_or(PART_BYTES));
        let count = (&self.file).take(wanted).read_to_end(&mut part)? as u64;
        let is_more = match &mut self.left {
            None => count > 0,
            Some(left) if count == wanted => {
                *left -= count;
                *left > 0
            }
            Some(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        Ok((part.into(), is_more.then_some(self)))
    }
}

//! The plain text of a file or of some of its lines; images and the like as data URLs. At most [`MAX_FILE_BYTES`], and
//! what was left out is told.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use protocol::Observation;
use protocol::action::{FileImplementation, ReadAction};
use protocol::observation::ReadObservation;

use super::error::FileError;
use super::{Files, MAX_FILE_BYTES, media, open};

pub(super) fn observe(files: &Files, path: &Path, action: &ReadAction, working_dir: &Path) -> Observation {
    match content(files, path, action) {
        Ok(content) => Observation::new(
            content,
            ReadObservation { path: path.display().to_string(), impl_source: FileImplementation::Default },
        ),
        Err(error) => Observation::error(error.told("read", working_dir), ""),
    }
}

fn content(files: &Files, path: &Path, action: &ReadAction) -> Result<String, FileError> {
    let place = files.found(path)?;
    if let Some(media_type) = media::media_type(path) {
        return Ok(media::data_url(media_type, &open::whole(&place)?));
    }
    let (file, _) = open::regular(&place)?;
    let slice = Slice::of(file, action).map_err(|error| FileError::io("reading", path, error))?;
    if open::is_binary(&slice.bytes) {
        return Err(FileError::Binary);
    }
    let mut text = String::from_utf8_lossy(&slice.bytes).into_owned();
    if slice.is_cut {
        text.push_str(&format!(
            "\n[Only {MAX_FILE_BYTES} bytes are shown, there are more. Read from a later line on, or use the shell.]"
        ));
    }
    Ok(text)
}

struct Slice {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Slice {
    /// Lines before the slice are passed over and not held, so that the end of a long log can be read.
    fn of(file: File, action: &ReadAction) -> io::Result<Self> {
        let first = usize::try_from(action.start).unwrap_or(0);
        // Negative: to the end.
        let count = usize::try_from(action.end).map_or(usize::MAX, |end| end.saturating_sub(first));
        let mut reader = BufReader::with_capacity(64 << 10, file);
        for _ in 0..first {
            if reader.skip_until(b'\n')? == 0 {
                break;
            }
        }
        let mut bytes = Vec::new();
        for _ in 0..count {
            let room = (MAX_FILE_BYTES + 1 - bytes.len()) as u64;
            if reader.by_ref().take(room).read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
        }
        let is_cut = bytes.len() > MAX_FILE_BYTES;
        bytes.truncate(MAX_FILE_BYTES);
        Ok(Self { bytes, is_cut })
    }
}

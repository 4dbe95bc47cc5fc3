//! Reads the text of a file or of some of its lines, and media as data URLs. Output beyond
//! [`MAX_FILE_BYTES`] is cut, with a note.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use protocol::Observation;
use protocol::action::{FileImplementation, ReadAction};
use protocol::observation::ReadObservation;

use super::error::FileError;
use super::{Files, MAX_FILE_BYTES, encoding, media, open};

pub(super) fn observe(
    files: &Files,
    path: &Path,
    action: &ReadAction,
    working_dir: &Path,
) -> Observation {
    match content(files, path, action) {
        Ok(content) => Observation::new(
            content,
            ReadObservation {
                path: path.display().to_string(),
                impl_source: FileImplementation::Default,
            },
        ),
        Err(error) => Observation::error(error.to_observation_text("read", working_dir), ""),
    }
}

fn content(files: &Files, path: &Path, action: &ReadAction) -> Result<String, FileError> {
    let resolved = files.resolve(path)?;
    if let Some(media_type) = media::media_type(path) {
        return Ok(media::data_url(media_type, &open::whole(&resolved)?));
    }
    let (file, _) = open::regular(&resolved)?;
    let slice =
        LineSlice::read(file, action).map_err(|error| FileError::io("read", path, error))?;
    if action.start <= 0 && encoding::is_utf16(&slice.bytes) {
        return Err(FileError::Utf16(path.to_owned()));
    }
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

struct LineSlice {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl LineSlice {
    /// Skips the lines before the slice without storing them, so that the end of a long log can be
    /// read.
    fn read(file: File, action: &ReadAction) -> io::Result<Self> {
        let first = usize::try_from(action.start).unwrap_or(0);
        // A negative end means the end of the file.
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

//! Pictures that the user attaches to a task, as data URLs.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::exit::UsageError;
use crate::input_file;

/// Maximum size of a picture, in bytes. Providers accept no larger ones.
const MAX_LENGTH: usize = 5 << 20;

/// Maximum number of pictures.
const MAX_COUNT: usize = 8;

/// Reads pictures as data URLs.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<String>, UsageError> {
    if paths.len() > MAX_COUNT {
        return Err(UsageError(format!(
            "cannot attach {} pictures: at most {MAX_COUNT}",
            paths.len()
        )));
    }
    paths.iter().map(|path| read_one(path)).collect()
}

fn read_one(path: &Path) -> Result<String, UsageError> {
    let failed = |problem: String| {
        UsageError(format!(
            "cannot attach the picture {}: {problem}",
            path.display()
        ))
    };
    let bytes =
        input_file::read_named(path, MAX_LENGTH).map_err(|error| failed(error.to_string()))?;
    let kind =
        media_type(&bytes).ok_or_else(|| failed("not a PNG, JPEG, GIF or WebP".to_owned()))?;
    Ok(format!("data:{kind};base64,{}", STANDARD.encode(bytes)))
}

/// Detects the type by the first bytes, because the name is not reliable.
fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_type_is_detected_and_size_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("picture");
        for (content, url) in [
            (
                &b"\x89PNG\r\n\x1a\n"[..],
                Some("data:image/png;base64,iVBORw0KGgo="),
            ),
            (b"\xff\xd8\xff\xe0", Some("data:image/jpeg;base64,/9j/4A==")),
            (b"GIF89a", Some("data:image/gif;base64,R0lGODlh")),
            (
                b"RIFF\0\0\0\0WEBP",
                Some("data:image/webp;base64,UklGRgAAAABXRUJQ"),
            ),
            (b"<svg/>", None),
            (b"", None),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(
                read(std::slice::from_ref(&path)).ok(),
                url.map(|url| vec![url.to_owned()])
            );
        }
        let endless = read(&["/dev/zero".into()]).unwrap_err().to_string();
        assert!(endless.ends_with("longer than 5242880 bytes"), "{endless}");
        let nowhere = read(&[folder.path().join("nowhere")])
            .unwrap_err()
            .to_string();
        assert!(nowhere.contains("nowhere: No such file"), "{nowhere}");
        assert!(read(&vec![path; 9]).is_err());
    }
}

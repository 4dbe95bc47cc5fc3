//! What fuzz targets call: each reads bytes as hostile input and panics when something is not as it should be.
//!
//! Built only by a fuzzer (`cfg(fuzzing)`); the targets are in `fuzz/`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a fuzzer is told by panicking")]
#![allow(missing_docs, reason = "named for their targets")]

use std::path::Path;

use protocol::action::EditAction;
use protocol::sandbox_api::{ActionRequest, FrameDecoder};

use crate::files::Files;
use crate::shell;

/// A request is refused, or is the same after it was written and read again. Frames never panic.
pub fn request(bytes: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<ActionRequest>(bytes) {
        let written = serde_json::to_vec(&request).unwrap();
        assert_eq!(serde_json::from_slice::<ActionRequest>(&written).unwrap(), request);
    }
    let mut decoder = FrameDecoder::default();
    for chunk in bytes.chunks(7) {
        decoder.push(chunk);
        while let Ok(Some(_)) = decoder.next_frame() {}
    }
}

/// Marks are found wherever the bytes are cut, and no byte is lost.
pub fn marks(bytes: &[u8]) {
    let (cut, bytes) = split(bytes);
    assert_eq!(shell::fuzzing::marks(bytes.chunks(cut)), shell::fuzzing::marks([bytes]));
}

/// Output folds to the same text wherever it is cut, and holds no control character.
pub fn fold(bytes: &[u8]) {
    let (cut, bytes) = split(bytes);
    let text = shell::fuzzing::fold(bytes.chunks(cut));
    assert_eq!(text, shell::fuzzing::fold([bytes]));
    assert!(!text.chars().any(|char| char.is_ascii_control() && char != '\n' && char != '\t'), "{text:?}");
}

/// An edit replaces exactly what it names, and nothing else of the file.
pub fn edit(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |&byte| byte == 0xff);
    let (Some(old), Some(new), Some(file)) = (parts.next(), parts.next(), parts.next()) else { return };
    let (Ok(old), Ok(new)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else { return };
    let path = std::env::temp_dir().join(format!("glovebox-fuzz-{}", std::process::id()));
    std::fs::write(&path, file).unwrap();
    let action = serde_json::json!({
        "command": "str_replace", "path": path, "old_str": old, "new_str": new, "impl_source": "oh_aci"
    });
    let action: EditAction = serde_json::from_value(action).unwrap();
    let observation = Files::anywhere().edit(&action, Path::new("/"));
    let after = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let was_edited = !observation.content.starts_with("ERROR:");
    let mut places = memchr::memmem::find_iter(file, old.as_bytes());
    match (was_edited, places.next(), places.next()) {
        (true, Some(place), None) => {
            assert_eq!(after, [&file[..place], new.as_bytes(), &file[place + old.len()..]].concat());
        }
        // Found with surrounding blanks stripped.
        (true, ..) => assert_ne!(old.trim(), old),
        (false, ..) => assert_eq!(after, file),
    }
}

/// The first byte says how the rest is cut.
fn split(bytes: &[u8]) -> (usize, &[u8]) {
    bytes.split_first().map_or((1, bytes), |(cut, bytes)| (usize::from(*cut).max(1), bytes))
}

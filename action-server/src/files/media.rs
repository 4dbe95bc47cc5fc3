//! Files that are returned as data URLs: images and other media for the model.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Returns the media type for the extension, as V0 does.
pub(super) fn media_type(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    Some(match extension.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "bmp" => "image/bmp",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "ogg" => "video/ogg",
        _ => return None,
    })
}

/// Encodes the content of a file as a data URL.
pub(super) fn data_url(media_type: &str, bytes: &[u8]) -> String {
    let mut url = format!("data:{media_type};base64,");
    STANDARD.encode_string(bytes, &mut url);
    url
}

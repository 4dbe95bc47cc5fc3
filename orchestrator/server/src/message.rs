//! Bounds of what a user sends to an agent. It is in the memory of the server, of each stream and
//! of each page of events.

use protocol::action::MessageAction;

use crate::error::ApiError;

/// Maximum length of a text, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// Maximum length of the images and the URLs of files, in bytes. Images are in base64.
const MAX_IMAGE_BYTES: usize = 8 << 20;

/// Checks a message. `field` is the name of its text in the request.
pub(crate) fn check_message(field: &str, message: &MessageAction) -> Result<(), ApiError> {
    check_text(field, &message.content)?;
    let urls = [&message.image_urls, &message.file_urls];
    let bytes: usize = urls.into_iter().flatten().flatten().map(String::len).sum();
    if bytes > MAX_IMAGE_BYTES {
        let problem = format_args!("must have at most {MAX_IMAGE_BYTES} bytes together");
        return Err(ApiError::invalid("image_urls", problem));
    }
    Ok(())
}

/// Checks the text of a message, or instructions.
pub(crate) fn check_text(field: &str, text: &str) -> Result<(), ApiError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(ApiError::invalid(
            field,
            format_args!("must have at most {MAX_TEXT_BYTES} bytes"),
        ));
    }
    Ok(())
}

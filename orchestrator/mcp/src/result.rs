//! Converts the result of a tool call to an observation of limited size: text, and images of
//! formats that providers accept.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use protocol::Observation;
use protocol::observation::McpObservation;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Map, Value};

/// Maximum text of a result, in bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// Maximum number of images of a result.
const MAX_IMAGES: usize = 8;

/// Maximum total size of the images of a result, in bytes of base64.
const MAX_IMAGE_BYTES: usize = 4 << 20;

const UNKNOWN: &str = "[content of a kind that is not known here]";

/// Converts the result of a call.
pub(crate) fn observation(
    name: &str,
    arguments: &Map<String, Value>,
    result: CallToolResult,
) -> Observation {
    let mut content = ResultContent::default();
    let structured = result.structured_content;
    for block in result.content {
        content.block(block);
    }
    // Servers repeat structured content as text for clients that do not support it.
    if let (Some(structured), true) = (structured, content.text.is_empty()) {
        content.line(&structured.to_string());
    }
    let ResultContent {
        text: mut content,
        images,
        ..
    } = content;
    if result.is_error == Some(true) {
        content.insert_str(0, "The tool failed: ");
    }
    if let Some((end, _)) = content
        .char_indices()
        .find(|(start, letter)| start + letter.len_utf8() > MAX_TEXT_BYTES)
    {
        let cut = content.len() - end;
        content.truncate(end);
        content.push_str(&format!("\n[{cut} bytes more were cut off]"));
    }
    let kind = McpObservation {
        name: name.to_owned(),
        arguments: arguments.clone(),
        image_urls: images,
    };
    Observation::new(content, kind)
}

#[derive(Default)]
struct ResultContent {
    text: String,
    images: Vec<String>,
    image_bytes: usize,
}

impl ResultContent {
    fn line(&mut self, line: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
    }

    fn block(&mut self, block: ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.line(&text.text),
            ContentBlock::Image(image) => self.image(&image.data),
            ContentBlock::Audio(audio) => {
                self.line(&format!(
                    "[audio, {} bytes of base64, which cannot be shown]",
                    audio.data.len()
                ));
            }
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents { uri, text, .. } => {
                    self.line(&format!("[resource {uri}]\n{text}"));
                }
                ResourceContents::BlobResourceContents {
                    uri,
                    mime_type,
                    blob,
                    ..
                } => {
                    let kind = mime_type.unwrap_or_default();
                    self.line(&format!("[resource {uri} {kind}]"));
                    if kind.starts_with("image/") {
                        self.image(&blob);
                    }
                }
                _ => self.line(UNKNOWN),
            },
            ContentBlock::ResourceLink(link) => {
                self.line(&format!("[resource {}: {}]", link.uri, link.name));
            }
            _ => self.line(UNKNOWN),
        }
    }

    fn image(&mut self, data: &str) {
        let fits =
            self.images.len() < MAX_IMAGES && data.len() <= MAX_IMAGE_BYTES - self.image_bytes;
        let Some(kind) = image_kind(data) else {
            return self.line("[an image that is neither PNG, JPEG, GIF nor WebP was left out]");
        };
        if !fits {
            return self.line(&format!(
                "[an image of {} bytes was left out: there is too much]",
                data.len()
            ));
        }
        self.image_bytes += data.len();
        self.images.push(format!("data:{kind};base64,{data}"));
    }
}

/// Returns the media type by the first bytes. An image that the provider rejects would make every
/// later model call fail.
fn image_kind(data: &str) -> Option<&'static str> {
    let bytes = BASE64_STANDARD.decode(data).ok()?;
    match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
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
    use protocol::ObservationKind;
    use serde_json::json;

    use super::*;

    fn convert_all(result: Value) -> (String, Vec<String>) {
        let result = serde_json::from_value(result).unwrap();
        let observation = observation("t", &Map::new(), result);
        let ObservationKind::Mcp(mcp) = observation.kind else {
            panic!("{observation:?}")
        };
        (observation.content, mcp.image_urls)
    }

    fn png(length: usize) -> String {
        let mut bytes = b"\x89PNG\r\n".to_vec();
        bytes.resize(length, 0);
        BASE64_STANDARD.encode(bytes)
    }

    #[test]
    fn text_resources_and_images_are_converted() {
        let (text, images) = convert_all(json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": png(9), "mimeType": "image/gif"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "two"}},
            {"type": "resource_link", "uri": "file:///b", "name": "three"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        ]}));
        assert_eq!(
            text,
            "one\n[resource file:///a]\ntwo\n[resource file:///b: three]\n\
             [audio, 4 bytes of base64, which cannot be shown]"
        );
        assert_eq!(images, [format!("data:image/png;base64,{}", png(9))]);
    }

    #[test]
    fn structured_content_is_used_when_there_is_no_other() {
        assert_eq!(
            convert_all(json!({"content": [], "structuredContent": {"a": 1}})).0,
            "{\"a\":1}"
        );
        let both =
            json!({"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}});
        assert_eq!(convert_all(both).0, "x");
    }

    #[test]
    fn failure_of_the_tool_is_stated_in_the_text() {
        let failed =
            json!({"content": [{"type": "text", "text": "no such file"}], "isError": true});
        assert_eq!(convert_all(failed).0, "The tool failed: no such file");
    }

    #[test]
    fn excess_content_is_truncated_and_reported() {
        let (text, _) =
            convert_all(json!({"content": [{"type": "text", "text": "ü".repeat(MAX_TEXT_BYTES)}]}));
        assert!(
            text.len() < MAX_TEXT_BYTES + 100
                && text.ends_with("\n[65536 bytes more were cut off]")
        );
        let image = |data: String| json!({"type": "image", "data": data, "mimeType": "image/png"});
        let (text, images) = convert_all(json!({"content": vec![image(png(9)); MAX_IMAGES + 1]}));
        assert_eq!(
            (images.len(), text.contains("left out: there is too much")),
            (MAX_IMAGES, true)
        );
        let (_, images) =
            convert_all(json!({"content": [image(png(MAX_IMAGE_BYTES)), image(png(9))]}));
        assert_eq!(images.len(), 1);
        let not_images = [image("%%%".into()), image(BASE64_STANDARD.encode("<svg/>"))];
        let (text, images) = convert_all(json!({"content": not_images}));
        assert_eq!((images.len(), text.matches("neither PNG").count()), (0, 2));
    }
}

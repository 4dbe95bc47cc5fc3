//! Requests in OpenAI's format.

#[cfg(test)]
mod tests;

use conversations::check_message;
use protocol::action::MessageAction;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::ApiError;

/// Name of the model that is the agent of the user's settings. `glovebox/AGENT` is another agent.
pub(super) const DEFAULT_MODEL: &str = "glovebox";

/// Maximum length of the instructions that the messages before the last one make, in bytes.
const MAX_INSTRUCTIONS: usize = 1 << 20;

/// Maximum length of a model name that an error repeats.
const MAX_ECHOED_CHARS: usize = 100;

/// A request for a chat completion. Other parameters of OpenAI are accepted and ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatRequest {
    /// `glovebox`, or `glovebox/AGENT`.
    model: String,
    /// The last one that is not of the system is the user's message.
    messages: Vec<ChatMessage>,
    /// Whether the response is a stream.
    #[serde(default)]
    stream: Option<bool>,
    /// Options of the stream.
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    /// The conversation that the user's message is sent to. `null` creates one.
    #[serde(default)]
    conversation_id: Option<String>,
    /// The number of answers: 1.
    #[serde(default)]
    n: Option<u32>,
    /// Not supported.
    #[serde(default)]
    tools: Option<Vec<Value>>,
    /// Not supported.
    #[serde(default)]
    functions: Option<Vec<Value>>,
    /// Not supported.
    #[serde(default)]
    audio: Option<Value>,
    /// Only `text` is supported.
    #[serde(default)]
    modalities: Option<Vec<String>>,
    /// Only the type `text` is supported.
    #[serde(default)]
    response_format: Option<ResponseFormat>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
struct StreamOptions {
    /// Whether the last chunk has the token usage.
    #[serde(default)]
    include_usage: Option<bool>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct ResponseFormat {
    r#type: String,
}

/// A message.
#[derive(Debug, Deserialize, ToSchema)]
struct ChatMessage {
    role: Role,
    #[serde(default)]
    content: Option<MessageContent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
    Function,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
enum MessageContent {
    Text(String),
    Parts(Vec<MessagePart>),
}

/// A part of a message: `text`, `refusal` or `image_url`.
#[derive(Debug, Deserialize, ToSchema)]
struct MessagePart {
    r#type: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    image_url: Option<ImageUrl>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct ImageUrl {
    /// `data:image/…`, `https://…` or `http://…`.
    url: String,
}

/// The user's message, and what precedes it.
#[derive(Debug, PartialEq)]
pub(super) struct Prompt {
    pub(super) message: MessageAction,
    /// The messages of the system, and those before the user's last one. `None` if there are none.
    pub(super) instructions: Option<String>,
}

impl ChatRequest {
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    pub(super) fn conversation_id(&self) -> Option<&str> {
        self.conversation_id.as_deref()
    }

    pub(super) fn is_stream(&self) -> bool {
        self.stream == Some(true)
    }

    pub(super) fn includes_usage(&self) -> bool {
        self.stream_options
            .as_ref()
            .is_some_and(|options| options.include_usage == Some(true))
    }

    /// Returns the agent that the model names. `None` for that of the user's settings.
    ///
    /// # Errors
    /// [`ApiError::UnknownModel`].
    pub(super) fn agent(&self, known: &[String]) -> Result<Option<&str>, ApiError> {
        if self.model == DEFAULT_MODEL {
            return Ok(None);
        }
        let name = self
            .model
            .strip_prefix(DEFAULT_MODEL)
            .and_then(|rest| rest.strip_prefix('/'));
        let agent = name.filter(|name| known.iter().any(|known| known == name));
        agent.map(Some).ok_or_else(|| {
            let named = known
                .iter()
                .map(|name| format!(", {DEFAULT_MODEL}/{name}"))
                .collect::<String>();
            let model = self.model.chars().take(MAX_ECHOED_CHARS).collect();
            ApiError::UnknownModel {
                model,
                known: format!("{DEFAULT_MODEL}{named}"),
            }
        })
    }

    /// Rejects what would change the answer, and is not supported.
    ///
    /// # Errors
    /// [`ApiError::Invalid`].
    pub(super) fn check(&self) -> Result<(), ApiError> {
        let has_items =
            |list: &Option<Vec<Value>>| list.as_ref().is_some_and(|list| !list.is_empty());
        let is_other = |name: &String| name != "text";
        let rejected = [
            (self.n.is_some_and(|n| n != 1), "n", "must be 1"),
            (
                has_items(&self.tools),
                "tools",
                "are not supported: the agent has tools of its own",
            ),
            (
                has_items(&self.functions),
                "functions",
                "are not supported: the agent has tools of its own",
            ),
            (self.audio.is_some(), "audio", "is not supported"),
            (
                self.modalities.iter().flatten().any(is_other),
                "modalities",
                "must be text",
            ),
            (
                self.response_format
                    .as_ref()
                    .is_some_and(|format| is_other(&format.r#type)),
                "response_format",
                "must be text",
            ),
        ];
        match rejected.iter().find(|(is_rejected, ..)| *is_rejected) {
            Some((_, field, problem)) => Err(ApiError::invalid(*field, problem)),
            None => Ok(()),
        }
    }

    /// Returns the user's message, which is the last one besides those of the system, and what
    /// precedes it.
    ///
    /// # Errors
    /// [`ApiError::Invalid`].
    pub(super) fn to_prompt(&self) -> Result<Prompt, ApiError> {
        let last = self
            .messages
            .iter()
            .rposition(|message| !message.role.is_system());
        let last = last.filter(|last| self.messages[*last].role == Role::User);
        let last =
            last.ok_or_else(|| ApiError::invalid("messages", "the last one must be of the user"))?;
        let (mut system, mut earlier) = (Vec::new(), Vec::new());
        let mut message = MessageAction::default();
        for (index, one) in self.messages.iter().enumerate() {
            let (text, images) = one.read(&format!("messages[{index}].content"))?;
            if index == last {
                let image_urls = Some(images).filter(|images| !images.is_empty());
                message = MessageAction {
                    content: text,
                    image_urls,
                    ..MessageAction::default()
                };
            } else if one.role.is_system() {
                system.push(text);
            } else {
                let images = "\n[image]".repeat(images.len());
                earlier.push(format!("{}: {text}{images}", one.role.name()));
            }
        }
        if message.content.trim().is_empty() && message.image_urls.is_none() {
            return Err(ApiError::invalid(
                format!("messages[{last}].content"),
                "must not be empty",
            ));
        }
        check_message(&format!("messages[{last}].content"), &message)?;
        if !earlier.is_empty() {
            system.push(format!(
                "The conversation before the user's message:\n\n{}",
                earlier.join("\n\n")
            ));
        }
        let instructions = Some(system.join("\n\n")).filter(|text| !text.trim().is_empty());
        if instructions
            .as_ref()
            .is_some_and(|text| text.len() > MAX_INSTRUCTIONS)
        {
            let problem =
                format!("those before the last must have at most {MAX_INSTRUCTIONS} bytes");
            return Err(ApiError::invalid("messages", problem));
        }
        Ok(Prompt {
            message,
            instructions,
        })
    }
}

impl Role {
    fn is_system(self) -> bool {
        matches!(self, Self::System | Self::Developer)
    }

    fn name(self) -> &'static str {
        match self {
            Self::System | Self::Developer => "System",
            Self::User => "User",
            Self::Assistant => "Assistant",
            Self::Tool | Self::Function => "Tool",
        }
    }
}

impl ChatMessage {
    /// Returns the text and the URLs of the images. `field` is the path of the content.
    fn read(&self, field: &str) -> Result<(String, Vec<String>), ApiError> {
        let parts = match &self.content {
            None => return Ok(Default::default()),
            Some(MessageContent::Text(text)) => return Ok((text.clone(), Vec::new())),
            Some(MessageContent::Parts(parts)) => parts,
        };
        let (mut texts, mut images) = (Vec::new(), Vec::new());
        for (index, part) in parts.iter().enumerate() {
            let invalid =
                |problem: &str| Err(ApiError::invalid(format!("{field}[{index}]"), problem));
            match (
                part.r#type.as_str(),
                &part.text,
                &part.refusal,
                &part.image_url,
            ) {
                ("text", Some(text), ..) | ("refusal", _, Some(text), _) => {
                    texts.push(text.as_str());
                }
                ("image_url", .., Some(image)) if is_image(&image.url) => {
                    images.push(image.url.clone());
                }
                ("image_url", ..) => {
                    return invalid("needs the URL of an image: data:image/…, or http");
                }
                _ => return invalid("must be a text or an image_url"),
            }
        }
        Ok((texts.join("\n"), images))
    }
}

fn is_image(url: &str) -> bool {
    ["data:image/", "https://", "http://"].iter().any(|start| {
        url.get(..start.len())
            .is_some_and(|beginning| beginning.eq_ignore_ascii_case(start))
    })
}

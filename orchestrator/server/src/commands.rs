//! Applies commands of clients, and bounds what they hold: it is in the memory of the server, of
//! each stream and of each page of events.

use protocol::action::MessageAction;
use protocol::record::FeedbackGiven;
use protocol::{CommandRequest, ConversationId, EventId, SecurityRisk, UserCommand};

use crate::error::ApiError;
use crate::state::ServerState;

/// Maximum length of a text, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// Maximum length of the images and the URLs of files, in bytes. Images are in base64.
const MAX_IMAGE_BYTES: usize = 8 << 20;

/// Maximum length of the reason of a rejection, in bytes.
const MAX_REASON_BYTES: usize = 16 << 10;

/// Maximum length of a title, in bytes.
pub(crate) const MAX_TITLE_BYTES: usize = 1024;

/// Maximum length of the version and of the address of feedback, in bytes.
const MAX_FEEDBACK_BYTES: usize = 256;

/// Applies a command of a client. Returns the event that it caused.
pub(crate) async fn apply(
    state: &ServerState,
    id: &ConversationId,
    request: impl Into<CommandRequest>,
) -> Result<Option<EventId>, ApiError> {
    let mut request = request.into();
    check(&request)?;
    if let UserCommand::SendMessage(message) = &mut request.command {
        // Only agents have these.
        message.wait_for_response = false;
        message.security_risk = SecurityRisk::default();
    }
    Ok(state.conversations.apply(id, request).await?)
}

fn check(request: &CommandRequest) -> Result<(), ApiError> {
    match &request.command {
        UserCommand::SendMessage(message) => {
            let images = message.image_urls.as_deref().unwrap_or_default();
            if message.content.trim().is_empty() && images.is_empty() {
                return Err(ApiError::invalid("message", "must not be empty"));
            }
            check_message("message", message)
        }
        // Sent again, it would decide the next action.
        UserCommand::Confirm { action: None, .. } | UserCommand::Reject { action: None, .. }
            if request.id.is_some() =>
        {
            Err(ApiError::invalid(
                "action",
                "must be named if the command has an id",
            ))
        }
        UserCommand::Reject { reason, .. } if reason.len() > MAX_REASON_BYTES => {
            Err(ApiError::invalid(
                "reason",
                format_args!("must have at most {MAX_REASON_BYTES} bytes"),
            ))
        }
        UserCommand::SetTitle { title } => {
            if title.trim().is_empty() || title.len() > MAX_TITLE_BYTES {
                return Err(ApiError::invalid(
                    "title",
                    format_args!("must have 1 to {MAX_TITLE_BYTES} bytes"),
                ));
            }
            Ok(())
        }
        UserCommand::GiveFeedback(FeedbackGiven { version, email, .. }) => {
            for (field, text) in [("version", version), ("email", email)] {
                if text.len() > MAX_FEEDBACK_BYTES {
                    return Err(ApiError::invalid(
                        field,
                        format_args!("must have at most {MAX_FEEDBACK_BYTES} bytes"),
                    ));
                }
            }
            Ok(())
        }
        UserCommand::Resume {
            more_budget: Some(budget),
            ..
        } if !budget.is_finite() || *budget < 0.0 => {
            Err(ApiError::invalid("more_budget", "must not be negative"))
        }
        UserCommand::Stop
        | UserCommand::Pause
        | UserCommand::Resume { .. }
        | UserCommand::AwaitMessage
        | UserCommand::RecoverFromLoop { .. }
        | UserCommand::Confirm { .. }
        | UserCommand::Reject { .. }
        | UserCommand::SetConfirmation { .. } => Ok(()),
    }
}

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

//! Maximum lengths of what clients send. It stays in the memory of the server, of each stream and
//! of each page of events.

use protocol::action::MessageAction;
use protocol::record::FeedbackGiven;
use protocol::{CommandRequest, SecurityRisk, UserCommand};

use crate::error::InvalidRequest;

/// Maximum length of a text, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// Maximum length of the images and the URLs of files, in bytes. Images are in base64.
const MAX_IMAGE_BYTES: usize = 8 << 20;

/// Maximum length of the reason of a rejection, in bytes.
const MAX_REASON_BYTES: usize = 16 << 10;

/// Maximum length of a title, in bytes.
const MAX_TITLE_BYTES: usize = 1024;

/// Maximum length of the name of a model, in bytes.
const MAX_MODEL_BYTES: usize = 256;

/// Maximum length of the version and of the address of feedback, in bytes.
const MAX_FEEDBACK_BYTES: usize = 256;

/// Checks a command of a client, and removes from its message what only agents have.
pub(crate) fn check_command(request: &mut CommandRequest) -> Result<(), InvalidRequest> {
    match &mut request.command {
        UserCommand::SendMessage(message) => check_sent(message),
        // Sent again, it would decide the next action.
        UserCommand::Confirm { action: None, .. } | UserCommand::Reject { action: None, .. }
            if request.id.is_some() =>
        {
            Err(InvalidRequest::new(
                "action",
                "must be named if the command has an id",
            ))
        }
        UserCommand::Reject { reason, .. } => check_length("reason", reason, MAX_REASON_BYTES),
        UserCommand::SetTitle { title } if title.trim().is_empty() => {
            let problem = format_args!("must have 1 to {MAX_TITLE_BYTES} bytes");
            Err(InvalidRequest::new("title", problem))
        }
        UserCommand::SetTitle { title } => check_title("title", title),
        UserCommand::SetModel { model } => check_model_name(model),
        UserCommand::GiveFeedback(FeedbackGiven { version, email, .. }) => {
            check_length("version", version, MAX_FEEDBACK_BYTES)?;
            check_length("email", email, MAX_FEEDBACK_BYTES)
        }
        UserCommand::Resume {
            more_budget: Some(budget),
            ..
        } if !budget.is_finite() || *budget < 0.0 => {
            Err(InvalidRequest::new("more_budget", "must not be negative"))
        }
        UserCommand::Stop
        | UserCommand::Pause
        | UserCommand::Resume { .. }
        | UserCommand::AwaitMessage
        | UserCommand::RecoverFromLoop { .. }
        | UserCommand::Confirm { .. }
        | UserCommand::SetConfirmation { .. } => Ok(()),
    }
}

/// Checks the message of a user, and removes what only agents have.
pub(crate) fn check_sent(message: &mut MessageAction) -> Result<(), InvalidRequest> {
    let images = message.image_urls.as_deref().unwrap_or_default();
    if message.content.trim().is_empty() && images.is_empty() {
        return Err(InvalidRequest::new("message", "must not be empty"));
    }
    message.wait_for_response = false;
    message.security_risk = SecurityRisk::default();
    check_message("message", message)
}

/// Checks a message. `field` is the name of its text in the request.
///
/// # Errors
/// The text or the images are too long.
pub fn check_message(field: &str, message: &MessageAction) -> Result<(), InvalidRequest> {
    check_text(field, &message.content)?;
    let urls = [&message.image_urls, &message.file_urls];
    let bytes: usize = urls.into_iter().flatten().flatten().map(String::len).sum();
    if bytes > MAX_IMAGE_BYTES {
        let problem = format_args!("must have at most {MAX_IMAGE_BYTES} bytes together");
        return Err(InvalidRequest::new("image_urls", problem));
    }
    Ok(())
}

/// Checks the text of a message, or instructions.
///
/// # Errors
/// It is too long.
pub fn check_text(field: &str, text: &str) -> Result<(), InvalidRequest> {
    check_length(field, text, MAX_TEXT_BYTES)
}

/// Checks a title.
///
/// # Errors
/// It is too long.
pub fn check_title(field: &str, title: &str) -> Result<(), InvalidRequest> {
    check_length(field, title, MAX_TITLE_BYTES)
}

/// Checks the name of a model.
pub(crate) fn check_model_name(model: &str) -> Result<(), InvalidRequest> {
    if model.trim() != model || model.is_empty() || model.contains(char::is_control) {
        let problem = "must be a name without spaces around it";
        return Err(InvalidRequest::new("model", problem));
    }
    check_length("model", model, MAX_MODEL_BYTES)
}

/// Checks the maximum number of items of a page.
pub(crate) fn check_limit(limit: usize, max: usize) -> Result<(), InvalidRequest> {
    if !(1..=max).contains(&limit) {
        let problem = format_args!("must be 1 to {max}");
        return Err(InvalidRequest::new("limit", problem));
    }
    Ok(())
}

fn check_length(field: &str, text: &str, max: usize) -> Result<(), InvalidRequest> {
    if text.len() > max {
        let problem = format_args!("must have at most {max} bytes");
        return Err(InvalidRequest::new(field, problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::EventId;

    use super::*;

    #[test]
    fn texts_of_commands_have_maximum_lengths() {
        let reject = |length| UserCommand::Reject {
            action: Some(EventId(1)),
            reason: "x".repeat(length),
        };
        let title = |length| UserCommand::SetTitle {
            title: "x".repeat(length),
        };
        let message = |length| UserCommand::message("x".repeat(length));
        for (command, max) in [
            (&reject as &dyn Fn(usize) -> UserCommand, MAX_REASON_BYTES),
            (&title, MAX_TITLE_BYTES),
            (&message, MAX_TEXT_BYTES),
        ] {
            assert_eq!(check_command(&mut command(max).into()), Ok(()));
            assert!(check_command(&mut command(max + 1).into()).is_err());
        }
        assert!(check_command(&mut title(0).into()).is_err());
        assert!(check_command(&mut message(0).into()).is_err());
    }

    #[test]
    fn decision_with_an_id_names_its_action() {
        let request = |id: Option<&str>, action| CommandRequest {
            id: id.map(|id| id.parse().unwrap()),
            command: UserCommand::confirm(action),
        };
        let is_valid = |mut request| check_command(&mut request).is_ok();
        assert!(is_valid(request(None, None)) && is_valid(request(Some("a"), Some(EventId(1)))));
        assert!(!is_valid(request(Some("a"), None)));
    }
}

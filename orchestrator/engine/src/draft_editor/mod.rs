//! V0's draft-based editing: an agent outlines the new content of some lines, and a possibly
//! cheaper model turns the draft into an edit.
//!
//! This module only reads the file. The result is an edit for the editor that replaces exactly the
//! text that was read, so that concurrent changes are not overwritten. The edit is logged before
//! the sandbox performs it under the action's id. Therefore a crash repeats neither the model call
//! nor the edit. A crash before that restarts the draft, which has had no effect yet.

mod lines;
#[cfg(test)]
mod tests;

use std::time::Duration;

use protocol::action::{EditAction, EditCommand, ReadAction};
use protocol::observation::EditObservation;
use protocol::sandbox_api::{ActionRequest, FileKind, SandboxAction};
use protocol::{ActionId, ObservationKind};
use tokio::time::timeout;
use uuid::Uuid;

use crate::agent::ModelCall;
use crate::llm::{ChatMessage, Llm, LlmRequest, MessagePart};
use crate::sandbox::{Sandbox, SandboxError};
use lines::{DraftLines, DraftPlan, MAX_RANGE_BYTES, plan};

/// Maximum length of a file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

const INSTRUCTIONS: &str = include_str!("instructions.md");

/// Upper bound of the path and the fixed text of a request, in bytes.
const MAX_FRAME_BYTES: usize = 8 << 10;

/// The timeout of reading the file: a mount that hangs must not block the agent.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The result of a draft.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftResult {
    /// The model call, if it succeeded.
    pub call: Option<ModelCall>,
    /// The edit that replaces the draft, or the reason of the failure, for the agent.
    pub edit: Result<Box<EditAction>, String>,
}

impl DraftResult {
    /// Creates the result of a failure without a model call.
    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self {
            call: None,
            edit: Err(reason.into()),
        }
    }
}

/// Returns the maximum cost of a draft, in US dollars, before the file is read.
pub(crate) fn max_cost(llm: &dyn Llm) -> f64 {
    let max_tokens = INSTRUCTIONS.len() + 2 * MAX_RANGE_BYTES + MAX_FRAME_BYTES;
    llm.max_cost(u64::try_from(max_tokens).unwrap_or(u64::MAX))
}

/// Turns a draft into an edit. Dropping the future cancels the model call.
///
/// # Errors
/// The sandbox failed. The file is unchanged.
pub(crate) async fn resolve(
    draft: &EditAction,
    request: &ActionRequest,
    sandbox: &dyn Sandbox,
    llm: &dyn Llm,
) -> Result<DraftResult, SandboxError> {
    let content = timeout(READ_TIMEOUT, read_file(draft, request, sandbox)).await;
    let text = match content {
        Ok(content) => content?,
        Err(_) => Err(format!(
            "the file cannot be read in {} seconds",
            READ_TIMEOUT.as_secs()
        )),
    };
    let plan = text.and_then(|text| match text {
        Some(text) => plan(draft, text),
        None => Ok(DraftPlan::Edit(create_file(draft))),
    });
    Ok(match plan {
        Err(reason) => DraftResult::failed(reason),
        Ok(DraftPlan::Edit(edit)) => DraftResult {
            call: None,
            edit: Ok(Box::new(edit)),
        },
        Ok(DraftPlan::Rewrite(lines)) => rewrite(draft, &lines, llm).await,
    })
}

fn create_file(draft: &EditAction) -> EditAction {
    EditAction {
        command: EditCommand::Create,
        file_text: Some(draft.content.clone()),
        ..draft.clone()
    }
}

/// Reconstructs the edit of a draft from its observation, without a model. `None` if there was no
/// edit.
pub(crate) fn reconstruct(draft: &EditAction, observation: &EditObservation) -> Option<EditAction> {
    let (old, new) = (
        observation.old_content.clone(),
        observation.new_content.as_deref()?,
    );
    match old
        .filter(|_| observation.prev_exist)
        .map(|old| plan(draft, old))
    {
        None => Some(create_file(draft)),
        Some(Ok(DraftPlan::Edit(edit))) => Some(edit),
        Some(Ok(DraftPlan::Rewrite(lines))) => lines.reconstruct(draft, new),
        Some(Err(_)) => None,
    }
}

/// Returns the content of the file, or the reason why it cannot be edited. `None` if the file does
/// not exist.
async fn read_file(
    draft: &EditAction,
    request: &ActionRequest,
    sandbox: &dyn Sandbox,
) -> Result<Result<Option<String>, String>, SandboxError> {
    let path = &draft.path;
    if !path.starts_with('/') {
        return Ok(Err(format!("the path {path} is not absolute")));
    }
    match sandbox.files()?.status(path).await? {
        None => return Ok(Ok(None)),
        Some(status) if status.kind != FileKind::File => {
            return Ok(Err(format!("{path} is not a file")));
        }
        Some(status) if status.size > MAX_FILE_BYTES => {
            let size = status.size;
            return Ok(Err(format!(
                "{path} is too large: it has {size} bytes, and the limit is {MAX_FILE_BYTES}; use the shell"
            )));
        }
        Some(_) => {}
    }
    // A new id, because the result of an earlier attempt may be outdated. An action, so that
    // secrets are redacted.
    let id = ActionId::try_from(format!("draft-{}", Uuid::now_v7().simple()));
    let id = id.map_err(|error| SandboxError::Malformed {
        detail: error.to_string(),
    })?;
    let read = ActionRequest {
        action: SandboxAction::Read(ReadAction::whole_file(path.clone())),
        ..request.clone()
    };
    let observation = sandbox.execute(&id, &read, &|_| ()).await?;
    Ok(match observation.kind {
        // The content of a binary file is a data URL.
        ObservationKind::Read(_) if is_data_url(&observation.content) => {
            Err(format!("{path} is not text"))
        }
        ObservationKind::Read(_) => Ok(Some(observation.content)),
        _ => Err(format!(
            "{path} cannot be read as text: {}",
            observation.content
        )),
    })
}

fn is_data_url(text: &str) -> bool {
    text.starts_with("data:") && text.contains(";base64,") && !text.contains('\n')
}

async fn rewrite(draft: &EditAction, lines: &DraftLines, llm: &dyn Llm) -> DraftResult {
    let messages = vec![
        ChatMessage::System(INSTRUCTIONS.to_owned()),
        ChatMessage::User(vec![MessagePart::Text(lines.prompt(draft))]),
    ];
    match llm
        .complete(
            &LlmRequest {
                messages,
                tools: Vec::new(),
            },
            &|_| (),
        )
        .await
    {
        Ok(completion) => DraftResult {
            edit: lines
                .parse_response(draft, &completion.response.message.text)
                .map(Box::new),
            call: Some(ModelCall::from(&completion)),
        },
        Err(error) => DraftResult::failed(format!("the model that applies drafts failed: {error}")),
    }
}

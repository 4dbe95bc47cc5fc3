//! V0's editing by draft: an agent says roughly what lines of a file are to become, and a model, perhaps a cheaper one,
//! writes them out.
//!
//! It only reads. What comes of it is an edit of the editor's own, which takes the place of the draft: it replaces exactly
//! the text that was read, so that nothing is overwritten that has changed meanwhile. That edit is in the log before the
//! sandbox is asked for it under the action's id, so that a crash neither asks the model for it again nor writes it twice.
//! A draft that is cut off before is begun anew: until then nothing has happened.

mod lines;
#[cfg(test)]
mod tests;

use std::time::Duration;

use protocol::action::{EditAction, ReadAction};
use protocol::observation::EditObservation;
use protocol::sandbox_api::{ActionRequest, FileKind, SandboxAction};
use protocol::{ActionId, ObservationKind};
use tokio::time::timeout;
use uuid::Uuid;

use crate::agent::ModelCall;
use crate::llm::{ChatMessage, Llm, LlmRequest, MessagePart};
use crate::sandbox::{Sandbox, SandboxError};
use lines::{LONGEST, Lines, Plan, plan};

/// The longest file that is edited so, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

const INSTRUCTIONS: &str = include_str!("instructions.md");

/// More than the longest path and the words around what the model is told, in bytes.
const FRAME: usize = 8 << 10;

/// How long looking at the file may take: a mount that hangs must not hold the agent.
const LOOKING: Duration = Duration::from_secs(60);

/// What came of a draft.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftResult {
    /// What asking the model took, if it answered.
    pub call: Option<ModelCall>,
    /// The edit that takes the draft's place, or why there is none: the end of a sentence, for the agent.
    pub edit: Result<Box<EditAction>, String>,
}

impl DraftResult {
    /// It came to nothing, and no model answered.
    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self { call: None, edit: Err(why.into()) }
    }
}

/// What writing out a draft can cost at most, in US dollars. The file is still to be looked at.
pub(crate) fn max_cost(llm: &dyn Llm) -> f64 {
    let told = INSTRUCTIONS.len() + 2 * LONGEST + FRAME;
    llm.max_cost(u64::try_from(told).unwrap_or(u64::MAX))
}

/// Finds the edit that a draft stands for. Dropping the future cancels the model's call.
///
/// # Errors
/// The sandbox's; with none of them the file was touched.
pub(crate) async fn write_out(
    draft: &EditAction,
    request: &ActionRequest,
    sandbox: &dyn Sandbox,
    llm: &dyn Llm,
) -> Result<DraftResult, SandboxError> {
    let looked = timeout(LOOKING, look(draft, request, sandbox)).await;
    let text = match looked {
        Ok(looked) => looked?,
        Err(_) => Err(format!("the file cannot be read in {} seconds", LOOKING.as_secs())),
    };
    let plan = text.and_then(|text| match text {
        Some(text) => plan(draft, text),
        None => Ok(Plan::Edit(created(draft))),
    });
    Ok(match plan {
        Err(why) => DraftResult::refused(why),
        Ok(Plan::Edit(edit)) => DraftResult { call: None, edit: Ok(Box::new(edit)) },
        Ok(Plan::Rewrite(lines)) => ask(draft, &lines, llm).await,
    })
}

fn created(draft: &EditAction) -> EditAction {
    EditAction { command: "create".into(), file_text: Some(draft.content.clone()), ..draft.clone() }
}

/// The edit that a draft came to once, by what was told of it: no model is asked for it again. Nothing if it came to none.
pub(crate) fn as_written_out(draft: &EditAction, told: &EditObservation) -> Option<EditAction> {
    let (old, new) = (told.old_content.clone(), told.new_content.as_deref()?);
    match old.filter(|_| told.prev_exist).map(|old| plan(draft, old)) {
        None => Some(created(draft)),
        Some(Ok(Plan::Edit(edit))) => Some(edit),
        Some(Ok(Plan::Rewrite(lines))) => lines.made(draft, new),
        Some(Err(_)) => None,
    }
}

/// The file's text, or why it is not edited; nothing when there is no file.
async fn look(
    draft: &EditAction,
    request: &ActionRequest,
    sandbox: &dyn Sandbox,
) -> Result<Result<Option<String>, String>, SandboxError> {
    let path = &draft.path;
    if !path.starts_with('/') {
        return Ok(Err(format!("the path {path} is not absolute")));
    }
    match sandbox.status(path).await? {
        None => return Ok(Ok(None)),
        Some(status) if status.kind != FileKind::File => return Ok(Err(format!("{path} is no file"))),
        Some(status) if status.size > MAX_FILE_BYTES => {
            let size = status.size;
            return Ok(Err(format!(
                "{path} is too large: it has {size} bytes, and {MAX_FILE_BYTES} are edited so at most; use the shell"
            )));
        }
        Some(_) => {}
    }
    // By an id of its own: what was read for an earlier try may have changed. As an action, so that secrets are hidden.
    let id = ActionId::try_from(format!("draft-{}", Uuid::now_v7().simple()));
    let id = id.map_err(|error| SandboxError::Malformed { detail: error.to_string() })?;
    let reading = ActionRequest {
        action: SandboxAction::Read(ReadAction::whole_file(path.clone())),
        ..request.clone()
    };
    let read = sandbox.execute(&id, &reading, &|_| ()).await?;
    Ok(match read.kind {
        // What is no text is answered as one URL.
        ObservationKind::Read(_) if is_data_url(&read.content) => Err(format!("{path} is not text")),
        ObservationKind::Read(_) => Ok(Some(read.content)),
        _ => Err(format!("{path} cannot be read as text: {}", read.content)),
    })
}

fn is_data_url(text: &str) -> bool {
    text.starts_with("data:") && text.contains(";base64,") && !text.contains('\n')
}

async fn ask(draft: &EditAction, lines: &Lines, llm: &dyn Llm) -> DraftResult {
    let messages = vec![
        ChatMessage::System(INSTRUCTIONS.to_owned()),
        ChatMessage::User(vec![MessagePart::Text(lines.told(draft))]),
    ];
    match llm.complete(&LlmRequest { messages, tools: Vec::new() }, &|_| ()).await {
        Ok(completion) => DraftResult {
            edit: lines.rewritten(draft, completion.response.text()).map(Box::new),
            call: Some(ModelCall::from(&completion)),
        },
        Err(error) => DraftResult::refused(format!("the model that writes drafts out failed: {error}")),
    }
}

//! Validates the observation of an action before it is used on the host. Pure.
//!
//! A compromised server must not fill the event log or the memory of the host. Therefore the kind
//! must fit the action, and texts and images are truncated to sizes that a server of ours does not
//! exceed.

use std::borrow::Cow;

use engine::sandbox::SandboxError;
use engine::truncate::cut_middle;
use protocol::observation::{CommandMetadata, EditObservation, RunIpythonObservation};
use protocol::sandbox_api::SandboxAction;
use protocol::{Observation, ObservationKind};

/// Maximum length of a long text: output for an agent, the text of an action, a file before and
/// after an edit. A hidden command may output a million characters, and a draft may be a file of 1
/// MiB.
const MAX_TEXT_CHARS: usize = 2 << 20;

/// Maximum length of the notes before and after a command's output.
const MAX_NOTE_CHARS: usize = 4_000;

/// Maximum length of a path. The kernel's limit is 4096 bytes.
const MAX_PATH_CHARS: usize = 4_096;

/// Maximum length of a user name or a host name.
const MAX_NAME_CHARS: usize = 256;

/// Maximum number of images, and of their total length. The same limits as for the result of an MCP
/// tool.
const MAX_IMAGES: usize = 8;
const MAX_IMAGE_CHARS: usize = 4 << 20;

/// Returns the observation with all fields truncated to their limits.
///
/// # Errors
/// [`SandboxError::Malformed`] if the kind of the observation does not fit the action.
pub(super) fn validate(
    action: &SandboxAction,
    observation: Observation,
) -> Result<Observation, SandboxError> {
    let Observation {
        mut content,
        mut kind,
    } = observation;
    if !action.accepts(&kind) {
        let (action, kind) = (action.kind(), kind.kind());
        return Err(SandboxError::Malformed {
            detail: format!(
                "an observation of the kind `{kind}` does not answer the action `{action}`"
            ),
        });
    }
    truncate(&mut content, MAX_TEXT_CHARS);
    match &mut kind {
        ObservationKind::Run(run) => {
            truncate(&mut run.command, MAX_TEXT_CHARS);
            truncate_metadata(&mut run.metadata);
        }
        ObservationKind::RunIpython(cell) => truncate_cell(cell),
        ObservationKind::Read(read) => truncate(&mut read.path, MAX_PATH_CHARS),
        ObservationKind::Write(write) => truncate(&mut write.path, MAX_PATH_CHARS),
        ObservationKind::Edit(edit) => truncate_edit(edit),
        ObservationKind::Error(error) => truncate(&mut error.error_id, MAX_NAME_CHARS),
        _ => {}
    }
    Ok(Observation { content, kind })
}

fn truncate_metadata(metadata: &mut CommandMetadata) {
    truncate(&mut metadata.prefix, MAX_NOTE_CHARS);
    truncate(&mut metadata.suffix, MAX_NOTE_CHARS);
    for name in [&mut metadata.username, &mut metadata.hostname]
        .into_iter()
        .flatten()
    {
        truncate(name, MAX_NAME_CHARS);
    }
    for path in [&mut metadata.working_dir, &mut metadata.py_interpreter_path]
        .into_iter()
        .flatten()
    {
        truncate(path, MAX_PATH_CHARS);
    }
}

fn truncate_cell(cell: &mut RunIpythonObservation) {
    truncate(&mut cell.code, MAX_TEXT_CHARS);
    let mut chars_left = MAX_IMAGE_CHARS;
    if let Some(images) = &mut cell.image_urls {
        images.truncate(MAX_IMAGES);
        // Dropped and not truncated: a part of an image cannot be decoded.
        images.retain(|image| {
            let fits = image.len() <= chars_left;
            if fits {
                chars_left -= image.len();
            }
            fits
        });
    }
}

fn truncate_edit(edit: &mut EditObservation) {
    truncate(&mut edit.path, MAX_PATH_CHARS);
    // Dropped and not truncated: the content of a file must be complete.
    for text in [
        &mut edit.old_content,
        &mut edit.new_content,
        &mut edit.diff,
        &mut edit.diff_cache,
    ] {
        text.take_if(|text| text.len() > MAX_TEXT_CHARS);
    }
}

fn truncate(text: &mut String, max_chars: usize) {
    if let Cow::Owned(shorter) = cut_middle(text, max_chars) {
        *text = shorter;
    }
}

#[cfg(test)]
mod tests {
    use protocol::action::{EditAction, EditCommand, ReadAction, RunAction};
    use protocol::observation::{BrowseObservation, ReadObservation, RunObservation};

    use super::*;

    const LONG: usize = 3 * MAX_TEXT_CHARS;

    fn long() -> String {
        "x".repeat(LONG)
    }

    fn length(observation: &Observation) -> usize {
        serde_json::to_string(observation).unwrap().len()
    }

    #[test]
    fn long_texts_are_truncated() {
        let metadata = CommandMetadata {
            prefix: long(),
            suffix: long(),
            username: Some(long()),
            hostname: Some(long()),
            working_dir: Some(long()),
            py_interpreter_path: Some(long()),
            ..CommandMetadata::default()
        };
        let run = RunObservation {
            command: long(),
            metadata,
            hidden: false,
        };
        let run = validate(
            &SandboxAction::Run(RunAction::default()),
            Observation::new(long(), run),
        )
        .unwrap();
        // The serialized message contains the command once more.
        assert!(
            length(&run) < 3 * MAX_TEXT_CHARS + (64 << 10),
            "{}",
            length(&run)
        );
        assert!(
            run.content
                .contains("\n[... Observation truncated due to length ...]\n")
        );

        let read = ReadObservation {
            path: long(),
            ..ReadObservation::default()
        };
        let action = SandboxAction::Read(ReadAction::whole_file("/a"));
        let read = validate(&action, Observation::new(long(), read)).unwrap();
        assert!(
            length(&read) < MAX_TEXT_CHARS + (64 << 10),
            "{}",
            length(&read)
        );

        let error = Observation::error(long(), long());
        let error = validate(&action, error).unwrap();
        assert!(
            length(&error) < 2 * MAX_TEXT_CHARS + (64 << 10),
            "{}",
            length(&error)
        );
    }

    #[test]
    fn images_are_dropped_when_too_many_or_too_long() {
        let image = |length: usize| format!("data:image/png;base64,{}", "A".repeat(length));
        let mut images = vec![image(MAX_IMAGE_CHARS), image(9)];
        images.extend(vec![String::new(); 1 << 20]);
        let cell = RunIpythonObservation {
            code: String::new(),
            image_urls: Some(images),
        };
        let action = SandboxAction::RunIpython(serde_json::from_str(r#"{"code":""}"#).unwrap());
        let cell = validate(&action, Observation::without_content(cell)).unwrap();
        let ObservationKind::RunIpython(cell) = cell.kind else {
            panic!("{cell:?}")
        };
        let images = cell.image_urls.unwrap();
        assert_eq!((images.len(), &images[0]), (MAX_IMAGES - 1, &image(9)));
    }

    #[test]
    fn file_content_is_dropped_from_an_edit_when_too_long() {
        let old_content = Some("kept".to_owned());
        let edit = EditObservation {
            old_content: old_content.clone(),
            new_content: Some(long()),
            diff: Some(long()),
            ..EditObservation::default()
        };
        let action = SandboxAction::Edit(EditAction::new("/a", EditCommand::Create));
        let edit = validate(&action, Observation::without_content(edit)).unwrap();
        let expected = EditObservation {
            old_content,
            ..EditObservation::default()
        };
        assert_eq!(edit, Observation::without_content(expected));
    }

    #[test]
    fn observation_is_rejected_when_its_kind_does_not_fit() {
        let page = Observation::without_content(BrowseObservation::default());
        let error = validate(&SandboxAction::Run(RunAction::default()), page).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the action server sent a malformed response: an observation of the kind `browse` \
             does not answer the action `run`"
        );
    }
}

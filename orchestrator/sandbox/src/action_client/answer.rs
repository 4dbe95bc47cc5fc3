//! Checks how a sandbox answers an action, before anything on the host sees it. Pure.
//!
//! The kind must be one that answers the action, and every text and image is cut to a size that an honest server keeps:
//! whoever has taken over a server fills neither the host's log nor its memory.

use engine::sandbox::SandboxError;
use engine::truncate::cut_middle;
use protocol::observation::{CommandMetadata, EditObservation, RunIpythonObservation};
use protocol::sandbox_api::SandboxAction;
use protocol::{Observation, ObservationKind};

/// Maximum length of one long text: what is shown to an agent, an action's own text, a file before and after an edit.
/// The million characters of a hidden command and a draft's file of a mebibyte fit.
const MAX_TEXT_CHARS: usize = 2 << 20;

/// Maximum length of the text before and after a command's output.
const MAX_NOTE_CHARS: usize = 4_000;

/// Maximum length of a path. The kernel's limit is 4096 bytes.
const MAX_PATH_CHARS: usize = 4_096;

/// Maximum length of a user's or a host's name.
const MAX_NAME_CHARS: usize = 256;

/// Maximum number of images, and of their characters together: as many as an MCP server's answer may have.
const MAX_IMAGES: usize = 8;
const MAX_IMAGE_CHARS: usize = 4 << 20;

/// The answer within its bounds.
///
/// # Errors
/// [`SandboxError::Malformed`] if an observation of this kind does not answer the action.
pub(super) fn check(action: &SandboxAction, answer: Observation) -> Result<Observation, SandboxError> {
    let Observation { mut content, mut kind } = answer;
    if !action.accepts(&kind) {
        let (action, kind) = (action.kind(), kind.kind());
        return Err(SandboxError::Malformed {
            detail: format!("an observation of the kind `{kind}` does not answer the action `{action}`"),
        });
    }
    cut(&mut content, MAX_TEXT_CHARS);
    match &mut kind {
        ObservationKind::Run(run) => {
            cut(&mut run.command, MAX_TEXT_CHARS);
            cut_metadata(&mut run.metadata);
        }
        ObservationKind::RunIpython(cell) => cut_cell(cell),
        ObservationKind::Read(read) => cut(&mut read.path, MAX_PATH_CHARS),
        ObservationKind::Write(write) => cut(&mut write.path, MAX_PATH_CHARS),
        ObservationKind::Edit(edit) => cut_edit(edit),
        ObservationKind::Error(error) => cut(&mut error.error_id, MAX_NAME_CHARS),
        _ => {}
    }
    Ok(Observation { content, kind })
}

fn cut_metadata(metadata: &mut CommandMetadata) {
    cut(&mut metadata.prefix, MAX_NOTE_CHARS);
    cut(&mut metadata.suffix, MAX_NOTE_CHARS);
    for name in [&mut metadata.username, &mut metadata.hostname].into_iter().flatten() {
        cut(name, MAX_NAME_CHARS);
    }
    for path in [&mut metadata.working_dir, &mut metadata.py_interpreter_path].into_iter().flatten() {
        cut(path, MAX_PATH_CHARS);
    }
}

fn cut_cell(cell: &mut RunIpythonObservation) {
    cut(&mut cell.code, MAX_TEXT_CHARS);
    let mut room = MAX_IMAGE_CHARS;
    if let Some(images) = &mut cell.image_urls {
        images.truncate(MAX_IMAGES);
        // Half an image is none.
        images.retain(|image| match room.checked_sub(image.len()) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        });
    }
}

fn cut_edit(edit: &mut EditObservation) {
    cut(&mut edit.path, MAX_PATH_CHARS);
    // A file without its middle is another file.
    for text in [&mut edit.old_content, &mut edit.new_content, &mut edit.diff, &mut edit.diff_cache] {
        text.take_if(|text| text.len() > MAX_TEXT_CHARS);
    }
}

fn cut(text: &mut String, max_chars: usize) {
    if let std::borrow::Cow::Owned(shorter) = cut_middle(text, max_chars) {
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
    fn an_answer_that_is_far_too_long_is_cut_to_its_bounds() {
        let metadata = CommandMetadata {
            prefix: long(),
            suffix: long(),
            username: Some(long()),
            hostname: Some(long()),
            working_dir: Some(long()),
            py_interpreter_path: Some(long()),
            ..CommandMetadata::default()
        };
        let run = RunObservation { command: long(), metadata, hidden: false };
        let run = check(&SandboxAction::Run(RunAction::default()), Observation::new(long(), run)).unwrap();
        // The message quotes the command once more.
        assert!(length(&run) < 3 * MAX_TEXT_CHARS + (64 << 10), "{}", length(&run));
        assert!(run.content.contains("\n[... Observation truncated due to length ...]\n"));

        let read = ReadObservation { path: long(), ..ReadObservation::default() };
        let action = SandboxAction::Read(ReadAction::whole_file("/a"));
        let read = check(&action, Observation::new(long(), read)).unwrap();
        assert!(length(&read) < MAX_TEXT_CHARS + (64 << 10), "{}", length(&read));

        let error = Observation::error(long(), long());
        let error = check(&action, error).unwrap();
        assert!(length(&error) < 2 * MAX_TEXT_CHARS + (64 << 10), "{}", length(&error));
    }

    #[test]
    fn too_many_images_and_too_long_ones_are_left_out() {
        let image = |length: usize| format!("data:image/png;base64,{}", "A".repeat(length));
        let mut images = vec![image(MAX_IMAGE_CHARS), image(9)];
        images.extend(vec![String::new(); 1 << 20]);
        let cell = RunIpythonObservation { code: String::new(), image_urls: Some(images) };
        let action = SandboxAction::RunIpython(serde_json::from_str(r#"{"code":""}"#).unwrap());
        let cell = check(&action, Observation::without_content(cell)).unwrap();
        let ObservationKind::RunIpython(cell) = cell.kind else { panic!("{cell:?}") };
        let images = cell.image_urls.unwrap();
        assert_eq!((images.len(), &images[0]), (MAX_IMAGES - 1, &image(9)));
    }

    #[test]
    fn a_file_that_is_too_long_is_left_out_of_an_edit() {
        let old_content = Some("kept".to_owned());
        let edit = EditObservation {
            old_content: old_content.clone(),
            new_content: Some(long()),
            diff: Some(long()),
            ..EditObservation::default()
        };
        let action = SandboxAction::Edit(EditAction::new("/a", EditCommand::Create));
        let edit = check(&action, Observation::without_content(edit)).unwrap();
        let expected = EditObservation { old_content, ..EditObservation::default() };
        assert_eq!(edit, Observation::without_content(expected));
    }

    #[test]
    fn a_page_does_not_answer_a_command() {
        let page = Observation::without_content(BrowseObservation::default());
        let error = check(&SandboxAction::Run(RunAction::default()), page).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the action server sent a malformed response: an observation of the kind `browse` \
             does not answer the action `run`"
        );
    }
}

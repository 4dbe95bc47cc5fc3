//! `create`: a new file, never over an existing one. There is nothing to undo it to.

use std::path::Path;

use super::{Change, EditError, Outcome};
use crate::files::{Files, replace};

pub(super) fn create(files: &Files, path: &Path, text: &str) -> Result<Outcome, EditError> {
    let target = files.target(path).map_err(EditError::File)?;
    let _changing = files.change(&target);
    if target.metadata().is_ok() {
        return Err(EditError::Exists { path: path.to_owned() });
    }
    replace::replace(&target, text.as_bytes()).map_err(EditError::File)?;
    Ok(Outcome {
        content: format!("File created successfully at: {}", path.display()),
        change: Some(Change { old: None, new: text.as_bytes().to_vec() }),
    })
}

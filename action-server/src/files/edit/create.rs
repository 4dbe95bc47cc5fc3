//! `create`: writes a new file. Never overwrites an existing one. It cannot be undone.

use std::path::Path;

use super::{EditError, EditOutcome, FileChange};
use crate::files::{Files, replace};

pub(super) fn create(files: &Files, path: &Path, text: &str) -> Result<EditOutcome, EditError> {
    let target = files.resolve_target(path).map_err(EditError::File)?;
    let _lock = files.lock(&target);
    if target.metadata().is_ok() {
        return Err(EditError::Exists {
            path: path.to_owned(),
        });
    }
    replace::replace(&target, text.as_bytes()).map_err(EditError::File)?;
    Ok(EditOutcome {
        content: format!("File created successfully at: {}", path.display()),
        change: Some(FileChange {
            old: None,
            new: text.as_bytes().to_vec(),
        }),
    })
}

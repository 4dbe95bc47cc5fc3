//! Cases for file actions: write, read and edit.

use protocol::action::{EditAction, EditCommand, ReadAction, WriteAction};
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{Observation, ObservationKind, SecurityRisk};

use super::{Backend, create_sandbox, id, remove, run};
use engine::sandbox::Sandbox;

async fn perform(sandbox: &dyn Sandbox, number: u32, action: SandboxAction) -> Observation {
    let request = ActionRequest::new(action, Some(30.0));
    sandbox
        .execute(&id(number), &request, &|_| {})
        .await
        .unwrap()
}

/// A file is written, read and edited, and the shell sees the result.
pub async fn file_is_written_read_and_edited(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    let path = format!("{}/note.txt", sandbox.lease().working_dir);
    let write = WriteAction {
        path: path.clone(),
        content: "one\ntwo\n".into(),
        start: 0,
        end: -1,
        thought: String::new(),
        security_risk: SecurityRisk::default(),
    };
    let written = perform(&*sandbox, 1, SandboxAction::Write(write)).await;
    assert!(
        matches!(written.kind, ObservationKind::Write(_)),
        "{written:?}"
    );

    let read = perform(
        &*sandbox,
        2,
        SandboxAction::Read(ReadAction::whole_file(&path)),
    )
    .await;
    assert!(matches!(read.kind, ObservationKind::Read(_)), "{read:?}");
    assert_eq!(read.content.trim_end(), "one\ntwo");

    let mut edit = EditAction::new(&path, EditCommand::StrReplace);
    (edit.old_str, edit.new_str) = (Some("two".into()), Some("three".into()));
    let edited = perform(&*sandbox, 3, SandboxAction::Edit(edit)).await;
    assert!(
        matches!(edited.kind, ObservationKind::Edit(_)),
        "{edited:?}"
    );
    assert_eq!(
        run(&*sandbox, 4, "cat note.txt")
            .await
            .content
            .trim()
            .replace("\r\n", "\n"),
        "one\nthree"
    );

    let missing = perform(
        &*sandbox,
        5,
        SandboxAction::Read(ReadAction::whole_file("no-such-file")),
    )
    .await;
    assert!(
        matches!(missing.kind, ObservationKind::Error(_)),
        "{missing:?}"
    );
    remove(backend, sandbox).await;
}

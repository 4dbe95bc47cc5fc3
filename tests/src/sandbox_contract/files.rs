//! Cases for file actions: write, read and edit.

use std::io::Cursor;

use protocol::action::{EditAction, EditCommand, ReadAction, WriteAction};
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{Observation, ObservationKind, SecurityRisk};
use tokio::io::AsyncReadExt as _;

use super::{Backend, create_sandbox, error, id, remove, run};
use engine::sandbox::{Sandbox, SandboxError, TransferKind};

async fn perform(sandbox: &dyn Sandbox, number: u32, action: SandboxAction) -> Observation {
    let request = ActionRequest::new(action, Some(30.0));
    sandbox
        .execute(&id(number), &request, &|_| {})
        .await
        .unwrap()
}

/// A folder is made, and its files are read in parts, renamed and removed.
pub async fn folder_is_made_and_its_files_renamed(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    let files = sandbox.files().unwrap();
    for _ in 0..2 {
        files.make_folder("made/deep").await.unwrap();
    }
    let content = Box::new(Cursor::new(b"0123456789"));
    let upload = files.upload("made/a b%", TransferKind::File, None, content);
    upload.await.unwrap();
    for (range, expected) in [(2..5, "234"), (8..u64::MAX, "89"), (10..20, ""), (5..5, "")] {
        let mut part = String::new();
        let mut source = files.download_part("made/a b%", range).await.unwrap();
        source.read_to_string(&mut part).await.unwrap();
        assert_eq!(part, expected);
    }
    files
        .upload(
            "made/x",
            TransferKind::File,
            None,
            Box::new(tokio::io::empty()),
        )
        .await
        .unwrap();
    files.rename("made/a b%", "new/c", false).await.unwrap();
    for (from, to) in [("made/x", "new/c"), ("made/a b%", "new/d")] {
        let refused = error(files.rename(from, to, false).await);
        assert!(
            matches!(refused, SandboxError::Refused { .. }),
            "{refused:?}"
        );
    }
    files.rename("made/x", "new/c", true).await.unwrap();
    let refused = error(files.remove("made", false).await);
    assert!(
        matches!(refused, SandboxError::Refused { .. }),
        "{refused:?}"
    );
    files.remove("made", true).await.unwrap();
    for _ in 0..2 {
        files.remove("new/c", false).await.unwrap();
    }
    let left = run(&*sandbox, 1, "[ ! -e made ] && [ ! -e new/c ]").await;
    assert_eq!(left.exit_code, 0, "{left:?}");
    remove(backend, sandbox).await;
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

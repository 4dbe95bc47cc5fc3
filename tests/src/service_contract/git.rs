//! Changes of repositories in workspaces.

use std::fs;
use std::path::Path;
use std::process::Command;

use conversations::ServiceErrorKind::{Denied, NotFound};
use conversations::WorkspaceService;
use protocol::ConversationId;
use protocol::client_api::v2::files::FilePath;
use protocol::client_api::v2::git::{
    ChangeStatus, CompareFile, DiffFiles, FileVersions, GitBase, ListChanges,
};

use super::{ServiceBackend, asked, kind};

/// Runs git in a folder.
fn git(folder: &Path, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=test", "-c", "user.email=test@example.org"])
        .args(arguments)
        .current_dir(folder);
    let output = git.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// Creates a repository with two commits, the first of which is on the remote branch, and
/// uploads it to a folder of a workspace.
async fn upload_repository(service: &dyn WorkspaceService, id: &ConversationId, name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    git(at, &["init", "--quiet", "--initial-branch=main"]);
    for (content, message) in [("one\n", "first"), ("two\n", "second")] {
        fs::write(at.join("a"), content).unwrap();
        fs::write(at.join(message), message).unwrap();
        git(at, &["add", "--all"]);
        git(
            at,
            &["commit", "--quiet", "--no-gpg-sign", "--message", message],
        );
    }
    git(at, &["update-ref", "refs/remotes/origin/main", "HEAD~"]);
    upload(service, id, at, name).await;
}

/// Uploads a folder.
async fn upload(service: &dyn WorkspaceService, id: &ConversationId, from: &Path, to: &str) {
    let mut folders = vec![from.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let below = entry.path().strip_prefix(from).unwrap().to_owned();
            let path = FilePath {
                path: format!("{to}/{}", below.to_str().unwrap()),
            };
            if entry.path().is_dir() {
                service.make_folder(id, path).await.unwrap();
                folders.push(entry.path());
            } else if !entry.path().ends_with(".sample") {
                let content = fs::read(entry.path()).unwrap();
                let content = Box::new(std::io::Cursor::new(content));
                service.write_file(id, path, content).await.unwrap();
            }
        }
    }
}

/// Changes since the remote branch and since the last commit are listed, and shown as a patch and
/// as two versions.
pub async fn changes_are_those_since_a_base(backend: &dyn ServiceBackend) {
    use ChangeStatus::{Added, Deleted, Modified};
    let (service, workspaces) = (
        backend.service(Some("ada")),
        backend.workspaces(Some("ada")),
    );
    let (id, workspaces) = (asked(service.as_ref()).await, workspaces.as_ref());
    let list = async |base| workspaces.list_changes(&id, ListChanges { base }).await;
    let diff = async |path: &str, base| {
        let path = path.to_owned();
        let patch = workspaces.diff_files(&id, DiffFiles { path, base }).await;
        patch.map(|patch| String::from_utf8(patch).unwrap())
    };
    let compare = async |path: &str, base| {
        let path = path.to_owned();
        workspaces
            .compare_file(&id, CompareFile { path, base })
            .await
    };
    assert_eq!(kind(list(GitBase::Head).await), NotFound);
    assert_eq!(kind(diff("", GitBase::Head).await), NotFound);
    upload_repository(workspaces, &id, "app").await;
    for (name, content) in [("a", "three\n"), ("new file", "new\n")] {
        let path = FilePath {
            path: format!("app/{name}"),
        };
        let content = Box::new(content.as_bytes());
        workspaces.write_file(&id, path, content).await.unwrap();
    }
    let removed = protocol::client_api::v2::files::RemoveFile {
        path: "app/first".to_owned(),
        recursive: false,
    };
    workspaces.remove_file(&id, removed).await.unwrap();

    let common = [
        (Modified, "app/a", Some("three\n")),
        (Deleted, "app/first", None),
        (Added, "app/new file", Some("new\n")),
    ];
    let since_remote = [common.as_slice(), &[(Added, "app/second", Some("second"))]].concat();
    for (base, expected, original) in [
        (GitBase::Head, common.as_slice(), "two\n"),
        (GitBase::Remote, &since_remote, "one\n"),
    ] {
        let changes = list(base).await.unwrap().changes;
        let found: Vec<_> = changes
            .iter()
            .map(|c| (c.status, c.path.as_str()))
            .collect();
        let listed: Vec<_> = expected
            .iter()
            .map(|(status, path, _)| (*status, *path))
            .collect();
        assert_eq!(found, listed, "{base:?}");
        let patch = diff("", base).await.unwrap();
        for (status, path, modified) in expected {
            assert!(
                patch.contains(&format!("diff --git a/{path} b/{path}\n")),
                "{patch}"
            );
            let versions = FileVersions {
                modified: modified.map(str::to_owned),
                original: match status {
                    Added => None,
                    Deleted => Some("first".to_owned()),
                    _ => Some(original.to_owned()),
                },
            };
            assert_eq!(compare(path, base).await.unwrap(), versions, "{path}");
        }
        assert_eq!(
            patch.matches("diff --git").count(),
            expected.len(),
            "{patch}"
        );
        assert_eq!(diff("app", base).await.unwrap(), patch);
        let one = diff("app/a", base).await.unwrap();
        let line = format!("-{original}+three\n");
        assert!(
            one.ends_with(&line) && one.matches("diff --git").count() == 1,
            "{one}"
        );
    }
    assert_eq!(kind(compare("app/none", GitBase::Head).await), NotFound);
    assert_eq!(kind(compare("../x", GitBase::Head).await), Denied);
    assert_eq!(kind(diff("../x", GitBase::Head).await), Denied);
    assert_eq!(diff("app/none", GitBase::Head).await.unwrap(), "");
    let ben = backend.workspaces(Some("ben"));
    let of_others = ben.list_changes(&id, ListChanges::default()).await;
    assert_eq!(kind(of_others), NotFound);
    service.delete(&id).await.unwrap();
}

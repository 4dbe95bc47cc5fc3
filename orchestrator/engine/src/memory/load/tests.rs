use std::ops::Range;

use async_trait::async_trait;
use proptest::prelude::*;
use protocol::record::SandboxLeased;
use protocol::sandbox_api::{ActionRequest, FileList, FileMode, FileStatus};
use protocol::{ActionId, Observation};

use super::*;
use crate::memory::{Memory, RecallHistory, WorkspaceFacts};
use crate::sandbox::{ByteSource, OnOutput, SandboxFiles, SandboxProcesses, SandboxStreams};

fn archive(files: &[(&str, &[u8])], links: &[&str]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, *content).unwrap();
    }
    for path in links {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        archive.append_link(&mut header, path, path).unwrap();
    }
    archive.into_inner().unwrap()
}

fn relative_paths(unpacked: &KnowledgeArchive) -> Vec<&str> {
    unpacked
        .files
        .iter()
        .map(|file| file.relative_path.as_str())
        .collect()
}

#[test]
fn markdown_of_an_archive_is_found() {
    let long_name = format!("deep/{}/a.md", "x".repeat(300));
    let files: [(&str, &[u8]); 5] = [
        ("a.md", b"A"),
        ("README.md", b"no"),
        ("b.txt", b"no"),
        (&long_name, b"B"),
        ("pdf/SKILL.md", b"S"),
    ];
    let unpacked = unpack(
        "/w/.openhands/microagents",
        &archive(&files, &["link.md", "link"]),
    );
    assert_eq!(
        relative_paths(&unpacked),
        ["a.md", &long_name, "pdf/SKILL.md"]
    );
    assert_eq!(unpacked.files[0].path, "/w/.openhands/microagents/a.md");
    assert_eq!(
        (unpacked.links, unpacked.problems),
        (vec!["link.md".to_owned()], vec![])
    );
    assert_eq!(
        relative_paths(&unpack("/w/.openhands/skills", &archive(&files, &[]))),
        ["a.md", "pdf/SKILL.md"]
    );
}

#[test]
fn start_of_a_truncated_archive_is_used() {
    let whole = archive(&[("a.md", b"A"), ("b.md", &[b'x'; 2000])], &[]);
    for length in 1024..1024 + 512 + 1999 {
        let unpacked = unpack("f", &whole[..length]);
        assert_eq!(relative_paths(&unpacked), ["a.md"], "{length}");
        assert_eq!(
            unpacked.problems.len(),
            usize::from(length > 1024),
            "{length}"
        );
    }
}

#[test]
fn long_files_are_truncated() {
    let unpacked = unpack(
        "f",
        &archive(&[("a.md", &vec![b'x'; 1 << 20]), ("b.md", b"B")], &[]),
    );
    assert_eq!(
        unpacked.files[0].content.len(),
        MAX_KNOWLEDGE_FILE_BYTES + 1
    );
    assert_eq!(unpacked.files[1].content, b"B");
}

proptest! {
    #[test]
    fn archive_of_random_bytes_is_harmless(flips in prop::collection::vec((0..3072_usize, any::<u8>()), 0..40)) {
        let mut noise = archive(&[("a.md", b"A"), ("b.md", b"B")], &["c.md"]);
        noise.resize(3072, 0);
        for (at, byte) in flips {
            noise[at] = byte;
        }
        let _ = unpack("f", &noise);
    }
}

/// How a sandbox responds to requests about files.
enum FileSupport {
    Unsupported,
    StatusUnsupported,
    Lost,
    /// There is an instructions file, whose download never ends.
    HangingDownload,
}

struct FileSandbox(FileSupport);

#[async_trait]
impl Sandbox for FileSandbox {
    fn lease(&self) -> &SandboxLeased {
        unimplemented!()
    }

    async fn execute(
        &self,
        _: &ActionId,
        _: &ActionRequest,
        _: &OnOutput<'_>,
    ) -> Result<Observation, SandboxError> {
        unimplemented!()
    }

    async fn cancel(&self, _: &ActionId) -> Result<(), SandboxError> {
        Ok(())
    }

    async fn check_connection(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    fn processes(&self) -> Result<&dyn SandboxProcesses, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: "test",
            what: "run programs",
        })
    }

    fn streams(&self) -> Result<&dyn SandboxStreams, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: "test",
            what: "open streams",
        })
    }

    fn files(&self) -> Result<&dyn SandboxFiles, SandboxError> {
        match self.0 {
            FileSupport::Unsupported => self.streams().map(|_| self as _),
            _ => Ok(self),
        }
    }
}

#[async_trait]
impl SandboxFiles for FileSandbox {
    async fn status(&self, path: &str) -> Result<Option<FileStatus>, SandboxError> {
        match self.0 {
            FileSupport::StatusUnsupported => Err(SandboxError::Unsupported {
                runtime: "test",
                what: "inspect files",
            }),
            FileSupport::Lost => Err(SandboxError::Lost {
                detail: "gone".into(),
            }),
            FileSupport::Unsupported => unreachable!(),
            FileSupport::HangingDownload => Ok(path.ends_with("AGENTS.md").then(|| FileStatus {
                path: path.into(),
                kind: FileKind::File,
                size: 1,
                mode: FileMode::from_bits(0),
                uid: 0,
                gid: 0,
                modified_ns: 0,
                target: None,
            })),
        }
    }

    async fn link_status(&self, _: &str) -> Result<Option<FileStatus>, SandboxError> {
        unimplemented!()
    }

    async fn list(&self, _: &str) -> Result<FileList, SandboxError> {
        unimplemented!()
    }

    async fn download(&self, _: &str, _: TransferKind) -> Result<ByteSource, SandboxError> {
        let (reader, writer) = tokio::io::duplex(1);
        // A dropped writer would end the content.
        std::mem::forget(writer);
        Ok(Box::new(reader))
    }

    async fn upload(
        &self,
        _: &str,
        _: TransferKind,
        _: Option<FileMode>,
        _: ByteSource,
    ) -> Result<(), SandboxError> {
        unimplemented!()
    }

    async fn download_part(&self, _: &str, _: Range<u64>) -> Result<ByteSource, SandboxError> {
        unimplemented!()
    }

    async fn make_folder(&self, _: &str) -> Result<(), SandboxError> {
        unimplemented!()
    }

    async fn rename(&self, _: &str, _: &str, _: bool) -> Result<(), SandboxError> {
        unimplemented!()
    }

    async fn remove(&self, _: &str, _: bool) -> Result<(), SandboxError> {
        unimplemented!()
    }
}

async fn problems(support: FileSupport) -> Vec<String> {
    let memory = Memory::default()
        .load(&FileSandbox(support), "/w", "")
        .await;
    assert_eq!(
        memory.recall(
            "anything",
            &WorkspaceFacts::default(),
            &RecallHistory::default()
        ),
        None
    );
    memory.problems().iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn unreadable_sandbox_is_a_reported_problem() {
    for unsupported in [FileSupport::Unsupported, FileSupport::StatusUnsupported] {
        assert_eq!(problems(unsupported).await, Vec::<String>::new());
    }
    let lost = problems(FileSupport::Lost).await;
    assert_eq!(lost.len(), INSTRUCTIONS.len() + FOLDERS.len(), "{lost:?}");
    let slow = problems(FileSupport::HangingDownload).await;
    assert_eq!(
        slow,
        ["/w: its knowledge cannot be read in 30 seconds: it is ignored"]
    );
}

//! `glovebox sandbox cp`: copies files and folders to and from a sandbox.
//!
//! Archives from a sandbox are hostile: see [`unpack`].

mod links;
mod local_path;
mod location;
mod pack;
mod progress;
mod unpack;

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use engine::sandbox::{ByteSource, IncompleteArchive, Sandbox, TransferKind};
use indicatif::HumanBytes;
use protocol::sandbox_api::{FileKind, FileMode, FileStatus, SkippedEntries};
use tokio::io::AsyncReadExt as _;

use super::arguments::RuntimeChoice;
use super::runtimes::SandboxRuntimes;
use crate::cli::interrupts::Interrupts;
use crate::cli::write_status::WriteStatus;
use crate::cli::{print, target_folder};
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};
use crate::untrusted_folder;
use local_path::{Source, Target};
use location::CopyLocation;
use progress::CopyProgress;

/// Size of a read.
const CHUNK_BYTES: usize = 256 << 10;

/// Maximum number of bytes that a file may have grown by while it is copied. Files in `/proc` have
/// no size.
const MAX_GROWTH_BYTES: u64 = 64 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
One of SRC and DST is in a sandbox: NAME:PATH. A relative path starts in the working directory of the sandbox's shells. \
Write a local path that contains a colon as ./a:b. A folder is copied with its contents, into DST if that is an existing \
folder; DIR/. copies only the contents. `-` is standard input or output: the bytes of a file, or a tar archive of a folder \
in the sandbox. Links that lead out of the folder, special files, and what may not be read are skipped with a warning, and the exit \
code is 1. A local path must not lead through a link, because a sandbox may have created it: name the \
folder that is meant. Links that only root can create, as /home on some systems, are followed; if you are root, only those in /.
Examples:
  glovebox sandbox cp . box:/workspace
  glovebox sandbox cp box:result.json .
  glovebox sandbox cp box:/var/log - | tar tv")]
pub(super) struct CpArguments {
    /// File or folder to copy.
    #[arg(value_name = "SRC")]
    source: CopyLocation,

    /// Path of the copy, or an existing folder for it.
    #[arg(value_name = "DST")]
    target: CopyLocation,

    #[command(flatten)]
    runtime: RuntimeChoice,
}

pub(super) async fn run(arguments: CpArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let (name, path) = match (&arguments.source, &arguments.target) {
        (CopyLocation::Sandbox { name, path }, CopyLocation::Local(_) | CopyLocation::Stream)
        | (CopyLocation::Local(_) | CopyLocation::Stream, CopyLocation::Sandbox { name, path }) => {
            (name, path.as_str())
        }
        _ => {
            return Err(UsageError(
                "exactly one of SRC and DST must be in a sandbox: NAME:PATH".to_owned(),
            )
            .into());
        }
    };
    let runtimes = SandboxRuntimes::open(&arguments.runtime, overrides).await?;
    let mut interrupts = Interrupts::listen()?;
    let copied = async {
        let (_, sandbox) = runtimes.connect(name).await?;
        let sandbox = sandbox.as_ref();
        let skipped = match (&arguments.source, &arguments.target) {
            (_, CopyLocation::Local(target)) => download(sandbox, path, target).await?,
            (_, CopyLocation::Stream) => return download_to_stdout(sandbox, path).await,
            (CopyLocation::Local(source), _) => upload(sandbox, source, path).await?,
            (_, _) => upload_stdin(sandbox, path).await?,
        };
        Ok(report_skipped(&skipped))
    };
    interrupts
        .unless_interrupted(copied)
        .await
        .unwrap_or(Ok(Exit::Interrupted))
}

/// Reports the entries that were not copied.
fn report_skipped(skipped: &SkippedEntries) -> Exit {
    skipped
        .named
        .iter()
        .for_each(|named| print::warning(&format!("left out {}", print::visible_line(named))));
    match skipped.count {
        0 => return Exit::Finished,
        count if count > skipped.named.len() as u64 => {
            print::warning(&format!("left out {count} entries in total"));
        }
        _ => {}
    }
    Exit::Failed
}

async fn upload(
    sandbox: &dyn Sandbox,
    source: &Path,
    path: &str,
) -> anyhow::Result<SkippedEntries> {
    let opened = Source::open(source)?;
    let context = || format!("cannot copy {}", source.display());
    let target = target_path(sandbox, path, location::copy_name(source).as_deref()).await?;
    match opened {
        Source::Folder(folder) => {
            let progress = CopyProgress::new(None);
            let (archive, packing) = pack::pack(folder);
            sandbox
                .files()?
                .upload(&target, TransferKind::Tree, None, progress.track(archive))
                .await
                .with_context(context)?;
            packing.await.context("cannot pack")
        }
        Source::File(file) => {
            let metadata = file
                .metadata()
                .with_context(|| format!("cannot read {}", source.display()))?;
            let progress = CopyProgress::new(Some(metadata.len()));
            let mode = FileMode::from_bits(metadata.permissions().mode() & 0o777);
            let content = progress.track(Box::new(tokio::fs::File::from_std(file)));
            sandbox
                .files()?
                .upload(&target, TransferKind::File, Some(mode), content)
                .await
                .with_context(context)?;
            Ok(SkippedEntries::default())
        }
    }
}

async fn upload_stdin(sandbox: &dyn Sandbox, path: &str) -> anyhow::Result<SkippedEntries> {
    let progress = CopyProgress::new(None);
    let stdin = progress.track(Box::new(tokio::io::stdin()));
    sandbox
        .files()?
        .upload(path, TransferKind::File, None, stdin)
        .await?;
    Ok(SkippedEntries::default())
}

/// Path of the copy: the given path, or `name` in it if it is a folder.
async fn target_path(
    sandbox: &dyn Sandbox,
    path: &str,
    name: Option<&str>,
) -> anyhow::Result<String> {
    let is_folder = path.ends_with('/')
        || sandbox
            .files()?
            .status(path)
            .await?
            .is_some_and(|status| status.kind == FileKind::Directory);
    Ok(match name {
        Some(name) if is_folder => format!("{}/{name}", path.trim_end_matches('/')),
        _ => path.to_owned(),
    })
}

async fn status_of_existing(sandbox: &dyn Sandbox, path: &str) -> anyhow::Result<FileStatus> {
    let status = sandbox.files()?.status(path).await?;
    status.ok_or_else(|| UsageError(format!("there is no {path} in the sandbox")).into())
}

async fn download(
    sandbox: &dyn Sandbox,
    path: &str,
    target: &Path,
) -> anyhow::Result<SkippedEntries> {
    let status = status_of_existing(sandbox, path).await?;
    target_folder::folder_of(target)?;
    let opened = Target::open(target, location::copy_name(Path::new(path)))?;
    match status.kind {
        FileKind::Directory => {
            let context = || format!("cannot unpack into {}", target.display());
            let folder = opened.into_folder().with_context(context)?;
            let progress = CopyProgress::new(None);
            let archive =
                progress.track(sandbox.files()?.download(path, TransferKind::Tree).await?);
            unpack::unpack(archive, folder).await.with_context(context)
        }
        FileKind::File => {
            let context = || format!("cannot write to {}", target.display());
            let Target::Entry { folder, name } = opened else {
                return Err(UsageError(format!("{}: it is a folder", context())).into());
            };
            let progress = CopyProgress::new(Some(status.size));
            let content =
                progress.track(sandbox.files()?.download(path, TransferKind::File).await?);
            save(content, &folder, &name, &status)
                .await
                .with_context(context)?;
            Ok(SkippedEntries::default())
        }
        _ => Err(UsageError(format!("{path} is neither a file nor a folder")).into()),
    }
}

async fn download_to_stdout(sandbox: &dyn Sandbox, path: &str) -> anyhow::Result<Exit> {
    let status = status_of_existing(sandbox, path).await?;
    let kind = if status.kind == FileKind::Directory {
        TransferKind::Tree
    } else {
        TransferKind::File
    };
    if kind == TransferKind::Tree && std::io::stdout().is_terminal() {
        return Err(UsageError("an archive is not written to a terminal".to_owned()).into());
    }
    let mut content = sandbox.files()?.download(path, kind).await?;
    let (mut buffer, write_status) = (vec![0; CHUNK_BYTES], WriteStatus::default());
    loop {
        let read = content.read(&mut buffer).await;
        let count = match read {
            Ok(count) => count,
            Err(error) => {
                let skipped = IncompleteArchive::skipped(error)
                    .with_context(|| format!("cannot read {path}"))?;
                return Ok(report_skipped(&skipped));
            }
        };
        match buffer.get(..count) {
            None | Some([]) => return Ok(Exit::Finished),
            Some(bytes) => write_status.record(print::program_stdout(bytes)),
        }
        if let Some(exit) = write_status.failure() {
            return exit;
        }
    }
}

/// Writes a temporary file and renames it, so that the target is never incomplete. Replaces a link
/// instead of following it.
///
/// # Errors
/// The disk has too little space, or the sandbox sends far more than it has announced.
async fn save(
    mut content: ByteSource,
    folder: &OwnedFd,
    name: &OsStr,
    status: &FileStatus,
) -> anyhow::Result<()> {
    let disk = rustix::fs::fstatvfs(folder)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if status.size > free {
        anyhow::bail!(
            "the file has {}, and the disk {} free",
            HumanBytes(status.size),
            HumanBytes(free)
        );
    }
    let folder = untrusted_folder::path_of(folder);
    let mut file = tempfile::NamedTempFile::new_in(&folder)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut remaining = status.size.saturating_add(MAX_GROWTH_BYTES);
    loop {
        let count = content
            .read(&mut buffer)
            .await
            .context("cannot read from the sandbox")?;
        match buffer.get(..count) {
            None | Some([]) => break,
            Some(bytes) => file.write_all(bytes)?,
        }
        remaining = remaining.checked_sub(count as u64).with_context(|| {
            format!(
                "the sandbox sends more than {}, the size of the file",
                HumanBytes(status.size)
            )
        })?;
    }
    let mode = status.mode.bits() & 0o777;
    file.as_file()
        .set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.persist(folder.join(name))
        .map_err(|error| error.error)?;
    Ok(())
}

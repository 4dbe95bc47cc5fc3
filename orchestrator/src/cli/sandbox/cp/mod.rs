//! `glovebox sandbox cp`: copies files and folders to and from a sandbox.
//!
//! Archives from a sandbox are hostile: see [`unpack`].

mod links;
mod location;
mod pack;
mod progress;
mod unpack;

use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use engine::sandbox::{ByteSource, Sandbox, TransferKind};
use protocol::sandbox_api::{FileKind, FileMode, FileStatus};
use tokio::io::AsyncReadExt as _;

use super::arguments::RuntimeChoice;
use super::runtimes::SandboxRuntimes;
use crate::cli::interrupts::Interrupts;
use crate::cli::print;
use crate::cli::write_status::WriteStatus;
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};
use location::CopyLocation;
use progress::CopyProgress;

/// Size of a read.
const CHUNK_BYTES: usize = 256 << 10;

/// Maximum number of skipped entries that are named.
const MAX_NAMED: usize = 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
One of SRC and DST is in a sandbox: NAME:PATH. A relative path starts in the working directory of the sandbox's shells. \
Write a local path that contains a colon as ./a:b. A folder is copied with its contents, into DST if that is an existing \
folder; DIR/. copies only the contents. `-` is standard input or output: the bytes of a file, or a tar archive of a folder \
in the sandbox. Links that lead out of the folder are skipped with a warning, and the exit code is 1.
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
            return Err(
                UsageError("exactly one of SRC and DST must be in a sandbox: NAME:PATH".to_owned()).into()
            );
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
    interrupts.unless_interrupted(copied).await.unwrap_or(Ok(Exit::Interrupted))
}

/// Entries that were not copied, each with the reason.
#[derive(Debug, Default, PartialEq, Eq)]
struct SkippedEntries {
    named: Vec<String>,
    count: u64,
}

impl SkippedEntries {
    fn add(&mut self, path: &Path, reason: &str) {
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(format!("{}: {reason}", path.display()));
        }
    }
}

fn report_skipped(skipped: &SkippedEntries) -> Exit {
    skipped.named.iter().for_each(|named| print::warning(&format!("left out {named}")));
    match skipped.count {
        0 => return Exit::Finished,
        count if count > MAX_NAMED as u64 => print::warning(&format!("left out {count} entries in total")),
        _ => {}
    }
    Exit::Failed
}

async fn upload(sandbox: &dyn Sandbox, source: &Path, path: &str) -> anyhow::Result<SkippedEntries> {
    let metadata = std::fs::metadata(source)
        .map_err(|error| UsageError(format!("cannot read {}: {error}", source.display())))?;
    let target = target_path(sandbox, path, location::copy_name(source).as_deref()).await?;
    if metadata.is_dir() {
        let progress = CopyProgress::new(None);
        let (archive, packing) = pack::pack(source.to_owned());
        sandbox.files()?.upload(&target, TransferKind::Tree, None, progress.track(archive)).await?;
        return packing.await.context("cannot pack");
    }
    if !metadata.is_file() {
        return Err(UsageError(format!("{} is neither a file nor a folder", source.display())).into());
    }
    let file =
        tokio::fs::File::open(source).await.with_context(|| format!("cannot open {}", source.display()))?;
    let progress = CopyProgress::new(Some(metadata.len()));
    let mode = FileMode::from_bits(metadata.permissions().mode() & 0o777);
    sandbox.files()?.upload(&target, TransferKind::File, Some(mode), progress.track(Box::new(file))).await?;
    Ok(SkippedEntries::default())
}

async fn upload_stdin(sandbox: &dyn Sandbox, path: &str) -> anyhow::Result<SkippedEntries> {
    let progress = CopyProgress::new(None);
    let stdin = progress.track(Box::new(tokio::io::stdin()));
    sandbox.files()?.upload(path, TransferKind::File, None, stdin).await?;
    Ok(SkippedEntries::default())
}

/// Path of the copy: the given path, or `name` in it if it is a folder.
async fn target_path(sandbox: &dyn Sandbox, path: &str, name: Option<&str>) -> anyhow::Result<String> {
    let is_folder = path.ends_with('/')
        || sandbox.files()?.status(path).await?.is_some_and(|status| status.kind == FileKind::Directory);
    Ok(match name {
        Some(name) if is_folder => format!("{}/{name}", path.trim_end_matches('/')),
        _ => path.to_owned(),
    })
}

async fn status_of_existing(sandbox: &dyn Sandbox, path: &str) -> anyhow::Result<FileStatus> {
    let status = sandbox.files()?.status(path).await?;
    status.ok_or_else(|| UsageError(format!("there is no {path} in the sandbox")).into())
}

async fn download(sandbox: &dyn Sandbox, path: &str, target: &Path) -> anyhow::Result<SkippedEntries> {
    let status = status_of_existing(sandbox, path).await?;
    let target = match location::copy_name(Path::new(path)) {
        Some(name) if target.is_dir() || location::has_trailing_slash(target) => target.join(name),
        _ => target.to_owned(),
    };
    match status.kind {
        FileKind::Directory => {
            let progress = CopyProgress::new(None);
            let archive = progress.track(sandbox.files()?.download(path, TransferKind::Tree).await?);
            unpack::unpack(archive, target).await
        }
        FileKind::File => {
            let progress = CopyProgress::new(Some(status.size));
            let content = progress.track(sandbox.files()?.download(path, TransferKind::File).await?);
            save(content, &target, status.mode).await?;
            Ok(SkippedEntries::default())
        }
        _ => Err(UsageError(format!("{path} is neither a file nor a folder")).into()),
    }
}

async fn download_to_stdout(sandbox: &dyn Sandbox, path: &str) -> anyhow::Result<Exit> {
    let status = status_of_existing(sandbox, path).await?;
    let kind = if status.kind == FileKind::Directory { TransferKind::Tree } else { TransferKind::File };
    if kind == TransferKind::Tree && std::io::stdout().is_terminal() {
        return Err(UsageError("an archive is not written to a terminal".to_owned()).into());
    }
    let mut content = sandbox.files()?.download(path, kind).await?;
    let (mut buffer, write_status) = (vec![0; CHUNK_BYTES], WriteStatus::default());
    loop {
        let count = content.read(&mut buffer).await.with_context(|| format!("cannot read {path}"))?;
        match buffer.get(..count) {
            None | Some([]) => return Ok(Exit::Finished),
            Some(bytes) => write_status.record(print::program_stdout(bytes)),
        }
        if let Some(exit) = write_status.failure() {
            return exit;
        }
    }
}

/// Writes a temporary file and renames it, so that the target is never incomplete.
async fn save(mut content: ByteSource, target: &Path, mode: FileMode) -> anyhow::Result<()> {
    let context = || format!("cannot write {}", target.display());
    let folder = match target.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(context)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = content.read(&mut buffer).await.context("cannot read from the sandbox")?;
        match buffer.get(..count) {
            None | Some([]) => break,
            Some(bytes) => file.write_all(bytes).with_context(context)?,
        }
    }
    let permissions = std::fs::Permissions::from_mode(mode.bits() & 0o777);
    file.as_file().set_permissions(permissions).with_context(context)?;
    file.persist(target).map_err(|error| error.error).with_context(context)?;
    Ok(())
}

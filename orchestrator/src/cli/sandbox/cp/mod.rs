//! `glovebox sandbox cp`: files and folders into a sandbox and out of it.
//!
//! What comes out is hostile: [`unpack`] says what is taken of it.

mod links;
mod pack;
mod place;
mod progress;
mod unpack;

use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use engine::sandbox::{ByteSource, Sandbox, TransferKind};
use protocol::sandbox_api::{FileKind, FileMode, FileStatus};
use tokio::io::AsyncReadExt as _;

use super::host::At;
use super::hosts::Hosts;
use crate::cli::interrupts::Interrupts;
use crate::cli::print;
use crate::cli::write_status::WriteStatus;
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};
use place::Place;
use progress::Progress;

/// What is read of a file at once.
const PIECE: usize = 256 << 10;

/// How many entries that are left out are named.
const NAMED: usize = 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
One of the two is NAME:PATH. A relative path inside begins where shells do; a path of this machine that has a colon is
written as ./a:b. A folder goes with all that lies in it: into a folder that is there, or as the new one; `DIR/.` is what
lies in it alone. `-` is standard input or output: a file's bytes, or of a folder inside a tar archive.
Of links only those are copied that stay within the folder. What is left out is named, and the exit code is 1.
Examples:
  glovebox sandbox cp . box:/workspace
  glovebox sandbox cp box:result.json .
  glovebox sandbox cp box:/var/log - | tar tv")]
pub(super) struct CpArguments {
    /// What is copied.
    #[arg(value_name = "SRC")]
    source: Place,

    /// Where it goes.
    #[arg(value_name = "DST")]
    target: Place,

    #[command(flatten)]
    at: At,
}

pub(super) async fn run(arguments: CpArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let (name, inside) = match (&arguments.source, &arguments.target) {
        (Place::Inside { name, path }, Place::Local(_) | Place::Stream)
        | (Place::Local(_) | Place::Stream, Place::Inside { name, path }) => (name, path.as_str()),
        _ => {
            return Err(UsageError(
                "one of the two, and only one, must be inside a sandbox: NAME:PATH".to_owned(),
            )
            .into());
        }
    };
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    let mut interrupts = Interrupts::listen()?;
    let (_, sandbox) = hosts.connect(name).await?;
    let sandbox = sandbox.as_ref();
    let copied = async {
        let left_out = match (&arguments.source, &arguments.target) {
            (_, Place::Local(target)) => out(sandbox, inside, target).await?,
            (_, Place::Stream) => return to_stdout(sandbox, inside).await,
            (Place::Local(source), _) => into(sandbox, source, inside).await?,
            (_, _) => from_stdin(sandbox, inside).await?,
        };
        Ok(tell(&left_out))
    };
    tokio::select! {
        exit = copied => exit,
        () = interrupts.next() => Ok(Exit::Interrupted),
    }
}

/// What was not copied, and why.
#[derive(Debug, Default, PartialEq, Eq)]
struct LeftOut {
    named: Vec<String>,
    count: u64,
}

impl LeftOut {
    fn add(&mut self, path: &Path, why: &str) {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(format!("{}: {why}", path.display()));
        }
    }
}

fn tell(left_out: &LeftOut) -> Exit {
    left_out.named.iter().for_each(|named| print::warning(&format!("left out {named}")));
    match left_out.count {
        0 => return Exit::Finished,
        count if count > NAMED as u64 => print::warning(&format!("{count} entries were left out in all")),
        _ => {}
    }
    Exit::Failed
}

async fn into(sandbox: &dyn Sandbox, source: &Path, inside: &str) -> anyhow::Result<LeftOut> {
    let metadata =
        std::fs::metadata(source).map_err(|error| UsageError(format!("{}: {error}", source.display())))?;
    let target = target_inside(sandbox, inside, place::last_name(source).as_deref()).await?;
    if metadata.is_dir() {
        let progress = Progress::of(None);
        let (archive, packing) = pack::pack(source.to_owned());
        sandbox.files()?.upload(&target, TransferKind::Tree, None, progress.of_source(archive)).await?;
        return packing.await.context("packing");
    }
    if !metadata.is_file() {
        return Err(UsageError(format!("{} is neither a file nor a folder", source.display())).into());
    }
    let file =
        tokio::fs::File::open(source).await.with_context(|| format!("opening {}", source.display()))?;
    let progress = Progress::of(Some(metadata.len()));
    let mode = FileMode::from_bits(metadata.permissions().mode() & 0o777);
    sandbox
        .files()?
        .upload(&target, TransferKind::File, Some(mode), progress.of_source(Box::new(file)))
        .await?;
    Ok(LeftOut::default())
}

async fn from_stdin(sandbox: &dyn Sandbox, inside: &str) -> anyhow::Result<LeftOut> {
    let progress = Progress::of(None);
    let stdin = progress.of_source(Box::new(tokio::io::stdin()));
    sandbox.files()?.upload(inside, TransferKind::File, None, stdin).await?;
    Ok(LeftOut::default())
}

/// A path inside, or the place of that name in it if it is a folder.
async fn target_inside(sandbox: &dyn Sandbox, inside: &str, name: Option<&str>) -> anyhow::Result<String> {
    let is_folder = inside.ends_with('/')
        || sandbox.files()?.status(inside).await?.is_some_and(|status| status.kind == FileKind::Directory);
    Ok(match name {
        Some(name) if is_folder => format!("{}/{name}", inside.trim_end_matches('/')),
        _ => inside.to_owned(),
    })
}

async fn existing(sandbox: &dyn Sandbox, inside: &str) -> anyhow::Result<FileStatus> {
    let status = sandbox.files()?.status(inside).await?;
    status.ok_or_else(|| UsageError(format!("there is no {inside} in the sandbox")).into())
}

async fn out(sandbox: &dyn Sandbox, inside: &str, target: &Path) -> anyhow::Result<LeftOut> {
    let status = existing(sandbox, inside).await?;
    let target = match place::last_name(Path::new(inside)) {
        Some(name) if target.is_dir() || place::means_a_folder(target) => target.join(name),
        _ => target.to_owned(),
    };
    match status.kind {
        FileKind::Directory => {
            let progress = Progress::of(None);
            let archive = progress.of_source(sandbox.files()?.download(inside, TransferKind::Tree).await?);
            unpack::unpack(archive, target).await
        }
        FileKind::File => {
            let progress = Progress::of(Some(status.size));
            let content = progress.of_source(sandbox.files()?.download(inside, TransferKind::File).await?);
            save(content, &target, status.mode).await?;
            Ok(LeftOut::default())
        }
        _ => Err(UsageError(format!("{inside} is neither a file nor a folder")).into()),
    }
}

async fn to_stdout(sandbox: &dyn Sandbox, inside: &str) -> anyhow::Result<Exit> {
    let status = existing(sandbox, inside).await?;
    let shape = if status.kind == FileKind::Directory { TransferKind::Tree } else { TransferKind::File };
    if shape == TransferKind::Tree && std::io::stdout().is_terminal() {
        return Err(UsageError("an archive is not written to a terminal".to_owned()).into());
    }
    let mut content = sandbox.files()?.download(inside, shape).await?;
    let (mut buffer, write_status) = (vec![0; PIECE], WriteStatus::default());
    loop {
        let count = content.read(&mut buffer).await.with_context(|| format!("reading {inside}"))?;
        match buffer.get(..count) {
            None | Some([]) => return Ok(Exit::Finished),
            Some(bytes) => write_status.record(print::program_stdout(bytes)),
        }
        if let Some(exit) = write_status.failure() {
            return exit;
        }
    }
}

/// Whole or not at all: written beside its place, and moved there.
async fn save(mut content: ByteSource, target: &Path, mode: FileMode) -> anyhow::Result<()> {
    let doing = || format!("writing {}", target.display());
    let folder = match target.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(doing)?;
    let mut buffer = vec![0; PIECE];
    loop {
        let count = content.read(&mut buffer).await.context("reading from the sandbox")?;
        match buffer.get(..count) {
            None | Some([]) => break,
            Some(bytes) => file.write_all(bytes).with_context(doing)?,
        }
    }
    let permissions = std::fs::Permissions::from_mode(mode.bits() & 0o777);
    file.as_file().set_permissions(permissions).with_context(doing)?;
    file.persist(target).map_err(|error| error.error).with_context(doing)?;
    Ok(())
}

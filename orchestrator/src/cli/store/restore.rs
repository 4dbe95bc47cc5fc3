//! `glovebox store restore`.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use accounts::{AccountRecords, AuditEntry, KeyRecord, User};
use anyhow::Context as _;
use async_trait::async_trait;
use conversations::{ConversationsError, CopyMode, EventPages, HostError};
use protocol::{Event, EventId};
use storage::EncryptedDocument;
use tokio::io::AsyncWriteExt as _;

use super::copy::{CopyOptions, CopyTarget, SettingsCheck};
use super::progress::StoreProgress;
use super::stop::StopSignal;
use crate::backup::{
    BackupAuditEntry, BackupCounts, BackupError, BackupKey, BackupPart, BackupReader,
    BackupSettings, BackupUser, PartLines,
};
use crate::compose::{StateDir, Stores};
use crate::config::Config;
use crate::exit::{Exit, UsageError};

/// Number of lines of a page, and their length in bytes. The last line may exceed it.
const MAX_PAGE_LINES: usize = 256;
const MAX_PAGE_BYTES: usize = 1 << 20;

/// Maximum number of users, and of keys, of a backup.
const MAX_ACCOUNTS: u64 = 1_000_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file is checked as a whole before anything is changed. Then everything is added that the store lacks. Nothing that \
exists is changed, so that a restore can be repeated. A conversation whose log is the start of the one in the backup gets \
its further events; one with another log, or that runs now, is reported, and the exit code is 1. Users who exist keep \
their own keys: one that was revoked since stays revoked. Sessions are not restored: users sign in again. \
Settings need the key that they were encrypted with: put it in the file secrets-key of the state folder first. An agent \
that was working in the backup continues when a server starts, or with `glovebox resume ID`.
Examples:
  glovebox store restore --dry-run glovebox.tar.gz
  glovebox store restore glovebox.tar.gz
  ssh backup 'cat glovebox.tar.gz' | glovebox store restore -")]
pub(in crate::cli) struct RestoreArguments {
    /// The backup, or `-` for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Check the backup, and print what would be done. Only creates or migrates the tables of the
    /// store.
    #[arg(long)]
    dry_run: bool,

    /// Restore no settings and secrets of users.
    #[arg(long)]
    without_settings: bool,

    /// Print a JSON object for each conversation (its id, status and events), and one with the
    /// totals.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(
    arguments: RestoreArguments,
    config: &Config,
    state_dir: &StateDir,
    stop: &StopSignal,
) -> anyhow::Result<Exit> {
    let file = open(&arguments.file, state_dir, stop).await?;
    let stores = Stores::open_target(config, state_dir).await?;
    let restored = restore(file, &arguments, (&stores, state_dir), stop).await;
    stores.close().await;
    restored.with_context(|| format!("cannot restore {}", arguments.file.display()))
}

/// Opens a file that can be read twice. Standard input is copied to a file without a name.
async fn open(path: &Path, state_dir: &StateDir, stop: &StopSignal) -> anyhow::Result<File> {
    if path == Path::new("-") {
        let mut copy = tokio::fs::File::from_std(tempfile::tempfile_in(state_dir.path())?);
        let mut stdin = tokio::io::stdin();
        let copied = async {
            tokio::io::copy(&mut stdin, &mut copy).await?;
            copy.flush().await
        };
        stop.until_stopped(copied)
            .await?
            .context("cannot copy standard input")?;
        return Ok(copy.into_std().await);
    }
    let fail = |problem: &str| UsageError(format!("cannot read {}: {problem}", path.display()));
    // Before it is opened: that of a pipe waits for a writer.
    let found = path.metadata().map_err(|error| fail(&error.to_string()))?;
    if !found.is_file() {
        return Err(fail("it is no regular file; `-` reads from standard input").into());
    }
    Ok(File::open(path).map_err(|error| fail(&error.to_string()))?)
}

async fn restore(
    mut file: File,
    arguments: &RestoreArguments,
    (stores, state_dir): (&Stores, &StateDir),
    stop: &StopSignal,
) -> anyhow::Result<Exit> {
    let settings = if arguments.without_settings {
        None
    } else {
        Some(SettingsCheck::new(stores)?)
    };
    file.seek(SeekFrom::Start(0))?;
    let counts = check(StoppableFile { file: &file, stop }, settings.as_ref())?;
    let mode = if arguments.dry_run {
        CopyMode::Compare
    } else {
        CopyMode::Append
    };
    let options = CopyOptions {
        mode,
        as_json: arguments.json,
        conversations: counts.conversations,
    };
    let mut target = CopyTarget::open(stores, stores.locks(), state_dir, options, stop).await?;
    file.seek(SeekFrom::Start(0))?;
    let input = StoppableFile { file: &file, stop };
    let copied = copy(input, !arguments.without_settings, &mut target).await?;
    // It was checked before. This finds a file that has changed since.
    if copied != counts {
        return Err(BackupError::Mismatch.into());
    }
    let report = target.finish("store restore").await?;
    report.print(arguments.json)?;
    Ok(report.exit())
}

/// Reads everything, and changes nothing.
fn check(input: impl Read, settings: Option<&SettingsCheck>) -> anyhow::Result<BackupCounts> {
    let progress = StoreProgress::new("checking the backup", None);
    let mut reader = BackupReader::new(input);
    let (_, mut parts) = reader.parts()?;
    let (mut users, mut keys) = (Vec::new(), Vec::new());
    while let Some((part, mut lines)) = parts.next()? {
        match &part {
            BackupPart::Conversation(_) => {
                let mut pages = BackupPages::new(&mut lines);
                while !pages.read()?.is_empty() {}
                progress.advance();
            }
            BackupPart::Users => users = read_users(&mut lines)?,
            BackupPart::Keys => keys = read_keys(&mut lines)?,
            BackupPart::Settings => {
                while let Some(document) = read_settings(&mut lines)? {
                    if let Some(settings) = settings {
                        settings.check(&document)?;
                    }
                }
            }
            BackupPart::Audit => while !read_audit(&mut lines)?.is_empty() {},
        }
        parts.count(&part, lines.number());
    }
    AccountRecords::new(users, keys).context("the users of the backup are invalid")?;
    let counts = parts.checked_counts()?;
    drop(parts);
    reader.check_end()?;
    Ok(counts)
}

/// Copies everything into the target.
async fn copy(
    input: impl Read,
    with_settings: bool,
    target: &mut CopyTarget<'_>,
) -> anyhow::Result<BackupCounts> {
    let mut reader = BackupReader::new(input);
    let (_, mut parts) = reader.parts()?;
    let (mut users, mut keys) = (Vec::new(), Vec::new());
    while let Some((part, mut lines)) = parts.next()? {
        match &part {
            BackupPart::Conversation(id) => {
                target
                    .copy_conversation(id, BackupPages::new(&mut lines))
                    .await?;
                // A log that differs is not read to its end.
                while lines.next_with(|_| Ok::<_, BackupError>(()))?.is_some() {}
            }
            BackupPart::Users => users = read_users(&mut lines)?,
            BackupPart::Keys => keys = read_keys(&mut lines)?,
            BackupPart::Settings => {
                while let Some(document) = read_settings(&mut lines)? {
                    if with_settings {
                        target.copy_settings(&document).await?;
                    }
                }
            }
            BackupPart::Audit => loop {
                let page = read_audit(&mut lines)?;
                if page.is_empty() {
                    break;
                }
                target.copy_audit(page).await?;
            },
        }
        parts.count(&part, lines.number());
    }
    let counts = parts.checked_counts()?;
    target
        .copy_accounts(&AccountRecords::new(users, keys)?)
        .await?;
    Ok(counts)
}

fn read_users(lines: &mut PartLines<'_, impl Read>) -> Result<Vec<User>, BackupError> {
    let mut users = Vec::new();
    while let Some(record) = lines.next::<BackupUser>()? {
        check_account_count(lines)?;
        users.push(User::from(record));
    }
    Ok(users)
}

fn read_keys(lines: &mut PartLines<'_, impl Read>) -> Result<Vec<KeyRecord>, BackupError> {
    let mut keys = Vec::new();
    while let Some(record) = lines.next::<BackupKey>()? {
        check_account_count(lines)?;
        keys.push(KeyRecord::try_from(record).map_err(|error| lines.invalid(error))?);
    }
    Ok(keys)
}

fn check_account_count(lines: &PartLines<'_, impl Read>) -> Result<(), BackupError> {
    if lines.number() > MAX_ACCOUNTS {
        return Err(lines.invalid(format!("there are more than {MAX_ACCOUNTS}")));
    }
    Ok(())
}

fn read_settings(
    lines: &mut PartLines<'_, impl Read>,
) -> Result<Option<EncryptedDocument>, BackupError> {
    let Some(record) = lines.next::<BackupSettings>()? else {
        return Ok(None);
    };
    EncryptedDocument::try_from(record)
        .map(Some)
        .map_err(|error| lines.invalid(error))
}

/// Reads the next entries of the audit log. Empty at the end.
fn read_audit(lines: &mut PartLines<'_, impl Read>) -> Result<Vec<AuditEntry>, BackupError> {
    let mut entries = Vec::new();
    while entries.len() < MAX_PAGE_LINES
        && let Some(record) = lines.next::<BackupAuditEntry>()?
    {
        entries.push(AuditEntry::try_from(record).map_err(|error| lines.invalid(error))?);
    }
    Ok(entries)
}

/// The events of a conversation in a backup.
struct BackupPages<'a, 'b, R: Read> {
    lines: &'a mut PartLines<'b, R>,
    next: EventId,
}

impl<'a, 'b, R: Read> BackupPages<'a, 'b, R> {
    fn new(lines: &'a mut PartLines<'b, R>) -> Self {
        Self {
            lines,
            next: EventId::FIRST,
        }
    }

    fn read(&mut self) -> Result<Vec<Event>, BackupError> {
        let (mut events, mut length) = (Vec::<Event>::new(), 0);
        while events.len() < MAX_PAGE_LINES && length < MAX_PAGE_BYTES {
            let parse = |text: &[u8]| {
                length += text.len();
                Event::read_after(events.last(), text)
            };
            let Some(event) = self.lines.next_with(parse)? else {
                break;
            };
            if event.id != self.next {
                let (found, expected) = (event.id, self.next);
                return Err(self
                    .lines
                    .invalid(format!("it is event {found} instead of {expected}")));
            }
            self.next = event.id.next();
            events.push(event);
        }
        Ok(events)
    }
}

#[async_trait(?Send)]
impl<R: Read> EventPages for BackupPages<'_, '_, R> {
    async fn next(&mut self) -> Result<Vec<Event>, ConversationsError> {
        self.read()
            .map_err(|error| HostError::Failed(error.into()).into())
    }
}

/// A file whose reads fail after an interrupt.
struct StoppableFile<'a, R> {
    file: R,
    stop: &'a StopSignal,
}

impl<R: Read> Read for StoppableFile<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stop.check_io()?;
        self.file.read(buffer)
    }
}

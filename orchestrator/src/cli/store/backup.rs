//! `glovebox store backup`.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use conversations::{ConversationsError, EventPages as _, LogPages};
use engine::events::{EventStore, StoreError};
use jiff::Timestamp;
use protocol::{ConversationId, EventId};
use serde_json::json;

use super::progress::StoreProgress;
use super::stop::StopSignal;
use crate::backup::{
    BackupAuditEntry, BackupCounts, BackupKey, BackupPart, BackupSettings, BackupUser,
    BackupWriter, PartWriter,
};
use crate::cli::{print, target_folder};
use crate::compose::{StateDir, Stores};
use crate::config::Config;
use crate::exit::{Exit, UsageError};

/// Number of entries of the audit log per read.
const AUDIT_PAGE_SIZE: usize = 1000;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The backup has the conversations, the users with hashes of their keys, their settings and secrets, and the audit log, of \
either kind of store. Servers can run meanwhile: each conversation is stored as it was at one time. Settings stay \
encrypted, and their key is NOT in the backup: keep the file secrets-key in another place. Workspaces and the other files \
of the state folder are not in it either.
With --force, the file replaces one of this name when it is complete, and not if a conversation cannot be read. Only you can read it. It is a tar archive, compressed with gzip.
Examples:
  glovebox store backup /backups/glovebox-$(date +%F).tar.gz
  glovebox store backup - | ssh backup 'cat > glovebox.tar.gz'")]
pub(in crate::cli) struct BackupArguments {
    /// File to write, or `-` for standard output.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Replace a backup of this name.
    #[arg(long)]
    force: bool,

    /// Print a JSON object with the number of conversations, events, users, keys, settings and
    /// entries of the audit log.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(
    BackupArguments { file, force, json }: BackupArguments,
    config: &Config,
    state_dir: &StateDir,
    stop: &StopSignal,
) -> anyhow::Result<Exit> {
    let is_stdout = file == Path::new("-");
    let stdout = io::stdout();
    if is_stdout && (json || stdout.is_terminal()) {
        let text = if json {
            "--json needs a FILE"
        } else {
            "a backup is not written to a terminal"
        };
        return Err(UsageError(text.to_owned()).into());
    }
    let folder = if is_stdout {
        std::env::temp_dir()
    } else {
        folder_of(&file, force)?
    };
    let stores = Stores::open(config, state_dir).await?;
    let written = if is_stdout {
        let output = BufWriter::new(stdout.lock());
        Backup::start(output, &folder, stop)?
            .write(&stores)
            .await
            .map(|(_, result)| result)
    } else {
        write_file(&file, &folder, &stores, stop).await
    };
    stores.close().await;
    let (counts, exit) =
        written.with_context(|| format!("cannot back up to {}", file.display()))?;
    report(&file, counts, json)?;
    Ok(exit)
}

/// Returns the folder of a new file, which replaces a regular file only if `force`.
fn folder_of(file: &Path, force: bool) -> anyhow::Result<PathBuf> {
    if file.symlink_metadata().is_ok_and(|found| !found.is_file()) || file.file_name().is_none() {
        let text = format!(
            "{} is no regular file: `-` writes to standard output",
            file.display()
        );
        return Err(UsageError(text).into());
    }
    if file.exists() && !force {
        return Err(UsageError(format!("{} exists: --force replaces it", file.display())).into());
    }
    Ok(target_folder::folder_of(file)?.to_owned())
}

/// Writes a temporary file, which only this user can read, and renames it.
async fn write_file(
    file: &Path,
    folder: &Path,
    stores: &Stores,
    stop: &StopSignal,
) -> anyhow::Result<(BackupCounts, Exit)> {
    let draft = tempfile::Builder::new()
        .prefix(".glovebox-backup-")
        .tempfile_in(folder)?;
    let output = BufWriter::new(draft.as_file().try_clone()?);
    let (output, result) = Backup::start(output, folder, stop)?.write(stores).await?;
    let output: File = output
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?;
    output.sync_all()?;
    stop.check()?;
    if result.1 != Exit::Finished && file.exists() {
        bail!(
            "it lacks the conversations above, and replaces no other backup: name a new file, or remove them with \
             `glovebox conversations rm ID`"
        );
    }
    draft.persist(file).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()?;
    Ok(result)
}

fn report(file: &Path, counts: BackupCounts, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return Ok(print::line(&json!(counts).to_string())?);
    }
    let BackupCounts {
        conversations,
        events,
        users,
        keys,
        settings,
        audit_entries,
    } = counts;
    let target = if file == Path::new("-") {
        "standard output".to_owned()
    } else {
        file.display().to_string()
    };
    let mut text = format!(
        "backed up to {target}: conversations {conversations} (events {events}), users {users} (keys {keys}), settings {settings}, audit \
         entries {audit_entries}\n"
    );
    if settings > 0 {
        text += "The key of the settings is not in the backup: keep the file secrets-key of the state folder, or the key in \
                 GLOVEBOX_SECRETS_KEY, in another place.\n";
    }
    print::note(&text);
    Ok(())
}

/// Result of reading a conversation.
enum ReadConversation {
    Complete(PartWriter),
    /// It was removed meanwhile.
    Removed,
    /// It is damaged, or no backup can have it.
    Failed(anyhow::Error),
}

fn is_too_large(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::FileTooLarge)
}

/// A backup that is written.
struct Backup<'a, W: Write> {
    writer: BackupWriter<W>,
    /// Folder of temporary files.
    folder: &'a Path,
    stop: &'a StopSignal,
    exit: Exit,
}

impl<'a, W: Write> Backup<'a, W> {
    fn start(output: W, folder: &'a Path, stop: &'a StopSignal) -> anyhow::Result<Self> {
        let writer = BackupWriter::new(output, Timestamp::now().to_string())?;
        Ok(Self {
            writer,
            folder,
            stop,
            exit: Exit::Finished,
        })
    }

    /// Writes all parts. Returns the output, how much it has, and a failure if a conversation could
    /// not be read.
    async fn write(mut self, stores: &Stores) -> anyhow::Result<(W, (BackupCounts, Exit))> {
        self.write_conversations(stores.events_to_read().await?)
            .await?;
        self.write_accounts(stores).await?;
        let (mut output, counts) = self.writer.finish()?;
        output.flush()?;
        Ok((output, (counts, self.exit)))
    }

    async fn write_conversations(&mut self, events: Arc<dyn EventStore>) -> anyhow::Result<()> {
        let list = events.conversations().await?;
        let progress = StoreProgress::new("backing up", Some(list.conversations.len() as u64));
        for error in list.damaged {
            self.exit = Exit::Failed;
            print::error(&format!(
                "cannot back up a conversation: {:#}",
                anyhow::Error::new(error)
            ));
        }
        for summary in list.conversations.into_iter().rev() {
            let pages =
                LogPages::before(events.clone(), summary.id.clone(), EventId(summary.events));
            match self.read_conversation(&summary.id, pages).await? {
                ReadConversation::Complete(part) => self.add(part)?,
                ReadConversation::Removed => {}
                ReadConversation::Failed(error) => {
                    self.exit = Exit::Failed;
                    let text = format!("cannot back up conversation {}: {error:#}", summary.id);
                    progress.suspend(|| print::error(&text));
                }
            }
            progress.advance();
        }
        Ok(())
    }

    /// Reads a conversation. Errors that concern only this one are a result.
    async fn read_conversation(
        &self,
        id: &ConversationId,
        mut pages: LogPages,
    ) -> anyhow::Result<ReadConversation> {
        let mut part = self.part(BackupPart::Conversation(id.clone()));
        loop {
            self.stop.check()?;
            let page = match pages.next().await {
                Ok(page) if page.is_empty() => return Ok(ReadConversation::Complete(part)),
                Ok(page) => page,
                Err(ConversationsError::Unknown(_)) => return Ok(ReadConversation::Removed),
                Err(error @ ConversationsError::Store(StoreError::Damaged { .. })) => {
                    return Ok(ReadConversation::Failed(error.into()));
                }
                Err(error) => return Err(error.into()),
            };
            for event in page {
                match part
                    .push(&event)
                    .with_context(|| format!("cannot write event {}", event.id))
                {
                    Ok(()) => {}
                    Err(error) if is_too_large(&error) => {
                        return Ok(ReadConversation::Failed(error));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Writes users, keys, settings and the audit log. After the conversations, so that it has the
    /// users who own them.
    async fn write_accounts(&mut self, stores: &Stores) -> anyhow::Result<()> {
        let accounts = stores.accounts_to_read().await?;
        if let Some(accounts) = &accounts {
            let records = accounts.users.records().await?;
            let (mut users, mut keys) = (self.part(BackupPart::Users), self.part(BackupPart::Keys));
            records
                .users()
                .iter()
                .try_for_each(|user| users.push(&BackupUser::from(user)))?;
            records
                .keys()
                .iter()
                .try_for_each(|key| keys.push(&BackupKey::from(key)))?;
            self.add(users)?;
            self.add(keys)?;
        }
        if let Some(documents) = stores.encrypted_settings_if_any().await? {
            let (mut part, mut last) = (self.part(BackupPart::Settings), String::new());
            loop {
                let page = documents.page(&last).await?;
                let Some(end) = page.last() else { break };
                last.clone_from(&end.name);
                page.iter()
                    .try_for_each(|document| part.push(&BackupSettings::from(document)))?;
            }
            self.add(part)?;
        }
        if let Some(accounts) = &accounts {
            let (mut part, mut last) = (self.part(BackupPart::Audit), 0);
            loop {
                self.stop.check()?;
                let page = accounts.audit.read_after(last, AUDIT_PAGE_SIZE).await?;
                let Some((number, _)) = page.last() else {
                    break;
                };
                last = *number;
                page.iter()
                    .try_for_each(|(_, entry)| part.push(&BackupAuditEntry::from(entry)))?;
            }
            self.add(part)?;
        }
        Ok(())
    }

    fn part(&self, part: BackupPart) -> PartWriter {
        PartWriter::new(part, self.folder)
    }

    fn add(&mut self, part: PartWriter) -> io::Result<()> {
        self.writer.add(part, || self.stop.check_io())
    }
}

//! Copies the parts of a store, or of a backup, into another store. A log that exists gets the
//! events that follow its own. Of users, keys and settings, a backup changes nothing that exists;
//! a store also carries over what has changed since it was copied last.

use std::sync::Arc;

use accounts::{
    AccountChanges, AccountDifference, AccountDifferenceKind, AccountRecords, AuditEntry,
    AuditMerge,
};
use anyhow::Context as _;
use conversations::{
    ConversationLocks, Conversations, ConversationsError, CopiedLog, CopyMode, EventPages,
};
use engine::events::StoreError;
use protocol::ConversationId;
use storage::{
    AddedDocument, EncryptedDocument, EncryptedDocuments, SealedDocuments, SealingKey,
    UpdatedDocument,
};

use super::progress::StoreProgress;
use super::report::{CopyReport, CopyStatus};
use super::stop::{StopSignal, StoppablePages};
use crate::cli::print;
use crate::compose::{StateDir, Stores};
use crate::exit::UsageError;

/// A store that is copied into.
pub(super) struct CopyTarget<'a> {
    stores: &'a Stores,
    conversations: Conversations,
    mode: CopyMode,
    settings: TargetSettings,
    /// `None` before the first entries.
    audit: Option<AuditMerge>,
    pub(super) report: CopyReport,
    as_json: bool,
    progress: StoreProgress,
    stop: &'a StopSignal,
}

enum TargetSettings {
    Unopened,
    /// To compare with. `None` if the target has none.
    Compared(Option<EncryptedDocuments>),
    Opened(SealedDocuments),
}

/// Checks that settings can be read with the key of a target.
pub(super) struct SettingsCheck(Option<SealingKey>);

impl SettingsCheck {
    pub(super) fn new(stores: &Stores) -> anyhow::Result<Self> {
        stores.settings_key().map(Self)
    }

    pub(super) fn check(&self, document: &EncryptedDocument) -> anyhow::Result<()> {
        match &self.0 {
            Some(key) => key.check(document).map_err(Stores::explain_settings_error),
            None => Err(UsageError(
                "the settings of users are encrypted, and their key is missing: restore it in \
                 GLOVEBOX_SECRETS_KEY, GLOVEBOX_SECRETS_KEY_FILE or the file secrets-key of the state folder; or leave the \
                 settings out with --without-settings"
                    .to_owned(),
            )
            .into()),
        }
    }
}

/// How a copy writes and reports.
pub(super) struct CopyOptions {
    pub(super) mode: CopyMode,
    pub(super) as_json: bool,
    /// Number of conversations, for the progress.
    pub(super) conversations: u64,
}

impl<'a> CopyTarget<'a> {
    pub(super) async fn open(
        stores: &'a Stores,
        locks: Arc<dyn ConversationLocks>,
        state_dir: &StateDir,
        CopyOptions {
            mode,
            as_json,
            conversations,
        }: CopyOptions,
        stop: &'a StopSignal,
    ) -> anyhow::Result<Self> {
        let events = match mode {
            CopyMode::Compare => stores.events_to_read().await?,
            CopyMode::Append | CopyMode::LockAndAppend => stores.events().await?,
        };
        let operation = if mode == CopyMode::Compare {
            "comparing"
        } else {
            "copying"
        };
        Ok(Self {
            stores,
            conversations: Conversations::new(events, locks, Arc::new(state_dir.clone())),
            mode,
            settings: TargetSettings::Unopened,
            audit: None,
            report: CopyReport::default(),
            as_json,
            progress: StoreProgress::new(operation, Some(conversations)),
            stop,
        })
    }

    /// Copies a conversation, and reports errors that concern only it.
    pub(super) async fn copy_conversation(
        &mut self,
        id: &ConversationId,
        pages: impl EventPages,
    ) -> anyhow::Result<()> {
        self.stop.check()?;
        let mut pages = StoppablePages {
            pages,
            stop: self.stop,
        };
        let copied = self.conversations.copy_in(id, &mut pages, self.mode).await;
        let counts = &mut self.report.conversations;
        let (status, events, problem) = match copied {
            Ok(CopiedLog::Added(events)) => {
                counts.added += 1;
                (CopyStatus::Added, events, None)
            }
            Ok(CopiedLog::Extended(events)) => {
                counts.extended += 1;
                (CopyStatus::Extended, events, None)
            }
            Ok(CopiedLog::Exists) => {
                counts.existing += 1;
                (CopyStatus::Exists, 0, None)
            }
            Ok(CopiedLog::Differs(event)) => {
                counts.different += 1;
                let problem =
                    format!("the existing conversation has another event {event}, and is kept");
                (CopyStatus::Differs, 0, Some(problem))
            }
            Err(error) if concerns_conversation(&error) => {
                counts.failed += 1;
                let status = match error {
                    ConversationsError::Locked(_) => CopyStatus::Running,
                    _ => CopyStatus::Failed,
                };
                (status, 0, Some(format!("{:#}", anyhow::Error::new(error))))
            }
            Err(error) => {
                return Err(
                    anyhow::Error::new(error).context(format!("cannot copy conversation {id}"))
                );
            }
        };
        self.progress.advance();
        self.progress.suspend(|| match problem.as_deref() {
            problem if self.as_json => CopyReport::print_conversation(id, status, events, problem),
            Some(problem) => {
                print::error(&format!("cannot copy conversation {id}: {problem}"));
                Ok(())
            }
            None => Ok(()),
        })
    }

    /// Reports a conversation that cannot be read at all.
    pub(super) fn report_damaged(&mut self, error: StoreError) {
        self.report.conversations.failed += 1;
        self.progress.suspend(|| {
            print::error(&format!(
                "cannot copy a conversation: {:#}",
                anyhow::Error::new(error)
            ));
        });
    }

    /// Copies the users that the target lacks, with their keys.
    pub(super) async fn copy_accounts(&mut self, records: &AccountRecords) -> anyhow::Result<()> {
        self.stop.check()?;
        let existing = match self.stores.accounts_to_read().await? {
            Some(accounts) => accounts.users.users().await?,
            None => Vec::new(),
        };
        let missing = records.without(&existing);
        let (mut users, mut keys) = (missing.users().len(), missing.keys().len());
        if self.mode != CopyMode::Compare && users > 0 {
            let added = self
                .stores
                .accounts()
                .await?
                .users
                .add_records(&missing)
                .await?;
            (users, keys) = (added.users, added.keys);
        }
        for (counts, added, all) in [
            (&mut self.report.users, users, records.users().len()),
            (&mut self.report.keys, keys, records.keys().len()),
        ] {
            counts.added = added as u64;
            counts.existing = all.saturating_sub(added) as u64;
        }
        Ok(())
    }

    /// Copies the users that the target lacks, and what has changed in the others since the last
    /// copy. Reports differences that such changes do not explain.
    pub(super) async fn update_accounts(&mut self, records: &AccountRecords) -> anyhow::Result<()> {
        self.stop.check()?;
        let accounts = self.stores.accounts().await?.users;
        let changes = AccountChanges::between(records, &accounts.records().await?);
        let changed = changes.apply(accounts.as_ref()).await?;
        if let Some(profiles) = self.stores.profiles_if_any().await? {
            let removed_here = changed.differences.iter().filter_map(|difference| {
                (difference.kind == AccountDifferenceKind::RemovedInTarget)
                    .then_some(&difference.user)
            });
            for user in changed.users_without_account.iter().chain(removed_here) {
                let removed = profiles.remove(Some(user)).await;
                removed.with_context(|| {
                    format!("cannot remove the settings of the removed user {user}: copy again")
                })?;
            }
        }
        for (counts, added, removed, all) in [
            (
                &mut self.report.users,
                changed.added.users,
                changed.removed_users,
                records.users().len(),
            ),
            (
                &mut self.report.keys,
                changed.added.keys,
                changed.removed_keys,
                records.keys().len(),
            ),
        ] {
            counts.added = added as u64;
            counts.removed = removed as u64;
            counts.existing = all.saturating_sub(added) as u64;
        }
        for AccountDifference { user, kind } in &changed.differences {
            self.report.users.different += 1;
            self.report_difference(Some(user.as_str()), &explain(user.as_str(), kind))?;
        }
        Ok(())
    }

    fn report_difference(&mut self, user: Option<&str>, problem: &str) -> anyhow::Result<()> {
        self.report.has_differences = true;
        let as_json = self.as_json;
        self.progress.suspend(|| match user {
            user if as_json => CopyReport::print_user(user, problem),
            user => {
                let owner = user.map_or_else(|| "the operator".to_owned(), |u| format!("user {u}"));
                print::error(&format!("{owner}: {problem}"));
                Ok(())
            }
        })
    }

    /// Copies the settings of a user, if the target has none, or has not changed them since both
    /// stores had the same. `copied` is the revision that the source has recorded as such.
    pub(super) async fn update_settings(
        &mut self,
        document: &EncryptedDocument,
        copied: Option<u64>,
    ) -> anyhow::Result<()> {
        self.stop.check()?;
        let TargetSettings::Opened(settings) = self.open_settings().await? else {
            return Ok(());
        };
        let updated = settings
            .update(document, copied)
            .await
            .map_err(Stores::explain_settings_error)?;
        let counts = &mut self.report.settings;
        match updated {
            UpdatedDocument::Added => counts.added += 1,
            UpdatedDocument::Replaced => counts.changed += 1,
            UpdatedDocument::Exists => counts.existing += 1,
            UpdatedDocument::Differs => {
                counts.different += 1;
                let problem = "the settings were changed in the target too, which keeps its own: enter                                there what is missing";
                self.report_difference(document.name.strip_prefix("users/"), problem)?;
            }
        }
        Ok(())
    }

    /// Copies the settings of a user, if the target has none.
    pub(super) async fn copy_settings(
        &mut self,
        document: &EncryptedDocument,
    ) -> anyhow::Result<()> {
        self.stop.check()?;
        let added = match self.open_settings().await? {
            TargetSettings::Opened(settings) => settings
                .add(document)
                .await
                .map_err(Stores::explain_settings_error)?,
            TargetSettings::Compared(Some(settings)) => {
                match settings.read(&document.name).await? {
                    None => AddedDocument::Added,
                    Some(existing) if existing == *document => AddedDocument::Exists,
                    Some(_) => AddedDocument::Differs,
                }
            }
            TargetSettings::Compared(None) | TargetSettings::Unopened => AddedDocument::Added,
        };
        let counts = &mut self.report.settings;
        match added {
            AddedDocument::Added => counts.added += 1,
            AddedDocument::Exists => counts.existing += 1,
            AddedDocument::Differs => counts.different += 1,
        }
        Ok(())
    }

    async fn open_settings(&mut self) -> anyhow::Result<&TargetSettings> {
        if let TargetSettings::Unopened = self.settings {
            self.settings = if self.mode == CopyMode::Compare {
                TargetSettings::Compared(self.stores.encrypted_settings_if_any().await?)
            } else {
                let key = self
                    .stores
                    .settings_key()?
                    .context("the key of the settings is missing")?;
                TargetSettings::Opened(self.stores.settings(key).await?)
            };
        }
        Ok(&self.settings)
    }

    /// Copies the next entries of the audit log.
    pub(super) async fn copy_audit(&mut self, entries: Vec<AuditEntry>) -> anyhow::Result<()> {
        self.stop.check()?;
        let count = entries.len();
        if self.audit.is_none() {
            let accounts = match self.mode {
                CopyMode::Compare => self.stores.accounts_to_read().await?,
                CopyMode::Append | CopyMode::LockAndAppend => Some(self.stores.accounts().await?),
            };
            if let Some(accounts) = accounts {
                self.audit = Some(AuditMerge::new(accounts.audit).await?);
            }
        }
        let added = match &mut self.audit {
            None => count,
            Some(audit) if self.mode == CopyMode::Compare => audit.missing(entries).len(),
            Some(audit) => audit.append_missing(entries).await?,
        };
        self.report.audit_entries.added += added as u64;
        self.report.audit_entries.existing += count.saturating_sub(added) as u64;
        Ok(())
    }

    /// Appends the command to the audit log of the target, unless it only compares. Returns the
    /// report.
    pub(super) async fn finish(self, command: &str) -> anyhow::Result<CopyReport> {
        if self.mode != CopyMode::Compare {
            self.stores
                .accounts()
                .await?
                .record_command(command.to_owned())
                .await?;
        }
        Ok(self.report)
    }
}

/// Says how a user differs in the target, and what to do.
fn explain(user: &str, kind: &AccountDifferenceKind) -> String {
    match kind {
        AccountDifferenceKind::OtherUser => format!(
            "the target has another user of this name, who was added there, so that no key was copied: \
             `glovebox user key add {user}` with the target as store adds one"
        ),
        AccountDifferenceKind::RemovedInTarget => format!(
            "removed in the target, and stays so: `glovebox user add {user} --restore` with the target as store restores it"
        ),
        AccountDifferenceKind::KeysOfTarget(keys) => {
            let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
            format!(
                "only the target has the valid keys {}: if they were revoked in the source, use `glovebox user key revoke ID` with \
                 the target as store",
                keys.join(", ")
            )
        }
        AccountDifferenceKind::TooManyKeys(key) => format!(
            "the target has too many keys, so that {key} was not copied: revoke others and copy again"
        ),
    }
}

/// Whether other conversations can be copied in spite of an error.
fn concerns_conversation(error: &ConversationsError) -> bool {
    match error {
        ConversationsError::Locked(_) | ConversationsError::Unknown(_) => true,
        ConversationsError::Store(error) => matches!(
            error,
            StoreError::OutOfOrder { .. }
                | StoreError::LeaseLost { .. }
                | StoreError::Damaged { .. }
                | StoreError::DamagedEntry { .. }
        ),
        _ => false,
    }
}

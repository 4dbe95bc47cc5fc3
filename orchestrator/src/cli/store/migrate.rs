//! `glovebox store migrate`.

use std::path::{Path, PathBuf};

use accounts::AuditStore;
use conversations::{CopyMode, LogPages};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use storage::EncryptedDocument;
use storage::schema::SchemaMigration;

use super::copy::{CopyOptions, CopyTarget, SettingsCheck};
use super::stop::StopSignal;
use crate::cli::{print, table};
use crate::compose::{StateDir, Stores};
use crate::config::{Config, is_postgres};
use crate::exit::{Exit, UsageError};
use crate::input_file::{self, MAX_SETTINGS_LENGTH};

/// Number of entries of the audit log per read.
const AUDIT_PAGE_SIZE: usize = 1000;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a target, migrates the tables of the configured store to this version, and prints the versions before and after. \
Each command does so when it opens a store; this one does only that.
With a target, copies conversations, users with their keys, settings and the audit log, but not sessions: users sign in \
again. A repeated copy carries over what has changed in the source: further events of conversations, new and revoked keys, \
removed users, and settings. What has changed in the target too is kept and reported, and the exit code is 1, but a key that was \
revoked in one of the stores is valid in neither. A conversation that runs is not copied; repeat the command when \
it has ended. Workspaces and the other files of the state folder stay where they are. Settings stay encrypted: the target \
needs the same key (secrets-key).
Examples:
  glovebox store migrate
  STORE_TO=postgres://glovebox:PASSWORD@db/glovebox glovebox store migrate
  glovebox store migrate --to-file /etc/glovebox/database --json
  glovebox store migrate --store postgres://db/glovebox --to ~/.glovebox")]
pub(in crate::cli) struct MigrateArguments {
    /// Copy everything to this database (postgres://USER:PASSWORD@HOST/NAME) or to this state
    /// folder. A password is better given in the variable STORE_TO, or in a file.
    #[arg(long, value_name = "URL|DIR", env = "STORE_TO", hide_env_values = true)]
    to: Option<String>,

    /// Like --to, with the address in a file.
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    to_file: Option<PathBuf>,

    /// Copy no settings and secrets of users.
    #[arg(long)]
    without_settings: bool,

    /// Print JSON: an array of the versions; or an object for each copied conversation, one for
    /// each user who differs in the target, and one with the totals.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(
    arguments: MigrateArguments,
    config: &Config,
    state_dir: &StateDir,
    stop: &StopSignal,
) -> anyhow::Result<Exit> {
    let Some(target) = target(&arguments)? else {
        let migrations = Stores::migrate(config, state_dir).await?;
        // Completes the overviews that lists need.
        let stores = Stores::open(config, state_dir).await?;
        if !migrations.is_empty() {
            stores.events().await?;
        }
        stores.close().await;
        print_versions(&migrations, arguments.json)?;
        return Ok(Exit::Finished);
    };
    let (to_config, to_dir) = target_config(&target, config, state_dir)?;
    let from = Stores::open(config, state_dir).await?;
    let to = match Stores::open_target(&to_config, &to_dir).await {
        Ok(to) => to,
        Err(error) => {
            from.close().await;
            return Err(error);
        }
    };
    let copied = copy(&arguments, &from, (&to, &to_dir), stop).await;
    to.close().await;
    from.close().await;
    copied
}

fn print_versions(
    migrations: &[(&'static str, SchemaMigration)],
    as_json: bool,
) -> anyhow::Result<()> {
    if as_json {
        let versions = migrations.iter().map(
            |(store, SchemaMigration { from, to })| json!({"store": store, "from": from, "to": to}),
        );
        print::line(&versions.collect::<Value>().to_string())?;
    } else if migrations.is_empty() {
        print::note("there is no store yet\n");
    } else {
        let rows = migrations
            .iter()
            .map(|(store, SchemaMigration { from, to })| {
                [(*store).to_owned(), from.to_string(), to.to_string()]
            });
        table::print(["STORE", "BEFORE", "NOW"], &rows.collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Returns the address of the database, or the folder, to copy to. `None` if none is given.
fn target(arguments: &MigrateArguments) -> anyhow::Result<Option<SecretString>> {
    let target = match &arguments.to_file {
        Some(file) => {
            let text =
                input_file::read_named(file, MAX_SETTINGS_LENGTH).and_then(input_file::to_text);
            let text = text.map_err(|error| {
                UsageError(format!(
                    "cannot read the address in {}: {error}",
                    file.display()
                ))
            })?;
            Some(text.trim().to_owned())
        }
        None => arguments.to.clone(),
    };
    if target.as_ref().is_some_and(String::is_empty) {
        return Err(UsageError("the target is empty".to_owned()).into());
    }
    Ok(target.map(SecretString::from))
}

/// Returns the configuration and the state folder of the target.
fn target_config(
    target: &SecretString,
    config: &Config,
    state_dir: &StateDir,
) -> anyhow::Result<(Config, StateDir)> {
    let mut to = config.clone();
    if is_postgres(target.expose_secret()) {
        if config.store.url.is_some() {
            let text =
                "both stores are databases: copy with PostgreSQL's programs, or with a backup";
            return Err(UsageError(text.to_owned()).into());
        }
        to.store.url = Some(target.clone());
        return Ok((to, state_dir.clone()));
    }
    if target.expose_secret().contains("://") {
        // The text may have a password.
        let text = "the target must be a folder, or start with postgres:// or postgresql://";
        return Err(UsageError(text.to_owned()).into());
    }
    let to_dir = StateDir::open(Path::new(target.expose_secret()))?;
    if config.store.url.is_none() && to_dir.path() == state_dir.path() {
        return Err(UsageError("the target is the store itself".to_owned()).into());
    }
    to.store.url = None;
    Ok((to, to_dir))
}

async fn copy(
    arguments: &MigrateArguments,
    from: &Stores,
    (to, to_dir): (&Stores, &StateDir),
    stop: &StopSignal,
) -> anyhow::Result<Exit> {
    let settings = if arguments.without_settings {
        Vec::new()
    } else {
        settings(from).await?
    };
    let check = SettingsCheck::new(to)?;
    settings
        .iter()
        .try_for_each(|(document, _)| check.check(document))?;
    let events = from.events_to_read().await?;
    let list = events.conversations().await?;
    let options = CopyOptions {
        mode: CopyMode::LockAndAppend,
        as_json: arguments.json,
        conversations: list.conversations.len() as u64,
    };
    let mut target = CopyTarget::open(to, from.locks_with(to), to_dir, options, stop).await?;
    list.damaged
        .into_iter()
        .for_each(|error| target.report_damaged(error));
    // The oldest first, so that those of one time keep their order.
    for summary in list.conversations.into_iter().rev() {
        let pages = LogPages::new(events.clone(), summary.id.clone());
        target.copy_conversation(&summary.id, pages).await?;
    }
    // Before the users: their removal removes settings, too.
    for (document, copied) in &settings {
        target.update_settings(document, *copied).await?;
    }
    if let Some(accounts) = from.accounts_to_read().await? {
        target
            .update_accounts(&accounts.users.records().await?)
            .await?;
        copy_audit(accounts.audit.as_ref(), &mut target).await?;
    }
    let report = target.finish("store migrate").await?;
    report.print(arguments.json)?;
    if to.is_shared() && !arguments.json {
        print::note("To use the database, set its address in STORE_URL or in url of [store].\n");
    }
    Ok(report.exit())
}

/// Returns all settings, which are few and small: one document of at most a mebibyte per user. Each
/// with its revision that was last the same in another store.
async fn settings(from: &Stores) -> anyhow::Result<Vec<(EncryptedDocument, Option<u64>)>> {
    let Some(documents) = from.encrypted_settings_if_any().await? else {
        return Ok(Vec::new());
    };
    let mut all: Vec<(EncryptedDocument, Option<u64>)> = Vec::new();
    loop {
        let page = documents
            .page(all.last().map_or("", |(last, _)| &last.name))
            .await?;
        if page.is_empty() {
            return Ok(all);
        }
        for document in page {
            let copied = documents.copied_revision(&document.name).await?;
            all.push((document, copied));
        }
    }
}

async fn copy_audit(audit: &dyn AuditStore, target: &mut CopyTarget<'_>) -> anyhow::Result<()> {
    let mut last = 0;
    loop {
        let page = audit.read_after(last, AUDIT_PAGE_SIZE).await?;
        let Some((number, _)) = page.last() else {
            return Ok(());
        };
        last = *number;
        target
            .copy_audit(page.into_iter().map(|(_, entry)| entry).collect())
            .await?;
    }
}

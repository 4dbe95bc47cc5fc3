//! Checks at the start of the server: what makes conversations fail is reported to the operator
//! before users meet it.
//!
//! What the operator has to correct is an error. What may come up later, such as an engine, is a
//! warning with the next step.

use std::error::Error;
use std::io;
use std::time::Duration;

use conversations::{Conversations, ConversationsError};
use engine::errors::format_chain;
use engine::events::StoreError;
use tokio::time::timeout;

use crate::cli::print;
use crate::compose::{self, CallMode, Models, StateDir, Stores};
use crate::config::{BlobPlace, Config, Runtime};
use crate::exit::UsageError;

/// Time for the place of blobs to respond. Servers of S3 are retried for longer.
const BLOBS_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks the place of large events, and then the store.
pub(super) async fn check_stores(
    config: &Config,
    state_dir: &StateDir,
    stores: &Stores,
    conversations: &Conversations,
) -> anyhow::Result<()> {
    if let Err(problem) = check_blobs(config, state_dir, stores).await? {
        print::warning(&format!(
            "{problem}: conversations with large events fail until this is corrected; check --blobs, or blobs under [store]"
        ));
        // A check of the store includes the blobs.
        return Ok(());
    }
    match conversations.check_store().await {
        Ok(()) => Ok(()),
        Err(ConversationsError::Store(error)) if may_recover(&error) => {
            print::warning(&format!(
                "{}: conversations fail until this is corrected; /ready then reports 200",
                format_chain(&error)
            ));
            Ok(())
        }
        Err(error) => {
            let (store, advice) = match config.store.url {
                Some(_) => (config.store.name(), ""),
                None => (
                    state_dir.events_file().display().to_string(),
                    "; if it is damaged, restore a backup into an empty one with `glovebox store restore`",
                ),
            };
            anyhow::bail!(
                "cannot use the store {store}: {}{advice}",
                format_chain(&error)
            )
        }
    }
}

/// Checks the place of large events. The inner error may be corrected while the server runs.
async fn check_blobs(
    config: &Config,
    state_dir: &StateDir,
    stores: &Stores,
) -> anyhow::Result<Result<(), String>> {
    let error = match timeout(BLOBS_TIMEOUT, stores.check_blobs()).await {
        Ok(Ok(())) => return Ok(Ok(())),
        Ok(Err(error)) => error,
        Err(_) => {
            let limit = BLOBS_TIMEOUT.as_secs();
            return Ok(Err(format!(
                "the place of blobs did not respond within {limit} s"
            )));
        }
    };
    let text = format_chain(&error);
    let folder = match &config.store.blobs {
        BlobPlace::S3(_) => return Ok(Err(text)),
        _ if may_recover(&error) => return Ok(Err(text)),
        BlobPlace::Folder(folder) => folder.clone(),
        BlobPlace::Default => BlobPlace::default_folder(state_dir.path()),
    };
    let folder = folder.display();
    Err(UsageError(format!(
        "{text}: check the folder {folder}, which --blobs or blobs under [store] names"
    ))
    .into())
}

/// Whether a store may be usable later without a change of the configuration.
fn may_recover(error: &StoreError) -> bool {
    let source: Option<&(dyn Error + 'static)> = error.source();
    let mut causes = std::iter::successors(source, |&cause| cause.source());
    matches!(error, StoreError::Full { .. })
        || causes.any(|cause| {
            cause
                .downcast_ref::<io::Error>()
                .is_some_and(|cause| cause.kind() == io::ErrorKind::NotConnected)
        })
}

/// Warns if no sandbox can be created now. An engine may start later, and services on other
/// machines are not asked.
pub(super) async fn warn_without_sandboxes(config: &Config, state_dir: &StateDir) {
    let checked = match config.runtime {
        Runtime::Docker => compose::check_docker(config, state_dir).await,
        Runtime::Local => compose::isolation(config, state_dir).await.map(drop),
        Runtime::Ssh | Runtime::Remote | Runtime::Auto => Ok(()),
    };
    if let Err(error) = checked {
        let runtime = &config.runtime;
        print::warning(&format!(
            "{}; until this is corrected, no conversation gets a sandbox: check it with `glovebox doctor --runtime {runtime}`",
            format_chain(error.as_ref())
        ));
    }
}

/// Warns if the budget has no effect.
pub(super) fn warn_about_budget(config: &Config) -> anyhow::Result<()> {
    let models = Models::new(config, 0, CallMode::Live)?;
    if let Some(warning) = models.budget_warning(config, config.max_budget) {
        print::warning(&warning);
    }
    Ok(())
}

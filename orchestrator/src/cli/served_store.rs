//! The store of the server, for commands that administer its users and data.

use super::{print, trusted_config};
use crate::compose::{self, ServedStore, StateDir};
use crate::config::{Config, Overrides, StoreSettings};
use crate::exit::UsageError;
use crate::redacted_stderr;

/// What a command does with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreUse {
    /// Shows some of it.
    Show,
    /// Changes it, or copies all of it: the wrong store is not noticed in time.
    ChangeOrCopy,
}

/// Opens the state folder of a command for the server's users or data. If the server of that folder
/// uses another store, so does the command, unless the user has named one; if it cannot, it warns,
/// or fails if it would change or copy the wrong store. The last store of a server that is stopped
/// counts if nothing names another one.
pub(super) fn open_state_of_server(
    config: &mut Config,
    overrides: &Overrides,
    store_use: StoreUse,
) -> anyhow::Result<StateDir> {
    let state_dir = StateDir::open(&config.state_dir)?;
    let Some(served) = other_store(config, &state_dir) else {
        return Ok(state_dir);
    };
    match find(&served, overrides).filter(|_| !is_insisted(config, overrides)) {
        Some(store) => {
            config.store = store;
            redacted_stderr::set_redactor(compose::redactor(config)?);
            let file = served
                .config_file
                .as_ref()
                .map(|file| file.display().to_string())
                .unwrap_or_default();
            print::note(&format!(
                "using {}, the store of the server, from {file}\n",
                served.name
            ));
        }
        None => report(&served, config, overrides, store_use)?,
    }
    Ok(state_dir)
}

/// Opens the state folder of a command for conversations, which may be those of a server or of runs
/// in their own store. Warns if the server uses another store, or fails if the command could remove
/// files of the server's conversations.
pub(super) fn open_state(
    config: &Config,
    overrides: &Overrides,
    store_use: StoreUse,
) -> anyhow::Result<StateDir> {
    let state_dir = StateDir::open(&config.state_dir)?;
    if let Some(served) = other_store(config, &state_dir) {
        report(&served, config, overrides, store_use)?;
    }
    Ok(state_dir)
}

/// Returns the store of the server, or of the last one, if it is another one than the command's.
fn other_store(config: &Config, state_dir: &StateDir) -> Option<ServedStore> {
    let served = state_dir.served_store()?;
    let is_other =
        served.name != config.store.name() && (served.is_running || !config.store.is_chosen);
    is_other.then_some(served)
}

/// Whether the user knows that the command does not use the server's store.
fn is_insisted(config: &Config, overrides: &Overrides) -> bool {
    let names_file = config.store.is_chosen && config.store.url.is_none();
    names_file
        || overrides.store.is_some()
        || overrides.blobs.is_some()
        || overrides.config_file.is_some()
}

fn report(
    served: &ServedStore,
    config: &Config,
    overrides: &Overrides,
    store_use: StoreUse,
) -> Result<(), UsageError> {
    let uses = if served.is_running {
        "uses"
    } else {
        "has last used"
    };
    let problem = format!(
        "the server of this state folder {uses} {}, this command uses {}: give it the server's --store (STORE_URL) or \
         --config-file",
        served.name,
        config.store.name()
    );
    if store_use == StoreUse::ChangeOrCopy && !is_insisted(config, overrides) {
        return Err(UsageError(format!(
            "{problem}; `--store file` insists on the file in the state folder"
        )));
    }
    print::warning(&problem);
    Ok(())
}

/// Checks that a server does not go back from a database to the file in the state folder only
/// because nothing names the database: removed users and revoked keys would be back.
pub(super) fn check_not_lost(config: &Config, state_dir: &StateDir) -> Result<(), UsageError> {
    let own = config.store.name();
    match state_dir.served_store() {
        Some(served) if served.name != own && !config.store.is_chosen => Err(UsageError(format!(
            "the server of this state folder has last used {}, and nothing names a store now: set url in [store] (STORE_URL), or \
             give `--store file` to go back to the file in the state folder",
            served.name
        ))),
        _ => Ok(()),
    }
}

/// Reads the address of the store from the configuration file of the server. `None` if that cannot
/// be read, or the server has the address from elsewhere.
fn find(served: &ServedStore, overrides: &Overrides) -> Option<StoreSettings> {
    let overrides = Overrides {
        config_file: Some(served.config_file.clone()?),
        ..overrides.clone()
    };
    let store = trusted_config::load(&overrides).ok()?.store;
    (store.name() == served.name).then_some(store)
}

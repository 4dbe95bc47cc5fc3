//! `[store]`: where event logs are kept.

use std::time::Duration;

use secrecy::SecretString;

use super::Overrides;
use super::settings::{ConfigError, Settings};

/// Default time after which other hosts take over the conversations of one that no longer renews its leases.
const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(45);

/// Minimum of it. A third of it is the interval of renewals.
const MIN_LEASE_DURATION: Duration = Duration::from_secs(3);

/// Maximum of it.
const MAX_LEASE_DURATION: Duration = Duration::from_hours(1);

/// The store, as configured.
#[derive(Debug, Clone)]
pub(crate) struct StoreSettings {
    /// Address of a PostgreSQL database, which may have a password. `None` for a file in the state folder.
    pub url: Option<SecretString>,
    /// Time after which other hosts take over the conversations of one that no longer renews its leases.
    pub lease_duration: Duration,
}

impl StoreSettings {
    pub(super) fn read(settings: &Settings, overrides: &Overrides) -> Result<Self, ConfigError> {
        let url = overrides.store.clone().or_else(|| settings.text("store", "url"));
        if url.as_ref().is_some_and(|url| !is_postgres(url)) {
            // The text may have a password.
            return Err(ConfigError::Store(
                "the url must start with postgres:// or postgresql://".to_owned(),
            ));
        }
        let duration = settings.number("store", "lease_duration");
        let lease_duration = duration.map_or(DEFAULT_LEASE_DURATION, |seconds| {
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        });
        if !(MIN_LEASE_DURATION..=MAX_LEASE_DURATION).contains(&lease_duration) {
            let (min, max) = (MIN_LEASE_DURATION.as_secs(), MAX_LEASE_DURATION.as_secs());
            return Err(ConfigError::Store(format!("lease_duration must be from {min} to {max} seconds")));
        }
        Ok(Self { url: url.map(SecretString::from), lease_duration })
    }
}

/// Whether a text is the address of a PostgreSQL database.
pub(crate) fn is_postgres(url: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme))
}

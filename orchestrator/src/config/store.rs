//! `[store]`: where event logs and large events are stored.

use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use storage::{S3_VARIABLES, S3Options};

use super::Overrides;
use super::host::{expand_home, variable};
use super::settings::{ConfigError, Origin, Settings};

/// Default time after which other hosts take over the conversations of one that no longer renews
/// its leases.
const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(45);

/// Minimum of it. A third of it is the interval of renewals.
const MIN_LEASE_DURATION: Duration = Duration::from_secs(3);

/// Maximum of it.
const MAX_LEASE_DURATION: Duration = Duration::from_hours(1);

/// The address that stands for the file in the state folder, although its server has used a
/// database.
const FILE_NAME: &str = "file";

/// The store, as configured.
#[derive(Debug, Clone)]
pub(crate) struct StoreSettings {
    /// Address of a PostgreSQL database, which may have a password. `None` for a file in the state
    /// folder.
    pub url: Option<SecretString>,
    /// Whether the user has named the database, or [`FILE_NAME`].
    pub is_chosen: bool,
    /// The file that the address is from. `None` if it is from elsewhere.
    pub url_file: Option<PathBuf>,
    /// Where large events are.
    pub blobs: BlobPlace,
    /// Time after which other hosts take over the conversations of one that no longer renews its
    /// leases.
    pub lease_duration: Duration,
}

/// A place of large events.
#[derive(Debug, Clone)]
pub(crate) enum BlobPlace {
    /// A folder in the state folder, or the database if one is configured.
    Default,
    /// A folder.
    Folder(PathBuf),
    /// A bucket of S3 or of a compatible server.
    S3(S3Options),
}

impl StoreSettings {
    pub(super) fn read(
        settings: &Settings,
        overrides: &Overrides,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let url = overrides
            .store
            .clone()
            .or_else(|| settings.text("store", "url"));
        let is_chosen = url.is_some();
        let url = url.filter(|url| url != FILE_NAME);
        let url_file = match settings.find("store", "url").map(|setting| &setting.origin) {
            Some(Origin::File(path, _)) if overrides.store.is_none() => path.canonicalize().ok(),
            _ => None,
        };
        if url.as_ref().is_some_and(|url| !is_postgres(url)) {
            // The text may have a password.
            return Err(ConfigError::Store(
                "the url must start with postgres:// or postgresql://, or be `file`".to_owned(),
            ));
        }
        let duration = settings.number("store", "lease_duration");
        let lease_duration = duration.map_or(DEFAULT_LEASE_DURATION, |seconds| {
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        });
        if !(MIN_LEASE_DURATION..=MAX_LEASE_DURATION).contains(&lease_duration) {
            let (min, max) = (MIN_LEASE_DURATION.as_secs(), MAX_LEASE_DURATION.as_secs());
            return Err(ConfigError::Store(format!(
                "lease_duration must be from {min} to {max} seconds"
            )));
        }
        let blobs = overrides
            .blobs
            .clone()
            .or_else(|| settings.text("store", "blobs"));
        let blobs = blobs.map_or(Ok(BlobPlace::Default), |place| {
            BlobPlace::read(&place, environment)
        })?;
        Ok(Self {
            url: url.map(SecretString::from),
            is_chosen,
            url_file,
            blobs,
            lease_duration,
        })
    }

    /// Name of the store for people, without user and password.
    pub(crate) fn name(&self) -> String {
        let Some(url) = &self.url else {
            return "the file in the state folder".to_owned();
        };
        let address = url
            .expose_secret()
            .split_once("://")
            .map_or("", |(_, address)| address);
        let address = address
            .rsplit_once('@')
            .map_or(address, |(_, address)| address);
        format!(
            "postgres://{}",
            address.split('?').next().unwrap_or_default()
        )
    }

    /// The secrets of S3, which are not in a file.
    pub(crate) fn s3_secrets(&self) -> impl Iterator<Item = &SecretString> {
        let variables = match &self.blobs {
            BlobPlace::S3(options) => options.variables.as_slice(),
            BlobPlace::Default | BlobPlace::Folder(_) => &[],
        };
        let secret = ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
        variables
            .iter()
            .filter(move |(name, _)| secret.contains(name))
            .map(|(_, value)| value)
    }
}

impl BlobPlace {
    fn read(
        place: &str,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let Some(address) = place.strip_prefix("s3://") else {
            if place.is_empty() || place.contains("://") {
                return Err(ConfigError::Store(format!(
                    "blobs must be a folder or s3://BUCKET/PREFIX, not {place:?}"
                )));
            }
            let folder = expand_home(PathBuf::from(place), environment)?;
            return Ok(Self::Folder(std::path::absolute(&folder).unwrap_or(folder)));
        };
        let (bucket, prefix) = address.split_once('/').unwrap_or((address, ""));
        let value = |name: &'static str| Some((name, variable(environment, name)?.into()));
        Ok(Self::S3(S3Options {
            bucket: bucket.to_owned(),
            prefix: prefix.trim_end_matches('/').to_owned(),
            variables: S3_VARIABLES.into_iter().filter_map(value).collect(),
        }))
    }

    /// Returns the default folder, in the state folder.
    pub(crate) fn default_folder(state_dir: &Path) -> PathBuf {
        state_dir.join("blobs")
    }
}

/// Whether a text is the address of a PostgreSQL database.
pub(crate) fn is_postgres(url: &str) -> bool {
    ["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
}

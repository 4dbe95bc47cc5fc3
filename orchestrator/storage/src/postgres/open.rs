//! Options and errors of opening the store.

use std::error::Error;
use std::sync::Arc;

use rustls::RootCertStore;

use super::leases::LeaseTiming;
use crate::blobs::BlobStore;

/// How to open a PostgreSQL store.
#[derive(Clone, Default)]
pub struct PostgresOptions {
    /// The authorities that TLS trusts. `None` for those of the machine.
    pub roots: Option<Arc<RootCertStore>>,
    /// Times of leases. All hosts of a database have the same.
    pub lease_timing: LeaseTiming,
    /// Address at which other hosts reach the one that runs a conversation.
    pub address: Option<String>,
    /// Where large events are, the same for all hosts of a database. `None` if they are in the
    /// database.
    pub blobs: Option<BlobStore>,
}

/// Error of opening the store.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    /// The address is invalid. A retry fails.
    #[error("cannot parse the address of the database")]
    Address(#[source] tokio_postgres::Error),
    /// The address names no host. A retry fails.
    #[error("the address of the database names no host: postgres://USER:PASSWORD@HOST/NAME")]
    NoHost,
    /// The address has an `@` that is not encoded, so that a part of a password could count as the
    /// host. A retry fails.
    #[error(
        "the address of the database has several @: encode all but the one in front of the host as %40 (also / as %2F, # as \
         %23, ? as %3F)"
    )]
    NotEncoded,
    /// TLS cannot be configured. A retry fails.
    #[error("cannot configure TLS")]
    Tls(#[source] rustls::Error),
    /// The pool of connections cannot be created. A retry fails.
    #[error("cannot create a pool of connections")]
    Pool(#[source] Box<dyn Error + Send + Sync>),
    /// The server does not accept the connection. A retry succeeds if it was only unavailable.
    #[error("cannot connect to the database {database}")]
    Connect {
        /// The database, without a password.
        database: String,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The schema cannot be migrated.
    #[error("cannot migrate the database {database} to version {version}")]
    Migrate {
        /// The database.
        database: String,
        /// The target version.
        version: i64,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The user of the address may not create the tables.
    #[error(
        "{user} may not create tables in the database {database}: as its owner, run GRANT CREATE ON SCHEMA public TO {user}"
    )]
    NotAllowed {
        /// The database.
        database: String,
        /// The user.
        user: String,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The user of the address may not change the tables of an earlier version.
    #[error(
        "{user} may not change the tables of the database {database} for this version: run `glovebox store migrate` as their owner"
    )]
    NotOwner {
        /// The database.
        database: String,
        /// The user.
        user: String,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A newer version of Glovebox has migrated the database. A retry fails.
    #[error(
        "the database {database} has version {found}, and this program knows {known}: use the newer glovebox, or restore a \
         backup of this version"
    )]
    TooNew {
        /// The database.
        database: String,
        /// Its version.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
}

impl PostgresOpenError {
    /// Whether the user has to correct it: a retry fails.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::Address(_)
                | Self::NotEncoded
                | Self::NoHost
                | Self::NotAllowed { .. }
                | Self::NotOwner { .. }
                | Self::TooNew { .. }
        )
    }
}

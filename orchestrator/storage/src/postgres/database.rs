//! Bounded pool of connections, which replaces broken ones, and the classes of failed statements.
//!
//! A restart of PostgreSQL closes all connections. Statements that were not sent yet wait up to
//! [`RECONNECT_TIMEOUT`] for the server. The result of a statement that was sent is unknown then.
//!
//! An access to an unresponsive server waits for the whole timeout. Accesses within
//! [`SHORT_PERIOD`] after it wait a short time for a connection, because a request makes several,
//! and waits for other requests. The timeout of a response is never shortened: a statement that the
//! server still executes would be taken for a failed one.

use std::ops::Add;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::{
    Client, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, TimeoutType,
};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::connector::Connector;
use super::migrations;
use super::open::PostgresOpenError;

/// Time to wait for a connection while all are in use.
const POOL_TIMEOUT: Duration = Duration::from_secs(10);

/// Time to wait for a server that accepts no connections, for example because it restarts.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);

const RECONNECT_DELAY: Duration = Duration::from_millis(100);

/// Time to wait for a response. Longer than the server's own limit, and reached only if the server
/// is not responding.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Time after an access without a response.
const SHORT_PERIOD: Duration = Duration::from_secs(10);

/// Time to wait for a connection within [`SHORT_PERIOD`].
const SHORT_RECONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time to wait for migrations, including those of another host.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Attempts of a statement that can be repeated.
const MAX_ATTEMPTS: usize = 3;

/// Parameters of a statement.
pub(super) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatabaseError {
    /// There is no connection. Nothing was sent.
    #[error("cannot connect to PostgreSQL")]
    Unavailable(#[source] PoolError),
    /// The server rejected the statement. Nothing was changed.
    #[error("PostgreSQL rejected the statement")]
    Rejected(#[source] Error),
    /// The connection broke, or the response is malformed. It is unknown whether the statement was
    /// executed.
    #[error("cannot receive the response of PostgreSQL")]
    Interrupted(#[source] Error),
    /// The server did not respond. It is unknown whether the statement was executed.
    #[error("PostgreSQL did not respond within {} s", .after.as_secs())]
    Unresponsive { after: Duration, source: Elapsed },
}

impl DatabaseError {
    /// Whether the statement may have been executed.
    pub(super) fn is_result_unknown(&self) -> bool {
        matches!(self, Self::Interrupted(_) | Self::Unresponsive { .. })
    }

    /// Whether the user of the connection lacks the right to execute the statement.
    pub(super) fn is_not_allowed(&self) -> bool {
        matches!(self, Self::Rejected(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE))
    }

    /// Whether the server rejected the content of the statement, rather than cancelled it at its
    /// time limit.
    pub(super) fn is_rejection(&self) -> bool {
        matches!(self, Self::Rejected(error) if error.code() != Some(&SqlState::QUERY_CANCELED))
    }
}

impl From<Error> for DatabaseError {
    /// Classifies the error of a statement that was sent.
    fn from(error: Error) -> Self {
        match error.as_db_error() {
            Some(rejection) if !is_shutdown(rejection.code()) => Self::Rejected(error),
            _ => Self::Interrupted(error),
        }
    }
}

/// Whether the server has closed the connection, or will not accept one yet.
fn is_shutdown(code: &SqlState) -> bool {
    [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
    ]
    .contains(code)
}

/// Use of a pool's connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Number of connections in use.
    pub used: usize,
    /// Number of open connections that are not in use.
    pub idle: usize,
    /// Number of operations that wait for a connection.
    pub waiting: usize,
}

impl Add for PoolUsage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            used: self.used + other.used,
            idle: self.idle + other.idle,
            waiting: self.waiting + other.waiting,
        }
    }
}

/// Returns the cause of a failed connection, without the errors around it, which say the same.
fn root_cause(error: PoolError) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        PoolError::Backend(error) => {
            let text = error.to_string();
            error.into_source().unwrap_or_else(|| text.into())
        }
        error => error.into(),
    }
}

/// The connections of a store.
pub(super) struct Database {
    pool: Pool,
    /// When the last access without a response ended. `None` after a response.
    unresponsive_at: Mutex<Option<Instant>>,
}

impl Database {
    pub(super) fn usage(&self) -> PoolUsage {
        let status = self.pool.status();
        let idle = status.available.min(status.size);
        PoolUsage {
            used: status.size - idle,
            idle,
            waiting: status.waiting,
        }
    }

    /// Creates the pool and connects once.
    pub(super) async fn connect(
        connector: &Connector,
        max_connections: usize,
    ) -> Result<Self, PostgresOpenError> {
        let config = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = Manager::from_connect(connector.config().clone(), connector.clone(), config);
        let pool = Pool::builder(manager)
            .max_size(max_connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(POOL_TIMEOUT))
            .create_timeout(Some(RECONNECT_TIMEOUT))
            .build()
            .map_err(|error| PostgresOpenError::Pool(error.into()))?;
        match pool.get().await {
            Ok(_) => Ok(Self {
                pool,
                unresponsive_at: Mutex::new(None),
            }),
            Err(error) => Err(PostgresOpenError::Connect {
                database: connector.to_string(),
                source: root_cause(error),
            }),
        }
    }

    /// Migrates the schema. Returns the version before.
    pub(super) async fn migrate(&self) -> Result<i64, DatabaseError> {
        let mut client = self.client(RECONNECT_TIMEOUT).await?;
        match timeout(MIGRATION_TIMEOUT, migrations::run(&mut client)).await {
            Ok(version) => Ok(version?),
            Err(source) => Err(abandon(client, MIGRATION_TIMEOUT, source)),
        }
    }

    /// Whether the database has tables of some version. `false` if that cannot be read.
    pub(super) async fn is_migrated(&self) -> bool {
        let rows = self.query(migrations::IS_MIGRATED, &[]).await;
        let is_migrated = rows.ok().and_then(|rows| rows.first()?.try_get(0).ok());
        is_migrated.unwrap_or(false)
    }

    /// Executes a statement that may be repeated: again if the connection breaks.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, DatabaseError> {
        for _ in 1..MAX_ATTEMPTS {
            match self.query_once(sql, parameters).await {
                Err(error @ DatabaseError::Interrupted(_)) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "repeating a statement"
                    );
                }
                result => return result,
            }
        }
        self.query_once(sql, parameters).await
    }

    /// Executes a statement at most once.
    pub(super) async fn query_once(
        &self,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, DatabaseError> {
        let is_short = self
            .unresponsive_at()
            .is_some_and(|at| at.elapsed() < SHORT_PERIOD);
        let client = self
            .client(if is_short {
                SHORT_RECONNECT_TIMEOUT
            } else {
                RECONNECT_TIMEOUT
            })
            .await;
        let client = match client {
            Err(DatabaseError::Unavailable(PoolError::Timeout(TimeoutType::Create)))
                if !is_short =>
            {
                self.set_unresponsive_at(Some(Instant::now()));
                client?
            }
            client => client?,
        };
        let rows = async {
            let statement = client.prepare_cached(sql).await?;
            client.query(&statement, parameters).await
        };
        match timeout(RESPONSE_TIMEOUT, rows).await {
            Ok(rows) => {
                self.set_unresponsive_at(None);
                Ok(rows?)
            }
            Err(source) => {
                self.set_unresponsive_at(Some(Instant::now()));
                // The others are of the same server, and would let each access wait as long.
                self.pool.retain(|_, _| false);
                Err(abandon(client, RESPONSE_TIMEOUT, source))
            }
        }
    }

    fn unresponsive_at(&self) -> Option<Instant> {
        *self
            .unresponsive_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn set_unresponsive_at(&self, at: Option<Instant>) {
        *self
            .unresponsive_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// Closes all connections once they are not in use.
    pub(super) fn close(&self) {
        self.pool.close();
    }

    /// Returns a connection. Waits for a server that restarts.
    async fn client(&self, max_wait: Duration) -> Result<Client, DatabaseError> {
        let mut last = PoolError::Timeout(TimeoutType::Create);
        let connecting = async {
            loop {
                match self.pool.get().await {
                    Ok(client) => return Ok(client),
                    Err(error) if may_restart(&error) => {
                        tracing::debug!(
                            error = &error as &dyn std::error::Error,
                            "connecting again"
                        );
                        last = error;
                        sleep(RECONNECT_DELAY).await;
                    }
                    Err(error) => return Err(DatabaseError::Unavailable(error)),
                }
            }
        };
        let connected = timeout(max_wait, connecting).await;
        connected.unwrap_or(Err(DatabaseError::Unavailable(last)))
    }
}

/// Closes a connection whose server does not respond, instead of returning it to the pool.
fn abandon(client: Client, after: Duration, source: Elapsed) -> DatabaseError {
    drop(Object::take(client));
    DatabaseError::Unresponsive { after, source }
}

/// Whether the server may accept connections soon. A rejection, such as a wrong password, is final.
fn may_restart(error: &PoolError) -> bool {
    match error {
        PoolError::Backend(error) => error
            .code()
            .is_none_or(|code| is_shutdown(code) || *code == SqlState::TOO_MANY_CONNECTIONS),
        PoolError::Timeout(kind) => matches!(kind, TimeoutType::Create),
        _ => false,
    }
}

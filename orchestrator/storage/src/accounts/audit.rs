//! The audit log.

use accounts::{AuditActor, AuditEntry, AuditFilter, KeyId};
use protocol::{ConversationId, UserId};
use rusqlite::{Connection, Row, TransactionBehavior, params};

use super::parse_text;
use crate::audit_row::{ActorRow, is_removal_due, max_by_kind, max_by_user, max_of_known};

pub(super) fn append(
    connection: &mut Connection,
    entry: &AuditEntry,
    max: u64,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    insert(&transaction, entry)?;
    if is_removal_due(transaction.last_insert_rowid(), 1) {
        remove_oldest(&transaction, max)?;
    }
    transaction.commit()
}

pub(super) fn append_all(
    connection: &mut Connection,
    entries: &[AuditEntry],
    max: u64,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    entries
        .iter()
        .try_for_each(|entry| insert(&transaction, entry))?;
    if is_removal_due(transaction.last_insert_rowid(), entries.len()) {
        remove_oldest(&transaction, max)?;
    }
    transaction.commit()
}

fn insert(connection: &Connection, entry: &AuditEntry) -> rusqlite::Result<()> {
    const INSERT: &str = "
        INSERT INTO audit (at_ms, actor, user, key, address, action, conversation, status)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let AuditEntry {
        at_ms,
        actor,
        address,
        action,
        conversation,
        status,
    } = entry;
    let ActorRow { kind, user, key } = ActorRow::new(actor);
    connection.prepare_cached(INSERT)?.execute(params![
        at_ms,
        kind,
        user,
        key,
        address.map(|address| address.to_string()),
        action,
        conversation.as_ref().map(ConversationId::as_str),
        status,
    ])?;
    Ok(())
}

/// Removes the oldest entries.
fn remove_oldest(connection: &Connection, max: u64) -> rusqlite::Result<()> {
    const REMOVE: &str = "
        DELETE FROM audit WHERE (actor = 'unknown') = ?1 AND number <= (
            SELECT number FROM audit WHERE (actor = 'unknown') = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2
        )";
    const IS_FULL: &str =
        "SELECT EXISTS (SELECT 1 FROM audit WHERE (actor = 'unknown') = 0 LIMIT 1 OFFSET ?1)";
    const USERS_ABOVE_SHARE: &str =
        "SELECT user FROM audit WHERE user IS NOT NULL GROUP BY user HAVING count(*) > ?1";
    const REMOVE_OF_USER: &str = "
        DELETE FROM audit WHERE user = ?1 AND number <= (
            SELECT number FROM audit WHERE user = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2
        )";
    if connection.query_row(IS_FULL, [max_of_known(max)], |row| row.get(0))? {
        let max_of_user = max_by_user(max);
        let mut above = connection.prepare_cached(USERS_ABOVE_SHARE)?;
        let users: Vec<String> = above
            .query_map([max_of_user], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        for user in users {
            connection.execute(REMOVE_OF_USER, params![user, max_of_user])?;
        }
    }
    for (is_unknown, max) in max_by_kind(max) {
        connection.execute(REMOVE, params![is_unknown, max])?;
    }
    Ok(())
}

pub(super) fn read(
    connection: &Connection,
    filter: &AuditFilter,
) -> rusqlite::Result<Vec<AuditEntry>> {
    const READ: &str = "
        SELECT at_ms, actor, user, key, address, action, conversation, status FROM audit
        WHERE (?1 IS NULL OR user = ?1) AND (?2 IS NULL OR conversation = ?2)
        ORDER BY number DESC LIMIT ?3";
    let mut statement = connection.prepare_cached(READ)?;
    let rows = statement.query_map(
        params![
            filter.user.as_ref().map(UserId::as_str),
            filter.conversation.as_ref().map(ConversationId::as_str),
            i64::try_from(filter.limit).unwrap_or(i64::MAX),
        ],
        parse,
    )?;
    let mut entries = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    entries.reverse();
    Ok(entries)
}

pub(super) fn read_after(
    connection: &Connection,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<(u64, AuditEntry)>> {
    const READ: &str = "
        SELECT at_ms, actor, user, key, address, action, conversation, status, number FROM audit
        WHERE number > ?1 ORDER BY number LIMIT ?2";
    // One that cannot be stored is beyond the end.
    let (Ok(after), limit) = (
        i64::try_from(after),
        i64::try_from(limit).unwrap_or(i64::MAX),
    ) else {
        return Ok(Vec::new());
    };
    let mut statement = connection.prepare_cached(READ)?;
    statement
        .query_map([after, limit], |row| Ok((row.get(8)?, parse(row)?)))?
        .collect()
}

fn parse(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    let kind: String = row.get(1)?;
    let actor = match (kind.as_str(), row.get::<_, Option<String>>(2)?) {
        (ActorRow::USER, Some(name)) => AuditActor::User {
            name: parse_text(2, name, UserId::try_from)?,
            key: parse_optional(row, 3, |key| key.parse::<KeyId>())?,
        },
        (ActorRow::OPERATOR, _) => AuditActor::Operator,
        _ => AuditActor::Unknown,
    };
    Ok(AuditEntry {
        at_ms: row.get(0)?,
        actor,
        address: parse_optional(row, 4, |address| address.parse::<std::net::IpAddr>())?,
        action: row.get(5)?,
        conversation: parse_optional(row, 6, ConversationId::try_from)?,
        status: row.get(7)?,
    })
}

fn parse_optional<T, E>(
    row: &Row<'_>,
    column: usize,
    parse: impl FnOnce(String) -> Result<T, E>,
) -> rusqlite::Result<Option<T>>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let text: Option<String> = row.get(column)?;
    text.map(|text| parse_text(column, text, parse)).transpose()
}

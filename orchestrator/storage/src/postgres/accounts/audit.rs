//! The audit log.

use accounts::{AuditActor, AuditEntry, AuditFilter, KeyId};
use protocol::{ConversationId, UserId};
use tokio_postgres::Row;

use super::{Database, stored};
use crate::audit_row::{ActorRow, REMOVAL_INTERVAL, max_by_kind};
use crate::postgres::read::BoxError;

const APPEND: &str = "
    INSERT INTO audit (at_ms, actor, user_name, key, address, action, conversation, status)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    RETURNING number";

const REMOVE: &str = "
    DELETE FROM audit WHERE (actor = 'unknown') = $1 AND number <= (
        SELECT number FROM audit WHERE (actor = 'unknown') = $1 ORDER BY number DESC LIMIT 1 OFFSET $2
    )";

const READ: &str = "
    SELECT at_ms, actor, user_name, key, address, action, conversation, status FROM audit
    WHERE ($1::text IS NULL OR user_name = $1) AND ($2::text IS NULL OR conversation = $2)
    ORDER BY number DESC LIMIT $3";

pub(super) async fn append(database: &Database, entry: &AuditEntry, max: u64) -> Result<(), BoxError> {
    let AuditEntry { at_ms, actor, address, action, conversation, status } = entry;
    let ActorRow { kind, user, key } = ActorRow::new(actor);
    let rows = database
        .query_once(
            APPEND,
            &[
                &stored(*at_ms),
                &kind,
                &user,
                &key,
                &address.map(|address| address.to_string()),
                action,
                &conversation.as_ref().map(ConversationId::as_str),
                &status.map(i32::from),
            ],
        )
        .await?;
    let number: i64 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default();
    if number % REMOVAL_INTERVAL == 0 {
        for (is_unknown, max) in max_by_kind(max) {
            database.query(REMOVE, &[&is_unknown, &max]).await?;
        }
    }
    Ok(())
}

pub(super) async fn read(database: &Database, filter: &AuditFilter) -> Result<Vec<AuditEntry>, BoxError> {
    let AuditFilter { user, conversation, limit } = filter;
    let conversation = conversation.as_ref().map(ConversationId::as_str);
    let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
    let rows = database.query(READ, &[&user.as_ref().map(UserId::as_str), &conversation, &limit]).await?;
    rows.iter().rev().map(parse).collect()
}

fn parse(row: &Row) -> Result<AuditEntry, BoxError> {
    let actor = match (row.try_get::<_, &str>(1)?, row.try_get::<_, Option<String>>(2)?) {
        (ActorRow::USER, Some(name)) => AuditActor::User {
            name: UserId::try_from(name)?,
            key: row.try_get::<_, Option<&str>>(3)?.map(str::parse::<KeyId>).transpose()?,
        },
        (ActorRow::OPERATOR, _) => AuditActor::Operator,
        _ => AuditActor::Unknown,
    };
    Ok(AuditEntry {
        at_ms: u64::try_from(row.try_get::<_, i64>(0)?)?,
        actor,
        address: row.try_get::<_, Option<&str>>(4)?.map(str::parse).transpose()?,
        action: row.try_get(5)?,
        conversation: row.try_get::<_, Option<String>>(6)?.map(ConversationId::try_from).transpose()?,
        status: row.try_get::<_, Option<i32>>(7)?.map(u16::try_from).transpose()?,
    })
}

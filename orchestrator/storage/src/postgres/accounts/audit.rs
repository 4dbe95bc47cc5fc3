//! The audit log.

use accounts::{AuditActor, AuditEntry, AuditFilter, KeyId};
use protocol::{ConversationId, UserId};
use tokio_postgres::Row;

use super::{Database, stored};
use crate::audit_row::{ActorRow, is_removal_due, max_by_kind, max_by_user, max_of_known};
use crate::postgres::database::Parameters;
use crate::postgres::read::BoxError;

const APPEND: &str = "
    INSERT INTO audit (at_ms, actor, user_name, key, address, action, conversation, status)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    RETURNING number";

const APPEND_ALL: &str = "
    INSERT INTO audit (at_ms, actor, user_name, key, address, action, conversation, status)
    SELECT at_ms, actor, user_name, key, address, action, conversation, status
    FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[])
        WITH ORDINALITY AS entry (at_ms, actor, user_name, key, address, action, conversation, status, position)
    ORDER BY position
    RETURNING number";

const REMOVE: &str = "
    DELETE FROM audit WHERE (actor = 'unknown') = $1 AND number <= (
        SELECT number FROM audit WHERE (actor = 'unknown') = $1 ORDER BY number DESC LIMIT 1 OFFSET $2
    )";

const IS_FULL: &str =
    "SELECT EXISTS (SELECT 1 FROM audit WHERE (actor = 'unknown') = false LIMIT 1 OFFSET $1)";

const USERS_ABOVE_SHARE: &str = "SELECT user_name FROM audit WHERE user_name IS NOT NULL GROUP BY user_name HAVING count(*) > $1";

const REMOVE_OF_USER: &str = "
    DELETE FROM audit WHERE user_name = $1 AND number <= (
        SELECT number FROM audit WHERE user_name = $1 ORDER BY number DESC LIMIT 1 OFFSET $2
    )";

const READ: &str = "
    SELECT at_ms, actor, user_name, key, address, action, conversation, status FROM audit
    WHERE ($1::text IS NULL OR user_name = $1) AND ($2::text IS NULL OR conversation = $2)
    ORDER BY number DESC LIMIT $3";

const READ_AFTER: &str = "
    SELECT at_ms, actor, user_name, key, address, action, conversation, status, number FROM audit
    WHERE number > $1 ORDER BY number LIMIT $2";

pub(super) async fn append(
    database: &Database,
    entry: &AuditEntry,
    max: u64,
) -> Result<(), BoxError> {
    let AuditEntry {
        at_ms,
        actor,
        address,
        action,
        conversation,
        status,
    } = entry;
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
    remove_if_due(database, &rows, max).await
}

/// Removes the oldest entries after some were appended with these numbers, if it is time.
async fn remove_if_due(database: &Database, appended: &[Row], max: u64) -> Result<(), BoxError> {
    let last: i64 = appended
        .last()
        .map(|row| row.try_get(0))
        .transpose()?
        .unwrap_or_default();
    if !is_removal_due(last, appended.len()) {
        return Ok(());
    }
    let is_full = database.query(IS_FULL, &[&max_of_known(max)]).await?;
    if is_full
        .first()
        .map(|row| row.try_get(0))
        .transpose()?
        .unwrap_or(false)
    {
        let max_of_user = max_by_user(max);
        for row in database.query(USERS_ABOVE_SHARE, &[&max_of_user]).await? {
            database
                .query(REMOVE_OF_USER, &[&row.try_get::<_, &str>(0)?, &max_of_user])
                .await?;
        }
    }
    for (is_unknown, max) in max_by_kind(max) {
        database.query(REMOVE, &[&is_unknown, &max]).await?;
    }
    Ok(())
}

pub(super) async fn append_all(
    database: &Database,
    entries: &[AuditEntry],
    max: u64,
) -> Result<(), BoxError> {
    let actors: Vec<_> = entries
        .iter()
        .map(|entry| ActorRow::new(&entry.actor))
        .collect();
    let times: Vec<_> = entries.iter().map(|entry| stored(entry.at_ms)).collect();
    let kinds: Vec<_> = actors.iter().map(|actor| actor.kind).collect();
    let users: Vec<_> = actors.iter().map(|actor| actor.user).collect();
    let keys: Vec<_> = actors.iter().map(|actor| actor.key).collect();
    let addresses: Vec<_> = entries
        .iter()
        .map(|entry| entry.address.map(|address| address.to_string()))
        .collect();
    let actions: Vec<_> = entries.iter().map(|entry| entry.action.as_str()).collect();
    let conversations: Vec<_> = entries
        .iter()
        .map(|entry| entry.conversation.as_ref().map(ConversationId::as_str))
        .collect();
    let statuses: Vec<_> = entries
        .iter()
        .map(|entry| entry.status.map(i32::from))
        .collect();
    let parameters: Parameters<'_> = &[
        &times,
        &kinds,
        &users,
        &keys,
        &addresses,
        &actions,
        &conversations,
        &statuses,
    ];
    let rows = database.query_once(APPEND_ALL, parameters).await?;
    remove_if_due(database, &rows, max).await
}

pub(super) async fn read_after(
    database: &Database,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, AuditEntry)>, BoxError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = database
        .query(READ_AFTER, &[&stored(after), &limit])
        .await?;
    let entry = |row: &Row| Ok((u64::try_from(row.try_get::<_, i64>(8)?)?, parse(row)?));
    rows.iter().map(entry).collect()
}

pub(super) async fn read(
    database: &Database,
    filter: &AuditFilter,
) -> Result<Vec<AuditEntry>, BoxError> {
    let AuditFilter {
        user,
        conversation,
        limit,
    } = filter;
    let conversation = conversation.as_ref().map(ConversationId::as_str);
    let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
    let rows = database
        .query(
            READ,
            &[&user.as_ref().map(UserId::as_str), &conversation, &limit],
        )
        .await?;
    rows.iter().rev().map(parse).collect()
}

fn parse(row: &Row) -> Result<AuditEntry, BoxError> {
    let actor = match (
        row.try_get::<_, &str>(1)?,
        row.try_get::<_, Option<String>>(2)?,
    ) {
        (ActorRow::USER, Some(name)) => AuditActor::User {
            name: UserId::try_from(name)?,
            key: row
                .try_get::<_, Option<&str>>(3)?
                .map(str::parse::<KeyId>)
                .transpose()?,
        },
        (ActorRow::OPERATOR, _) => AuditActor::Operator,
        _ => AuditActor::Unknown,
    };
    Ok(AuditEntry {
        at_ms: u64::try_from(row.try_get::<_, i64>(0)?)?,
        actor,
        address: row
            .try_get::<_, Option<&str>>(4)?
            .map(str::parse)
            .transpose()?,
        action: row.try_get(5)?,
        conversation: row
            .try_get::<_, Option<String>>(6)?
            .map(ConversationId::try_from)
            .transpose()?,
        status: row
            .try_get::<_, Option<i32>>(7)?
            .map(u16::try_from)
            .transpose()?,
    })
}

//! Append of batches to the logs of different conversations, in one statement.
//!
//! One statement and no explicit transaction: the server executes and commits it by itself, so that
//! a host that is suspended in the middle holds no lock. It locks the leases, checks them and the
//! ends of the logs, writes events and overviews, and notifies.

use engine::events::StoreError;
use protocol::{AgentState, ConversationId, UserId};
use uuid::Uuid;

use super::database::{Database, DatabaseError, Parameters};
use super::overview::{TextColumns, merge_texts};
use super::wakeups::CHANNEL;
use crate::event_batch::{EventBatch, EventRow};

/// A batch, and the generation of the lease that it requires.
pub(super) struct FencedBatch {
    batch: EventBatch,
    /// `None` if this host holds no lease.
    generation: Option<i64>,
    first: i64,
    /// The id after the last event.
    past: i64,
}

impl FencedBatch {
    /// # Errors
    /// [`StoreError::OutOfOrder`] if no log can be so long.
    pub(super) fn new(batch: EventBatch, generation: Option<i64>) -> Result<Self, StoreError> {
        let past = batch.first.0.saturating_add(batch.rows.len() as u64);
        match (i64::try_from(batch.first.0), i64::try_from(past)) {
            (Ok(first), Ok(past)) => Ok(Self {
                batch,
                generation,
                first,
                past,
            }),
            _ => Err(batch.out_of_order()),
        }
    }

    pub(super) fn conversation(&self) -> &ConversationId {
        &self.batch.conversation
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.batch.rows.iter().map(|row| row.json().len()).sum()
    }
}

/// `allowed` locks the leases until the commit: another host that takes one over waits for this
/// statement. `created` and `continued` lock the conversations. A batch is in neither of them if it
/// does not follow the end of its log. The overview is changed only if it covers all earlier
/// events: otherwise it is completed when a store is opened.
const APPEND: &str = concat!(
    "
WITH batch AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::float8[],
        $24::text[])
        WITH ORDINALITY AS batch (id, first, past, first_at, last_at, generation, agent_state, cost, owner, number)
), lease AS MATERIALIZED (
    SELECT leases.conversation, leases.host, leases.generation, leases.expires_at
    FROM leases JOIN batch ON batch.id = leases.conversation
    ORDER BY leases.conversation
    FOR SHARE OF leases
), allowed AS MATERIALIZED (
    SELECT batch.* FROM batch LEFT JOIN lease ON lease.conversation = batch.id
    WHERE CASE WHEN batch.generation IS NULL
        THEN lease.host IS NULL OR lease.host = $9 OR lease.expires_at <= clock_timestamp()
        ELSE lease.host = $9 AND lease.generation = batch.generation AND lease.expires_at > clock_timestamp()
        END
), created AS (
    INSERT INTO conversations (id, events, created_at, last_updated_at, overview_events, agent_state, cost, owner)
    SELECT id, past, first_at, last_at, past, agent_state, cost, owner FROM allowed WHERE first = 0 ORDER BY id
    ON CONFLICT (id) DO NOTHING
    RETURNING number, id
), continued AS (
    UPDATE conversations AS stored SET
        events = allowed.past,
        last_updated_at = allowed.last_at,
        overview_events = CASE WHEN stored.overview_events = first THEN past ELSE stored.overview_events END,
        agent_state = CASE WHEN stored.overview_events = first
            THEN coalesce(allowed.agent_state, stored.agent_state) ELSE stored.agent_state END,
        cost = CASE WHEN stored.overview_events = first THEN coalesce(allowed.cost, stored.cost) ELSE stored.cost END,
        owner = CASE WHEN stored.overview_events = first THEN coalesce(stored.owner, allowed.owner) ELSE stored.owner END
    FROM allowed
    WHERE allowed.first > 0 AND stored.id = allowed.id AND stored.events = allowed.first
    RETURNING stored.number, stored.id, stored.overview_events = stored.events AS is_covered
), log AS MATERIALIZED (
    SELECT number, id, true AS is_covered FROM created UNION ALL SELECT number, id, is_covered FROM continued
), written AS (
    INSERT INTO events (conversation, id, json, blob)
    SELECT log.number, row.id, row.json, row.blob
    FROM unnest($10::bigint[], $11::bigint[], $12::bytea[], $25::text[]) AS row (batch, id, json, blob)
    JOIN batch ON batch.number = row.batch
    JOIN log ON log.id = batch.id
), described AS (
    INSERT INTO overviews
    SELECT log.number, given_title, first_line, model, folder, repository, branch,
        search_title, search_message, search_settings, git_provider, conversation_trigger
    FROM unnest(
        $14::bigint[], $15::bytea[], $16::bytea[], $17::bytea[], $18::bytea[], $19::bytea[], $20::bytea[],
        $21::bytea[], $22::bytea[], $23::bytea[], $26::bytea[], $27::bytea[]
    ) AS texts (
        batch, given_title, first_line, model, folder, repository, branch, search_title, search_message, search_settings,
        git_provider, conversation_trigger
    )
    JOIN batch ON batch.number = texts.batch
    JOIN log ON log.id = batch.id AND log.is_covered
    ",
    merge_texts!(),
    "
)
SELECT batch.number, allowed.id IS NOT NULL, log.id IS NOT NULL,
    CASE WHEN log.id IS NOT NULL THEN pg_notify($13, batch.past || ' ' || batch.id) END
FROM batch LEFT JOIN allowed ON allowed.number = batch.number LEFT JOIN log ON log.id = batch.id
ORDER BY batch.number"
);

/// Whether the log has exactly these rows.
const CONTAINS: &str = "
    SELECT count(*)
    FROM conversations
    JOIN events ON events.conversation = conversations.number
    JOIN unnest($2::bigint[], $3::bytea[], $4::text[]) AS row (id, json, blob)
        ON row.id = events.id AND row.json = events.json AND row.blob IS NOT DISTINCT FROM events.blob
    WHERE conversations.id = $1";

/// The parameters of [`APPEND`], by column.
#[derive(Default)]
struct Columns<'a> {
    ids: Vec<&'a str>,
    firsts: Vec<i64>,
    pasts: Vec<i64>,
    first_times: Vec<&'a str>,
    last_times: Vec<&'a str>,
    generations: Vec<Option<i64>>,
    agent_states: Vec<Option<&'static str>>,
    costs: Vec<Option<f64>>,
    owners: Vec<Option<&'a str>>,
    row_batches: Vec<i64>,
    row_ids: Vec<i64>,
    rows: Vec<&'a [u8]>,
    blobs: Vec<Option<String>>,
    text_batches: Vec<i64>,
    texts: TextColumns<'a>,
}

impl<'a> Columns<'a> {
    fn new(batches: &[&'a FencedBatch]) -> Self {
        let mut columns = Self::default();
        for (number, fenced) in (1..).zip(batches) {
            columns.push(number, fenced);
        }
        columns
    }

    fn push(
        &mut self,
        number: i64,
        FencedBatch {
            batch,
            generation,
            first,
            past,
        }: &'a FencedBatch,
    ) {
        self.ids.push(batch.conversation.as_str());
        self.firsts.push(*first);
        self.pasts.push(*past);
        self.first_times.push(batch.first_at.as_str());
        self.last_times.push(batch.last_at.as_str());
        self.generations.push(*generation);
        self.agent_states
            .push(batch.overview.overview.agent_state.map(AgentState::as_str));
        self.costs.push(batch.overview.overview.cost);
        self.owners
            .push(batch.overview.overview.owner.as_ref().map(UserId::as_str));
        self.row_batches.extend((*first..*past).map(|_| number));
        self.row_ids.extend(*first..*past);
        self.rows
            .extend(batch.rows.iter().map(|row| row.json().as_bytes()));
        self.blobs.extend(batch.rows.iter().map(EventRow::blob));
        if batch.overview.has_texts() {
            self.text_batches.push(number);
            self.texts.push(&batch.overview);
        }
    }
}

/// Writes the batches, which are of different conversations. All that are accepted are committed
/// together; one that is rejected does not affect the others.
pub(super) async fn write(
    database: &Database,
    host: Uuid,
    batches: &[&FencedBatch],
) -> Result<Vec<Result<(), StoreError>>, DatabaseError> {
    let columns = Columns::new(batches);
    let [
        title,
        line,
        model,
        folder,
        repository,
        branch,
        in_title,
        in_message,
        in_settings,
        provider,
        trigger,
    ] = &columns.texts.0;
    let parameters: Parameters<'_> = &[
        &columns.ids,
        &columns.firsts,
        &columns.pasts,
        &columns.first_times,
        &columns.last_times,
        &columns.generations,
        &columns.agent_states,
        &columns.costs,
        &host,
        &columns.row_batches,
        &columns.row_ids,
        &columns.rows,
        &CHANNEL,
        &columns.text_batches,
        title,
        line,
        model,
        folder,
        repository,
        branch,
        in_title,
        in_message,
        in_settings,
        &columns.owners,
        &columns.blobs,
        provider,
        trigger,
    ];
    let rows = database.query_once(APPEND, parameters).await?;
    let mut results = Vec::with_capacity(batches.len());
    for (row, FencedBatch { batch, .. }) in rows.iter().zip(batches) {
        results.push(match (row.try_get(1)?, row.try_get(2)?) {
            (_, true) => Ok(()),
            (true, false) => Err(batch.out_of_order()),
            (false, false) => Err(StoreError::LeaseLost {
                conversation: batch.conversation.clone(),
            }),
        });
    }
    Ok(results)
}

/// Whether the log holds exactly these events, after a write whose result is unknown.
pub(super) async fn is_written(
    database: &Database,
    FencedBatch {
        batch, first, past, ..
    }: &FencedBatch,
) -> Result<bool, DatabaseError> {
    let ids: Vec<i64> = (*first..*past).collect();
    let rows: Vec<&[u8]> = batch.rows.iter().map(|row| row.json().as_bytes()).collect();
    let blobs: Vec<Option<String>> = batch.rows.iter().map(EventRow::blob).collect();
    let found = database
        .query(
            CONTAINS,
            &[&batch.conversation.as_str(), &ids, &rows, &blobs],
        )
        .await?;
    let count: i64 = found.first().map_or(Ok(0), |row| row.try_get(0))?;
    Ok(usize::try_from(count) == Ok(rows.len()))
}

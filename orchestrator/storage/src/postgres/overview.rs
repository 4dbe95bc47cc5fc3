//! Changes of overviews, and the parts that the statements for them share.

use engine::events::{Overview, OverviewChange, SearchText};
use protocol::client_api::git::GitProvider;
use protocol::record::ConversationTrigger;
use protocol::{AgentState, UserId};

use super::database::{Database, DatabaseError};

/// The end of an `INSERT INTO overviews`: merges the first line and the first message only if there
/// is none, and other texts if the change has them.
macro_rules! merge_texts {
    () => {
        "ON CONFLICT (conversation) DO UPDATE SET
            given_title = coalesce(excluded.given_title, overviews.given_title),
            first_line = coalesce(overviews.first_line, excluded.first_line),
            model = coalesce(excluded.model, overviews.model),
            folder = coalesce(excluded.folder, overviews.folder),
            repository = coalesce(excluded.repository, overviews.repository),
            branch = coalesce(excluded.branch, overviews.branch),
            search_title = coalesce(excluded.search_title, overviews.search_title),
            search_message = coalesce(overviews.search_message, excluded.search_message),
            search_settings = coalesce(excluded.search_settings, overviews.search_settings),
            git_provider = coalesce(excluded.git_provider, overviews.git_provider),
            conversation_trigger = coalesce(excluded.conversation_trigger, overviews.conversation_trigger)"
    };
}
pub(super) use merge_texts;

/// Merges a change, unless another host has done so.
const MERGE: &str = concat!(
    "
WITH covered AS (
    UPDATE conversations SET
        overview_events = $3,
        agent_state = coalesce($4::text, agent_state),
        cost = coalesce($5::float8, cost),
        owner = coalesce(owner, $15::text)
    WHERE number = $1 AND overview_events = $2
    RETURNING number
), described AS (
    INSERT INTO overviews
    SELECT number, $6::bytea, $7::bytea, $8::bytea, $9::bytea, $10::bytea, $11::bytea, $12::bytea, $13::bytea, $14::bytea,
        $16::bytea, $17::bytea
    FROM covered
    ",
    merge_texts!(),
    "
)
SELECT FROM covered"
);

/// The texts of changes, by column: those of [`Overview`], then those of [`SearchText`], then the
/// names in [`Overview`].
#[derive(Default)]
pub(super) struct TextColumns<'a>(pub(super) [Vec<Option<&'a [u8]>>; 11]);

impl<'a> TextColumns<'a> {
    pub(super) fn push(&mut self, change: &'a OverviewChange) {
        for (column, text) in self.0.iter_mut().zip(texts(change)) {
            column.push(text);
        }
    }
}

fn texts(OverviewChange { overview, search }: &OverviewChange) -> [Option<&[u8]>; 11] {
    let Overview {
        given_title,
        first_line,
        model,
        folder,
        repository,
        branch,
        git_provider,
        trigger,
        owner: _,
        agent_state: _,
        cost: _,
    } = overview;
    let SearchText {
        title,
        message,
        settings,
    } = search;
    let [git_provider, trigger] = [
        git_provider.map(GitProvider::as_str),
        trigger.map(ConversationTrigger::as_str),
    ];
    let texts = [
        given_title,
        first_line,
        model,
        folder,
        repository,
        branch,
        title,
        message,
        settings,
    ];
    let [a, b, c, d, e, f, g, h, i] = texts.map(Option::as_deref);
    [a, b, c, d, e, f, g, h, i, git_provider, trigger].map(|text| text.map(str::as_bytes))
}

/// Merges the change of the events from `first` to before `past`, which follow those that the
/// overview covers.
pub(super) async fn merge(
    database: &Database,
    number: i64,
    (first, past): (i64, i64),
    change: &OverviewChange,
) -> Result<(), DatabaseError> {
    let agent_state = change.overview.agent_state.map(AgentState::as_str);
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
    ] = &texts(change);
    let cost = &change.overview.cost;
    let owner = change.overview.owner.as_ref().map(UserId::as_str);
    database
        .query(
            MERGE,
            &[
                &number,
                &first,
                &past,
                &agent_state,
                cost,
                title,
                line,
                model,
                folder,
                repository,
                branch,
                in_title,
                in_message,
                in_settings,
                &owner,
                provider,
                trigger,
            ],
        )
        .await?;
    Ok(())
}

-- The overview of a conversation, for lists and the search in them. `overview_events` is the number of events that it covers.
-- The agent's state and the cost change often. They are in the row of the log's end, which changes with every event.
ALTER TABLE conversations
    ADD COLUMN overview_events bigint NOT NULL DEFAULT 0,
    ADD COLUMN agent_state text COLLATE "C",
    ADD COLUMN cost double precision;

-- The texts as UTF-8, for the reason of `events.json`. They rarely change. Those to search in are in lower case, because
-- PostgreSQL compares without case as the locale of the database says.
CREATE TABLE overviews (
    conversation    bigint PRIMARY KEY REFERENCES conversations (number) ON DELETE CASCADE,
    given_title     bytea,
    first_line      bytea,
    model           bytea,
    folder          bytea,
    repository      bytea,
    branch          bytea,
    search_title    bytea,
    search_message  bytea,
    search_settings bytea
);

-- The overview of a conversation, for lists and the search in them. `overview_events` is the number of events that it covers.
-- The agent's state and the cost change often. They are in the row of the log's end, which changes with every event.
ALTER TABLE conversations ADD COLUMN overview_events INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN agent_state TEXT;
ALTER TABLE conversations ADD COLUMN cost REAL;

-- The texts, which rarely change. Those to search in are in lower case, because SQLite ignores the case of ASCII only.
CREATE TABLE overviews (
    conversation    INTEGER PRIMARY KEY REFERENCES conversations (number) ON DELETE CASCADE,
    given_title     TEXT,
    first_line      TEXT,
    model           TEXT,
    folder          TEXT,
    repository      TEXT,
    branch          TEXT,
    search_title    TEXT,
    search_message  TEXT,
    search_settings TEXT
) STRICT;

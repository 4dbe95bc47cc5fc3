-- One row a conversation, kept in the same transaction as its events: the list of conversations reads no event.
-- Events refer to `number` instead of repeating the id, which may be 128 bytes long.
CREATE TABLE conversations (
    number          INTEGER PRIMARY KEY,
    id              TEXT    NOT NULL UNIQUE,
    events          INTEGER NOT NULL,
    created_at      TEXT    NOT NULL,
    last_updated_at TEXT    NOT NULL
) STRICT;

-- V0's JSON as text. Not WITHOUT ROWID: events are large, and would push the keys of a clustered tree apart.
CREATE TABLE events (
    conversation INTEGER NOT NULL REFERENCES conversations (number),
    id           INTEGER NOT NULL,
    json         TEXT    NOT NULL,
    PRIMARY KEY (conversation, id)
) STRICT;

-- Users, their keys and sessions. Times are in seconds since the Unix epoch.
-- A removed user stays, because conversations name their owner.
CREATE TABLE users (
    name       TEXT    PRIMARY KEY,
    created_at INTEGER NOT NULL,
    removed_at INTEGER
) STRICT;

-- `hash` is the SHA-256 hash of the key, which is stored nowhere.
CREATE TABLE keys (
    id           TEXT    PRIMARY KEY,
    hash         BLOB    NOT NULL UNIQUE,
    user         TEXT    NOT NULL REFERENCES users (name),
    scope        TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER
) STRICT;
CREATE INDEX keys_by_user ON keys (user);

-- `key` is the id of a key, or a fingerprint of the operator's.
CREATE TABLE sessions (
    hash       BLOB    PRIMARY KEY,
    key        TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_by_key ON sessions (key);
CREATE INDEX sessions_by_end ON sessions (expires_at);

-- Users, their keys and sessions. Times are in seconds since the Unix epoch.
-- A removed user stays, because conversations name their owner. `key_count` is the number of the user's keys: the row is locked while
-- it changes, so that concurrent additions do not exceed the maximum.
CREATE TABLE users (
    name       text COLLATE "C" PRIMARY KEY,
    created_at bigint NOT NULL,
    removed_at bigint,
    key_count  bigint NOT NULL DEFAULT 0
);

-- `hash` is the SHA-256 hash of the key, which is stored nowhere. `number` is the order of additions.
CREATE TABLE keys (
    id           text COLLATE "C" PRIMARY KEY,
    number       bigint GENERATED ALWAYS AS IDENTITY,
    hash         bytea  NOT NULL UNIQUE,
    user_name    text COLLATE "C" NOT NULL REFERENCES users (name),
    scope        text COLLATE "C" NOT NULL,
    created_at   bigint NOT NULL,
    expires_at   bigint,
    last_used_at bigint
);
CREATE INDEX keys_by_user ON keys (user_name);

-- `key` is the id of a key, or a fingerprint of the operator's.
CREATE TABLE sessions (
    hash       bytea  PRIMARY KEY,
    number     bigint GENERATED ALWAYS AS IDENTITY,
    key        text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX sessions_by_key ON sessions (key);
CREATE INDEX sessions_by_end ON sessions (expires_at);

-- The audit log. `actor` is operator, user or unknown. `at_ms` is in milliseconds since the Unix epoch.
CREATE TABLE audit (
    number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ms        bigint NOT NULL,
    actor        text COLLATE "C" NOT NULL,
    user_name    text COLLATE "C",
    key          text COLLATE "C",
    address      text COLLATE "C",
    action       text COLLATE "C" NOT NULL,
    conversation text COLLATE "C",
    status       integer
);
CREATE INDEX audit_by_user ON audit (user_name, number) WHERE user_name IS NOT NULL;
CREATE INDEX audit_by_conversation ON audit (conversation, number) WHERE conversation IS NOT NULL;
CREATE INDEX audit_by_kind ON audit ((actor = 'unknown'), number);

CREATE FUNCTION reject_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'entries of the audit log are not changed';
END $$;
CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION reject_audit_change();

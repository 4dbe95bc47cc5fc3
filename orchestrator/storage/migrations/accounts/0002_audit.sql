-- The audit log. `actor` is operator, user or unknown. `at_ms` is in milliseconds since the Unix epoch.
-- AUTOINCREMENT: no number is given to a second entry, so that a gap shows that one was removed.
CREATE TABLE audit (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms        INTEGER NOT NULL,
    actor        TEXT    NOT NULL,
    user         TEXT,
    key          TEXT,
    address      TEXT,
    action       TEXT    NOT NULL,
    conversation TEXT,
    status       INTEGER
) STRICT;
CREATE INDEX audit_by_user ON audit (user) WHERE user IS NOT NULL;
CREATE INDEX audit_by_conversation ON audit (conversation) WHERE conversation IS NOT NULL;
CREATE INDEX audit_by_kind ON audit ((actor = 'unknown'));

CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit
BEGIN
    SELECT raise(ABORT, 'entries of the audit log are not changed');
END;

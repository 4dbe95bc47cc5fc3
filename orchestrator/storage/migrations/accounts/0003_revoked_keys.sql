-- Keys that were revoked, or whose user was removed: a copy from another store must not make them valid again, and a copy to another
-- store revokes them there.
CREATE TABLE revoked_keys (
    id TEXT PRIMARY KEY
) STRICT;
CREATE TRIGGER removed_key_is_revoked AFTER DELETE ON keys
BEGIN
    INSERT OR IGNORE INTO revoked_keys (id) VALUES (old.id);
END;

-- Earlier versions recorded revocations in the audit log only.
INSERT OR IGNORE INTO revoked_keys (id)
SELECT substr(action, 17) FROM audit WHERE action LIKE 'user key revoke %' AND length(action) = 28 AND actor = 'operator';

-- Keys that were revoked, or whose user was removed: a copy from another store must not make them valid again, and a copy to another
-- store revokes them there.
CREATE TABLE revoked_keys (
    id text COLLATE "C" PRIMARY KEY
);
-- With the rights of the owner: a role that runs hosts may have none on a new table.
CREATE FUNCTION record_removed_key() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO revoked_keys (id) VALUES (old.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER removed_key_is_revoked AFTER DELETE ON keys FOR EACH ROW EXECUTE FUNCTION record_removed_key();

-- Earlier versions recorded revocations in the audit log only.
INSERT INTO revoked_keys (id)
SELECT DISTINCT substr(action, 17) FROM audit WHERE action LIKE 'user key revoke %' AND length(action) = 28 AND actor = 'operator';

-- The revision that was last the same in another store, which a copy read or wrote. NULL if there is none.
ALTER TABLE documents ADD COLUMN copied_revision bigint;

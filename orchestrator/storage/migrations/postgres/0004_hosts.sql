-- Where other hosts reach the holder of a lease. NULL if they cannot.
ALTER TABLE leases ADD COLUMN address text COLLATE "C";

-- As in SQLite: `sealed` is the nonce, the encrypted content and the tag.
CREATE TABLE documents (
    name     text COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL,
    key_id   bytea  NOT NULL,
    sealed   bytea  NOT NULL
);

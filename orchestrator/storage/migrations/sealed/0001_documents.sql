-- One row a document. `sealed` is the nonce, the encrypted content and the tag; the other columns are authenticated with it.
CREATE TABLE documents (
    name     TEXT    PRIMARY KEY,
    revision INTEGER NOT NULL,
    key_id   BLOB    NOT NULL,
    sealed   BLOB    NOT NULL
) STRICT;

-- One row a conversation, kept in the same transaction as its events: the list of conversations reads no event.
-- Events refer to `number` instead of repeating the id, which may be 128 bytes long. "C": text is compared by its bytes.
CREATE TABLE conversations (
    number          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id              text COLLATE "C" NOT NULL UNIQUE,
    events          bigint NOT NULL,
    created_at      text COLLATE "C" NOT NULL,
    last_updated_at text COLLATE "C" NOT NULL
);

-- V0's JSON as UTF-8. Not `jsonb`, which rejects NUL characters and changes numbers and the order of keys; not `text`, which
-- depends on the encoding of the database. To query it: `convert_from(json, 'UTF8')::json`.
CREATE TABLE events (
    conversation bigint NOT NULL REFERENCES conversations (number) ON DELETE CASCADE,
    id           bigint NOT NULL,
    json         bytea  NOT NULL,
    PRIMARY KEY (conversation, id)
);

-- A row exists from the acquisition of a lease until its release. A conversation can be leased before its first event.
CREATE TABLE leases (
    conversation text COLLATE "C" PRIMARY KEY,
    host         uuid        NOT NULL,
    generation   bigint      NOT NULL,
    expires_at   timestamptz NOT NULL
);

-- Generations of all leases, so that they also increase after a lease was released and its row deleted.
CREATE SEQUENCE lease_generations;

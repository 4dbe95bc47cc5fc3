-- What created a conversation, and where its repository is hosted: the list shows both and reads no event. NULL if its log does not say.
ALTER TABLE overviews ADD COLUMN git_provider bytea, ADD COLUMN conversation_trigger bytea;

-- Both are in the first event, which most overviews cover already. Its JSON is searched and not parsed, because a damaged one would
-- fail the migration. In a string, the quotes would be escaped.
UPDATE overviews SET
    git_provider = convert_to(substring(encode(json, 'escape') FROM '"git_provider":"([a-z_]+)"'), 'UTF8'),
    conversation_trigger = convert_to(substring(encode(json, 'escape') FROM '"trigger":"([a-z_]+)"'), 'UTF8')
FROM events
WHERE events.conversation = overviews.conversation AND events.id = 0 AND octet_length(json) < 1000000
    AND position('"record":"conversation_started"' IN encode(json, 'escape')) > 0;

-- A first event in a blob is read when the database is opened, with the others of its log.
UPDATE conversations SET overview_events = 0
WHERE number IN (SELECT conversation FROM events WHERE id = 0 AND blob IS NOT NULL);

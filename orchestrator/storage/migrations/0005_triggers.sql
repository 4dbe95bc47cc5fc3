-- What created a conversation, and where its repository is hosted: the list shows both and reads no event. NULL if its log does not say.
ALTER TABLE overviews ADD COLUMN git_provider TEXT;
ALTER TABLE overviews ADD COLUMN conversation_trigger TEXT;

-- Both are in the first event, which most overviews cover already.
UPDATE overviews SET (git_provider, conversation_trigger) = (
    SELECT json_extract(json, '$.args.git_provider'), json_extract(json, '$.args.trigger') FROM events
    WHERE conversation = overviews.conversation AND id = 0
        -- A damaged event has no JSON.
        AND CASE WHEN json_valid(json) THEN json_extract(json, '$.record') END = 'conversation_started'
);

-- A first event in a blob is read when the store is opened, with the others of its log.
UPDATE conversations SET overview_events = 0
WHERE number IN (SELECT conversation FROM events WHERE id = 0 AND blob IS NOT NULL);

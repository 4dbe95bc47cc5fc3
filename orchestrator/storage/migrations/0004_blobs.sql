-- The blob that holds the event, as SHA256-LENGTH of its content. `json` is empty then.
ALTER TABLE events ADD COLUMN blob TEXT;

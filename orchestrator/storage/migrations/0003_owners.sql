-- The user who owns a conversation. NULL if it is the operator's, as all earlier ones are. In the row that every list scans, so that
-- a list of one user reads no other row of the conversations that it does not select.
ALTER TABLE conversations ADD COLUMN owner TEXT;

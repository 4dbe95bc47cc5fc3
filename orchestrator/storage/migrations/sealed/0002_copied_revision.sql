-- The revision that was last the same in another store, which a copy read or wrote. NULL if there is none.
ALTER TABLE documents ADD COLUMN copied_revision INTEGER;

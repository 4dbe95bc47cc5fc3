//! The contract of event stores on SQLite.

use tests::store_contract::sqlite::SqliteBackend;

tests::store_contract!(Some(SqliteBackend::new()));
tests::stored_damage_contract!(Some(SqliteBackend::new()));

//! The contract of event stores on PostgreSQL, and what only several hosts can show.

use tests::store_contract::postgres::PostgresBackend;

tests::store_contract!(PostgresBackend::create());
tests::stored_damage_contract!(PostgresBackend::create());

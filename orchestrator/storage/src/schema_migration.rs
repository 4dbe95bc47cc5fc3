//! The result of a migration.

/// The versions of a schema before and after its migration. Both are equal if it was up to date; a
/// new one has version 0 before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaMigration {
    /// The version before.
    pub from: i64,
    /// The version of this program.
    pub to: i64,
}

//! Operating system helpers that shells and processes share: spawning, reaping, process trees,
//! accounts.
//!
//! Knows nothing of shells, actions or HTTP.

pub(crate) mod accounts;
pub(crate) mod children;
pub(crate) mod constraints;
pub(crate) mod out_of_memory;
pub(crate) mod process_table;
pub(crate) mod process_tree;

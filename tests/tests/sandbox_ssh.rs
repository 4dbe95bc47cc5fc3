//! The contract of sandboxes on the SSH backend, and what only that one does.

use tests::sandbox_contract::ssh::Ssh;

tests::sandbox_contract!(Ssh::new());

//! All suites, in one binary.

mod sandbox_docker;
mod sandbox_local;

//! Tests with the reference servers from npm and PyPI, and with faulty servers written as scripts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failed expectation panics

mod fixture;
mod hostile;
mod http;
mod lifecycle;
mod reference;
mod script;
#[path = "../../../../tests/skip.rs"]
mod skip;
#[path = "../../../../tests/test_packages.rs"]
mod test_packages;

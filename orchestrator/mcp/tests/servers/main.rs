//! The client against servers: the reference ones from npm and PyPI, and scripted ones that do what no good one does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test text_result what it expects by panicking

mod hostile;
mod http;
mod lifecycle;
mod reference;
mod scene;
mod script;

//! The providers with scripted servers on loopback, whose responses are as the providers document
//! them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod azure_devops;
mod bitbucket;
mod combination;
mod errors;
mod github;
mod gitlab;
mod guard;
mod scene;
mod server;

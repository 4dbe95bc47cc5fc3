//! Anthropic's messages.

mod errors;
mod malformed;
mod responses;
mod scene;

//! Anthropic's messages.

mod answers;
mod breaks;
mod refusals;
mod scene;

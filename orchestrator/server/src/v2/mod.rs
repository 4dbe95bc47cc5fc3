//! Glovebox's own API. The stream of a conversation is in [`stream`](crate::stream).

pub(crate) mod commands;
pub(crate) mod conversations;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod git;
pub(crate) mod profile;
pub(crate) mod sandbox;

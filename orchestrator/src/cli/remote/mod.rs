//! `--server`: commands that use the conversations of a server instead of this machine's.

mod commands;
mod followed_conversation;
mod keys;
mod login;
mod server;

pub(super) use commands::{RemoteRun, list, resume, run};
pub(super) use login::{LoginArguments, LogoutArguments, login, logout};
pub(super) use server::{RemoteServer, default_server};

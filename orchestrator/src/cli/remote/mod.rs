//! `--server`: commands that use the conversations of a server instead of this machine's.

mod commands;
mod keys;
mod login;
mod server;
mod shown;

pub(super) use commands::{RemoteRun, list, resume, run};
pub(super) use login::{LoginArguments, LogoutArguments, login, logout};
pub(super) use server::{RemoteServer, SERVER_VARIABLE};

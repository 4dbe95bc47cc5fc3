//! The server inside a sandbox.

mod shell;

fn main() {}

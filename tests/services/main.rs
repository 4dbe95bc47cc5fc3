//! Services that the tests of many processes share, for `cargo ci test`: a PostgreSQL server, whose start would take longer than
//! most of the tests that use it.
//!
//! Prints a line `NAME=VALUE` for each service, for the environment of the tests, then an empty line. Ends with its standard
//! input.

#![allow(clippy::print_stdout)] // it is how a service is announced

use std::io::{Read as _, stdin};

use tests::postgres::{PostgresServer, SHARED_SERVER_VARIABLE};

fn main() {
    let postgres = PostgresServer::start_for_many();
    if let Some(server) = &postgres {
        println!("{SHARED_SERVER_VARIABLE}={}", server.folder().display());
    }
    println!();
    // A read error is an end, too.
    let _ = stdin().read_to_end(&mut Vec::new());
}

//! Services that the tests of many processes share, for `cargo ci test`: PostgreSQL and S3 (moto).
//! Their starts take longer than most of the tests that use them.
//!
//! Prints a line `NAME=VALUE` for each service, for the environment of the tests, then an empty
//! line. A service whose program is missing is left out. Ends with its standard input.

#![allow(clippy::print_stdout)] // it is how a service is announced

use std::io::{Read as _, stdin};
use std::path::Path;

use tests::moto_server::{self, MotoServer};
use tests::postgres::{self, PostgresServer};

fn main() {
    let postgres = PostgresServer::start_for_many();
    if let Some(server) = &postgres {
        println!(
            "{}={}",
            postgres::SHARED_SERVER_VARIABLE,
            server.folder().display()
        );
    }
    let packages = std::env::var_os("GLOVEBOX_TEST_PACKAGES");
    let moto = packages.map(|packages| MotoServer::start(&Path::new(&packages).join("python")));
    match &moto {
        Some(Ok(server)) => println!("{}={}", moto_server::SHARED_SERVER_VARIABLE, server.url()),
        Some(Err(error)) => eprintln!("no S3 for all tests: {error}"),
        None => {}
    }
    println!();
    // A read error is an end, too.
    let _ = stdin().read_to_end(&mut Vec::new());
}

//! `cargo ci bench`: figures beside their floors, measured in one run. Ratios travel between machines, times do not.
//!
//! `--json` prints a list of `{name, value, unit, floor, ratio, aim, ok}`. Ends with 1 when an aim is missed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // a benchmark that cannot measure ends

mod figure;
mod server;
mod shell;
mod steps;
mod store;

use std::process::ExitCode;

use figure::Figure;

fn main() -> ExitCode {
    let as_json = std::env::args().any(|argument| argument == "--json");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let figures = runtime.block_on(measure());
    if as_json {
        println!("{}", serde_json::to_string_pretty(&figures).unwrap());
    } else {
        figure::print_table(&figures);
    }
    let all_ok = figures.iter().all(|figure| figure.ok);
    ExitCode::from(u8::from(!all_ok))
}

async fn measure() -> Vec<Figure> {
    let mut figures = shell::measure().await;
    figures.extend(server::measure().await);
    figures.extend(store::measure().await);
    figures.extend(steps::measure().await);
    figures
}

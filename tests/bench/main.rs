//! `cargo ci bench`: figures beside their floors, measured in one run. Ratios travel between machines, times do not.
//!
//! `--json` prints a list of `{name, value, unit, floor, ratio, aim, ok}`. Names of groups (`shell`, `server`, `load`, `exec`,
//! `placement`, `store`, `steps`, `ssh`) measure only those. Ends with 1 when an aim is missed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // a benchmark that cannot measure ends

mod bare_http;
mod conversation;
mod exec;
mod figure;
mod load;
mod placement;
mod server;
mod shell;
mod ssh;
mod steps;
mod store;

use std::process::ExitCode;

use figure::Figure;

fn main() -> ExitCode {
    let (options, groups): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let as_json = options.iter().any(|option| option == "--json");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let figures = runtime.block_on(measure(&groups));
    if as_json {
        println!("{}", serde_json::to_string_pretty(&figures).unwrap());
    } else {
        figure::print_table(&figures);
    }
    let all_ok = figures.iter().all(|figure| figure.ok);
    ExitCode::from(u8::from(!all_ok))
}

async fn measure(groups: &[String]) -> Vec<Figure> {
    let wanted = |group: &str| groups.is_empty() || groups.iter().any(|name| name == group);
    let mut figures = Vec::new();
    if wanted("shell") {
        figures.extend(shell::measure().await);
    }
    if wanted("server") {
        figures.extend(server::measure().await);
    }
    if wanted("load") {
        figures.extend(load::measure().await);
    }
    if wanted("exec") {
        figures.extend(exec::measure().await);
    }
    if wanted("placement") {
        figures.extend(placement::measure().await);
    }
    if wanted("store") {
        figures.extend(store::measure().await);
    }
    if wanted("steps") {
        figures.extend(steps::measure().await);
    }
    if wanted("ssh") {
        figures.extend(ssh::measure().await);
    }
    figures
}

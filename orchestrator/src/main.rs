//! `glovebox`: lets a language-model agent work on a machine without touching it.

mod backup;
mod cli;
mod compose;
mod config;
mod exit;
mod input_file;
mod line_editor;
mod metrics;
mod redacted_stderr;
mod resolved_path;
mod status_terminal;
mod telemetry;
mod terminal_input;
mod terminal_text;
mod trust;
mod untrusted_folder;
mod v0_folder;
mod workspace;
mod writable;

use std::process::ExitCode;

use engine::errors::format_chain;

use exit::Exit;

fn main() -> ExitCode {
    // Must come first: a local sandbox starts this program again, which isolates itself and
    // executes another one.
    if let Some(code) = sandbox_local::confine_if_requested() {
        return code;
    }
    cli::complete_if_requested();
    let arguments = cli::parse();
    let traces = telemetry::init(arguments.log_level.as_deref(), arguments.log_format);
    let result = traces.and_then(|traces| {
        let exit = run(arguments);
        traces.end();
        exit
    });
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            let next_step = exit::next_step(&error).unwrap_or_default();
            cli::print::error(&format!("{}{next_step}", format_chain(error.as_ref())));
            exit::of_error(&error).into()
        }
    }
}

fn run(arguments: cli::Arguments) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let exit = runtime.block_on(cli::run(arguments));
    // A pending read of the terminal must not delay the exit.
    runtime.shutdown_background();
    exit
}

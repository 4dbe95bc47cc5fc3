//! `glovebox image check`: lists the programs of an image, and the features of Glovebox that lack a
//! program.
//!
//! Creates a sandbox from the image and runs one script in it, which needs only a POSIX shell. The
//! output is untrusted: only known names are read, each once, with short values without control
//! characters.

mod facts;

use conversations::Conversations;
use engine::sandbox::SandboxSpec;
use engine::sandbox_tools;
use protocol::ObservationKind;

use super::fresh_sandbox::{CommandResult, in_fresh_sandbox};
use super::{prepare, print};
use crate::config::{Overrides, Runtime};
use crate::exit::Exit;
use facts::ImageFacts;

/// Prints one fact per line. Runs after the probe of every sandbox, which prints further facts.
const PROBE: &str = include_str!("image/probe.sh");

/// Timeout of the script in seconds: programs of an image may hang.
const PROBE_TIMEOUT_SECS: f64 = 60.0;

#[derive(Debug, clap::Subcommand)]
pub(super) enum ImageCommand {
    /// Create a sandbox from an image, and show which features it supports.
    Check {
        /// Name of the image.
        image: String,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub(super) async fn run(command: ImageCommand, overrides: Overrides) -> anyhow::Result<Exit> {
    let ImageCommand::Check { image, json } = command;
    let overrides = Overrides {
        runtime: Some(Runtime::Docker),
        image: Some(image.clone()),
        ..overrides
    };
    let (config, state_dir) = prepare(&overrides).await?;
    let spec = SandboxSpec {
        image: Some(image.clone()),
        ..SandboxSpec::new(Conversations::new_id())
    };
    let probe = format!("(\n{}{PROBE}) </dev/null\n", sandbox_tools::PROBE);
    let result =
        in_fresh_sandbox(&config, &state_dir, spec, probe, Some(PROBE_TIMEOUT_SECS)).await?;
    let CommandResult::Done(observation) = result else {
        return Ok(Exit::Interrupted);
    };
    let ObservationKind::Run(run) = &observation.kind else {
        anyhow::bail!(
            "the image {image} cannot be a sandbox: {}",
            one_line(&observation.content)
        );
    };
    let facts = ImageFacts::parse(&observation.content);
    if !facts.is_complete() {
        let code = run.metadata.exit_code;
        anyhow::bail!(
            "the image {image} cannot be a sandbox: its shell exited during the check with code {code}"
        );
    }
    if json {
        print::line(&serde_json::to_string(&facts.to_json(&image))?)?;
    } else {
        print::text(&facts.to_table(&image))?;
    }
    Ok(Exit::Finished)
}

fn one_line(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(1000)
        .collect()
}

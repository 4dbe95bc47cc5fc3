//! `glovebox image check`: what an image can do as a sandbox, and what it lacks for which part.
//!
//! A sandbox is started from it and one script is run there, which needs a POSIX shell and nothing else. What it prints is
//! the image's word: known names only, each once, each value short and without control characters.

mod facts;

use conversations::Conversations;
use engine::sandbox::SandboxSpec;
use engine::sandbox_tools;
use protocol::ObservationKind;

use super::fresh_sandbox::{Command, CommandResult, in_fresh_sandbox};
use super::{prepare, print};
use crate::config::{Overrides, Runtime};
use crate::exit::Exit;
use facts::ImageFacts;

/// Answers one line a fact, after those that the engine asks every sandbox for.
const PROBE: &str = include_str!("image/probe.sh");

/// Maximum run time of the script in seconds: an image's programs may hang.
const PROBE_TIMEOUT_SECS: f64 = 60.0;

#[derive(Debug, clap::Subcommand)]
pub(super) enum ImageCommand {
    /// Start an image and show what it can do as a sandbox, and what it lacks.
    Check {
        /// The image.
        image: String,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub(super) async fn run(command: ImageCommand, overrides: Overrides) -> anyhow::Result<Exit> {
    let ImageCommand::Check { image, json } = command;
    let overrides = Overrides { runtime: Some(Runtime::Docker), image: Some(image.clone()), ..overrides };
    let (config, state_dir) = prepare(&overrides).await?;
    let spec = SandboxSpec { image: Some(image.clone()), ..SandboxSpec::new(Conversations::new_id()) };
    let text = format!("(\n{}{PROBE}) </dev/null\n", sandbox_tools::PROBE);
    let probe = Command { text, timeout: Some(PROBE_TIMEOUT_SECS) };
    let ended = in_fresh_sandbox(&config, &state_dir, spec, probe).await?;
    let CommandResult::Done(observation) = ended else { return Ok(Exit::Interrupted) };
    let ObservationKind::Run(ran) = &observation.kind else {
        anyhow::bail!("the image {image} cannot be a sandbox: {}", one_line(&observation.content));
    };
    let probed = ImageFacts::read(&observation.content);
    if !probed.is_whole() {
        let code = ran.metadata.exit_code;
        anyhow::bail!(
            "the image {image} cannot be a sandbox: its shell ended the check with exit code {code}"
        );
    }
    if json {
        print::line(&serde_json::to_string(&probed.to_json(&image))?)?;
    } else {
        print::text(&probed.to_table(&image))?;
    }
    Ok(Exit::Finished)
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ").chars().take(1000).collect()
}

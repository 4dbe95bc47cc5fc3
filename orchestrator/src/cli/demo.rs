//! `glovebox demo`: a scripted agent repairs a small project, on the same code path as a real one.

use std::path::Path;

use anyhow::Context as _;
use clap::builder::NonEmptyStringValueParser;
use conversations::{Conversations, InitialTask};
use engine::agent::AgentDefinition;
use engine::sandbox::SandboxSpec;
use protocol::ObservationKind;
use protocol::action::MessageAction;

use super::conversation_run::{self, NewRun};
use super::fresh_sandbox::{CommandResult, in_fresh_sandbox};
use super::run_options::RunOptions;
use super::{prepare, print};
use crate::compose::{self, Models};
use crate::config::{Overrides, Runtime};
use crate::exit::Exit;
use crate::workspace::WorkspaceFolder;

/// The project. It needs only a POSIX shell.
const PROJECT: [(&str, &str); 3] = [
    ("README.md", include_str!("../../demo/project/README.md")),
    ("roman.sh", include_str!("../../demo/project/roman.sh")),
    ("test.sh", include_str!("../../demo/project/test.sh")),
];

/// Responses of the model. Their paths are in [`SCRIPTED_WORKSPACE`].
const SCRIPT: &str = include_str!("../../demo/script.json");

const SCRIPTED_WORKSPACE: &str = "/workspace";

const TASK: &str = "The test of this project fails: sh test.sh. Find out why, repair roman.sh, and show that it passes.";

const TEST: &str = "sh test.sh";

#[derive(Debug, clap::Args)]
pub(super) struct DemoArguments {
    /// Runtime of the sandbox: docker, or local (a process on this machine, isolated if the machine
    /// supports it).
    #[arg(long, value_name = "RUNTIME", default_value = "local")]
    runtime: Runtime,

    /// Image of the sandbox: any with a POSIX shell.
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    image: Option<String>,

    /// Print the events as JSON on standard output, one per line, instead of the transcript.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: DemoArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let overrides = Overrides {
        agent: Some(AgentDefinition::CODE_ACT.into()),
        runtime: Some(arguments.runtime),
        image: arguments.image,
        ..overrides
    };
    let (mut config, state_dir) = prepare(&overrides).await?;
    if let Err(error) = compose::isolation(&config, &state_dir).await {
        // The script is part of this program, so it needs no isolation.
        print::warning(&format!("{error:#}; the demo runs without isolation"));
        config.sandbox.unsafe_local = true;
    }
    let id = Conversations::new_id();
    let workspace = state_dir.workspace(&id)?;
    write_project(&workspace)?;
    let inside = if config.runtime == Runtime::Local {
        workspace.as_path()
    } else {
        Path::new(SCRIPTED_WORKSPACE)
    };
    let new = NewRun {
        title: None,
        id: id.clone(),
        task: InitialTask::Message(MessageAction {
            content: TASK.to_owned(),
            ..Default::default()
        }),
        workspace: WorkspaceFolder::Local(workspace.clone()),
        setup: None,
        models: Models::scripted(&script_for(inside)?)?,
        model: "scripted:demo".to_owned(),
        options: RunOptions {
            json: arguments.json,
            ..Default::default()
        },
    };
    match conversation_run::start(new, &config, &state_dir).await? {
        Exit::Finished => {}
        other => return Ok(other),
    }
    let spec = SandboxSpec {
        workspace: Some(workspace.clone()),
        ..compose::spec(&config.sandbox, Conversations::new_id())
    };
    print::note(&format!(
        "\nThe project's own test, in another sandbox: {TEST}\n"
    ));
    let result = in_fresh_sandbox(&config, &state_dir, spec, TEST.to_owned(), None).await?;
    let CommandResult::Done(test) = result else {
        return Ok(Exit::Interrupted);
    };
    print::note(&format!(
        "{}\n",
        print::for_terminal(test.content.trim_end())
    ));
    let passes = matches!(&test.kind, ObservationKind::Run(run) if run.metadata.exit_code == 0);
    print::note(&format!(
        "\nThe repaired project: {}\n",
        workspace.display()
    ));
    Ok(if passes { Exit::Finished } else { Exit::Failed })
}

fn write_project(workspace: &Path) -> anyhow::Result<()> {
    for (name, text) in PROJECT {
        let path = workspace.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The script, with the paths of the workspace in the sandbox.
fn script_for(workspace: &Path) -> anyhow::Result<String> {
    // The paths are in JSON strings, so they are escaped.
    let quoted = serde_json::to_string(workspace)?;
    Ok(SCRIPT.replace(SCRIPTED_WORKSPACE, quoted.trim_matches('"')))
}

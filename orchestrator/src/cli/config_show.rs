//! `glovebox config show`: every key with its value, and where the value comes from.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap_complete::engine::ArgValueCandidates;
use engine::secrets::Redactor;
use serde_json::{Value, json};

use super::run_options::dollars;
use super::{RuntimeOptions, candidates, load_config, print, table};
use crate::compose;
use crate::config::{Origin, Overrides, Runtime, ShownValue, shown_values};
use crate::exit::{Exit, UsageError};

#[derive(Debug, clap::Subcommand)]
pub(super) enum ConfigCommand {
    /// Show each key with its value, and where the value comes from.
    Show(ShowArguments),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
SOURCE is `default`, a file with the line, an environment variable, or an option of this command, which has the options of \
`run` that set keys. Secrets are masked as ***. Keys of a file that you have not trusted are left out.
Examples:
  glovebox config show --set            what you have configured
  glovebox config show llm. --json
  glovebox config show runtime --runtime local")]
pub(super) struct ShowArguments {
    /// Only keys that contain this text, such as `llm.`, `timeout` or `sandbox.network`.
    text: Option<String>,

    /// Leave out defaults.
    #[arg(long)]
    set: bool,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,

    /// Agent of the run.
    #[arg(short = 'c', long, value_name = "NAME|FILE")]
    agent: Option<String>,

    /// Model of the run.
    #[arg(short = 'l', long, value_name = "MODEL", value_parser = NonEmptyStringValueParser::new())]
    model: Option<String>,

    /// Maximum number of steps of the run.
    #[arg(short = 'i', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_iterations: Option<u32>,

    /// Maximum cost of the run, in US dollars.
    #[arg(short = 'b', long = "max-budget-per-task", value_name = "DOLLARS", value_parser = dollars)]
    max_budget: Option<f64>,

    /// Runtime of the sandbox.
    #[arg(long, value_name = "RUNTIME", add = ArgValueCandidates::new(candidates::runtimes))]
    runtime: Option<Runtime>,

    /// Image of the sandbox.
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    image: Option<String>,

    #[command(flatten)]
    runtime_options: RuntimeOptions,

    /// File for the trajectory of the run.
    #[arg(long, value_name = "FILE")]
    save_trajectory: Option<PathBuf>,

    /// Repository in the workspace of the run.
    #[arg(long, value_name = "URL[#BRANCH]")]
    selected_repo: Option<String>,
}

pub(super) fn run(command: ConfigCommand, overrides: Overrides) -> anyhow::Result<Exit> {
    let ConfigCommand::Show(arguments) = command;
    let ShowArguments {
        text,
        set,
        json,
        agent,
        model,
        ..
    } = arguments;
    let overrides = Overrides {
        agent,
        model,
        max_iterations: arguments.max_iterations,
        max_budget: arguments.max_budget,
        runtime: arguments.runtime,
        image: arguments.image,
        save_trajectory: arguments.save_trajectory,
        selected_repository: arguments.selected_repo,
        ..arguments.runtime_options.overrides(overrides)
    };
    // Warns about files and keys without effect.
    let redactor = compose::redactor(&load_config(&overrides)?)?;
    let mut values = shown_values(&overrides, |name| std::env::var(name).ok())?;
    if let Some(text) = &text {
        values.retain(|shown| shown.key.contains(text));
        if values.is_empty() {
            let text = format!("no key contains {text:?}: `glovebox config show` lists all keys");
            return Err(UsageError(text).into());
        }
    }
    values.retain(|shown| !set || shown.origin != Origin::Program);
    if json {
        let rows: Vec<Value> = values.iter().map(to_json).collect();
        print::line(&redactor.text(&serde_json::to_string(&rows)?))?;
    } else {
        let rows: Vec<_> = values
            .iter()
            .map(|shown| to_cells(shown, &redactor))
            .collect();
        table::print(["KEY", "VALUE", "SOURCE"], &rows)?;
    }
    Ok(Exit::Finished)
}

fn to_json(ShownValue { key, value, origin }: &ShownValue) -> Value {
    let mut row = match origin {
        Origin::File(path, line) => json!({ "source": "file", "path": path, "line": line }),
        Origin::Variable(name) => json!({ "source": "environment", "variable": name }),
        Origin::CommandLine(option) => json!({ "source": "option", "option": option }),
        Origin::Program => json!({ "source": "default" }),
    };
    row["key"] = json!(key);
    row["value"] = json!(value);
    row
}

fn to_cells(ShownValue { key, value, origin }: &ShownValue, redactor: &Redactor) -> [String; 3] {
    let value = match value {
        // A description of the default, or a text as the user has written it.
        Some(toml::Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "-".to_owned(),
    };
    [
        key.clone(),
        redactor.text(&value).into_owned(),
        origin.to_string(),
    ]
}

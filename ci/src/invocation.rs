//! The parsed command line. Reads no environment and runs nothing.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::report::Style;
use crate::step::Step;

/// A parsed `cargo ci …`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// Print the usage and the list of steps.
    Help,
    /// Run these steps and print a summary.
    Checks { steps: Vec<Step>, style: Style },
    /// Run a private container engine with the test images until ^C.
    Engine { folder: Option<PathBuf> },
    /// Run the benchmarks with these arguments.
    Bench { arguments: Vec<String> },
}

impl Invocation {
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut arguments = arguments.into_iter();
        let mut steps = Vec::new();
        let mut style = Style::Lines;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--help" | "-h" | "help" => return Ok(Self::Help),
                "--json" => style = Style::Json,
                "engine" if steps.is_empty() => return parse_engine(arguments),
                "bench" if steps.is_empty() => return Ok(parse_bench(arguments, style)),
                name => match Step::from_name(name) {
                    Some(step) => steps.push(step),
                    None => bail!("there is no step {name:?}; `cargo ci --help` lists them"),
                },
            }
        }
        if steps.is_empty() {
            steps = Step::FULL_RUN.to_vec();
        }
        Ok(Self::Checks { steps, style })
    }
}

fn parse_engine(mut arguments: impl Iterator<Item = String>) -> Result<Invocation> {
    let mut folder = None;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--help" | "-h" => return Ok(Invocation::Help),
            "--folder" => folder = Some(arguments.next().context("--folder needs a path")?.into()),
            other => bail!("`cargo ci engine` takes --folder PATH, not {other:?}"),
        }
    }
    Ok(Invocation::Engine { folder })
}

/// Treats `cargo ci --json bench`, `cargo ci bench --json` and `cargo ci bench -- --json` alike.
fn parse_bench(arguments: impl Iterator<Item = String>, style: Style) -> Invocation {
    let mut arguments: Vec<String> = arguments.collect();
    if arguments.first().is_some_and(|first| first == "--") {
        arguments.remove(0);
    }
    if style == Style::Json {
        arguments.push("--json".to_owned());
    }
    Invocation::Bench { arguments }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Invocation> {
        Invocation::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn all_steps_run_when_none_is_named() {
        let expected = Invocation::Checks {
            steps: Step::FULL_RUN.to_vec(),
            style: Style::Json,
        };
        assert_eq!(parse("--json").unwrap(), expected);
    }

    #[test]
    fn steps_run_in_the_given_order() {
        let expected = Invocation::Checks {
            steps: vec![Step::Test, Step::Format],
            style: Style::Lines,
        };
        assert_eq!(parse("test format").unwrap(), expected);
    }

    #[test]
    fn error_names_the_step_when_it_is_unknown() {
        assert!(parse("fromat").unwrap_err().to_string().contains("fromat"));
    }

    #[test]
    fn engine_accepts_a_folder() {
        assert_eq!(
            parse("engine --folder f").unwrap(),
            Invocation::Engine {
                folder: Some("f".into())
            }
        );
        assert!(parse("engine --folder").is_err());
    }

    #[test]
    fn benchmarks_receive_the_remaining_arguments() {
        let expected = Invocation::Bench {
            arguments: vec!["place".to_owned(), "--json".to_owned()],
        };
        assert_eq!(parse("bench -- place --json").unwrap(), expected);
        assert_eq!(parse("--json bench place").unwrap(), expected);
    }
}

//! The command line's definition: the options of all commands, which only `glovebox help options`
//! shows, and advice for errors.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory as _, Error, FromArgMatches as _};

use super::print::for_terminal;
use super::{Arguments, print};
use crate::exit::Exit;

/// The command that shows the options of all commands.
const NAME: &str = "options";

/// Commands with a text of the user.
const COMMANDS_WITH_TEXT: [&str; 3] = ["run", "resume", "replay"];

/// Parses the command line. Ends the program if it is invalid, or asks for help.
pub(crate) fn parse() -> Arguments {
    let parsed = command()
        .try_get_matches()
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| end(&add_advice(error, std::env::args().nth(1).as_deref())))
}

/// Prints an error, or the help, and ends the program. An error quotes arguments, whose control
/// characters would reach the terminal.
fn end(error: &Error) -> ! {
    let is_unsafe = |argument: String| {
        argument
            .chars()
            .any(|char| char.is_control() && !"\n\t".contains(char))
    };
    if error.use_stderr()
        && std::env::args_os().any(|argument| is_unsafe(argument.to_string_lossy().into_owned()))
    {
        print::note(&for_terminal(&error.to_string()));
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// The definition of the command line.
fn command() -> Command {
    let command = Arguments::command();
    let options: Vec<Arg> = command
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .map(|arg| arg.clone().hide(false))
        .collect();
    // An argument of the command itself replaces the hidden one that it would inherit.
    command.mut_subcommand(NAME, |command| command.args(options))
}

/// Prints the options of all commands.
pub(super) fn run() -> anyhow::Result<Exit> {
    let mut command = command();
    command.build();
    let options = command
        .find_subcommand_mut(NAME)
        .map(|options| options.render_help().to_string());
    print::text(&options.unwrap_or_default())?;
    Ok(Exit::Finished)
}

/// Adds the cause of the most frequent mistake: a text of several words without quotes.
fn add_advice(mut error: Error, command: Option<&str>) -> Error {
    let is_word = matches!(
        error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(argument)) if !argument.starts_with('-')
    );
    let has_text = command.is_some_and(|command| COMMANDS_WITH_TEXT.contains(&command));
    if error.kind() == ErrorKind::UnknownArgument && is_word && has_text {
        let advice =
            StyledStr::from("put a text of several words in quotes: 'Make the tests pass'");
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![advice]),
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(words: &[&str]) -> String {
        let error = command()
            .try_get_matches_from([&["glovebox"], words].concat())
            .unwrap_err();
        add_advice(error, words.first().copied()).to_string()
    }

    #[test]
    fn options_of_all_commands_are_in_one_place() {
        assert!(help(&["help", "options"]).contains("--config-file <FILE>"));
        for words in [
            &["--help"][..],
            &["run", "--help"],
            &["sandbox", "ls", "--help"],
        ] {
            assert!(!help(words).contains("  --config-file"), "{words:?}");
        }
    }

    #[test]
    fn task_without_quotes_gets_advice() {
        assert!(help(&["run", "make", "the", "tests", "pass"]).contains("in quotes"));
        assert!(!help(&["run", "--unknown"]).contains("in quotes"));
    }

    #[test]
    fn paragraphs_of_help_are_not_wrapped_twice() {
        fn check(command: &Command) {
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            for line in help
                .lines()
                .filter(|line| !line.starts_with("  ") && !line.is_empty())
            {
                let is_whole = line.ends_with(['.', ':']) || line.starts_with("Example");
                assert!(is_whole, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&command());
    }
}

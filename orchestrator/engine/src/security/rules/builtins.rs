//! What the arguments of a shell's builtins may do: assign to variables, or run commands.

use super::super::shell::{self, Word};

/// Variables that change only the language and form of output.
const HARMLESS_VARIABLES: &str = " CI CLICOLOR COLUMNS FORCE_COLOR LANG LINES NO_COLOR \
     PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED RUST_BACKTRACE TERM TZ ";

/// Variables whose value shells run as commands, or expand with the substitutions in it.
const EVALUATED_VARIABLES: &str = " BASH_ENV ENV PROMPT_COMMAND PS0 PS1 PS2 PS4 ";

/// Builtins that assign to the variables in their arguments.
const DECLARATIONS: &str = " export declare typeset local readonly ";

/// Builtins that set the variables that their arguments name.
const VARIABLE_SETTERS: &str = " read mapfile readarray getopts unset ";

/// Builtins that evaluate the subscripts of variables in their arguments, with their substitutions.
const SUBSCRIPT_EVALUATORS: &str =
    " declare typeset local read mapfile readarray getopts unset wait ";

/// Operators of `test` with one operand that is not the name of a variable.
const UNARY_TESTS: &str = " -b -c -d -e -f -g -h -k -n -p -r -s -u -w -x -z -G -L -N -O -S ";

/// Operators of `test` with two operands.
const BINARY_TESTS: &str = " = == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef ";

/// Builtins that change which command a name runs, or run commands at another time.
pub(super) const DEFINITIONS: &str = " trap alias hash enable bind complete compgen fc ";

pub(super) fn is_harmless_variable(name: &str) -> bool {
    is_in(HARMLESS_VARIABLES, name) || name.starts_with("LC_")
}

/// Whether a program assigns to the variables in its arguments, as `export A=1` does.
pub(super) fn sets_variables(name: &str) -> bool {
    is_in(DECLARATIONS, name) || matches!(name, "env" | "sudo" | "doas")
}

/// Whether an assignment, or an argument such as `NAME=VALUE`, defines text that a shell may run.
pub(super) fn defines_code(assignment: &str) -> bool {
    let name = assignment
        .split_once('=')
        .map_or(assignment, |(name, _)| name);
    let name = name.trim_end_matches('+');
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    is_in(EVALUATED_VARIABLES, name) || name.starts_with("BASH_FUNC_")
}

/// Whether a builtin sets a variable that can change which program runs, or what it does.
pub(super) fn alters_environment(name: &str, arguments: &[Word]) -> bool {
    let is_harmless = |word: &Word| {
        let (name, is_complete) = match word.text.split_once('=') {
            // Without quotes, the value may be split into further names.
            Some((name, _)) => (name, word.is_single),
            // An expansion may continue the name.
            None => (word.text.as_str(), word.is_certain()),
        };
        is_complete && is_harmless_variable(name.trim_end_matches('+'))
    };
    let is_plain = |word: &Word| word.is_certain() && shell::is_plain_variable(&word.text);
    let is_option = |word: &Word| word.is_certain() && word.text.starts_with('-');
    if is_in(DECLARATIONS, name) {
        return !arguments
            .iter()
            .all(|word| is_harmless(word) || (word.is_certain() && word.text == "-p"));
    }
    if is_in(VARIABLE_SETTERS, name) {
        return !arguments
            .iter()
            .all(|word| is_plain(word) || (is_option(word) && !word.text.contains('C')));
    }
    match name {
        "printf" => {
            let format = arguments.iter().find(|word| word.text != "--");
            format.is_some_and(|word| word.text.starts_with("-v") || assigns_length(&word.text))
        }
        "wait" => arguments
            .iter()
            .any(|word| word.text.starts_with('-') && word.text.contains('p')),
        // `set -k` makes arguments assignments.
        "set" => {
            let sets_keyword = |word: &Word| {
                let letters = word.text.strip_prefix(['-', '+']);
                letters.is_some_and(|letters| letters.contains('k')) || word.text == "keyword"
            };
            let may_be_options = |word: &&Word| !(word.is_certain() && word.text == "--");
            let mut options = arguments.iter().take_while(may_be_options);
            arguments.iter().any(sets_keyword) || options.any(|word| !word.is_certain())
        }
        "shopt" => arguments.iter().any(|word| {
            !word.is_certain() || matches!(word.text.as_str(), "keyword" | "expand_aliases")
        }),
        _ => is_in(DEFINITIONS, name),
    }
}

/// Whether a format of `printf` may contain `%n`, which assigns the number of written bytes to the
/// variable that the argument names.
fn assigns_length(format: &str) -> bool {
    let is_modifier = |letter: char| letter.is_ascii_digit() || "#-+ .*'$hjlLqtz".contains(letter);
    let mut directives = format.split('%').skip(1);
    directives.any(|directive| directive.trim_start_matches(is_modifier).starts_with('n'))
}

/// Whether a builtin may evaluate an argument: a subscript, arithmetic or a command. The value of
/// an expansion may be any option or name.
pub(super) fn may_evaluate_arguments(name: &str, arguments: &[Word]) -> bool {
    let is_code = |word: &Word| word.text.contains('[') && word.text.contains(['$', '`']);
    match name {
        "let" => true,
        // `mapfile -C` evaluates its value.
        "mapfile" | "readarray"
            if arguments
                .iter()
                .any(|word| word.text.starts_with('-') && word.text.contains('C')) =>
        {
            true
        }
        "test" | "[" => arguments.iter().any(is_code) || may_test_variable(name, arguments),
        "printf" => may_print_to_subscript(arguments),
        // `jobs -x` runs a command.
        "jobs" => arguments.iter().any(|word| {
            !word.is_certain() || (word.text.starts_with('-') && word.text.contains('x'))
        }),
        "export" | "readonly" => {
            arguments.iter().any(is_code) || arguments.iter().any(has_declaration_type)
        }
        "declare" | "typeset" | "local" => arguments.iter().any(|word| {
            let is_name_known = word.is_certain() || (word.is_single && word.text.contains('='));
            is_code(word) || !is_name_known || has_subscript(word) || has_declaration_type(word)
        }),
        _ if is_in(SUBSCRIPT_EVALUATORS, name) => arguments
            .iter()
            .any(|word| is_code(word) || !word.is_certain() || has_subscript(word)),
        _ => false,
    }
}

/// Whether a word may name an element of an array. The values of variables in its subscript are
/// evaluated as well.
fn has_subscript(word: &Word) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = word.text.trim_start_matches('-');
    name.starts_with(is_name) && name.trim_start_matches(is_name).starts_with('[')
}

/// Whether a word is an option of `declare` that makes values code: arithmetic, arrays and
/// references to other variables.
fn has_declaration_type(word: &Word) -> bool {
    let letters = word.text.strip_prefix(['-', '+']);
    letters.is_some_and(|letters| !letters.chars().all(|letter| "-prxg".contains(letter)))
}

/// Whether `test` may evaluate a subscript. With expansions, only expressions that have the same
/// meaning for every value are known.
fn may_test_variable(name: &str, arguments: &[Word]) -> bool {
    if arguments.iter().all(|word| word.is_certain()) {
        let tests_variable = arguments.iter().any(|word| is_in(" -v -R ", &word.text));
        return tests_variable && arguments.iter().any(has_subscript);
    }
    let is_literal = |word: &Word, text: &str| word.is_certain() && word.text == text;
    let operands = match (name, arguments.split_last()) {
        ("[", Some((last, operands))) if is_literal(last, "]") => operands,
        ("[", _) => return true,
        _ => arguments,
    };
    let operands = match operands.split_first() {
        Some((first, rest)) if is_literal(first, "!") => rest,
        _ => operands,
    };
    let is_known = match operands {
        [_] => true,
        [operator, _] => operator.is_certain() && is_in(UNARY_TESTS, &operator.text),
        [_, operator, _] => operator.is_certain() && is_in(BINARY_TESTS, &operator.text),
        _ => false,
    };
    !is_known || !operands.iter().all(|word| word.is_single)
}

/// Whether `printf` may assign to an element of an array, or has a format that is not known.
fn may_print_to_subscript(arguments: &[Word]) -> bool {
    let Some((first, mut rest)) = arguments.split_first() else {
        return false;
    };
    let mut format = first;
    if first.is_certain() && first.text == "--" {
        let Some((second, others)) = rest.split_first() else {
            return false;
        };
        (format, rest) = (second, others);
    } else if first.text.starts_with("-v") {
        let is_known = |word: &Word| word.is_certain() && !word.text.contains('[');
        return !arguments.iter().take(2).all(is_known);
    } else if !first.is_certain() && (first.text.is_empty() || first.text.starts_with('-')) {
        return true;
    }
    // The value of an expansion may contain `%n`, which needs an argument.
    !(format.is_certain() || format.is_single && rest.is_empty())
}

/// Whether a word is in a list of words with spaces around each.
pub(super) fn is_in(words: &str, word: &str) -> bool {
    !word.is_empty() && !word.contains(' ') && words.contains(&format!(" {word} "))
}

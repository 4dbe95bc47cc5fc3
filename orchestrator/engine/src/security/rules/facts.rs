//! Extracts the effects of an action: its commands and those within them, with the paths that they
//! read and write and the hosts that they connect to.

use protocol::Action;
use protocol::action::{EditCommand, RunAction};

use super::super::shell::{self, Expansion, ShellCommand, UnparsedShell, Word};
use super::builtins::{
    DEFINITIONS, alters_environment, defines_code, is_harmless_variable, is_in,
    may_evaluate_arguments, sets_variables,
};
use crate::browsing::{self, BrowserCall};

/// Maximum nesting of `sh -c` within `sh -c`.
const MAX_DEPTH: usize = 8;

/// The effects of a simple command, or of an action of another kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ActionFacts {
    pub(super) words: Vec<Word>,
    pub(super) reads: Vec<Word>,
    pub(super) writes: Vec<Word>,
    pub(super) hosts: Vec<Word>,
    /// Whether it only runs another command, which has its own facts.
    pub(super) is_wrapper: bool,
    /// Whether its effects are not visible.
    pub(super) is_opaque: bool,
    /// Whether its variables can change which program runs, or what it does.
    pub(super) has_altered_environment: bool,
}

/// A path or host that a command accesses.
#[derive(Debug, Clone, Copy)]
pub(super) enum AccessTarget<'a> {
    Read(&'a Word),
    Write(&'a Word),
    Host(&'a Word),
}

/// Keys that end a program or its input.
const KEYS: [&str; 3] = ["C-c", "C-d", "C-z"];

/// Programs that open none of their arguments.
const PURE_PROGRAMS: &str =
    " echo printf export test [ true false set unset exit return sleep kill wait pwd type which ";

/// Programs that change their arguments.
const WRITERS: &str = " rm rmdir mv tee touch chmod chown chgrp mkdir truncate shred unlink patch ";

/// Programs that change only their last argument, unless an option names the target.
const COPIERS: &str = " cp ln install rsync ";

/// Programs that connect to hosts among their arguments, with or without a scheme.
const NETWORK_PROGRAMS: &str =
    " curl wget nc ncat telnet ssh scp sftp rsync ftp ping dig nslookup host ";

/// Folders whose paths bash opens as connections in redirections.
const CONNECTION_FOLDERS: [&str; 2] = ["/dev/tcp/", "/dev/udp/"];

/// Programs that connect to a configured host, and the subcommands that do.
const REMOTE_SUBCOMMANDS: [(&str, &str); 11] = [
    ("git", " clone fetch pull push ls-remote submodule "),
    ("pip", " install download "),
    ("pip3", " install download "),
    ("uv", " add sync pip "),
    ("npm", " install i ci add publish exec "),
    ("npx", ""),
    ("yarn", ""),
    ("pnpm", " install i add publish "),
    ("cargo", " install fetch add publish update "),
    ("go", " get install mod "),
    ("gh", ""),
];

/// A program that runs the command in its arguments. The command after an option that is not
/// listed is unknown.
struct Wrapper {
    name: &'static str,
    /// The short options that take a value.
    with_value: &'static str,
    /// The other short options.
    flags: &'static str,
    /// The number of words before the command.
    operands: usize,
}

const fn wrapper(
    name: &'static str,
    with_value: &'static str,
    flags: &'static str,
    operands: usize,
) -> Wrapper {
    Wrapper {
        name,
        with_value,
        flags,
        operands,
    }
}

const WRAPPERS: [Wrapper; 15] = [
    wrapper("sudo", "ughpCrtTUDR", "AbBEHiKklnNPSsVv", 0),
    wrapper("doas", "uC", "Lns", 0),
    wrapper("env", "uC", "i0v", 0),
    wrapper("nohup", "", "", 0),
    wrapper("setsid", "", "cfw", 0),
    wrapper("command", "", "pvV", 0),
    wrapper("builtin", "", "", 0),
    wrapper("exec", "", "cl", 0),
    wrapper("time", "", "p", 0),
    wrapper("nice", "n", "0123456789", 0),
    wrapper("ionice", "cn", "t", 0),
    wrapper("timeout", "sk", "fpv", 1),
    wrapper("stdbuf", "ioe", "", 0),
    wrapper("xargs", "nPLdasE", "0rtx", 0),
    wrapper("busybox", "", "", 0),
];

/// Long options of wrappers that run no other command and have no value in the next word.
const LONG_OPTIONS: [&str; 10] = [
    "--adjustment=",
    "--foreground",
    "--ignore-environment",
    "--kill-after=",
    "--max-args=",
    "--max-procs=",
    "--no-run-if-empty",
    "--null",
    "--preserve-status",
    "--signal=",
];

/// Words that the shell interprets after `time` instead of running a program.
const RESERVED_WORDS: &str =
    " ! { } if then else elif fi do done while until for case esac select function coproc time [[ ";

/// Actions of `find` that run a command.
const FIND_COMMANDS: &str = " -exec -execdir -ok -okdir ";

/// Actions of `find` that write the file that follows.
const FIND_OUTPUTS: &str = " -fprint -fprint0 -fprintf -fls ";

/// Folders of the system's programs.
const SYSTEM_FOLDERS: &str = " /bin /usr/bin /sbin /usr/sbin /usr/local/bin ";

/// Shells whose language is parsed.
const SHELLS: &str = " sh bash dash ash ";

/// Shells that read the same text differently: in zsh, a loop over `path` sets `PATH`.
const OTHER_SHELLS: &str = " zsh rzsh ksh ksh88 ksh93 rksh mksh lksh oksh loksh pdksh yash posh \
     csh tcsh fish rc es elvish nu pwsh powershell xonsh ion osh ysh oil hush rbash ";

impl ActionFacts {
    /// Whether the program is a file that is not one of the system's programs.
    pub(super) fn has_foreign_program(&self) -> bool {
        let program = self.words.first().map(|word| word.text.rsplit_once('/'));
        let folder = program.flatten().map(|(folder, _)| folder);
        folder.is_some_and(|folder| !is_in(SYSTEM_FOLDERS, folder))
    }

    /// Returns all paths and hosts that it accesses.
    pub(super) fn targets(&self) -> impl Iterator<Item = AccessTarget<'_>> {
        let reads = self.reads.iter().map(AccessTarget::Read);
        let writes = self.writes.iter().map(AccessTarget::Write);
        reads
            .chain(writes)
            .chain(self.hosts.iter().map(AccessTarget::Host))
    }

    /// Returns the facts of an action. `None` if it cannot be parsed reliably.
    pub(super) fn from_action(action: &Action) -> Option<Vec<Self>> {
        let path = |path: &str| vec![Word::certain(path)];
        let one = match action {
            Action::Run(run) => return run_facts(run),
            Action::Read(read) => Self {
                reads: path(&read.path),
                ..Self::default()
            },
            Action::Write(write) => Self {
                writes: path(&write.path),
                ..Self::default()
            },
            Action::Edit(edit) if edit.command == EditCommand::View => Self {
                reads: path(&edit.path),
                ..Self::default()
            },
            Action::Edit(edit) => Self {
                writes: path(&edit.path),
                ..Self::default()
            },
            Action::Browse(browse) => Self::from_page(&browse.url),
            Action::BrowseInteractive(browse) => {
                return Some(Self::from_calls(&browse.browser_actions));
            }
            _ => Self {
                is_opaque: true,
                ..Self::default()
            },
        };
        Some(vec![one])
    }
}

impl ActionFacts {
    /// Returns the facts of opening a page.
    fn from_page(url: &str) -> Self {
        let opaque = Self {
            is_opaque: true,
            ..Self::default()
        };
        // Parsed as the browser does.
        let Ok(url) = browsing::normalize_address(url) else {
            return opaque;
        };
        match url.split_once(':') {
            Some(("file", rest)) => {
                let Some(path) = rest.strip_prefix("//").filter(|path| path.starts_with('/'))
                else {
                    return opaque;
                };
                // Characters of an address may be percent-encoded.
                let encoded = path.find(['%', '?', '#']);
                let text = path.get(..encoded.unwrap_or(path.len()));
                let word = Word::certain(text.unwrap_or_default());
                Self {
                    reads: vec![match encoded {
                        Some(_) => word.with_unknown_rest(),
                        None => word,
                    }],
                    ..Self::default()
                }
            }
            Some(("about", _)) => Self::default(),
            Some(("http" | "https", _)) => Self {
                hosts: url_host(&url).into_iter().collect(),
                ..Self::default()
            },
            // A page within its URL has unknown effects, like any page.
            _ => opaque,
        }
    }

    /// Returns the facts of calls in a browser, one for each call. Interaction with a page has
    /// unknown effects.
    fn from_calls(calls: &str) -> Vec<Self> {
        let opaque = || Self {
            is_opaque: true,
            ..Self::default()
        };
        let Ok(calls) = browsing::parse(calls) else {
            return vec![opaque()];
        };
        let mut facts = vec![Self::default()];
        for call in calls {
            match call {
                BrowserCall::Goto(url) => facts.push(Self::from_page(&url)),
                BrowserCall::UploadFile(_, files) => {
                    let reads = files.into_iter().map(|path| Word::certain(&path)).collect();
                    facts.extend([
                        Self {
                            reads,
                            ..Self::default()
                        },
                        opaque(),
                    ]);
                }
                BrowserCall::Noop(_)
                | BrowserCall::Scroll(..)
                | BrowserCall::NewTab
                | BrowserCall::TabClose
                | BrowserCall::TabFocus(_)
                | BrowserCall::SendMessage(_) => {}
                _ => facts.push(opaque()),
            }
        }
        facts
    }
}

fn run_facts(run: &RunAction) -> Option<Vec<ActionFacts>> {
    let text = run.command.trim_matches(shell::BLANKS);
    // A blank line may answer a question. Without any text, output is read.
    let has_no_effect = match run.is_input {
        true => run.command.is_empty() || KEYS.contains(&text),
        false => text.is_empty(),
    };
    if has_no_effect {
        return Some(Vec::new());
    }
    if run.is_input {
        return Some(vec![ActionFacts {
            is_opaque: true,
            ..ActionFacts::default()
        }]);
    }
    let mut facts = Vec::new();
    add_text_facts(&run.command, 0, &mut facts).ok()?;
    Some(facts)
}

fn add_text_facts(
    text: &str,
    depth: usize,
    facts: &mut Vec<ActionFacts>,
) -> Result<(), UnparsedShell> {
    if depth == MAX_DEPTH {
        return Err(UnparsedShell);
    }
    let before = facts.len();
    for command in shell::commands(text, 0)? {
        add_command_facts(command, depth, facts)?;
    }
    // A definition applies to later commands, in loops to preceding ones as well.
    let is_altered = |facts: &ActionFacts| facts.has_altered_environment;
    if facts.iter().skip(before).any(is_altered) {
        for own in facts.iter_mut().skip(before) {
            own.alter_environment();
        }
    }
    Ok(())
}

impl ActionFacts {
    fn alter_environment(&mut self) {
        self.has_altered_environment = true;
        // No other command decides its risk.
        self.is_wrapper = false;
    }
}

fn add_command_facts(
    command: ShellCommand,
    depth: usize,
    facts: &mut Vec<ActionFacts>,
) -> Result<(), UnparsedShell> {
    if depth == MAX_DEPTH {
        return Err(UnparsedShell);
    }
    if command.assignments.iter().any(|name| defines_code(name)) {
        return Err(UnparsedShell);
    }
    let redirections = command.reads.iter().chain(&command.writes);
    let connections: Vec<Word> = redirections.filter_map(connection_host).collect();
    let mut own = ActionFacts {
        reads: command.reads,
        writes: command.writes,
        has_altered_environment: !command
            .assignments
            .iter()
            .all(|name| is_harmless_variable(name)),
        ..ActionFacts::default()
    };
    let Some((program, arguments)) = command.words.split_first() else {
        own.hosts = connections;
        facts.push(own);
        return Ok(());
    };
    if !program.is_certain() {
        return Err(UnparsedShell);
    }
    let name = program.text.rsplit('/').next().unwrap_or_default();
    // Assignments and reserved words that a wrapper's command starts with, and quoted assignments.
    if name.contains('=') || (depth > 0 && is_in(RESERVED_WORDS, name)) {
        return Err(UnparsedShell);
    }
    let may_define_code = |word: &Word| word.text.contains('=') && defines_code(&word.text);
    if may_evaluate_arguments(name, arguments)
        || (sets_variables(name) && arguments.iter().any(may_define_code))
    {
        return Err(UnparsedShell);
    }
    let wrapped = wrapped_command(name, arguments)?;
    let sets_variable = |word: &Word| word.text.contains('=') && !word.text.starts_with('-');
    own.has_altered_environment |= alters_environment(name, arguments)
        || (matches!(name, "env" | "sudo") && arguments.iter().any(sets_variable));
    let wraps = !matches!(wrapped, WrappedCommand::None | WrappedCommand::Opaque);
    own.is_wrapper =
        wraps && connections.is_empty() && !(name == "find" && find_has_own_effect(arguments));
    own.is_opaque = matches!(wrapped, WrappedCommand::Opaque);
    add_targets(name, arguments, &mut own);
    own.hosts.extend(connections);
    own.words.clone_from(&command.words);
    // It may run any other program than the one in its arguments.
    if own.has_altered_environment || own.has_foreign_program() {
        own.is_wrapper = false;
    }
    facts.push(own);
    // The commands after an `-exec` of an expansion are unknown, whatever the rules for `find`.
    if name == "find" && arguments.iter().any(may_add_option) {
        facts.push(ActionFacts {
            is_opaque: true,
            ..ActionFacts::default()
        });
    }
    match wrapped {
        WrappedCommand::None | WrappedCommand::Opaque => Ok(()),
        WrappedCommand::Commands(commands) => {
            for words in commands {
                let command = ShellCommand {
                    words,
                    ..ShellCommand::default()
                };
                add_command_facts(command, depth + 1, facts)?;
            }
            Ok(())
        }
        WrappedCommand::Text(text) => add_text_facts(&text, depth + 1, facts),
    }
}

/// Whether `find` does more than to run commands, or may do so after an expansion.
fn find_has_own_effect(arguments: &[Word]) -> bool {
    arguments
        .iter()
        .any(|word| !word.is_certain() || deletes(word) || is_in(FIND_OUTPUTS, &word.text))
}

/// Whether a word is the action of `find` that deletes what it finds.
fn deletes(word: &Word) -> bool {
    word.text == "-delete"
}

/// Whether an expansion may add an argument that starts with `-`, such as `-exec`.
fn may_add_option(word: &Word) -> bool {
    let may_be_option = word.text.is_empty() || word.text.starts_with('-');
    let may_be_split = word.expansion == Expansion::Any && !word.is_single;
    !word.is_certain() && (may_be_option || may_be_split)
}

/// Command that a wrapper runs.
enum WrappedCommand {
    None,
    /// Commands, each with its words.
    Commands(Vec<Vec<Word>>),
    /// A shell text.
    Text(String),
    /// A program that the text does not show.
    Opaque,
}

fn wrapped_command(name: &str, arguments: &[Word]) -> Result<WrappedCommand, UnparsedShell> {
    if is_in(SHELLS, name) {
        return shell_text(arguments);
    }
    match name {
        "eval" => {
            let is_option = |word: &Word| word.text.starts_with('-');
            if arguments.first().is_some_and(is_option)
                || !arguments.iter().all(|word| word.is_certain())
            {
                return Err(UnparsedShell);
            }
            let words: Vec<_> = arguments.iter().map(|word| word.text.as_str()).collect();
            Ok(WrappedCommand::Text(words.join(" ")))
        }
        "find" => {
            let commands: Vec<Vec<Word>> = arguments
                .iter()
                .enumerate()
                .filter(|(_, word)| is_in(FIND_COMMANDS, &word.text))
                .map(|(index, _)| {
                    let rest = arguments.iter().skip(index + 1);
                    let command = rest.take_while(|word| word.text != ";");
                    command.map(|word| fill_placeholder(word, "{}")).collect()
                })
                .collect();
            Ok(match commands.is_empty() {
                true => WrappedCommand::None,
                false => WrappedCommand::Commands(commands),
            })
        }
        "." | "source" => Ok(WrappedCommand::Opaque),
        _ if is_in(OTHER_SHELLS, name) => Ok(WrappedCommand::Opaque),
        _ if is_in(DEFINITIONS, name) => Ok(WrappedCommand::Opaque),
        _ => match WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
            Some(wrapper) => strip_wrapper(wrapper, arguments),
            None => Ok(WrappedCommand::None),
        },
    }
}

/// Returns a word in which `find` or `xargs` may replace the placeholder. The whole word may become
/// the program or a path.
fn fill_placeholder(word: &Word, placeholder: &str) -> Word {
    match word.is_certain() {
        _ if word.text.contains(placeholder) => Word::default(),
        true => word.clone(),
        // An expansion may contain the placeholder.
        false => word.clone().with_unknown_rest(),
    }
}

/// Returns the text that a shell runs: the first word after all options if one of them is `-c`.
fn shell_text(arguments: &[Word]) -> Result<WrappedCommand, UnparsedShell> {
    let mut has_text = false;
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        if !word.is_certain() {
            return Err(UnparsedShell);
        }
        let letters = match word.text.as_str() {
            "--" | "-" => {
                let next = rest.next();
                return script_or_text(next, has_text);
            }
            "--login" | "--noprofile" | "--norc" | "--posix" => continue,
            text => match text.strip_prefix(['-', '+']) {
                Some(letters) => letters,
                None => return script_or_text(Some(word), has_text),
            },
        };
        // Others have values, or run files.
        if !letters
            .chars()
            .all(|letter| "ceuxlfvnaBCEhmpo".contains(letter))
        {
            return Err(UnparsedShell);
        }
        has_text |= word.text.starts_with('-') && letters.contains('c');
        for _ in letters.matches('o') {
            // `keyword` makes arguments assignments.
            if rest
                .next()
                .is_none_or(|value| !value.is_certain() || value.text == "keyword")
            {
                return Err(UnparsedShell);
            }
        }
    }
    Ok(WrappedCommand::Opaque)
}

fn script_or_text(word: Option<&Word>, has_text: bool) -> Result<WrappedCommand, UnparsedShell> {
    match word {
        Some(text) if has_text && text.is_certain() => Ok(WrappedCommand::Text(text.text.clone())),
        Some(_) if has_text => Err(UnparsedShell),
        _ => Ok(WrappedCommand::Opaque),
    }
}

/// Returns the command in the arguments of a wrapper.
fn strip_wrapper(wrapper: &Wrapper, arguments: &[Word]) -> Result<WrappedCommand, UnparsedShell> {
    let mut index = 0;
    // The text that `xargs -I` replaces.
    let mut placeholder = None;
    while let Some(word) = arguments.get(index) {
        let is_variable = matches!(wrapper.name, "env" | "sudo") && word.text.contains('=');
        match word.text.strip_prefix('-') {
            Some("-") => {
                index += 1;
                break;
            }
            Some("") if wrapper.name != "env" => return Err(UnparsedShell),
            Some(long) if long.starts_with('-') => {
                let is_known = |option: &&str| match option.ends_with('=') {
                    true => word.text.starts_with(*option),
                    false => word.text == *option,
                };
                if !LONG_OPTIONS.iter().any(is_known) {
                    return Err(UnparsedShell);
                }
                index += 1;
            }
            Some(letters) if wrapper.name == "xargs" && letters.starts_with('I') => {
                let (text, next) = match letters.get(1..).filter(|text| !text.is_empty()) {
                    Some(text) => (Some(text), index + 1),
                    None => {
                        let value = arguments.get(index + 1);
                        (value.map(|word| word.text.as_str()), index + 2)
                    }
                };
                // Another text may be the name of the program.
                if text != Some("{}") {
                    return Err(UnparsedShell);
                }
                placeholder = text;
                index = next;
            }
            Some(letters) => {
                let value = letters.find(|letter| wrapper.with_value.contains(letter));
                let (flags, value) = letters.split_at(value.unwrap_or(letters.len()));
                if !flags.chars().all(|flag| wrapper.flags.contains(flag)) {
                    return Err(UnparsedShell);
                }
                // A single letter has its value in the next word.
                index += if value.chars().count() == 1 { 2 } else { 1 };
            }
            None if is_variable => index += 1,
            None => break,
        }
    }
    let command_start = index + wrapper.operands;
    // An expansion to several words moves the command.
    let mut skipped = arguments.iter().take(command_start);
    if skipped.any(|word| !word.is_certain()) {
        return Err(UnparsedShell);
    }
    let stdin = (wrapper.name == "xargs").then(Word::default);
    let words = arguments.iter().skip(command_start);
    let words: Vec<_> = words
        .map(|word| match placeholder {
            Some(placeholder) => fill_placeholder(word, placeholder),
            None => word.clone(),
        })
        .collect();
    Ok(match words.is_empty() {
        true => WrappedCommand::None,
        // The standard input of `xargs` becomes arguments.
        false => WrappedCommand::Commands(vec![words.into_iter().chain(stdin).collect()]),
    })
}

/// Adds the paths and hosts among the arguments of a command.
fn add_targets(name: &str, arguments: &[Word], facts: &mut ActionFacts) {
    if is_in(PURE_PROGRAMS, name) {
        return;
    }
    let has_option = |letter, long| {
        arguments
            .iter()
            .any(|word| may_be_option(word, letter, long))
    };
    let is_writer = is_in(WRITERS, name)
        || (matches!(name, "sed" | "perl") && has_option('i', "--in"))
        || (name == "find" && arguments.iter().any(deletes));
    let has_target_option = has_option('t', "--t");
    let last_operand = arguments.iter().rposition(|word| !is_certain_option(word));
    let is_network_program = is_in(NETWORK_PROGRAMS, name);
    let mut before = "";
    let mut is_output_next = false;
    for (index, word) in arguments.iter().enumerate() {
        let is_target = is_in(COPIERS, name) && (has_target_option || last_operand == Some(index));
        let output = output_option(name).map(|(letter, long)| output_of(&word.text, letter, long));
        let is_output = is_output_next || (name == "find" && is_in(FIND_OUTPUTS, before));
        is_output_next = matches!(output, Some(Output::Next));
        if let Some(Output::Path(path)) = output {
            facts.writes.push(Word {
                text: path.to_owned(),
                ..word.clone()
            });
            continue;
        }
        before = &word.text;
        if is_output {
            facts.writes.push(word.clone());
            continue;
        }
        let word = match word.text.split_once('=') {
            // Such as `--output=PATH` and `of=PATH`.
            Some((key, value)) => {
                let value = Word {
                    text: value.to_owned(),
                    ..word.clone()
                };
                if name == "dd" && key == "of" {
                    facts.writes.push(value);
                    continue;
                }
                value
            }
            None => word.clone(),
        };
        if is_certain_option(&word) {
            // Such as `-f/etc/x`.
            let path = word
                .text
                .find(['/', '~'])
                .and_then(|at| word.text.get(at..));
            let paths = match is_writer || is_target {
                true => &mut facts.writes,
                false => &mut facts.reads,
            };
            paths.extend(path.map(Word::certain));
            continue;
        }
        // Programs such as curl read the file of `@PATH`. In another place it is a host.
        let path = word.text.strip_prefix('@');
        facts.reads.extend(path.map(Word::certain));
        if let Some(path) = file_of(&word.text) {
            facts.reads.push(Word {
                text: path.to_owned(),
                ..word
            });
            continue;
        }
        if let Some(host) = url_host(&word.text)
            .or_else(|| is_network_program.then(|| bare_host(&word.text)).flatten())
        {
            // Text after a host, without a slash, may still be part of it.
            let is_whole = word.is_certain()
                || word
                    .text
                    .rsplit("://")
                    .next()
                    .is_some_and(|rest| rest.contains('/'));
            facts.hosts.push(match is_whole {
                true => host,
                false => host.with_unknown_rest(),
            });
            continue;
        }
        if is_network_program && !word.is_certain() {
            facts.hosts.push(Word::default());
        }
        if is_writer || is_target {
            facts.writes.push(word.clone());
        }
        facts.reads.push(word);
    }
    let uses_remote =
        |words: &str| words.is_empty() || arguments.iter().any(|word| is_in(words, &word.text));
    if facts.hosts.is_empty()
        && REMOTE_SUBCOMMANDS
            .iter()
            .any(|(program, words)| *program == name && uses_remote(words))
    {
        facts.hosts.push(Word::default());
    }
}

/// Returns the short and the long option with which a program writes a file.
fn output_option(program: &str) -> Option<(char, &'static str)> {
    match program {
        "curl" | "sort" => Some(('o', "--output")),
        "wget" => Some(('O', "--output-document")),
        _ => None,
    }
}

/// The file that an argument names as an output.
enum Output<'a> {
    None,
    /// The next argument is the file.
    Next,
    Path(&'a str),
}

fn output_of<'a>(word: &'a str, letter: char, long: &str) -> Output<'a> {
    let path = match word.strip_prefix('-') {
        Some(rest) if rest.starts_with('-') => match word.split_once('=') {
            Some((option, path)) if option == long => path,
            _ if word == long => "",
            _ => return Output::None,
        },
        Some(letters) => match letters.split_once(letter) {
            Some((_, path)) => path,
            None => return Output::None,
        },
        None => return Output::None,
    };
    match path {
        "" => Output::Next,
        path => Output::Path(path),
    }
}

/// Whether a word is an option for every value of its expansions.
fn is_certain_option(word: &Word) -> bool {
    word.is_certain() && word.text.starts_with('-')
}

/// Whether a word may be this short option, also among others, or a long option with this start.
fn may_be_option(word: &Word, letter: char, long: &str) -> bool {
    match word.text.strip_prefix('-') {
        Some(rest) if rest.starts_with('-') => word.text.starts_with(long),
        Some(letters) => letters.contains(letter),
        None => false,
    }
}

/// Returns the path of `file://HOST/PATH` or `file:PATH`.
fn file_of(text: &str) -> Option<&str> {
    if let Some(address) = text.strip_prefix("file://") {
        return Some(
            address
                .find('/')
                .and_then(|at| address.get(at..))
                .unwrap_or("/"),
        );
    }
    text.strip_prefix("file:")
}

/// Returns the host to which bash connects for a redirection to `/dev/tcp/HOST/PORT` or
/// `/dev/udp/HOST/PORT`. Other spellings of the folder are files.
fn connection_host(path: &Word) -> Option<Word> {
    CONNECTION_FOLDERS
        .iter()
        .find_map(|folder| match path.text.strip_prefix(folder) {
            Some(rest) => match rest.split_once('/') {
                Some((host, _)) => Some(Word::certain(host.trim_end_matches('.'))),
                None => (!path.is_certain()).then(|| Word::certain(rest).with_unknown_rest()),
            },
            None => (!path.is_certain() && folder.starts_with(&path.text)).then(Word::default),
        })
}

/// Returns the host of `scheme://user@host:port/path`, or of git's `user@host:path`.
fn url_host(text: &str) -> Option<Word> {
    let authority = match text.split_once("://") {
        Some((scheme, rest))
            if !scheme.is_empty()
                && scheme
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '+') =>
        {
            rest.split(['/', '?', '#', '\\']).next()?
        }
        Some(_) => return None,
        None => {
            let (user, rest) = text.split_once('@')?;
            let (host, _) = rest.split_once(':')?;
            return (!user.contains('/') && !host.contains('/')).then(|| host_word(host));
        }
    };
    Some(host_word(authority.rsplit('@').next()?))
}

/// Returns the host of `host`, `user@host`, `host:port` or `host/path`.
fn bare_host(text: &str) -> Option<Word> {
    let authority = text.split('/').next()?;
    let host = authority.rsplit('@').next()?;
    let name = host.split(':').next()?;
    let is_host = (host.contains('.') || authority.contains(['@', ':']) || name == "localhost")
        && !name.is_empty()
        && !name.starts_with('.')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-');
    is_host.then(|| host_word(host))
}

fn host_word(host: &str) -> Word {
    let name = match host.strip_prefix('[') {
        Some(address) => address.split(']').next(),
        None => host.split(':').next(),
    };
    let text = name.unwrap_or_default().trim_end_matches('.');
    match text {
        "" => Word::default(),
        text => Word::certain(text),
    }
}

//! Extracts the effects of an action: its commands and those within them, with the paths that they
//! read and write and the hosts that they connect to.

use protocol::Action;
use protocol::action::{EditCommand, RunAction};

use super::super::shell::{self, ShellCommand, UnparsedShell, Word};
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

/// Programs that run the command in their arguments, with the short options that take a value, and
/// the number of words before the command.
const WRAPPERS: [(&str, &str, usize); 14] = [
    ("sudo", "ughpCrtTUDR", 0),
    ("doas", "uC", 0),
    ("env", "uC", 0),
    ("nohup", "", 0),
    ("setsid", "", 0),
    ("command", "", 0),
    ("builtin", "", 0),
    ("exec", "a", 0),
    ("time", "fo", 0),
    ("nice", "n", 0),
    ("ionice", "cn", 0),
    ("timeout", "sk", 1),
    ("stdbuf", "ioe", 0),
    ("xargs", "nPILdasE", 0),
];

const SHELLS: &str = " sh bash dash ash zsh ksh ";

impl ActionFacts {
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
        let path = |path: &str| {
            vec![Word {
                text: path.to_owned(),
                is_certain: true,
            }]
        };
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
                let certain = path.find(['%', '?', '#']).unwrap_or(path.len());
                let (text, is_certain) = (
                    path.get(..certain).unwrap_or_default(),
                    certain == path.len(),
                );
                Self {
                    reads: vec![Word {
                        text: text.to_owned(),
                        is_certain,
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
                    let reads = files
                        .into_iter()
                        .map(|text| Word {
                            text,
                            is_certain: true,
                        })
                        .collect();
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
    let text = run.command.trim();
    if text.is_empty() || (run.is_input && KEYS.contains(&text)) {
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
    for command in shell::commands(text, 0)? {
        add_command_facts(command, depth, facts)?;
    }
    Ok(())
}

fn add_command_facts(
    command: ShellCommand,
    depth: usize,
    facts: &mut Vec<ActionFacts>,
) -> Result<(), UnparsedShell> {
    if depth == MAX_DEPTH {
        return Err(UnparsedShell);
    }
    let mut own = ActionFacts {
        reads: command.reads,
        writes: command.writes,
        ..ActionFacts::default()
    };
    let Some((program, arguments)) = command.words.split_first() else {
        facts.push(own);
        return Ok(());
    };
    if !program.is_certain {
        return Err(UnparsedShell);
    }
    let name = program.text.rsplit('/').next().unwrap_or_default();
    let wrapped = wrapped_command(name, arguments)?;
    own.is_wrapper = !matches!(wrapped, WrappedCommand::None | WrappedCommand::Opaque);
    own.is_opaque = matches!(wrapped, WrappedCommand::Opaque);
    add_targets(name, arguments, &mut own);
    own.words.clone_from(&command.words);
    facts.push(own);
    match wrapped {
        WrappedCommand::None | WrappedCommand::Opaque => Ok(()),
        WrappedCommand::Words(words) => add_command_facts(
            ShellCommand {
                words,
                ..ShellCommand::default()
            },
            depth + 1,
            facts,
        ),
        WrappedCommand::Text(text) => add_text_facts(&text, depth + 1, facts),
    }
}

/// Command that a wrapper runs.
enum WrappedCommand {
    None,
    /// A command.
    Words(Vec<Word>),
    /// A shell text.
    Text(String),
    /// A program that the text does not show.
    Opaque,
}

fn wrapped_command(name: &str, arguments: &[Word]) -> Result<WrappedCommand, UnparsedShell> {
    if is_in(SHELLS, name) {
        let option = arguments.iter().position(|word| {
            !word.text.starts_with("--") && word.text.starts_with('-') && word.text.contains('c')
        });
        return match option.and_then(|index| arguments.get(index + 1)) {
            Some(text) if text.is_certain => Ok(WrappedCommand::Text(text.text.clone())),
            Some(_) => Err(UnparsedShell),
            None => Ok(WrappedCommand::Opaque),
        };
    }
    match name {
        "eval" if arguments.iter().all(|word| word.is_certain) => {
            let words: Vec<_> = arguments.iter().map(|word| word.text.as_str()).collect();
            Ok(WrappedCommand::Text(words.join(" ")))
        }
        "eval" => Err(UnparsedShell),
        "." | "source" | "trap" | "alias" => Ok(WrappedCommand::Opaque),
        "find" => {
            Ok(
                match arguments
                    .iter()
                    .position(|word| is_in(" -exec -execdir -ok -okdir ", &word.text))
                {
                    Some(index) => {
                        let command = arguments
                            .iter()
                            .skip(index + 1)
                            .take_while(|word| word.text != ";" && word.text != "+");
                        // The files that it finds are unknown.
                        let word = |word: &Word| {
                            if word.text == "{}" {
                                Word::default()
                            } else {
                                word.clone()
                            }
                        };
                        WrappedCommand::Words(command.map(word).collect())
                    }
                    None => WrappedCommand::None,
                },
            )
        }
        _ => match WRAPPERS.iter().find(|(wrapper, ..)| *wrapper == name) {
            Some((_, with_value, operands)) => {
                strip_wrapper(name, arguments, with_value, *operands)
            }
            None => Ok(WrappedCommand::None),
        },
    }
}

/// Returns the command in the arguments of a wrapper.
fn strip_wrapper(
    name: &str,
    arguments: &[Word],
    with_value: &str,
    operands: usize,
) -> Result<WrappedCommand, UnparsedShell> {
    let mut index = 0;
    while let Some(word) = arguments.get(index) {
        let is_variable = name == "env" && word.text.contains('=');
        match word.text.strip_prefix('-') {
            Some("-") => {
                index += 1;
                break;
            }
            // Whether the next word is its value is unknown; `env -S` splits its value.
            Some(long)
                if (long.starts_with('-') && !long.contains('='))
                    || (name == "env" && long.contains('S')) =>
            {
                return Err(UnparsedShell);
            }
            Some(letters) => {
                let takes_next = letters
                    .chars()
                    .last()
                    .is_some_and(|letter| with_value.contains(letter));
                index += if takes_next && !letters.starts_with('-') {
                    2
                } else {
                    1
                };
            }
            None if is_variable => index += 1,
            None => break,
        }
    }
    let words: Vec<_> = arguments.iter().skip(index + operands).cloned().collect();
    // Its standard input becomes an argument.
    let stdin_argument = (name == "xargs").then(Word::default);
    Ok(match words.is_empty() {
        true => WrappedCommand::None,
        false => WrappedCommand::Words(words.into_iter().chain(stdin_argument).collect()),
    })
}

/// Adds the paths and hosts among the arguments of a command.
fn add_targets(name: &str, arguments: &[Word], facts: &mut ActionFacts) {
    if is_in(PURE_PROGRAMS, name) {
        return;
    }
    let is_writer = is_in(WRITERS, name)
        || (matches!(name, "sed" | "perl")
            && arguments.iter().any(|word| word.text.starts_with("-i")));
    let has_target_option = arguments
        .iter()
        .any(|word| word.text.starts_with("-t") || word.text.starts_with("--t"));
    let is_network_program = is_in(NETWORK_PROGRAMS, name);
    let mut before = "";
    for (index, word) in arguments.iter().enumerate() {
        let is_target = is_in(COPIERS, name) && (has_target_option || index + 1 == arguments.len());
        let is_output = matches!(
            (name, before),
            ("curl", "-o" | "--output") | ("wget", "-O" | "--output-document")
        );
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
                    is_certain: word.is_certain,
                };
                if name == "dd" && key == "of" {
                    facts.writes.push(value);
                    continue;
                }
                value
            }
            None => word.clone(),
        };
        if word.text.starts_with('-') && word.is_certain {
            continue;
        }
        if let Some(host) = url_host(&word.text)
            .or_else(|| is_network_program.then(|| bare_host(&word.text)).flatten())
        {
            // Text after a host, without a slash, may still be part of it.
            let is_whole = word.is_certain
                || word
                    .text
                    .rsplit("://")
                    .next()
                    .is_some_and(|rest| rest.contains('/'));
            facts.hosts.push(Word {
                is_certain: host.is_certain && is_whole,
                ..host
            });
            continue;
        }
        if is_network_program && !word.is_certain {
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
    let text = name.unwrap_or_default().trim_end_matches('.').to_owned();
    Word {
        is_certain: !text.is_empty(),
        text,
    }
}

fn is_in(words: &str, word: &str) -> bool {
    !word.is_empty() && !word.contains(' ') && words.contains(&format!(" {word} "))
}

//! Variables that one command has and no other: what a shell is told to take them up, and to have afterwards what it had
//! before. Pure: values in, text out, the same for bash, dash and ash.
//!
//! They reach the shell on its channel, before the command's text, and nowhere else. They are taken back when the command has
//! ended, however its text ended, before the shell reads another. A shell that does not give them up (`readonly`) is ended.
//! What is exported is read from `export -p`, whose `$_` can hold any text of a command.
//! What the command started keeps what it was started with, and so does a program that took the place of the shell (`exec`).

use protocol::sandbox_api::CommandEnvironment;

use super::prompt::quote;

/// What is lent for a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loan<'a>(pub(super) &'a CommandEnvironment);

impl Loan<'_> {
    /// Whole lines that keep what the shell has, set what is lent, and say in `__glovebox_back` what takes it back. Empty if
    /// nothing is lent. Here and in what takes back, `$__glovebox_status` is the status of the command before.
    pub(super) fn lending(self) -> String {
        let Self(CommandEnvironment(lent)) = self;
        if lent.is_empty() {
            return String::new();
        }
        let take: String = lent.keys().map(|name| take(name)).collect();
        let lend: String = lent.iter().map(|(name, value)| lend(name, value)).collect();
        format!("__glovebox_back={};{lend}\n", quote(&take))
    }
}

fn lend(name: &str, value: &str) -> String {
    format!(
        "case ${{{name}+$(export -p)}} in '')__glovebox_was_{name}=;;\
         *'export {name}='*|*'declare -'*' {name}='*)__glovebox_was_{name}=x${name};;*)__glovebox_was_{name}=-${name};;esac;\
         command export {name}={}||:;",
        quote(value)
    )
}

fn take(name: &str) -> String {
    format!(
        "command unset -v {name}||exit \"$__glovebox_status\";case ${{__glovebox_was_{name}-}} in \
         x*)export {name}=\"${{__glovebox_was_{name}#x}}\";;-*){name}=${{__glovebox_was_{name}#-}};;esac;"
    )
}

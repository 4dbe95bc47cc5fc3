//! Variables that one command has and no other: what a shell is told to take them up, and to have afterwards what it had
//! before. Pure: values in, text out, the same for bash, dash and ash.
//!
//! They are taken back in the line that ran the command, however its text ended; and once more before the next command,
//! because an interrupted command loses the rest of its line, and because the shell that is at the prompt by then may be
//! one that was started in it. A shell that does not give them up (`readonly`) is ended. What the command started keeps
//! what it was started with, and so does a shell that took the place of this one (`exec bash`).

use protocol::sandbox_api::CommandEnvironment;

use super::prompt::quote;

/// What is lent for a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loan<'a> {
    /// The names of what was lent before.
    pub(super) owed: &'a [String],
    pub(super) lent: &'a CommandEnvironment,
}

impl Loan<'_> {
    pub(super) fn is_none(&self) -> bool {
        self.owed.is_empty() && self.lent.0.is_empty()
    }

    /// Takes back what is owed. In all of these `$__glovebox_status` is the command's before.
    pub(super) fn take_owed(&self) -> String {
        self.owed.iter().map(|name| take(name)).collect()
    }

    /// Takes back what is lent.
    pub(super) fn take_lent(&self) -> String {
        self.lent.0.keys().map(|name| take(name)).collect()
    }

    /// Keeps what the shell has, and sets what is lent.
    pub(super) fn lend(&self) -> String {
        let lend = |(name, value): (&String, &String)| {
            format!(
                "case ${{{name}+$(export -p)}} in '')__glovebox_was_{name}=;;\
                 *' {name}='*)__glovebox_was_{name}=x${name};;*)__glovebox_was_{name}=-${name};;esac;\
                 command export {name}={}||:;",
                quote(value)
            )
        };
        self.lent.0.iter().map(lend).collect()
    }
}

fn take(name: &str) -> String {
    format!(
        "command unset -v {name}||exit $__glovebox_status;case ${{__glovebox_was_{name}-}} in \
         x*)export {name}=\"${{__glovebox_was_{name}#x}}\";;-*){name}=${{__glovebox_was_{name}#-}};;esac;"
    )
}

//! Variables of a single command: the shell code that sets them, and that restores the previous
//! values. Pure, and the same for bash, dash and ash.
//!
//! The variables are sent through the channel, in the line of the command. They are restored
//! when the command has ended in any way, before the shell reads another one. A shell that cannot
//! restore a variable (`readonly`) is killed. Whether a variable was exported is read from `export
//! -p`, whose `$_` may contain any text of a command. Processes that the command has started keep
//! the variables, as does a program that has replaced the shell (`exec`).

use protocol::sandbox_api::CommandEnvironment;

use super::prompt::quote;

/// The variables of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandVariables<'a>(pub(super) &'a CommandEnvironment);

impl CommandVariables<'_> {
    /// Returns code that saves the previous values, sets the variables, and stores the code that
    /// restores them in `__glovebox_undo`. Empty without variables. All newlines are in single
    /// quotes. When the variables are restored, `$1` is the status of the command.
    pub(super) fn assignments(self) -> String {
        let Self(CommandEnvironment(variables)) = self;
        if variables.is_empty() {
            return String::new();
        }
        let restore: String = variables.keys().map(|name| restore(name)).collect();
        let set: String = variables
            .iter()
            .map(|(name, value)| set(name, value))
            .collect();
        format!("__glovebox_undo={};{set}", quote(&restore))
    }
}

/// Stores the previous value with a prefix: `x` if it was exported, `-` if not. Empty without a
/// previous value.
fn set(name: &str, value: &str) -> String {
    format!(
        "case ${{{name}+$(export -p)}} in '')__glovebox_old_{name}=;;\
         *'export {name}='*|*'declare -'*' {name}='*)__glovebox_old_{name}=x${name};;*)__glovebox_old_{name}=-${name};;esac;\
         command export {name}={}||:;",
        quote(value)
    )
}

fn restore(name: &str) -> String {
    format!(
        "command unset -v {name}||exit \"$1\";case ${{__glovebox_old_{name}-}} in \
         x*)export {name}=\"${{__glovebox_old_{name}#x}}\";;-*){name}=${{__glovebox_old_{name}#-}};;esac;"
    )
}

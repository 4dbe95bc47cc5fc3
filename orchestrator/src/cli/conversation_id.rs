//! Which conversation is meant: its id, a prefix of it that no other's id has, or the latest.

use std::str::FromStr;

use clap_complete::engine::ArgValueCompleter;
use engine::events::{ConversationSummary, EventStore};
use protocol::{ConversationId, IdError};

use super::completions;
use crate::exit::UsageError;

/// How many are named of those that could be meant.
const NAMED: usize = 10;

/// The conversation that a command is about.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct ConversationChoice {
    /// The conversation, as `glovebox conversations ls` shows it: its id, or a prefix that no other has.
    #[arg(add = ArgValueCompleter::new(completions::conversations))]
    id: Option<IdPrefix>,

    /// The conversation with the latest event.
    #[arg(long)]
    last: bool,
}

impl ConversationChoice {
    pub(super) async fn find(&self, store: &dyn EventStore) -> anyhow::Result<ConversationId> {
        let list = store.conversations().await?.conversations;
        match &self.id {
            Some(prefix) => Ok(prefix.find_in(&list)?),
            None => match list.into_iter().next() {
                Some(latest) => Ok(latest.id),
                None => Err(UsageError("there is no conversation yet".to_owned()).into()),
            },
        }
    }
}

/// A prefix of a conversation's id, perhaps all of it.
#[derive(Debug, Clone)]
pub(super) struct IdPrefix(ConversationId);

impl FromStr for IdPrefix {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        // What can begin an id can be one.
        text.parse().map(Self)
    }
}

impl IdPrefix {
    /// The one conversation that is meant. A whole id is that, whatever else begins with it.
    pub(super) fn find_in(&self, list: &[ConversationSummary]) -> Result<ConversationId, UsageError> {
        let Self(prefix) = self;
        let ids = list.iter().map(|known| known.id.as_str());
        let known = meant("conversations", prefix.as_str(), ids)?.and_then(|place| list.get(place));
        known
            .map(|known| known.id.clone())
            .ok_or_else(|| UsageError(format!("there is no conversation {prefix}")))
    }
}

/// The place of the one id that is this text or, if none is, begins with it.
pub(super) fn meant<'a>(
    what: &str,
    beginning: &str,
    ids: impl Iterator<Item = &'a str>,
) -> Result<Option<usize>, UsageError> {
    let mut found = Vec::new();
    for (place, id) in ids.enumerate() {
        if id == beginning {
            return Ok(Some(place));
        }
        if id.starts_with(beginning) {
            found.push((place, id));
        }
    }
    match found.as_slice() {
        [] => Ok(None),
        [(place, _)] => Ok(Some(*place)),
        several => {
            let named: Vec<_> = several.iter().take(NAMED).map(|(_, id)| *id).collect();
            let more = match several.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            Err(UsageError(format!("several {what} begin with {beginning}: {}{more}", named.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::meant;

    #[test]
    fn a_beginning_means_the_one_that_has_it() {
        let ids = ["abc1", "abd2", "abc"];
        let meant = |beginning, ids: &[&str]| {
            meant("boxes", beginning, ids.iter().copied()).map_err(|error| error.to_string())
        };
        assert_eq!(meant("abd", &ids), Ok(Some(1)));
        assert_eq!(meant("abc", &ids), Ok(Some(2)), "it is whole");
        assert_eq!(meant("ab", &ids), Err("several boxes begin with ab: abc1, abd2, abc".into()));
        assert_eq!(meant("b", &ids), Ok(None));
        let many: Vec<_> = (0..12).map(|number| format!("a{number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert!(meant("a", &many).unwrap_err().ends_with("a8, a9 and 2 more"));
    }
}

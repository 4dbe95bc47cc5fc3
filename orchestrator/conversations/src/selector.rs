//! Finds a conversation by its id, by an unambiguous id prefix, or as the latest one.

use engine::events::ConversationSummary;
use protocol::ConversationId;

use crate::error::ConversationsError;

/// Maximum number of ids that an error lists.
const MAX_LISTED: usize = 10;

/// Selects a conversation.
#[derive(Debug, Clone)]
pub enum ConversationSelector {
    /// By id, or by an unambiguous id prefix.
    IdPrefix(ConversationId),
    /// The conversation with the latest event.
    Latest,
}

impl ConversationSelector {
    /// Finds the conversation in a list that has the latest one first.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`], [`ConversationsError::Ambiguous`] or [`ConversationsError::NoConversations`].
    pub fn find_in(&self, list: &[ConversationSummary]) -> Result<ConversationId, ConversationsError> {
        let found = match self {
            Self::Latest => list.first().ok_or(ConversationsError::NoConversations)?,
            Self::IdPrefix(prefix) => {
                let ids = list.iter().map(|summary| summary.id.as_str());
                let index = find_by_prefix("conversations", prefix.as_str(), ids)?;
                let found = index.and_then(|index| list.get(index));
                found.ok_or_else(|| ConversationsError::Unknown(prefix.clone()))?
            }
        };
        Ok(found.id.clone())
    }
}

/// Several ids start with the prefix.
#[derive(Debug, thiserror::Error)]
#[error("several {subjects} have an id that starts with {prefix}: {ids}")]
pub struct AmbiguousPrefix {
    subjects: &'static str,
    prefix: String,
    ids: String,
}

/// Returns the index of the id that equals `prefix`, else of the only one that starts with it; `None` if none does.
/// `subjects` is the plural of what has the ids, for the error.
///
/// # Errors
/// [`AmbiguousPrefix`] if several ids start with it.
pub fn find_by_prefix<'a>(
    subjects: &'static str,
    prefix: &str,
    ids: impl Iterator<Item = &'a str>,
) -> Result<Option<usize>, AmbiguousPrefix> {
    let mut found = Vec::new();
    for (index, id) in ids.enumerate() {
        if id == prefix {
            return Ok(Some(index));
        }
        if id.starts_with(prefix) {
            found.push((index, id));
        }
    }
    match found.as_slice() {
        [] => Ok(None),
        [(index, _)] => Ok(Some(*index)),
        several => {
            let listed: Vec<_> = several.iter().take(MAX_LISTED).map(|(_, id)| *id).collect();
            let more = match several.len().saturating_sub(MAX_LISTED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let ids = format!("{}{more}", listed.join(", "));
            Err(AmbiguousPrefix { subjects, prefix: prefix.to_owned(), ids })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::find_by_prefix;

    #[test]
    fn prefix_finds_the_only_id_that_starts_with_it() {
        let ids = ["abc1", "abd2", "abc"];
        let find = |prefix, ids: &[&str]| {
            find_by_prefix("boxes", prefix, ids.iter().copied()).map_err(|error| error.to_string())
        };
        assert_eq!(find("abd", &ids), Ok(Some(1)));
        assert_eq!(find("abc", &ids), Ok(Some(2)), "a whole id");
        assert_eq!(
            find("ab", &ids),
            Err("several boxes have an id that starts with ab: abc1, abd2, abc".into())
        );
        assert_eq!(find("b", &ids), Ok(None));
        let many: Vec<_> = (0..12).map(|number| format!("a{number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert!(find("a", &many).unwrap_err().ends_with("a8, a9 and 2 more"));
    }
}

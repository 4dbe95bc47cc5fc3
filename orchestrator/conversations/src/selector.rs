//! Finds a conversation by its id, by an unambiguous start or end of the id, or as the latest one.
//!
//! Ids start with the time in milliseconds, so that ids of one afternoon share six digits. They end
//! with random digits, which tell them apart at any time.

use engine::events::ConversationSummary;
use protocol::ConversationId;

use crate::error::ConversationsError;

/// Minimum length of the end of an id. A shorter text, which may be a typing mistake, would find a
/// conversation by chance.
const MIN_END_LENGTH: usize = 6;

/// Maximum number of ids that an error lists.
const MAX_LISTED: usize = 10;

/// Selects a conversation.
#[derive(Debug, Clone)]
pub enum ConversationSelector {
    /// By id, or by an unambiguous start or end of it.
    IdPart(ConversationId),
    /// The conversation with the latest event.
    Latest,
}

impl ConversationSelector {
    /// Finds the conversation in a list that has the latest one first.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`], [`ConversationsError::Ambiguous`] or
    /// [`ConversationsError::NoConversations`].
    pub fn find_in(
        &self,
        list: &[ConversationSummary],
    ) -> Result<ConversationId, ConversationsError> {
        let found = match self {
            Self::Latest => list.first().ok_or(ConversationsError::NoConversations)?,
            Self::IdPart(part) => {
                let ids = list.iter().map(|summary| summary.id.as_str());
                let index = find_by_id_part("conversations", part.as_str(), ids)?;
                let found = index.and_then(|index| list.get(index));
                found.ok_or_else(|| ConversationsError::Unknown(part.clone()))?
            }
        };
        Ok(found.id.clone())
    }
}

/// Several ids start or end with the text.
#[derive(Debug, thiserror::Error)]
#[error("several {subjects} have an id that {position} with {part}: {ids}")]
pub struct AmbiguousId {
    subjects: &'static str,
    position: &'static str,
    part: String,
    ids: String,
}

/// Returns the index of the id that equals `part`, else of the only id with this start, else of the
/// only id with this end. `None` if none does. `subjects` is the plural of what has the ids, for
/// the error.
///
/// # Errors
/// [`AmbiguousId`] if several ids start, or none starts and several end with it.
pub fn find_by_id_part<'a>(
    subjects: &'static str,
    part: &str,
    ids: impl Iterator<Item = &'a str>,
) -> Result<Option<usize>, AmbiguousId> {
    let (mut starting, mut ending) = (Vec::new(), Vec::new());
    for (index, id) in ids.enumerate() {
        if id == part {
            return Ok(Some(index));
        }
        if id.starts_with(part) {
            starting.push((index, id));
        } else if part.len() >= MIN_END_LENGTH && id.ends_with(part) {
            ending.push((index, id));
        }
    }
    let (position, found) = if starting.is_empty() {
        ("ends", ending)
    } else {
        ("starts", starting)
    };
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
            Err(AmbiguousId {
                subjects,
                position,
                part: part.to_owned(),
                ids,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::find_by_id_part;

    #[test]
    fn prefix_finds_the_only_id_that_starts_with_it() {
        let ids = ["abc1", "abd2", "abc"];
        let find = |prefix, ids: &[&str]| {
            find_by_id_part("boxes", prefix, ids.iter().copied()).map_err(|error| error.to_string())
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

    #[test]
    fn end_of_an_id_finds_it_when_it_is_long_enough() {
        let ids = [
            "0199a3-one-8c41f2",
            "0199a3-two-8c41f2",
            "0199a3-two-d07b55",
            "d07b55",
        ];
        let find = |part| {
            let found = find_by_id_part("boxes", part, ids.iter().copied());
            found.map_err(|error| error.to_string())
        };
        assert_eq!(find("two-d07b55"), Ok(Some(2)));
        assert_eq!(find("d07b55"), Ok(Some(3)), "the id itself");
        assert_eq!(find("07b55"), Ok(None), "too short");
        let error = find("8c41f2").unwrap_err();
        assert!(
            error.contains("an id that ends with 8c41f2: 0199a3-one-8c41f2, 0199a3-two"),
            "{error}"
        );
    }
}

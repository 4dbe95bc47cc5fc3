//! What the stores of the audit log have in common: the columns of an actor, and how many entries
//! are kept.

use accounts::{AuditActor, KeyId};

/// Number of entries between removals of the oldest ones.
const REMOVAL_INTERVAL: i64 = 1000;

/// Part of the log that entries of unknown clients may have.
const UNKNOWN_SHARE: i64 = 10;

/// Part of the log that entries of one user may have.
const USER_SHARE: i64 = 10;

/// The columns of an actor.
pub(crate) struct ActorRow<'a> {
    pub(crate) kind: &'static str,
    pub(crate) user: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
}

impl<'a> ActorRow<'a> {
    pub(crate) const OPERATOR: &'static str = "operator";
    pub(crate) const USER: &'static str = "user";
    const UNKNOWN: &'static str = "unknown";

    pub(crate) fn new(actor: &'a AuditActor) -> Self {
        match actor {
            AuditActor::Unknown => Self {
                kind: Self::UNKNOWN,
                user: None,
                key: None,
            },
            AuditActor::Operator => Self {
                kind: Self::OPERATOR,
                user: None,
                key: None,
            },
            AuditActor::User { name, key } => Self {
                kind: Self::USER,
                user: Some(name.as_str()),
                key: key.as_ref().map(KeyId::as_str),
            },
        }
    }
}

/// Whether the oldest entries have to be removed after `count` were appended, the last with this
/// number.
pub(crate) fn is_removal_due(last: i64, count: usize) -> bool {
    usize::try_from(last % REMOVAL_INTERVAL).is_ok_and(|since| since < count)
}

/// Returns how many entries of unknown clients (`true`) and of the others are kept. Separately,
/// because wrong keys must not displace the others.
pub(crate) fn max_by_kind(max: u64) -> [(bool, i64); 2] {
    let max_known = max_of_known(max);
    [
        (true, i64::try_from(max).unwrap_or(i64::MAX) - max_known),
        (false, max_known),
    ]
}

/// Returns how many entries of users and of the operator are kept.
pub(crate) fn max_of_known(max: u64) -> i64 {
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    max - max / UNKNOWN_SHARE
}

/// Returns how many entries of one user are kept in a full log, so that they displace no entries of
/// others.
pub(crate) fn max_by_user(max: u64) -> i64 {
    i64::try_from(max).unwrap_or(i64::MAX) / USER_SHARE
}

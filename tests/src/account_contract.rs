//! What every store of users, keys, sessions and the audit log does, as cases that run on each implementation.

use std::sync::Arc;
use std::time::Duration;

use accounts::{
    AccountError, AccountStore, AuditActor, AuditEntry, AuditFilter, AuditStore, Authenticator, Credential,
    Key, KeyScope, MAX_KEYS, NewKey, SecretHash, Session, User, Users, unix_now,
};
use protocol::UserId;
use secrecy::{ExposeSecret as _, SecretString};

/// Opens a handle of one store. Handles see each other's changes.
#[async_trait::async_trait]
pub trait AccountBackend: Send + Sync {
    /// Opens another handle.
    async fn open(&self) -> Arc<dyn AccountStore>;

    /// Opens another handle of the audit log.
    async fn open_audit(&self) -> Arc<dyn AuditStore>;
}

fn user(name: &str) -> UserId {
    name.parse().unwrap()
}

fn authenticator(store: &Arc<dyn AccountStore>, operator_key: &str) -> Authenticator {
    Authenticator::new(Arc::clone(store), &SecretString::from(operator_key))
}

/// The user that a key authenticates.
async fn user_of(authenticator: &Authenticator, key: &NewKey) -> Option<UserId> {
    authenticator
        .with_key(key.secret.expose_secret().as_bytes())
        .await
        .unwrap()
        .and_then(|caller| caller.user)
}

/// A name is given to one user, also after a removal; and only names that cannot be confused.
pub async fn name_belongs_to_one_user(backend: &dyn AccountBackend) {
    let users = Users::new(backend.open().await);
    users.add(&user("ada")).await.unwrap();
    users.add(&user("ben-2")).await.unwrap();
    assert!(matches!(users.add(&user("ada")).await, Err(AccountError::UserExists(_))));
    for invalid in ["operator", "unknown", "Ada", "2ada", "-a", "_a", &"a".repeat(64)] {
        let added = users.add(&user(invalid)).await;
        assert!(matches!(added, Err(AccountError::InvalidName(_))), "{invalid}: {added:?}");
    }
    users.remove(&user("ada")).await.unwrap();
    assert!(matches!(users.remove(&user("ada")).await, Err(AccountError::UnknownUser(_))));
    assert!(matches!(users.add(&user("ada")).await, Err(AccountError::UserRemoved(_))));
    let other = Users::new(backend.open().await);
    let names: Vec<_> = other.list().await.unwrap().into_iter().map(|User { name, .. }| name).collect();
    assert_eq!(names, [user("ben-2")]);
    other.restore(&user("ada")).await.unwrap();
    assert!(matches!(users.restore(&user("ada")).await, Err(AccountError::UserExists(_))));
    assert!(matches!(users.restore(&user("eve")).await, Err(AccountError::UnknownUser(_))));
    assert_eq!(users.list().await.unwrap().len(), 2);
}

/// A key authenticates its user until it is revoked, for all handles at once.
pub async fn key_is_valid_until_it_is_revoked(backend: &dyn AccountBackend) {
    let (store, other) = (backend.open().await, backend.open().await);
    let users = Users::new(store);
    let server = authenticator(&other, "the operator's key");
    for name in ["ada", "ben"] {
        users.add(&user(name)).await.unwrap();
    }
    let add = async |name: &str, scope| users.add_key(&user(name), scope, None).await.unwrap();
    let (first, second) = (add("ada", KeyScope::Read).await, add("ada", KeyScope::Write).await);
    let third = add("ben", KeyScope::Write).await;
    let caller = server.with_key(first.secret.expose_secret().as_bytes()).await.unwrap().unwrap();
    assert_eq!((&caller.user, caller.can_write()), (&Some(user("ada")), false));
    assert_eq!(caller.credential, Credential::Key(first.key.id.clone()));
    assert_eq!(user_of(&server, &third).await, Some(user("ben")));
    let operator = server.with_key(b"the operator's key").await.unwrap().unwrap();
    assert_eq!((operator.user, operator.scope), (None, KeyScope::Write));
    for wrong in ["", "the operator's", "glovebox_", first.key.id.as_str()] {
        assert_eq!(server.with_key(wrong.as_bytes()).await.unwrap(), None, "{wrong}");
    }
    let keys = users.keys(None).await.unwrap();
    assert_eq!(keys.iter().map(|key| key.last_used_at.is_some()).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(users.keys(Some(&user("ada"))).await.unwrap().len(), 2);

    users.revoke_key(&first.key.id).await.unwrap();
    assert_eq!(user_of(&server, &first).await, None);
    assert_eq!(server.with_credential(&caller.credential).await.unwrap(), None);
    assert_eq!(user_of(&server, &second).await, Some(user("ada")));
    assert!(matches!(users.revoke_key(&first.key.id).await, Err(AccountError::UnknownKey(_))));
    users.remove(&user("ada")).await.unwrap();
    assert_eq!(user_of(&server, &second).await, None);
    assert_eq!(user_of(&server, &third).await, Some(user("ben")));
    let added = users.add_key(&user("ada"), KeyScope::Read, None).await;
    assert!(matches!(added, Err(AccountError::UnknownUser(_))));
    users.restore(&user("ada")).await.unwrap();
    assert_eq!(users.keys(Some(&user("ada"))).await.unwrap(), []);
}

/// A key ends with its lifetime, and with it its session.
pub async fn key_and_session_end_when_the_key_expires(backend: &dyn AccountBackend) {
    let store = backend.open().await;
    let (users, server) = (Users::new(Arc::clone(&store)), authenticator(&store, "operator"));
    users.add(&user("ada")).await.unwrap();
    let expired = users.add_key(&user("ada"), KeyScope::Write, Some(Duration::ZERO)).await.unwrap();
    assert_eq!(user_of(&server, &expired).await, None);
    let valid = users.add_key(&user("ada"), KeyScope::Write, Some(Duration::from_hours(1))).await.unwrap();
    let caller = server.with_key(valid.secret.expose_secret().as_bytes()).await.unwrap().unwrap();
    let token = server.start_session(&caller).await.unwrap();
    let hash = SecretHash::new(token.expose_secret().as_bytes());
    assert!(server.with_session(token.expose_secret().as_bytes()).await.unwrap().is_some());
    // The same session, of the expired key.
    let session = store.session(&hash).await.unwrap().unwrap();
    store.remove_session(&hash).await.unwrap();
    let of_expired = Session { key: expired.key.id.to_string(), ..session.clone() };
    store.add_session(&of_expired, 9).await.unwrap();
    assert_eq!(server.with_session(token.expose_secret().as_bytes()).await.unwrap(), None);
    store.remove_session(&hash).await.unwrap();
    let ended = Session { created_at: unix_now() - 9, expires_at: unix_now(), ..session };
    store.add_session(&ended, 9).await.unwrap();
    assert_eq!(server.with_session(token.expose_secret().as_bytes()).await.unwrap(), None);
}

/// A session has the rights of its key, and ends with it, on sign-out, or when the operator's key changes.
pub async fn session_ends_with_its_key_or_by_sign_out(backend: &dyn AccountBackend) {
    let store = backend.open().await;
    let (users, server) = (Users::new(Arc::clone(&store)), authenticator(&store, "operator"));
    users.add(&user("ada")).await.unwrap();
    let key = users.add_key(&user("ada"), KeyScope::Read, None).await.unwrap();
    let caller = server.with_key(key.secret.expose_secret().as_bytes()).await.unwrap().unwrap();
    let start = async || server.start_session(&caller).await.unwrap();
    let (first, second) = (start().await, start().await);
    let find =
        async |token: &SecretString| server.with_session(token.expose_secret().as_bytes()).await.unwrap();
    let found = find(&first).await.unwrap();
    assert_eq!((&found.user, found.scope, &found.key), (&caller.user, KeyScope::Read, &caller.key));
    assert_eq!(server.with_credential(&found.credential).await.unwrap().as_ref(), Some(&found));
    server.end_session(first.expose_secret().as_bytes()).await.unwrap();
    assert_eq!(find(&first).await, None);
    assert_eq!(server.with_credential(&found.credential).await.unwrap(), None);
    assert!(find(&second).await.is_some());
    users.revoke_key(&key.key.id).await.unwrap();
    assert_eq!(find(&second).await, None);

    let operator = server.with_key(b"operator").await.unwrap().unwrap();
    let token = server.start_session(&operator).await.unwrap();
    assert_eq!(find(&token).await.unwrap().user, None);
    let changed = authenticator(&store, "another key");
    assert_eq!(changed.with_session(token.expose_secret().as_bytes()).await.unwrap(), None);
    // A key is no token, and a token is no key.
    assert_eq!(server.with_session(b"operator").await.unwrap(), None);
    assert_eq!(server.with_key(token.expose_secret().as_bytes()).await.unwrap(), None);
}

/// Keys of a user and sessions of a key are bounded.
pub async fn keys_and_sessions_are_bounded(backend: &dyn AccountBackend) {
    let store = backend.open().await;
    let users = Users::new(Arc::clone(&store));
    users.add(&user("ada")).await.unwrap();
    for _ in 0..MAX_KEYS {
        users.add_key(&user("ada"), KeyScope::Read, None).await.unwrap();
    }
    let added = users.add_key(&user("ada"), KeyScope::Read, None).await;
    assert!(matches!(added, Err(AccountError::TooManyKeys { .. })));
    let session = |number: u64, key: &str| Session {
        hash: SecretHash::new(format!("{key} {number}").as_bytes()),
        key: key.to_owned(),
        created_at: 10 + number,
        expires_at: 100,
    };
    for number in 0..5 {
        store.add_session(&session(number, "a"), 3).await.unwrap();
        store.add_session(&session(number, "b"), 5).await.unwrap();
    }
    let mut kept = Vec::new();
    for number in 0..5 {
        kept.push((
            store.session(&session(number, "a").hash).await.unwrap().is_some(),
            store.session(&session(number, "b").hash).await.unwrap().is_some(),
        ));
    }
    assert_eq!(kept, [(false, true), (false, true), (true, true), (true, true), (true, true)]);
    // Those that have ended are removed with the next one.
    let later = Session { created_at: 100, expires_at: 200, ..session(9, "c") };
    store.add_session(&later, 3).await.unwrap();
    assert_eq!(store.session(&session(4, "b").hash).await.unwrap(), None);
    assert_eq!(store.session(&later.hash).await.unwrap(), Some(later));
}

/// Concurrent additions through two handles do not exceed the maximum.
pub async fn maximum_holds_when_keys_are_added_concurrently(backend: &dyn AccountBackend) {
    let stores = [backend.open().await, backend.open().await];
    stores[0].put_user(&user("ada"), 1).await.unwrap();
    let add = async |number: usize| {
        let id = format!("{number:012x}").parse().unwrap();
        let (scope, created_at) = (KeyScope::Read, 1);
        let key = Key { id, user: user("ada"), scope, created_at, expires_at: None, last_used_at: None };
        let hash = SecretHash::new(&number.to_le_bytes());
        stores[number % 2].add_key(&key, &hash, 10).await.unwrap()
    };
    let added = futures_util::future::join_all((0..40).map(add)).await;
    assert_eq!(added.into_iter().filter(|added| *added).count(), 10);
    assert_eq!(stores[1].keys(Some(&user("ada"))).await.unwrap().len(), 10);
}

fn entry(number: u64, actor: AuditActor) -> AuditEntry {
    AuditEntry {
        at_ms: number,
        actor,
        address: Some("2001:db8::1".parse().unwrap()),
        action: format!("POST /{number}"),
        conversation: number.is_multiple_of(2).then(|| "even".parse().unwrap()),
        status: Some(200),
    }
}

/// Entries are read in order, whole, and by user and conversation.
pub async fn audit_log_is_read_in_order_and_by_filter(backend: &dyn AccountBackend) {
    let (log, other) = (backend.open_audit().await, backend.open_audit().await);
    let of_user =
        |name: &str| AuditActor::User { name: user(name), key: Some("0123456789ab".parse().unwrap()) };
    let command = AuditEntry { address: None, status: None, ..entry(4, AuditActor::Operator) };
    let entries = [
        entry(0, of_user("ada")),
        entry(1, of_user("ben")),
        entry(2, AuditActor::Unknown),
        entry(3, of_user("ada")),
        command,
    ];
    for entry in &entries {
        log.append(entry, 1000).await.unwrap();
    }
    let read = async |name: Option<&str>, conversation: Option<&str>, limit| {
        let conversation = conversation.map(|id| id.parse().unwrap());
        let filter = AuditFilter { user: name.map(user), conversation, limit };
        let read = other.read(&filter).await.unwrap();
        let index = |found: &AuditEntry| entries.iter().position(|entry| entry == found).unwrap();
        read.iter().map(index).collect::<Vec<_>>()
    };
    assert_eq!(read(None, None, 9).await, [0, 1, 2, 3, 4]);
    assert_eq!(read(None, None, 2).await, [3, 4], "the latest");
    assert_eq!(read(Some("ada"), None, 9).await, [0, 3]);
    assert_eq!(read(None, Some("even"), 9).await, [0, 2, 4]);
    assert_eq!(read(Some("ada"), Some("even"), 9).await, [0]);
    assert_eq!(read(Some("eve"), None, 9).await, [0; 0]);
}

/// The log is bounded, and the entries of unknown clients do not displace the others.
pub async fn audit_log_is_bounded_and_wrong_keys_displace_nothing(backend: &dyn AccountBackend) {
    let log = backend.open_audit().await;
    log.append(&entry(0, AuditActor::Operator), 100).await.unwrap();
    for number in 1..2000 {
        log.append(&entry(number, AuditActor::Unknown), 100).await.unwrap();
    }
    let all = AuditFilter { limit: usize::MAX, ..AuditFilter::default() };
    let kept = log.read(&all).await.unwrap();
    assert_eq!(kept[0], entry(0, AuditActor::Operator));
    assert!(kept.len() <= 1011, "{}", kept.len());
    assert_eq!(kept.last(), Some(&entry(1999, AuditActor::Unknown)));
    for number in 2000..4000 {
        log.append(&entry(number, AuditActor::Operator), 100).await.unwrap();
    }
    let kept = log.read(&all).await.unwrap();
    assert!(kept.len() <= 1100 && kept[0].at_ms > 0, "{}", kept.len());
}

/// Generates a test for every case of the contract on `$backend`. No case can be skipped.
#[macro_export]
macro_rules! account_contract {
    ($backend:expr) => {
        $crate::account_contract!($backend;
            name_belongs_to_one_user,
            key_is_valid_until_it_is_revoked,
            key_and_session_end_when_the_key_expires,
            session_ends_with_its_key_or_by_sign_out,
            keys_and_sessions_are_bounded,
            maximum_holds_when_keys_are_added_concurrently,
            audit_log_is_read_in_order_and_by_filter,
            audit_log_is_bounded_and_wrong_keys_displace_nothing,
        );
    };
    ($backend:expr; $($case:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            $crate::account_contract::$case(&$backend).await;
        })*
    };
}

//! What every store of users, keys, sessions and the audit log does, as cases that run on each
//! implementation.

use std::sync::Arc;
use std::time::Duration;

use accounts::{
    AccountChanges, AccountError, AccountRecords, AccountStore, AddedAccounts, AuditActor,
    AuditEntry, AuditFilter, AuditMerge, AuditStore, Authenticator, Credential, Key, KeyRecord,
    KeyScope, MAX_KEYS, NewKey, SecretHash, Session, User, Users, unix_now,
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
    assert!(matches!(
        users.add(&user("ada")).await,
        Err(AccountError::UserExists(_))
    ));
    for invalid in [
        "operator",
        "unknown",
        "Ada",
        "2ada",
        "-a",
        "_a",
        &"a".repeat(64),
    ] {
        let added = users.add(&user(invalid)).await;
        assert!(
            matches!(added, Err(AccountError::InvalidName(_))),
            "{invalid}: {added:?}"
        );
    }
    users.remove(&user("ada")).await.unwrap();
    assert!(matches!(
        users.remove(&user("ada")).await,
        Err(AccountError::UnknownUser(_))
    ));
    assert!(matches!(
        users.add(&user("ada")).await,
        Err(AccountError::UserRemoved(_))
    ));
    let other = Users::new(backend.open().await);
    let names: Vec<_> = other
        .list()
        .await
        .unwrap()
        .into_iter()
        .map(|User { name, .. }| name)
        .collect();
    assert_eq!(names, [user("ben-2")]);
    other.restore(&user("ada")).await.unwrap();
    assert!(matches!(
        users.restore(&user("ada")).await,
        Err(AccountError::UserExists(_))
    ));
    assert!(matches!(
        users.restore(&user("eve")).await,
        Err(AccountError::UnknownUser(_))
    ));
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
    let (first, second) = (
        add("ada", KeyScope::Read).await,
        add("ada", KeyScope::Write).await,
    );
    let third = add("ben", KeyScope::Write).await;
    let caller = server
        .with_key(first.secret.expose_secret().as_bytes())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (&caller.user, caller.can_write()),
        (&Some(user("ada")), false)
    );
    assert_eq!(caller.credential, Credential::Key(first.key.id.clone()));
    assert_eq!(user_of(&server, &third).await, Some(user("ben")));
    let operator = server
        .with_key(b"the operator's key")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((operator.user, operator.scope), (None, KeyScope::Write));
    for wrong in ["", "the operator's", "glovebox_", first.key.id.as_str()] {
        assert_eq!(
            server.with_key(wrong.as_bytes()).await.unwrap(),
            None,
            "{wrong}"
        );
    }
    let keys = users.keys(None).await.unwrap();
    assert_eq!(
        keys.iter()
            .map(|key| key.last_used_at.is_some())
            .collect::<Vec<_>>(),
        [true, false, true]
    );
    assert_eq!(users.keys(Some(&user("ada"))).await.unwrap().len(), 2);

    users.revoke_key(&first.key.id).await.unwrap();
    assert_eq!(user_of(&server, &first).await, None);
    assert_eq!(
        server.with_credential(&caller.credential).await.unwrap(),
        None
    );
    assert_eq!(user_of(&server, &second).await, Some(user("ada")));
    assert!(matches!(
        users.revoke_key(&first.key.id).await,
        Err(AccountError::UnknownKey(_))
    ));
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
    let (users, server) = (
        Users::new(Arc::clone(&store)),
        authenticator(&store, "operator"),
    );
    users.add(&user("ada")).await.unwrap();
    let expired = users
        .add_key(&user("ada"), KeyScope::Write, Some(Duration::ZERO))
        .await
        .unwrap();
    assert_eq!(user_of(&server, &expired).await, None);
    let valid = users
        .add_key(&user("ada"), KeyScope::Write, Some(Duration::from_hours(1)))
        .await
        .unwrap();
    let caller = server
        .with_key(valid.secret.expose_secret().as_bytes())
        .await
        .unwrap()
        .unwrap();
    let token = server.start_session(&caller).await.unwrap();
    let hash = SecretHash::new(token.expose_secret().as_bytes());
    assert!(
        server
            .with_session(token.expose_secret().as_bytes())
            .await
            .unwrap()
            .is_some()
    );
    // The same session, of the expired key.
    let session = store.session(&hash).await.unwrap().unwrap();
    store.remove_session(&hash).await.unwrap();
    let of_expired = Session {
        key: expired.key.id.to_string(),
        ..session.clone()
    };
    store.add_session(&of_expired, 9).await.unwrap();
    assert_eq!(
        server
            .with_session(token.expose_secret().as_bytes())
            .await
            .unwrap(),
        None
    );
    store.remove_session(&hash).await.unwrap();
    let ended = Session {
        created_at: unix_now() - 9,
        expires_at: unix_now(),
        ..session
    };
    store.add_session(&ended, 9).await.unwrap();
    assert_eq!(
        server
            .with_session(token.expose_secret().as_bytes())
            .await
            .unwrap(),
        None
    );
}

/// A session has the rights of its key, and ends with it, on sign-out, or when the operator's key
/// changes.
pub async fn session_ends_with_its_key_or_by_sign_out(backend: &dyn AccountBackend) {
    let store = backend.open().await;
    let (users, server) = (
        Users::new(Arc::clone(&store)),
        authenticator(&store, "operator"),
    );
    users.add(&user("ada")).await.unwrap();
    let key = users
        .add_key(&user("ada"), KeyScope::Read, None)
        .await
        .unwrap();
    let caller = server
        .with_key(key.secret.expose_secret().as_bytes())
        .await
        .unwrap()
        .unwrap();
    let start = async || server.start_session(&caller).await.unwrap();
    let (first, second) = (start().await, start().await);
    let find = async |token: &SecretString| {
        server
            .with_session(token.expose_secret().as_bytes())
            .await
            .unwrap()
    };
    let found = find(&first).await.unwrap();
    assert_eq!(
        (&found.user, found.scope, &found.key),
        (&caller.user, KeyScope::Read, &caller.key)
    );
    assert_eq!(
        server
            .with_credential(&found.credential)
            .await
            .unwrap()
            .as_ref(),
        Some(&found)
    );
    server
        .end_session(first.expose_secret().as_bytes())
        .await
        .unwrap();
    assert_eq!(find(&first).await, None);
    assert_eq!(
        server.with_credential(&found.credential).await.unwrap(),
        None
    );
    assert!(find(&second).await.is_some());
    users.revoke_key(&key.key.id).await.unwrap();
    assert_eq!(find(&second).await, None);

    let operator = server.with_key(b"operator").await.unwrap().unwrap();
    let token = server.start_session(&operator).await.unwrap();
    assert_eq!(find(&token).await.unwrap().user, None);
    let changed = authenticator(&store, "another key");
    assert_eq!(
        changed
            .with_session(token.expose_secret().as_bytes())
            .await
            .unwrap(),
        None
    );
    // A key is no token, and a token is no key.
    assert_eq!(server.with_session(b"operator").await.unwrap(), None);
    assert_eq!(
        server
            .with_key(token.expose_secret().as_bytes())
            .await
            .unwrap(),
        None
    );
}

/// Keys of a user and sessions of a key are bounded.
pub async fn keys_and_sessions_are_bounded(backend: &dyn AccountBackend) {
    let store = backend.open().await;
    let users = Users::new(Arc::clone(&store));
    users.add(&user("ada")).await.unwrap();
    for _ in 0..MAX_KEYS {
        users
            .add_key(&user("ada"), KeyScope::Read, None)
            .await
            .unwrap();
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
            store
                .session(&session(number, "a").hash)
                .await
                .unwrap()
                .is_some(),
            store
                .session(&session(number, "b").hash)
                .await
                .unwrap()
                .is_some(),
        ));
    }
    assert_eq!(
        kept,
        [
            (false, true),
            (false, true),
            (true, true),
            (true, true),
            (true, true)
        ]
    );
    // Those that have ended are removed with the next one.
    let later = Session {
        created_at: 100,
        expires_at: 200,
        ..session(9, "c")
    };
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
        let key = Key {
            id,
            user: user("ada"),
            scope,
            created_at,
            expires_at: None,
            last_used_at: None,
        };
        let hash = SecretHash::new(&number.to_le_bytes());
        stores[number % 2].add_key(&key, &hash, 10).await.unwrap()
    };
    let added = futures_util::future::join_all((0..40).map(add)).await;
    assert_eq!(added.into_iter().filter(|added| *added).count(), 10);
    assert_eq!(stores[1].keys(Some(&user("ada"))).await.unwrap().len(), 10);
}

/// Users and keys of another store are added once, and change no existing user. Their keys
/// authenticate.
pub async fn records_are_added_and_change_no_existing_user(backend: &dyn AccountBackend) {
    let store = backend.open().await;
    let users = Users::new(Arc::clone(&store));
    for name in ["ada", "ben", "eve"] {
        users.add(&user(name)).await.unwrap();
    }
    let keep = users
        .add_key(&user("ada"), KeyScope::Write, None)
        .await
        .unwrap();
    let expiring = users
        .add_key(&user("ada"), KeyScope::Read, Some(Duration::from_hours(1)))
        .await
        .unwrap();
    let revoked = users
        .add_key(&user("ben"), KeyScope::Write, None)
        .await
        .unwrap();
    assert_eq!(
        user_of(&authenticator(&store, "operator"), &keep).await,
        Some(user("ada"))
    );
    users.remove(&user("eve")).await.unwrap();
    let records = store.records().await.unwrap();
    let ids: Vec<_> = records.keys().iter().map(|record| &record.key.id).collect();
    assert_eq!(ids, [&keep.key.id, &expiring.key.id, &revoked.key.id]);
    assert_eq!(records.users(), store.users().await.unwrap());
    assert_eq!(
        store.add_records(&records).await.unwrap(),
        AddedAccounts::default()
    );

    // The other store: cal, and ada of an earlier time, whose key the store does not have.
    let new_key = |name: &str, number: u64| {
        let hash = SecretHash::new(&number.to_le_bytes());
        let id = hash.as_bytes()[..6]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>();
        let key = Key {
            id: id.parse().unwrap(),
            user: user(name),
            scope: KeyScope::Read,
            created_at: 5,
            expires_at: (number == 1).then_some(u64::from(u32::MAX)),
            last_used_at: Some(6),
        };
        KeyRecord { key, hash }
    };
    let other = |name: &str, removed_at| User {
        name: user(name),
        created_at: 4,
        removed_at,
    };
    let (first, second, of_ada) = (new_key("cal", 1), new_key("cal", 2), new_key("ada", 3));
    let others = [
        other("ada", None),
        other("cal", None),
        other("dan", Some(9)),
        other("eve", None),
    ];
    let of_eve = new_key("eve", 4);
    let keys = vec![
        first.clone(),
        of_ada.clone(),
        second.clone(),
        of_eve.clone(),
    ];
    users.revoke_key(&revoked.key.id).await.unwrap();
    let records = AccountRecords::new(others.to_vec(), keys).unwrap();
    let other_handle = backend.open().await;
    let added = other_handle.add_records(&records).await.unwrap();
    assert_eq!(added, AddedAccounts { users: 2, keys: 2 });
    assert_eq!(
        other_handle.add_records(&records).await.unwrap(),
        AddedAccounts::default()
    );
    assert_eq!(store.find_key(&first.hash).await.unwrap(), Some(first.key));
    assert_eq!(
        store.find_key(&second.hash).await.unwrap(),
        Some(second.key)
    );
    for hash in [
        of_ada.hash,
        of_eve.hash,
        SecretHash::new(revoked.secret.expose_secret().as_bytes()),
    ] {
        assert_eq!(store.find_key(&hash).await.unwrap(), None);
    }
    let removed = other("dan", Some(9));
    assert_eq!(store.user(&removed.name).await.unwrap(), Some(removed));
    assert!(
        store
            .user(&user("eve"))
            .await
            .unwrap()
            .unwrap()
            .removed_at
            .is_some()
    );
    // The maximum counts the added keys.
    for _ in 2..MAX_KEYS {
        users
            .add_key(&user("cal"), KeyScope::Read, None)
            .await
            .unwrap();
    }
    let added = users.add_key(&user("cal"), KeyScope::Read, None).await;
    assert!(matches!(added, Err(AccountError::TooManyKeys { .. })));
}

/// A store gets the revocations, removals and new keys of its source, and records what it removes.
pub async fn changes_of_a_source_are_made(backend: &dyn AccountBackend) {
    let store = backend.open().await;
    let users = Users::new(Arc::clone(&store));
    let mut keys = Vec::new();
    for name in ["ada", "ada", "ada", "ben"] {
        if store.user(&user(name)).await.unwrap().is_none() {
            users.add(&user(name)).await.unwrap();
        }
        let key = users.add_key(&user(name), KeyScope::Write, None).await;
        keys.push(key.unwrap());
    }
    let [kept, revoked, new, of_ben] = keys.as_slice() else {
        unreachable!()
    };
    let copied = store.records().await.unwrap();
    assert!(copied.revoked().is_empty());
    // As if the source had added it since.
    let added = copied
        .keys()
        .iter()
        .find(|record| record.key.id == new.key.id);
    let mut added = added.unwrap().clone();
    added.key.id = "0123456789ab".parse().unwrap();
    added.hash = SecretHash::from_bytes(
        [
            [0x01, 0x23, 0x45, 0x67, 0x89, 0xab].as_slice(),
            [7; 26].as_slice(),
        ]
        .concat()
        .try_into()
        .unwrap(),
    );
    added.key.last_used_at = Some(6);
    let mut source_users = copied.users().to_vec();
    source_users[1].removed_at = Some(9);
    let is_kept = |record: &&KeyRecord| [&kept.key.id, &new.key.id].contains(&&record.key.id);
    let mut source_keys: Vec<_> = copied.keys().iter().filter(is_kept).cloned().collect();
    source_keys.push(added.clone());
    let source = AccountRecords::new(source_users, source_keys)
        .unwrap()
        .with_revoked([revoked.key.id.clone(), of_ben.key.id.clone()]);
    let other_handle = backend.open().await;
    for is_first in [true, false] {
        let found = other_handle.records().await.unwrap();
        let changed = AccountChanges::between(&source, &found)
            .apply(other_handle.as_ref())
            .await
            .unwrap();
        let expected = if is_first { (1, 2, 1) } else { (0, 0, 0) };
        let counts = (
            changed.removed_users,
            changed.removed_keys,
            changed.added.keys,
        );
        assert_eq!(counts, expected);
        assert_eq!(changed.users_without_account, [user("ben")]);
        assert_eq!(changed.differences, []);
    }
    let authenticator = authenticator(&store, "operator");
    for key in [revoked, of_ben] {
        assert_eq!(user_of(&authenticator, key).await, None);
    }
    for key in [kept, new] {
        assert_eq!(user_of(&authenticator, key).await, Some(user("ada")));
    }
    assert_eq!(store.find_key(&added.hash).await.unwrap(), Some(added.key));
    let records = store.records().await.unwrap();
    let expected = [revoked.key.id.clone(), of_ben.key.id.clone()];
    assert_eq!(records.revoked(), &expected.into_iter().collect());
    let ben = store.user(&user("ben")).await.unwrap();
    assert_eq!(ben.unwrap().removed_at, Some(9));
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
    let of_user = |name: &str| AuditActor::User {
        name: user(name),
        key: Some("0123456789ab".parse().unwrap()),
    };
    let command = AuditEntry {
        address: None,
        status: None,
        ..entry(4, AuditActor::Operator)
    };
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
        let filter = AuditFilter {
            user: name.map(user),
            conversation,
            limit,
        };
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
    log.append(&entry(0, AuditActor::Operator), 100)
        .await
        .unwrap();
    for number in 1..2000 {
        log.append(&entry(number, AuditActor::Unknown), 100)
            .await
            .unwrap();
    }
    let all = AuditFilter {
        limit: usize::MAX,
        ..AuditFilter::default()
    };
    let kept = log.read(&all).await.unwrap();
    assert_eq!(kept[0], entry(0, AuditActor::Operator));
    assert!(kept.len() <= 1011, "{}", kept.len());
    assert_eq!(kept.last(), Some(&entry(1999, AuditActor::Unknown)));
    for number in 2000..4000 {
        log.append(&entry(number, AuditActor::Operator), 100)
            .await
            .unwrap();
    }
    let kept = log.read(&all).await.unwrap();
    assert!(kept.len() <= 1100 && kept[0].at_ms > 0, "{}", kept.len());
}

/// The entries of a user do not displace entries of others.
pub async fn user_displaces_no_audit_entries_of_others(backend: &dyn AccountBackend) {
    let log = backend.open_audit().await;
    let of_user = |name: &str| AuditActor::User {
        name: user(name),
        key: None,
    };
    let others = [entry(0, AuditActor::Operator), entry(1, of_user("ben"))];
    for entry in &others {
        log.append(entry, 100).await.unwrap();
    }
    let entries: Vec<_> = (2..3000)
        .map(|number| entry(number, of_user("ada")))
        .collect();
    for batch in entries.chunks(100) {
        log.append_all(batch, 100).await.unwrap();
    }
    let kept = log
        .read(&AuditFilter {
            limit: usize::MAX,
            ..AuditFilter::default()
        })
        .await
        .unwrap();
    assert_eq!(kept[..2], others);
    assert!(kept.len() <= 1012, "{}", kept.len());
    assert_eq!(kept.last(), entries.last());
}

/// Entries of another log are added once each, also after an interrupted copy.
pub async fn audit_entries_are_merged_once(backend: &dyn AccountBackend) {
    let log = backend.open_audit().await;
    // More than a page, in which two entries are equal.
    let others: Vec<_> = (0..1500)
        .map(|number| entry(number.max(1), AuditActor::Operator))
        .collect();
    log.append_all(&others[..700], 10_000).await.unwrap();
    let own = entry(
        9000,
        AuditActor::User {
            name: user("ada"),
            key: None,
        },
    );
    log.append(&own, 10_000).await.unwrap();
    let mut merge = AuditMerge::new(backend.open_audit().await).await.unwrap();
    let mut count = 0;
    for page in others.chunks(400) {
        count += merge.append_missing(page.to_vec()).await.unwrap();
    }
    assert_eq!(count, 800);
    let all = AuditFilter {
        limit: usize::MAX,
        ..AuditFilter::default()
    };
    let expected = [&others[..700], std::slice::from_ref(&own), &others[700..]].concat();
    assert!(log.read(&all).await.unwrap() == expected);
    let mut again = AuditMerge::new(Arc::clone(&log)).await.unwrap();
    assert_eq!(again.append_missing(others).await.unwrap(), 0);
    // Pages by number have every entry once.
    let (mut numbers, mut last) = (Vec::new(), 0);
    loop {
        let page = log.read_after(last, 600).await.unwrap();
        let Some((number, _)) = page.last() else {
            break;
        };
        last = *number;
        numbers.extend(page.into_iter().map(|(number, _)| number));
    }
    assert!(numbers.len() == 1501 && numbers.is_sorted_by(|before, after| before < after));
    assert_eq!(log.read_after(u64::MAX, 9).await.unwrap(), []);
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
            user_displaces_no_audit_entries_of_others,
            records_are_added_and_change_no_existing_user,
            changes_of_a_source_are_made,
            audit_entries_are_merged_once,
        );
    };
    ($backend:expr; $($case:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            $crate::account_contract::$case(&$backend).await;
        })*
    };
}

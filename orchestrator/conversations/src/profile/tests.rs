use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use secrecy::SecretSlice;
use serde_json::{Value, json};

use super::*;
use crate::host::HostError;

/// Revisions and contents by owner.
type Documents = BTreeMap<Option<UserId>, (u64, Vec<u8>)>;

/// Documents in memory. Other writers are faster `conflicts` times.
#[derive(Default)]
struct MemoryStore {
    documents: Mutex<Documents>,
    conflicts: Mutex<u32>,
}

#[async_trait]
impl ProfileStore for MemoryStore {
    async fn read(&self, owner: Option<&UserId>) -> Result<Option<StoredProfile>, HostError> {
        let document = self.documents.lock().unwrap().get(&owner.cloned()).cloned();
        Ok(document.map(|(revision, content)| StoredProfile {
            revision,
            content: content.into(),
        }))
    }

    async fn write(
        &self,
        owner: Option<&UserId>,
        revision: u64,
        content: SecretSlice<u8>,
    ) -> Result<bool, HostError> {
        let mut documents = self.documents.lock().unwrap();
        let document = documents.entry(owner.cloned()).or_default();
        let mut conflicts = self.conflicts.lock().unwrap();
        if *conflicts > 0 {
            *conflicts -= 1;
            *document = (document.0 + 1, document.1.clone());
        }
        if document.0 != revision {
            return Ok(false);
        }
        *document = (revision + 1, content.expose_secret().to_vec());
        Ok(true)
    }

    async fn remove(&self, owner: Option<&UserId>) -> Result<(), HostError> {
        self.documents.lock().unwrap().remove(&owner.cloned());
        Ok(())
    }
}

struct NoOtherAgent;

impl SettingsPolicy for NoOtherAgent {
    fn check(&self, settings: &UserSettings) -> Result<(), InvalidSetting> {
        match settings.agent.as_deref() {
            None | Some("CodeActAgent") => Ok(()),
            Some(_) => Err(InvalidSetting::new("agent", "is not offered")),
        }
    }
}

fn profiles() -> (UserProfiles, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::default());
    (
        UserProfiles::new(
            Arc::clone(&store) as Arc<dyn ProfileStore>,
            Arc::new(NoOtherAgent),
        ),
        store,
    )
}

fn parse<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap()
}

async fn save(profiles: &UserProfiles, settings: Value) -> Result<(), ProfileError> {
    let given = settings.as_object().unwrap().keys().cloned().collect();
    profiles.save_settings(None, parse(settings), &given).await
}

async fn add_secret(profiles: &UserProfiles, name: &str, value: &str) -> Result<(), ProfileError> {
    profiles
        .add_secret(None, parse(json!({"name": name, "value": value})))
        .await
}

async fn info(profiles: &UserProfiles) -> Value {
    serde_json::to_value(profiles.settings(None).await.unwrap()).unwrap()
}

/// Returns the field that an error is about.
fn field(error: &ProfileError) -> &'static str {
    match error {
        ProfileError::Invalid(invalid) => invalid.field,
        _ => "",
    }
}

#[tokio::test]
async fn stored_values_are_kept_when_new_ones_are_null() {
    let (profiles, _) = profiles();
    let missing = profiles.settings(None).await.unwrap_err();
    assert!(matches!(missing, ProfileError::NoSettings), "{missing}");
    let all = json!({
        "llm_model": "m", "llm_base_url": "http://h", "llm_api_key": "key-llm", "search_api_key": "key-search",
        "user_consents_to_analytics": false, "language": "de", "max_iterations": 5,
    });
    save(&profiles, all).await.unwrap();
    save(&profiles, json!({"llm_api_key": null, "language": "en"}))
        .await
        .unwrap();
    let kept = info(&profiles).await;
    assert_eq!(
        (&kept["llm_model"], &kept["llm_base_url"]),
        (&json!("m"), &json!("http://h"))
    );
    assert_eq!(
        (&kept["llm_api_key_set"], &kept["search_api_key_set"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        (&kept["user_consents_to_analytics"], &kept["language"]),
        (&json!(false), &json!("en"))
    );
    assert_eq!(
        kept["max_iterations"],
        json!(5),
        "what is not given is kept"
    );
    save(&profiles, json!({"max_iterations": null}))
        .await
        .unwrap();
    assert_eq!(info(&profiles).await["max_iterations"], Value::Null);
    let profile = profiles.load(None).await.unwrap();
    assert_eq!(
        profile
            .settings
            .unwrap()
            .llm_api_key
            .unwrap()
            .expose_secret(),
        "key-llm"
    );

    save(
        &profiles,
        json!({"llm_api_key": "", "llm_base_url": "", "search_api_key": " "}),
    )
    .await
    .unwrap();
    let removed = info(&profiles).await;
    assert_eq!(
        (&removed["llm_api_key_set"], &removed["search_api_key_set"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(
        (&removed["llm_base_url"], &removed["llm_model"]),
        (&Value::Null, &json!("m"))
    );
}

#[tokio::test]
async fn settings_are_rejected_with_their_field() {
    let (profiles, _) = profiles();
    for (settings, expected) in [
        (json!({"agent": "Other"}), "agent"),
        (json!({"max_iterations": 0}), "max_iterations"),
        (json!({"max_budget_per_task": -1.0}), "max_budget_per_task"),
        (json!({"llm_api_key": "two\nlines"}), "llm_api_key"),
        (json!({"llm_api_key": "k".repeat(20_000)}), "llm_api_key"),
        (json!({"git_user_name": "a\u{0}b"}), "git_user_name"),
        (json!({"language": "x".repeat(5000)}), "language"),
        (
            json!({"mcp_config": {"sse_servers": ["x".repeat(70_000)]}}),
            "mcp_config",
        ),
        (json!({"mcp_config": "text"}), "mcp_config"),
        (json!({"mcp_config": {"sse_servers": "x"}}), "mcp_config"),
    ] {
        let error = save(&profiles, settings).await.unwrap_err();
        assert_eq!(field(&error), expected, "{error}");
    }
    assert!(profiles.settings(None).await.is_err(), "nothing is stored");
}

#[tokio::test]
async fn secret_is_added_renamed_and_removed() {
    let (profiles, _) = profiles();
    let user = None;
    add_secret(&profiles, "TOKEN", "a long value")
        .await
        .unwrap();
    let twice = add_secret(&profiles, "TOKEN", "another value")
        .await
        .unwrap_err();
    assert!(matches!(twice, ProfileError::SecretExists(_)), "{twice}");
    add_secret(&profiles, "OTHER", "other value").await.unwrap();
    let rename = |name: &'static str| parse(json!({"name": name, "description": "for tests"}));
    let taken = profiles
        .update_secret(user, "TOKEN", rename("OTHER"))
        .await
        .unwrap_err();
    assert!(matches!(taken, ProfileError::SecretExists(_)), "{taken}");
    profiles
        .update_secret(user, "TOKEN", rename("RENAMED"))
        .await
        .unwrap();
    let profile = profiles.load(user).await.unwrap();
    let secret = &profile.secrets["RENAMED"];
    assert_eq!(
        (secret.value.expose_secret(), &*secret.description),
        ("a long value", "for tests")
    );
    assert_eq!(
        profile.secrets.keys().collect::<Vec<_>>(),
        ["OTHER", "RENAMED"]
    );
    profiles.remove_secret(user, "RENAMED").await.unwrap();
    for error in [
        profiles.remove_secret(user, "RENAMED").await.unwrap_err(),
        profiles
            .update_secret(user, "TOKEN", rename("X"))
            .await
            .unwrap_err(),
    ] {
        assert!(matches!(error, ProfileError::UnknownSecret(_)), "{error}");
    }
}

#[tokio::test]
async fn secret_is_rejected_when_it_cannot_be_used() {
    let (profiles, _) = profiles();
    for (name, value, expected) in [
        ("1A", "a long value", "name"),
        ("PATH", "a long value", "name"),
        ("LD_PRELOAD", "a long value", "name"),
        ("A-B", "a long value", "name"),
        ("", "a long value", "name"),
        ("A", "short", "value"),
        ("A", &"x".repeat(100_000), "value"),
    ] {
        let error = add_secret(&profiles, name, value).await.unwrap_err();
        assert_eq!(field(&error), expected, "{name}: {error}");
        // V0's page shows nothing but the text.
        assert!(
            error.to_string().starts_with(&format!("{expected}: ")),
            "{error}"
        );
        assert!(!format!("{error:?}").contains(value), "{error:?}");
    }
    for number in 0..128 {
        add_secret(&profiles, &format!("A{number}"), "a long value")
            .await
            .unwrap();
    }
    assert_eq!(
        field(
            &add_secret(&profiles, "B", "a long value")
                .await
                .unwrap_err()
        ),
        "name"
    );
}

#[tokio::test]
async fn git_tokens_are_merged_by_provider() {
    let (profiles, _) = profiles();
    let user = None;
    let add = |json| profiles.add_git_tokens(user, parse(json));
    add(json!({"provider_tokens": {"github": {"token": "token-github"}, "gitlab": {"token": "token-gitlab"}}}))
        .await
        .unwrap();
    // An empty token keeps the stored one, and does not create one.
    let hosts = json!({"provider_tokens": {"gitlab": {"token": "", "host": "git.example"}, "bitbucket": {"host": "x"}}});
    add(hosts).await.unwrap();
    let tokens = profiles.load(user).await.unwrap().git_tokens;
    assert_eq!(
        tokens.keys().collect::<Vec<_>>(),
        [&GitProvider::GitHub, &GitProvider::GitLab]
    );
    assert_eq!(
        tokens[&GitProvider::GitLab].token.expose_secret(),
        "token-gitlab"
    );
    // Tokens are no settings.
    assert!(profiles.settings(user).await.is_err());
    save(&profiles, json!({})).await.unwrap();
    assert_eq!(
        info(&profiles).await["provider_tokens_set"],
        json!({"github": null, "gitlab": "git.example"})
    );
    profiles.remove_git_tokens(user).await.unwrap();
    assert_eq!(info(&profiles).await["provider_tokens_set"], json!({}));
}

#[tokio::test]
async fn changed_git_tokens_are_new_or_for_another_host() {
    let (profiles, _) = profiles();
    let tokens =
        json!({"github": {"token": "token-1"}, "gitlab": {"token": "token-2", "host": "h"}});
    let request = parse(json!({"provider_tokens": tokens}));
    profiles.add_git_tokens(None, request).await.unwrap();
    let changed = async |tokens| {
        let request = parse(json!({"provider_tokens": tokens}));
        let changed = profiles.changed_git_tokens(None, &request).await.unwrap();
        let token = |token: GitToken| (token.token.expose_secret().to_owned(), token.host);
        changed.into_values().map(token).collect::<Vec<_>>()
    };
    // As V0's page sends them.
    let same = json!({"github": {"token": "", "host": ""}, "gitlab": {"token": null, "host": "h"}, "bitbucket": {"token": ""}});
    assert_eq!(changed(same).await, []);
    let others = json!({"github": {"token": "token-3"}, "gitlab": {"host": "i"}});
    let expected = [("token-3", None), ("token-2", Some("i"))];
    assert_eq!(
        changed(others).await,
        expected.map(|(token, host)| (token.to_owned(), host.map(str::to_owned)))
    );
}

#[tokio::test]
async fn change_is_repeated_when_another_writer_was_faster() {
    let (profiles, store) = profiles();
    save(&profiles, json!({"language": "de"})).await.unwrap();
    *store.conflicts.lock().unwrap() = MAX_WRITE_ATTEMPTS - 1;
    add_secret(&profiles, "A", "a long value").await.unwrap();
    assert_eq!(info(&profiles).await["language"], "de");
    *store.conflicts.lock().unwrap() = MAX_WRITE_ATTEMPTS;
    let error = add_secret(&profiles, "B", "a long value")
        .await
        .unwrap_err();
    assert!(matches!(error, ProfileError::Contended), "{error}");
}

#[tokio::test]
async fn concurrent_changes_are_all_stored() {
    let (profiles, _) = profiles();
    let names: Vec<_> = (0..20).map(|number| format!("A{number}")).collect();
    let changes = names
        .iter()
        .map(|name| add_secret(&profiles, name, "a long value"));
    for added in futures_util::future::join_all(changes).await {
        added.unwrap();
    }
    assert_eq!(
        profiles.load(None).await.unwrap().secrets.len(),
        names.len()
    );
}

#[tokio::test]
async fn profile_is_bounded_and_not_printed() {
    let (profiles, _) = profiles();
    save(&profiles, json!({"llm_api_key": "hunter2hunter2"}))
        .await
        .unwrap();
    add_secret(&profiles, "A", "hunter2hunter2").await.unwrap();
    let request = json!({"provider_tokens": {"github": {"token": "hunter2hunter2"}}});
    profiles.add_git_tokens(None, parse(request)).await.unwrap();
    let profile = profiles.load(None).await.unwrap();
    assert!(!format!("{profile:?}").contains("hunter2"), "{profile:?}");
    let mut errors = Vec::new();
    for number in 0..128 {
        let secret = json!({"name": format!("B{number}"), "value": "a long value", "description": "x".repeat(4096)});
        errors.extend(profiles.add_secret(None, parse(secret)).await.err());
    }
    assert!(
        errors.iter().any(|error| field(error) == "body"),
        "{errors:?}"
    );
}

#[tokio::test]
async fn unreadable_document_is_an_error_that_quotes_nothing() {
    let (profiles, store) = profiles();
    for content in [r#"{"secrets": "hunter2hunter2"}"#, "hunter2", ""] {
        store
            .documents
            .lock()
            .unwrap()
            .insert(None, (1, content.into()));
        let error = profiles.load(None).await.unwrap_err();
        assert!(matches!(error, ProfileError::Store(_)), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}

#[tokio::test]
async fn each_user_has_a_profile_until_it_is_removed() {
    let (profiles, _) = profiles();
    let [ada, ben] = ["ada", "ben"].map(|name| name.parse::<UserId>().unwrap());
    for owner in [None, Some(&ada), Some(&ben)] {
        let value = owner.map_or("operator", UserId::as_str);
        let secret = parse(json!({"name": "OWN", "value": format!("value of {value}")}));
        profiles.add_secret(owner, secret).await.unwrap();
    }
    profiles.remove(&ben).await.unwrap();
    for (owner, expected) in [
        (None, Some("value of operator")),
        (Some(&ada), Some("value of ada")),
        (Some(&ben), None),
    ] {
        let secrets = profiles.load(owner).await.unwrap().secrets;
        assert_eq!(
            secrets
                .get("OWN")
                .map(|secret| secret.value.expose_secret()),
            expected
        );
    }
}

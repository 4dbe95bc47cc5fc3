//! Keys in the configuration of tool servers. Clients get a mask instead, and send it back
//! unchanged.
//!
//! Servers take keys in any field: in headers, in the environment, in the query or the path of a
//! URL, in arguments. So what may be one is masked, in doubt too: a mask that comes back restores
//! what it hides.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

/// What a client gets instead of a key.
const MASK: &str = "**********";

/// Fields whose entries are keys.
const KEY_MAPS: [&str; 2] = ["env", "headers"];

/// The ends of the names of keys, in small letters and without separators: `api_key`,
/// `GITHUB_TOKEN`, `X-Auth`.
const KEY_NAMES: [&str; 12] = [
    "key",
    "token",
    "secret",
    "password",
    "passwd",
    "pwd",
    "auth",
    "authorization",
    "credential",
    "credentials",
    "bearer",
    "cookie",
];

/// Minimum length of a part of a path that may be a key.
const MIN_KEY_CHARS: usize = 16;

/// The fields of the configuration, as in V0.
const LISTS: [&str; 3] = ["sse_servers", "stdio_servers", "shttp_servers"];

/// Whether the configuration has lists of servers and nothing else. A server is an object, or a
/// URL.
pub(super) fn is_valid(config: &Value) -> bool {
    let is_server = |server: &Value| server.is_object() || server.is_string();
    let is_list = |(name, list): (&String, &Value)| {
        LISTS.contains(&name.as_str())
            && list
                .as_array()
                .is_some_and(|servers| servers.iter().all(is_server))
    };
    config
        .as_object()
        .is_some_and(|fields| fields.iter().all(is_list))
}

/// Returns the configuration with all lists, which V0's page needs, and nothing else: earlier
/// versions stored any field, and the page sends back what it receives.
pub(super) fn complete(mut config: Value) -> Value {
    let lists = LISTS.map(|name| {
        let list = config.get_mut(name).map(Value::take);
        let list = list.filter(Value::is_array);
        (
            name.to_owned(),
            list.unwrap_or_else(|| Value::Array(Vec::new())),
        )
    });
    Value::Object(lists.into_iter().collect())
}

/// Returns the configuration with a mask for each key.
pub(super) fn mask(config: &Value) -> Value {
    match config {
        Value::String(text) => Value::from(mask_text(text)),
        Value::Array(values) => values.iter().map(mask).collect(),
        Value::Object(fields) => Value::Object(fields.iter().map(mask_field).collect()),
        other => other.clone(),
    }
}

fn mask_field((name, value): (&String, &Value)) -> (String, Value) {
    let masked = match value {
        value if KEY_MAPS.contains(&name.as_str()) || is_key(name) => mask_all(value),
        Value::Array(arguments) if name == "args" => mask_arguments(arguments),
        value => mask(value),
    };
    (name.clone(), masked)
}

/// Masks each value.
fn mask_all(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Array(values) => values.iter().map(mask_all).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), mask_all(value)))
                .collect(),
        ),
        _ => Value::from(MASK),
    }
}

/// Masks the values of options: `--api-key KEY`, `--token=KEY`, `-e API_KEY=KEY`, `--header
/// 'Authorization: KEY'`.
fn mask_arguments(arguments: &[Value]) -> Value {
    let mut is_value_of_key = false;
    let masked = arguments.iter().map(|argument| {
        let Value::String(text) = argument else {
            return mask(argument);
        };
        let is_option = text.starts_with('-');
        let mut separators = text.match_indices(['=', ':']).map(|(at, _)| at);
        let named = separators.find(|at| is_key(&text[..*at]));
        let masked = match named {
            _ if is_value_of_key && !is_option => MASK.to_owned(),
            Some(separator) => format!("{}{MASK}", &text[..=separator]),
            None => mask_text(text),
        };
        is_value_of_key = is_option && is_key(text);
        Value::from(masked)
    });
    masked.collect()
}

/// Masks a user, the query, and parts of the path that may be keys, if the text is a URL.
fn mask_text(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let (place, query) = rest
        .split_once('?')
        .map_or((rest, None), |(place, query)| (place, Some(query)));
    let (authority, path) = place
        .split_once('/')
        .map_or((place, None), |(host, path)| (host, Some(path)));
    let mut masked = format!("{scheme}://");
    match authority.rsplit_once('@') {
        Some((_, host)) => masked.extend([MASK, "@", host]),
        None => masked.push_str(authority),
    }
    for part in path.into_iter().flat_map(|path| path.split('/')) {
        masked.extend(["/", if may_be_key(part) { MASK } else { part }]);
    }
    for (at, parameter) in query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .enumerate()
    {
        masked.push(if at == 0 { '?' } else { '&' });
        match parameter.split_once('=') {
            Some((name, _)) => masked.extend([name, "=", MASK]),
            None => masked.push_str(MASK),
        }
    }
    masked
}

fn is_key(name: &str) -> bool {
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    KEY_NAMES
        .iter()
        .any(|key| letters.to_ascii_lowercase().ends_with(key))
}

/// Whether a part of a path has the form of a key, not of a word.
fn may_be_key(part: &str) -> bool {
    part.len() >= MIN_KEY_CHARS
        && part.contains(|char: char| char.is_ascii_digit())
        && part.contains(|char: char| char.is_ascii_alphabetic())
}

/// Replaces each mask by what it hides of the same server. A mask of another one becomes `null`: a
/// key follows neither to another URL nor to another program.
pub(super) fn unmask(config: &mut Value, stored: Option<&Value>) {
    let mut stored = stored.cloned().unwrap_or_default();
    let mut known: HashMap<_, VecDeque<Value>> = HashMap::new();
    for (group, server) in servers_mut(&mut stored) {
        known
            .entry((group, identity(server)))
            .or_default()
            .push_back(server.take());
    }
    let mut given: HashMap<_, usize> = HashMap::new();
    for (group, server) in servers_mut(config) {
        *given.entry((group, identity(server))).or_default() += 1;
    }
    // Two servers may differ only in what is masked. If one of them was removed, it is not known
    // which one.
    known.retain(|identity, servers| {
        servers.len() == 1 || given.get(identity) == Some(&servers.len())
    });
    for (group, server) in servers_mut(config) {
        let same = known
            .get_mut(&(group, identity(server)))
            .and_then(VecDeque::pop_front);
        restore(server, same.as_ref(), same.as_ref().map(mask).as_ref());
    }
}

/// Replaces masks at the places where the stored value is masked in the same way.
fn restore(value: &mut Value, stored: Option<&Value>, masked: Option<&Value>) {
    match value {
        Value::String(text) if text.contains(MASK) => {
            let is_same = masked.is_some_and(|masked| masked == text.as_str());
            *value = stored.filter(|_| is_same).cloned().unwrap_or_default();
        }
        Value::Array(values) => {
            for (index, value) in values.iter_mut().enumerate() {
                restore(
                    value,
                    stored.and_then(|all| all.get(index)),
                    masked.and_then(|all| all.get(index)),
                );
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                restore(
                    value,
                    stored.and_then(|all| all.get(name)),
                    masked.and_then(|all| all.get(name)),
                );
            }
        }
        _ => {}
    }
}

/// The servers, each with the name of its group: lists as in V0, and maps by name.
fn servers_mut(config: &mut Value) -> impl Iterator<Item = (String, &mut Value)> {
    let groups = config.as_object_mut().into_iter().flatten();
    groups.flat_map(|(group, servers)| -> Vec<(String, &mut Value)> {
        match servers {
            Value::Array(list) => list
                .iter_mut()
                .map(|server| (group.clone(), server))
                .collect(),
            Value::Object(map) => map
                .iter_mut()
                .map(|(name, server)| (format!("{group}.{name}"), server))
                .collect(),
            other => vec![(group.clone(), other)],
        }
    })
}

/// Returns what the keys of a server are for, as JSON.
fn identity(server: &Value) -> String {
    let masked = mask(server);
    let fields = ["url", "name", "command", "args"]
        .map(|field| masked.get(field).cloned().unwrap_or_default());
    if masked.is_object() {
        Value::from(fields.to_vec()).to_string()
    } else {
        masked.to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn configuration_of_lists_is_completed_and_others_are_invalid() {
        let mut config = json!({"sse_servers": ["http://a/", {"url": "http://b/"}]});
        assert!(is_valid(&config) && is_valid(&json!({})));
        config["mcpServers"] = json!({});
        let expected = json!({
            "sse_servers": ["http://a/", {"url": "http://b/"}],
            "stdio_servers": [],
            "shttp_servers": [],
        });
        assert_eq!(complete(config), expected);
        for invalid in [
            json!([]),
            json!({"sse_servers": "x"}),
            json!({"stdio_servers": [5, null]}),
            json!({"shttp_servers": null}),
            json!({"foo": []}),
        ] {
            assert!(!is_valid(&invalid), "{invalid}");
        }
    }

    fn config() -> Value {
        json!({
            "sse_servers": [{"url": "http://a/", "api_key": "key-a"}, "http://plain/"],
            "stdio_servers": [{"name": "s", "command": "run", "env": {"K": "key-s", "N": null}}],
            "mcpServers": {"m": {"url": "http://m/", "headers": {"Authorization": "key-m"}}},
        })
    }

    #[test]
    fn keys_are_masked_and_restored() {
        let mut masked = mask(&config());
        assert!(!masked.to_string().contains("key-"), "{masked}");
        assert_eq!(masked["sse_servers"][0]["api_key"], MASK);
        unmask(&mut masked, Some(&config()));
        assert_eq!(masked, config());
    }

    #[test]
    fn key_does_not_follow_to_another_server() {
        let mut changed = mask(&config());
        changed["sse_servers"][0]["url"] = json!("http://evil/");
        changed["stdio_servers"][0]["command"] = json!("evil");
        changed["mcpServers"]["m"]["headers"]["Other"] = json!(MASK);
        unmask(&mut changed, Some(&config()));
        assert_eq!(changed["sse_servers"][0]["api_key"], Value::Null);
        assert_eq!(changed["stdio_servers"][0]["env"]["K"], Value::Null);
        assert_eq!(
            changed["mcpServers"]["m"]["headers"],
            json!({"Authorization": "key-m", "Other": null})
        );
    }

    #[test]
    fn key_in_any_field_is_masked_and_restored() {
        let config = json!({
            "sse_servers": [
                "https://user:key-1@a/",
                "https://a/mcp?apiKey=key-2&x=1",
                "https://a/mcp?apiKey=key-3&x=1",
                {"url": "https://a/s/a1b2c3d4e5f6g7h8i9/mcp", "auth": {"kind": "bearer", "bearerToken": "key-4"}},
            ],
            "stdio_servers": [{"name": "s", "command": "npx", "args": [
                "-y", "mcp-remote", "https://a/?k=key-5", "--header", "Authorization: Bearer key-6", "--api-key", "key-7",
                "--token=key-8", "--header=Cookie: key-8", "-e", "GITHUB_TOKEN=key-9", "--verbose", "--port=80",
            ]}],
            "mcpServers": {"m": {"transport": {"requestInit": {"headers": {"x": "key-10"}}}, "oauth": {"client_secret": "key-11"}}},
        });
        let mut masked = mask(&config);
        let shown = masked.to_string();
        assert!(
            !shown.contains("key-") && !shown.contains("a1b2"),
            "{masked}"
        );
        for kept in [
            "https://a/mcp?",
            "mcp-remote",
            "--header",
            "Authorization:",
            "GITHUB_TOKEN=",
            "--port=80",
        ] {
            assert!(shown.contains(kept), "{kept} in {masked}");
        }
        assert_eq!(mask(&masked), masked);
        unmask(&mut masked, Some(&config));
        assert_eq!(masked, config);

        let mut fewer = mask(&config);
        fewer["sse_servers"].as_array_mut().unwrap().remove(1);
        unmask(&mut fewer, Some(&config));
        assert_eq!(
            fewer["sse_servers"][1],
            Value::Null,
            "the key of the removed server or of the other one"
        );

        let mut moved = mask(&config);
        moved["sse_servers"][1] = json!(format!("https://evil/mcp?apiKey={MASK}&x={MASK}"));
        moved["stdio_servers"][0]["args"][2] = json!(format!("https://evil/?k={MASK}"));
        unmask(&mut moved, Some(&config));
        assert_eq!(moved["sse_servers"][1], Value::Null);
        assert!(
            !moved["stdio_servers"].to_string().contains("key-"),
            "{moved}"
        );
    }

    #[test]
    fn new_key_replaces_the_stored_one() {
        let mut changed = mask(&config());
        changed["sse_servers"][0]["api_key"] = json!("key-new");
        unmask(&mut changed, Some(&config()));
        assert_eq!(changed["sse_servers"][0]["api_key"], "key-new");
    }
}

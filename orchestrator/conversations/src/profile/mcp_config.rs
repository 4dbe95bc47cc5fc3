//! Keys in the configuration of tool servers. Clients get a mask instead, and send it back unchanged.

use serde_json::{Map, Value};

/// What a client gets instead of a key.
const MASK: &str = "**********";

/// Fields of a tool server that are keys.
const KEYS: [&str; 2] = ["api_key", "token"];

/// Fields of a tool server whose entries are keys.
const KEY_MAPS: [&str; 2] = ["env", "headers"];

/// Returns the configuration with a mask for each key.
pub(super) fn mask(config: &Value) -> Value {
    let mut masked = config.clone();
    for (_, server) in servers_mut(&mut masked) {
        for key in keys_mut(server) {
            *key = Value::from(MASK);
        }
    }
    masked
}

/// Replaces each mask by the key that is stored for the same server. A mask without one becomes `null`: a key follows neither to
/// another URL nor to another program.
pub(super) fn unmask(config: &mut Value, stored: Option<&Value>) {
    let mut stored = stored.cloned().unwrap_or_default();
    let mut known: Vec<_> = servers_mut(&mut stored).collect();
    for (group, server) in servers_mut(config) {
        let identity = identity(server);
        let same =
            known.iter_mut().find(|(other, known)| *other == group && self::identity(known) == identity);
        let Some((_, same)) = same else {
            keys_mut(server).filter(|key| **key == MASK).for_each(|key| *key = Value::Null);
            continue;
        };
        for field in KEYS {
            restore(server.get_mut(field), same.get(field));
        }
        for field in KEY_MAPS {
            let Some(Value::Object(entries)) = server.get_mut(field) else { continue };
            for (name, value) in entries {
                restore(Some(value), same.get(field).and_then(|entries| entries.get(name)));
            }
        }
    }
}

fn restore(value: Option<&mut Value>, stored: Option<&Value>) {
    if let Some(value) = value.filter(|value| **value == MASK) {
        *value = stored.cloned().unwrap_or_default();
    }
}

/// The servers, each with the name of its group: lists as in V0, and maps by name.
fn servers_mut(config: &mut Value) -> impl Iterator<Item = (String, &mut Map<String, Value>)> {
    let groups = config.as_object_mut().into_iter().flatten();
    groups.flat_map(|(group, servers)| {
        let servers: Vec<(String, &mut Value)> = match servers {
            Value::Array(list) => list.iter_mut().map(|server| (group.clone(), server)).collect(),
            Value::Object(map) => {
                map.iter_mut().map(|(name, server)| (format!("{group}.{name}"), server)).collect()
            }
            _ => Vec::new(),
        };
        servers.into_iter().filter_map(|(group, server)| Some((group, server.as_object_mut()?)))
    })
}

/// Returns what a server's keys are for.
fn identity(server: &Map<String, Value>) -> [Option<Value>; 4] {
    ["url", "name", "command", "args"].map(|field| server.get(field).cloned())
}

fn keys_mut(server: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    let fields = server.iter_mut().flat_map(|(name, value)| -> Vec<&mut Value> {
        let is_map = KEY_MAPS.contains(&name.as_str());
        if is_map && value.is_object() {
            value.as_object_mut().into_iter().flat_map(Map::values_mut).collect()
        } else if is_map || KEYS.contains(&name.as_str()) {
            vec![value]
        } else {
            Vec::new()
        }
    });
    fields.filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        assert_eq!(changed["mcpServers"]["m"]["headers"], json!({"Authorization": "key-m", "Other": null}));
    }

    #[test]
    fn new_key_replaces_the_stored_one() {
        let mut changed = mask(&config());
        changed["sse_servers"][0]["api_key"] = json!("key-new");
        unmask(&mut changed, Some(&config()));
        assert_eq!(changed["sse_servers"][0]["api_key"], "key-new");
    }
}

//! `[mcp]`: servers whose tools the agent may call. Names and defaults are V0's. Glovebox adds
//! `run_in`, `headers` and `start_timeout`, accepts `timeout` and `name` for every kind of server,
//! and limits the tools of a request.

use std::collections::BTreeMap;
use std::time::Duration;

use mcp::{McpServer, Program, Remote, Transport};
use secrecy::SecretString;
use toml::{Table, Value};

use super::settings::Settings;

/// Default timeout for a server to start and list its tools.
const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(30);

/// Default timeout of one tool call.
const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum timeout, in seconds: a day.
const MAX_TIMEOUT_SECS: f64 = 86_400.0;

/// Maximum number of servers of one conversation.
const MAX_SERVERS: usize = 64;

/// The keys of the section. Their order decides which of two tools with the same name is renamed.
const KEYS: [&str; 3] = ["stdio_servers", "shttp_servers", "sse_servers"];

/// Tavily's own MCP server. V0 starts `npx -y tavily-mcp` for the same tools, which needs Node.js
/// and a network in the sandbox, and shows the key to what runs there.
const TAVILY: &str = "https://mcp.tavily.com/mcp/";

/// Default maximum number of tools of servers in each request.
const DEFAULT_MAX_LISTED_TOOLS: usize = 20;

/// MCP servers, and how the model gets their tools.
#[derive(Debug, Clone)]
pub(crate) struct McpSettings {
    /// Servers whose tools the agent may call. Empty if MCP is disabled.
    pub(crate) servers: Vec<McpServer>,
    /// Maximum number of tools in each request. The model searches for more.
    pub(crate) max_listed_tools: usize,
    /// Maximum length of their definitions, in tokens. `None` for a tenth of the model's context
    /// window.
    pub(crate) max_listed_tool_tokens: Option<usize>,
}

impl McpSettings {
    pub(super) fn read(settings: &Settings) -> Self {
        let number = |name| usize::try_from(settings.integer("mcp", name)?).ok();
        let is_enabled = settings.flag("agent", "enable_mcp").unwrap_or(true);
        Self {
            servers: if is_enabled {
                read(settings)
            } else {
                Vec::new()
            },
            max_listed_tools: number("max_listed_tools").unwrap_or(DEFAULT_MAX_LISTED_TOOLS),
            max_listed_tool_tokens: number("max_listed_tool_tokens"),
        }
    }
}

/// Reads all servers. [`Settings::set`] has refused invalid ones.
pub(super) fn read(settings: &Settings) -> Vec<McpServer> {
    let servers = KEYS
        .into_iter()
        .filter_map(|key| servers(key, settings.value("mcp", key)?).ok());
    servers
        .flatten()
        .chain(search_server(settings))
        .take(MAX_SERVERS)
        .collect()
}

/// The server of `search_api_key`. `None` unless it is a key of Tavily, as in V0.
fn search_server(settings: &Settings) -> Option<McpServer> {
    let key = settings
        .text("core", "search_api_key")
        .filter(|key| key.starts_with("tvly-"))?;
    let mut remote = Remote::new(TAVILY).ok()?;
    remote.api_key = Some(key.into());
    Some(McpServer {
        name: "tavily".to_owned(),
        transport: Transport::StreamableHttp(remote),
        start_timeout: DEFAULT_START_TIMEOUT,
        call_timeout: DEFAULT_CALL_TIMEOUT,
    })
}

/// Parses the servers of a key. The error names the server and its problem.
pub(super) fn servers(key: &str, value: &Value) -> Result<Vec<McpServer>, String> {
    let values = value.as_array().ok_or("must be a list of servers")?;
    if values.len() > MAX_SERVERS {
        return Err(format!(
            "may hold {MAX_SERVERS} servers, not {}",
            values.len()
        ));
    }
    let numbered = (1..).zip(values);
    numbered
        .map(|(number, value)| {
            server(key, value).map_err(|problem| format!("server {number}: {problem}"))
        })
        .collect()
}

fn server(key: &str, value: &Value) -> Result<McpServer, String> {
    let is_program = key == "stdio_servers";
    match value {
        Value::String(url) if !is_program => {
            let url = Table::from_iter([("url".to_owned(), Value::String(url.clone()))]);
            server(key, &Value::Table(url))
        }
        Value::Table(table) => {
            let mut fields = Fields {
                table,
                known: Vec::new(),
            };
            let (name, transport) = if is_program {
                program(&mut fields)?
            } else {
                remote(key, &mut fields)?
            };
            let start_timeout = fields
                .seconds("start_timeout")?
                .unwrap_or(DEFAULT_START_TIMEOUT);
            let call_timeout = fields.seconds("timeout")?.unwrap_or(DEFAULT_CALL_TIMEOUT);
            fields.refuse_unknown()?;
            Ok(McpServer {
                name,
                transport,
                start_timeout,
                call_timeout,
            })
        }
        _ if is_program => Err("must be a table with `name` and `command`".into()),
        _ => Err("must be an address, or a table with `url`".into()),
    }
}

fn program(fields: &mut Fields<'_>) -> Result<(String, Transport), String> {
    let name = fields.text("name")?.ok_or("has no `name`")?;
    let command = fields.text("command")?.ok_or("has no `command`")?;
    let program = Program {
        command,
        args: fields.arguments()?,
        env: fields.variables("env")?,
    };
    let transport = match fields.text("run_in")?.as_deref() {
        None | Some("sandbox") => Transport::Sandbox(program),
        Some("host") => Transport::Host(program),
        Some(_) => return Err("`run_in` must be sandbox or host".into()),
    };
    Ok((name, transport))
}

fn remote(key: &str, fields: &mut Fields<'_>) -> Result<(String, Transport), String> {
    let url = fields.text("url")?.ok_or("has no `url`")?;
    let mut remote = Remote::new(&url).map_err(|error| format!("`url` {error}"))?;
    remote.api_key = fields.text("api_key")?.map(SecretString::from);
    remote.headers = fields.secrets("headers")?;
    let name = fields
        .text("name")?
        .unwrap_or_else(|| remote.host().to_owned());
    let transport = if key == "sse_servers" {
        Transport::Sse(remote)
    } else {
        Transport::StreamableHttp(remote)
    };
    Ok((name, transport))
}

/// Table of one server. No error quotes a value, because it may be secret.
struct Fields<'a> {
    table: &'a Table,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    fn get(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.push(name);
        self.table.get(name)
    }

    /// A string. `None` if it is absent or empty.
    fn text(&mut self, name: &'static str) -> Result<Option<String>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(_) => Err(format!("`{name}` must be a string")),
        }
    }

    fn seconds(&mut self, name: &'static str) -> Result<Option<Duration>, String> {
        #[expect(clippy::cast_precision_loss, reason = "a configured number is small")]
        let seconds = match self.get(name) {
            None => return Ok(None),
            Some(Value::Integer(seconds)) => *seconds as f64,
            Some(Value::Float(seconds)) => *seconds,
            Some(_) => f64::NAN,
        };
        let is_usable = seconds > 0.0 && seconds <= MAX_TIMEOUT_SECS;
        let duration = is_usable
            .then(|| Duration::try_from_secs_f64(seconds).ok())
            .flatten();
        duration.map(Some).ok_or_else(|| {
            format!("`{name}` must be a number of seconds, at most {MAX_TIMEOUT_SECS}")
        })
    }

    /// `args`: a list, or a command line as in V0.
    fn arguments(&mut self) -> Result<Vec<String>, String> {
        let wrong = || "`args` must be a list of strings".to_owned();
        match self.get("args") {
            None => Ok(Vec::new()),
            Some(Value::String(line)) => {
                shlex::split(line).ok_or_else(|| "`args` ends within quotes".to_owned())
            }
            Some(Value::Array(values)) => values
                .iter()
                .map(|value| value.as_str().map(str::to_owned).ok_or_else(wrong))
                .collect(),
            Some(_) => Err(wrong()),
        }
    }

    fn secrets(&mut self, name: &'static str) -> Result<BTreeMap<String, SecretString>, String> {
        let wrong = || format!("`{name}` must be a table of strings");
        let Some(value) = self.get(name) else {
            return Ok(BTreeMap::new());
        };
        let entries = value.as_table().ok_or_else(wrong)?.iter();
        let read = |(name, value): (&String, &Value)| {
            let text = value
                .as_str()
                .filter(|text| !text.contains('\0'))
                .ok_or_else(wrong)?;
            Ok((name.clone(), SecretString::from(text)))
        };
        entries.map(read).collect()
    }

    /// A table, or `A=1,B=2` as in V0.
    fn variables(&mut self, name: &'static str) -> Result<BTreeMap<String, SecretString>, String> {
        let Some(Value::String(line)) = self.table.get(name) else {
            return self.secrets(name);
        };
        self.known.push(name);
        let wrong = || {
            format!("`{name}` must be a table of strings, or NAME=VALUE with commas between them")
        };
        let pairs = line
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty());
        let read = |pair: &str| {
            let (variable, value) = pair.split_once('=').ok_or_else(wrong)?;
            let is_usable = !variable.trim().is_empty() && !value.contains('\0');
            is_usable
                .then(|| (variable.trim().to_owned(), value.into()))
                .ok_or_else(wrong)
        };
        pairs.map(read).collect()
    }

    /// Refuses unknown keys: a misspelt `run_in` would start the server in the wrong place.
    fn refuse_unknown(self) -> Result<(), String> {
        let unknown = self
            .table
            .keys()
            .find(|key| !self.known.contains(&key.as_str()));
        unknown.map_or(Ok(()), |key| Err(format!("has an unknown key {key:?}")))
    }
}

//! The calls of a message: their ids, names and arguments.

use std::collections::{HashMap, HashSet};

use engine::llm::{AssistantMessage, ProviderFields, Tool, ToolCall};
use serde_json::{Map, Value};

use super::{FINGERPRINT_CHARS, fingerprint};
use crate::arguments::parse_arguments;
use crate::{anthropic, responses};

/// Fields of a message with its original blocks, in the format of the wire that received them.
const ORIGINALS: [&str; 2] = [anthropic::CONTENT_FIELD, responses::OUTPUT_FIELD];

/// Maximum length of an id. OpenAI's chat completions accept 40 characters, all others more.
const MAX_ID_CHARS: usize = 40;

/// Length of an id for strict templates.
const STRICT_ID_CHARS: usize = 9;

/// Maximum length of a tool's name.
const MAX_NAME_CHARS: usize = 64;

/// Replaces an empty name.
const NO_NAME: &str = "unknown_tool";

/// What models write before a tool's name: the name of the group of tools in their training.
const NAME_PREFIXES: [&str; 6] = [
    "functions.",
    "function.",
    "functions:",
    "tools.",
    "tool.",
    "default_api.",
];

/// The ids of a request's calls. An id that is refused, or that an earlier response used, is
/// replaced.
#[derive(Debug)]
pub(super) struct CallIds {
    is_strict: bool,
    used: HashSet<String>,
    /// The number of ids that were derived from a refused one. Some servers give all calls the same
    /// id.
    derived: HashMap<String, u32>,
}

impl CallIds {
    pub(super) fn new(is_strict: bool) -> Self {
        Self {
            is_strict,
            used: HashSet::new(),
            derived: HashMap::new(),
        }
    }

    /// Replaces the ids of a message's calls.
    pub(super) fn replace(&mut self, message: &mut AssistantMessage) {
        for_each_call(message, |_, call| {
            if self.used.contains(&call.id) || !self.is_accepted(&call.id) {
                call.id = self.new_id(&call.id);
            }
            self.used.insert(call.id.clone());
        });
    }

    fn is_accepted(&self, id: &str) -> bool {
        if self.is_strict {
            return id.len() == STRICT_ID_CHARS
                && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        }
        !id.is_empty() && id.len() <= MAX_ID_CHARS && id.bytes().all(is_name_byte)
    }

    /// Derives an unused id: the same for the same calls before it.
    fn new_id(&mut self, id: &str) -> String {
        let length = if self.is_strict {
            STRICT_ID_CHARS
        } else {
            FINGERPRINT_CHARS
        };
        let original = fingerprint(id);
        let attempt = self.derived.entry(original.clone()).or_default();
        loop {
            let id = fingerprint(&format!("{attempt} {original}"))[..length].to_owned();
            *attempt += 1;
            if !self.used.contains(&id) {
                return id;
            }
        }
    }
}

/// Gives each call of a response that has the id of an earlier one a new id. Otherwise only the
/// first would be made.
pub(super) fn make_ids_unique(message: &mut AssistantMessage) {
    let mut used = HashSet::new();
    for_each_call(message, |number, call| {
        while !used.insert(call.id.clone()) {
            call.id = format!("{}-{number}", call.id);
        }
    });
}

/// Makes names and arguments acceptable.
pub(super) fn clean(message: &mut AssistantMessage) {
    for_each_call(message, |_, call| {
        call.name = clean_name(&call.name);
        if !matches!(
            protocol::untrusted_json::from_str(&call.arguments),
            Ok(Value::Object(_))
        ) {
            call.arguments = Value::Object(parse_arguments(&call.arguments)).to_string();
        }
    });
}

/// Changes the calls of a message, which have numbers, and the original blocks of the same calls.
pub(super) fn for_each_call(
    message: &mut AssistantMessage,
    mut change: impl FnMut(usize, &mut ToolCall),
) {
    let blocks: Vec<_> = original_calls(&mut message.provider_fields).collect();
    let is_complete = blocks.len() == message.tool_calls.len();
    let mut blocks = blocks.into_iter();
    for (number, call) in (1..).zip(&mut message.tool_calls) {
        // The blocks have the same order. The ids can differ: a call whose model gave it none got
        // one.
        let block = if is_complete {
            blocks.next()
        } else {
            blocks.find(|block| block.id() == call.id)
        };
        change(number, call);
        if let Some(block) = block {
            block.update(call);
        }
    }
}

/// Finds the tool that a model means, which may write marks of its template around the name.
pub(super) fn find_tool<'a>(name: &str, tools: &'a [Tool]) -> Option<&'a Tool> {
    let named = |name: &str| tools.iter().find(|tool| tool.name == name);
    let bare = || {
        let name = name.split("<|").next().unwrap_or(name).trim();
        let prefix = NAME_PREFIXES
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix));
        prefix.unwrap_or(name)
    };
    let similar = |bare: &str| {
        tools
            .iter()
            .find(|tool| tool.name.eq_ignore_ascii_case(bare))
    };
    named(name)
        .or_else(|| named(bare()))
        .or_else(|| similar(bare()))
}

fn clean_name(name: &str) -> String {
    let clean = |char: char| {
        if u8::try_from(char).is_ok_and(is_name_byte) {
            char
        } else {
            '_'
        }
    };
    match name {
        "" => NO_NAME.to_owned(),
        name => name.chars().take(MAX_NAME_CHARS).map(clean).collect(),
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-".contains(&byte)
}

/// Returns the original blocks of a message, in its writer's format. `None` if its text and calls
/// are all of it.
pub(super) fn original_blocks(fields: &ProviderFields) -> Option<&Vec<Value>> {
    ORIGINALS
        .iter()
        .find_map(|name| fields.0.get(*name)?.as_array())
}

/// Removes the original blocks of a message if some of them are calls: its text and calls are sent
/// in their place.
pub(crate) fn remove_original_calls(fields: &mut ProviderFields) {
    if original_calls(fields).next().is_some() {
        ORIGINALS
            .iter()
            .for_each(|name| drop(fields.0.remove(*name)));
    }
}

fn original_calls(fields: &mut ProviderFields) -> impl Iterator<Item = OriginalCall<'_>> {
    let blocks = ORIGINALS
        .iter()
        .find(|name| fields.0.get(**name).is_some_and(Value::is_array));
    let blocks = blocks.and_then(|name| fields.0.get_mut(*name)?.as_array_mut());
    blocks.into_iter().flatten().filter_map(OriginalCall::of)
}

/// The field with the id of a call of the Responses API, whose arguments are text.
const RESPONSES_ID: &str = "call_id";

/// The original block of a call.
struct OriginalCall<'a> {
    block: &'a mut Map<String, Value>,
    id_field: &'static str,
}

impl<'a> OriginalCall<'a> {
    fn of(block: &'a mut Value) -> Option<Self> {
        let id_field = match block["type"].as_str()? {
            "tool_use" => "id",
            "function_call" => RESPONSES_ID,
            _ => return None,
        };
        Some(Self {
            block: block.as_object_mut()?,
            id_field,
        })
    }

    fn id(&self) -> &str {
        self.block
            .get(self.id_field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Sets the fields of the call, except for the input of Anthropic, which is not text.
    fn update(self, call: &ToolCall) {
        self.block
            .insert(self.id_field.into(), call.id.as_str().into());
        self.block.insert("name".into(), call.name.as_str().into());
        if self.id_field == RESPONSES_ID {
            self.block
                .insert("arguments".into(), call.arguments.as_str().into());
        }
    }
}

//! The description of tools in the system prompt.

use engine::llm::Tool;
use serde_json::Value;

/// Description of the format of calls.
pub(super) const FORMAT: &str = "\
A tool is called by ending your message with a call in this form, and nothing after it:

<function=NAME>
<parameter=FIRST>
value
</parameter>
<parameter=SECOND>
a value of
several lines
</parameter>
</function>

Make one call in a message. Values that are text stand there as they are, without quotes; numbers, true and false, lists \
and objects as JSON. If a value has to hold <function=, </parameter or </function, write &lt;function=, &lt;/parameter or \
&lt;/function there. The result comes in the next message; never write it yourself.";

/// Describes the format and the tools.
pub(super) fn describe_tools(tools: &[Tool]) -> String {
    let tools: Vec<String> = tools.iter().map(describe).collect();
    format!(
        "# Tools\n\n{FORMAT}\n\nThese are the tools:\n\n{}",
        tools.join("\n\n")
    )
}

fn describe(tool: &Tool) -> String {
    let required: Vec<&str> = tool.parameters["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = tool.parameters["properties"]
        .as_object()
        .into_iter()
        .flatten();
    let parameters: Vec<String> = properties
        .map(|(name, schema)| {
            let kind = schema["type"].as_str().unwrap_or("any JSON");
            let need = if required.contains(&name.as_str()) {
                "required"
            } else {
                "optional"
            };
            let choice = schema
                .get("enum")
                .map(|values| format!(" One of {values}."))
                .unwrap_or_default();
            let description = schema["description"].as_str().unwrap_or_default();
            format!("- {name} ({kind}, {need}): {description}{choice}")
        })
        .collect();
    let parameters = if parameters.is_empty() {
        "No parameters.".to_owned()
    } else {
        parameters.join("\n")
    };
    format!("## {}\n{}\n{parameters}", tool.name, tool.description)
}

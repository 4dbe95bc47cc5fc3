//! Search for tools by words.

use std::cmp::{Ordering, Reverse};

use bm25::{Document, SearchEngineBuilder, Tokenizer};
use engine::llm::Tool;

/// Maximum number of found tools, and of the bytes of their definitions.
const MAX_FOUND: usize = 8;
const MAX_FOUND_BYTES: usize = 32 << 10;

/// Maximum length of a query, in bytes.
const MAX_QUERY_BYTES: usize = 1000;

/// Maximum length of the list of all names, in bytes.
const MAX_NAMES_BYTES: usize = 16 << 10;

/// Returns the definitions of the tools that match best, for a model. Without a match, the names of all.
pub(crate) fn search(tools: &[Tool], query: &str) -> String {
    let query = query.get(..query.floor_char_boundary(MAX_QUERY_BYTES)).unwrap_or_default();
    let mut text = String::new();
    for tool in best(tools, query).into_iter().take(MAX_FOUND) {
        let Tool { name, description, parameters } = tool;
        let definition = format!("## {name}\n{}\nArguments: {parameters}\n\n", description.trim());
        if text.len() + definition.len() > MAX_FOUND_BYTES {
            text.push_str(&format!("## {name}\n[Search for its name to see its definition.]\n\n"));
        } else {
            text.push_str(&definition);
        }
    }
    if text.is_empty() {
        let mut names = tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", ");
        names.truncate(MAX_NAMES_BYTES);
        return match names.as_str() {
            "" => "There are no tools now: no server offers any.".to_owned(),
            names => format!("No tool matches. The tools: {names}"),
        };
    }
    text.truncate(text.trim_end().len());
    text
}

/// Returns the tools that match a query, the best one first: a tool whose name is in the query, then by the words of the
/// definitions.
fn best<'a>(tools: &'a [Tool], query: &str) -> Vec<&'a Tool> {
    let documents = (0_u32..).zip(tools).map(|(id, tool)| Document::new(id, searched_text(tool)));
    let engine =
        SearchEngineBuilder::<u32, u32, Words>::with_tokenizer_and_documents(Words, documents).build();
    let is_named = |tool: &Tool| query.split([' ', ',']).any(|word| word == tool.name);
    let mut found: Vec<_> = engine
        .search(query, None)
        .into_iter()
        .filter_map(|found| {
            let index = found.document.id as usize;
            Some((found.score, index, tools.get(index)?))
        })
        .collect();
    found.sort_by(|(score, index, tool), (other_score, other_index, other)| {
        let by_name = Reverse(is_named(tool)).cmp(&Reverse(is_named(other)));
        let by_score = other_score.partial_cmp(score).unwrap_or(Ordering::Equal);
        by_name.then(by_score).then(index.cmp(other_index))
    });
    found.into_iter().map(|(_, _, tool)| tool).collect()
}

/// Returns the words by which a tool is found: those of its name count twice.
fn searched_text(Tool { name, description, parameters }: &Tool) -> String {
    let mut text = format!("{name} {name} {description}");
    for (argument, schema) in parameters["properties"].as_object().into_iter().flatten() {
        let description = schema["description"].as_str().unwrap_or_default();
        text.push_str(&format!(" {argument} {description}"));
    }
    text
}

/// Lowercase words without a plural's ending. `createIssue` and `create_issue` have two.
struct Words;

impl Tokenizer for Words {
    fn tokenize(&self, text: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut follows_lowercase = false;
        for letter in text.chars() {
            if !letter.is_alphanumeric() || (follows_lowercase && letter.is_uppercase()) {
                words.push(String::new());
            }
            if let (true, Some(word)) = (letter.is_alphanumeric(), words.last_mut()) {
                word.extend(letter.to_lowercase());
            }
            follows_lowercase = letter.is_lowercase();
        }
        words.retain(|word| !word.is_empty());
        words.into_iter().map(singular).collect()
    }
}

fn singular(mut word: String) -> String {
    if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
        word.pop();
    }
    word
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, description: &str) -> Tool {
        let parameters = json!({"type": "object", "properties": {"owner": {"type": "string"}}});
        Tool { name: name.into(), description: description.into(), parameters }
    }

    fn names(tools: &[Tool], query: &str) -> Vec<String> {
        best(tools, query).iter().map(|tool| tool.name.clone()).collect()
    }

    #[test]
    fn tools_are_found_by_their_words() {
        let tools = [
            tool("listPullRequests", "Lists pull requests of a repository."),
            tool("create_issue", "Opens a new issue in a repository."),
            tool("list_issues", "Lists the issues of a repository."),
            tool("weather", "Tomorrow's weather."),
        ];
        assert_eq!(names(&tools, "create an issue")[0], "create_issue");
        assert_eq!(names(&tools, "listing pull request")[0], "listPullRequests");
        assert_eq!(names(&tools, "list_issues,weather")[..2], ["list_issues", "weather"]);
        assert_eq!(names(&tools, "Issue"), ["list_issues", "create_issue"]);
        assert_eq!(names(&tools, "owner").len(), tools.len(), "the names of arguments");
        let found = search(&tools, "tomorrow");
        assert_eq!(found, format!("## weather\nTomorrow's weather.\nArguments: {}", tools[3].parameters));
    }

    #[test]
    fn query_without_match_has_the_names_of_all_tools() {
        let tools = [tool("a", ""), tool("b", "")];
        for query in ["", "!", "nothing of this"] {
            assert_eq!(search(&tools, query), "No tool matches. The tools: a, b");
        }
        assert_eq!(search(&[], "a"), "There are no tools now: no server offers any.");
    }

    #[test]
    fn result_is_bounded() {
        let long = "word ".repeat(2000);
        let tools: Vec<_> = (0..1000).map(|index| tool(&format!("word_{index}"), &long)).collect();
        let found = search(&tools, &"word ".repeat(10_000));
        assert!(found.len() < MAX_FOUND_BYTES + 1000, "{}", found.len());
        assert!(found.contains("[Search for its name to see its definition.]"));
        assert!(search(&tools, "none").len() < MAX_NAMES_BYTES + 100);
    }
}

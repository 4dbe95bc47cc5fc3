//! Search for tools by words.

use std::collections::HashMap;

use bm25::{Document, SearchEngineBuilder, Tokenizer};
use engine::llm::Tool;
use serde_json::json;

/// Maximum number of found tools, and of the bytes of their definitions.
const MAX_FOUND: usize = 8;
const MAX_FOUND_BYTES: usize = 32 << 10;

/// Maximum length of a query, in bytes.
const MAX_QUERY_BYTES: usize = 1000;

/// Maximum length of the list of all names, in bytes.
const MAX_NAMES_BYTES: usize = 16 << 10;

/// Returns the definitions of the tools that match best, for a model. Without a match, the names of
/// all.
pub(crate) fn search(tools: &[Tool], query: &str) -> String {
    let query = query
        .get(..query.floor_char_boundary(MAX_QUERY_BYTES))
        .unwrap_or_default();
    let mut text = String::new();
    for Tool {
        name,
        description,
        parameters,
    } in best(tools, query).into_iter().take(MAX_FOUND)
    {
        // One line of JSON, so that no description looks like another tool.
        let definition =
            json!({ "name": name, "description": description, "arguments": parameters });
        let short =
            json!({ "name": name, "description": "[Search for its name to see its definition.]" });
        let fits = text.is_empty() || text.len() + definition.to_string().len() <= MAX_FOUND_BYTES;
        text.push_str(&format!("{}\n", if fits { definition } else { short }));
    }
    if text.is_empty() {
        let mut names = tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        names.truncate(MAX_NAMES_BYTES);
        return match names.as_str() {
            "" => "There are no tools now: no server offers any.".to_owned(),
            names => format!("No tool matches. The tools: {names}"),
        };
    }
    text.truncate(text.trim_end().len());
    text
}

/// Returns the tools that match a query, the best one first: tools whose names are in the query,
/// then by the words of the definitions.
fn best<'a>(tools: &'a [Tool], query: &str) -> Vec<&'a Tool> {
    let documents = (0_u32..)
        .zip(tools)
        .map(|(id, tool)| Document::new(id, searched_text(tool)));
    let engine =
        SearchEngineBuilder::<u32, u32, Words>::with_tokenizer_and_documents(Words, documents)
            .build();
    let is_name_letter = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let words: Vec<&str> = query.split(|letter| !is_name_letter(letter)).collect();
    let scores: HashMap<u32, f32> = engine
        .search(query, None)
        .into_iter()
        .map(|found| (found.document.id, found.score))
        .collect();
    let mut found: Vec<(bool, f32, &Tool)> = Vec::new();
    for (id, tool) in (0..).zip(tools) {
        let is_named = words.contains(&tool.name.as_str());
        let score = scores.get(&id).copied();
        if is_named || score.is_some() {
            found.push((is_named, score.unwrap_or_default(), tool));
        }
    }
    // Stable: tools of the same score stay in order.
    found.sort_by(|(is_named, score, _), (other_is_named, other_score, _)| {
        other_is_named
            .cmp(is_named)
            .then(other_score.total_cmp(score))
    });
    found.into_iter().map(|(_, _, tool)| tool).collect()
}

/// Returns the words by which a tool is found: those of its name count twice.
fn searched_text(
    Tool {
        name,
        description,
        parameters,
    }: &Tool,
) -> String {
    let mut text = format!("{name} {name} {description}");
    for (argument, schema) in parameters["properties"].as_object().into_iter().flatten() {
        let description = schema["description"].as_str().unwrap_or_default();
        text.push_str(&format!(" {argument} {description}"));
    }
    text
}

/// Lowercase words without a plural's ending. `createIssue` and `create_issue` have two. Each
/// letter of a script without spaces is a word.
struct Words;

/// The first letter of the scripts of East Asia.
const FIRST_IDEOGRAPH: char = '\u{2e80}';

impl Tokenizer for Words {
    fn tokenize(&self, text: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut follows_lowercase = false;
        for letter in text.chars() {
            let is_word = letter >= FIRST_IDEOGRAPH;
            if !letter.is_alphanumeric() || is_word || (follows_lowercase && letter.is_uppercase())
            {
                words.push(String::new());
            }
            if let (true, Some(word)) = (letter.is_alphanumeric(), words.last_mut()) {
                word.extend(letter.to_lowercase());
            }
            follows_lowercase = letter.is_lowercase() || is_word;
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
    use serde_json::Value;

    use super::*;

    fn tool(name: &str, description: &str) -> Tool {
        let parameters = json!({"type": "object", "properties": {"owner": {"type": "string"}}});
        Tool {
            name: name.into(),
            description: description.into(),
            parameters,
        }
    }

    fn names(tools: &[Tool], query: &str) -> Vec<String> {
        best(tools, query)
            .iter()
            .map(|tool| tool.name.clone())
            .collect()
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
        assert_eq!(
            names(&tools, "`list_issues`,weather")[..2],
            ["list_issues", "weather"]
        );
        assert_eq!(names(&tools, "Issue"), ["list_issues", "create_issue"]);
        assert_eq!(
            names(&tools, "owner").len(),
            tools.len(),
            "the names of arguments"
        );
        let found: Value = serde_json::from_str(&search(&tools, "tomorrow")).unwrap();
        let Tool {
            name,
            description,
            parameters,
        } = &tools[3];
        assert_eq!(
            found,
            json!({ "name": name, "description": description, "arguments": parameters })
        );
    }

    #[test]
    fn tools_without_latin_words_are_found() {
        let tools = [tool("____", "查询天气"), tool("__", "翻译")];
        assert_eq!(names(&tools, "天气"), ["____"]);
        assert_eq!(names(&tools, "__"), ["__"]);
    }

    #[test]
    fn definition_of_the_best_match_is_shown_whatever_its_length() {
        let tools = [tool("wide", &"ü".repeat(MAX_FOUND_BYTES))];
        assert!(search(&tools, "wide").contains("owner"));
    }

    #[test]
    fn query_without_match_has_the_names_of_all_tools() {
        let tools = [tool("a", ""), tool("b", "")];
        for query in ["", "!", "nothing of this"] {
            assert_eq!(search(&tools, query), "No tool matches. The tools: a, b");
        }
        assert_eq!(
            search(&[], "a"),
            "There are no tools now: no server offers any."
        );
    }

    #[test]
    fn result_is_bounded() {
        let long = "word ".repeat(2000);
        let tools: Vec<_> = (0..1000)
            .map(|index| tool(&format!("word_{index}"), &long))
            .collect();
        let found = search(&tools, &"word ".repeat(10_000));
        assert!(found.len() < MAX_FOUND_BYTES + 1000, "{}", found.len());
        assert!(found.contains("[Search for its name to see its definition.]"));
        assert!(search(&tools, "none").len() < MAX_NAMES_BYTES + 100);
    }
}

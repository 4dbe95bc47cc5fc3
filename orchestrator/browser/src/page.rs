//! Calls functions of our script in a page.

use std::time::Duration;

use serde_json::{Value, json};

use crate::browser::{Browser, BrowserError, short_line, string_field};

const SCRIPT: &str = include_str!("page.js");

/// Timeout of our script. The script itself is bounded, but the page's layout is not.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(8);

/// Maximum length of an error message of the script, in characters.
const MAX_REASON_CHARS: usize = 300;

/// Position in the viewport, in CSS pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

impl Browser {
    /// Calls a function of our script in the active tab and returns its result.
    pub(crate) async fn evaluate(
        &mut self,
        function: &str,
        arguments: &Value,
    ) -> Result<Value, BrowserError> {
        let result = self.run(function, arguments, true).await?;
        Ok(result["value"].clone())
    }

    /// Returns the browser's object id of an element.
    pub(crate) async fn resolve_element(&mut self, element: &str) -> Result<String, BrowserError> {
        let result = self.run("element", &json!([element]), false).await?;
        Ok(string_field(&result, "objectId"))
    }

    async fn run(
        &mut self,
        function: &str,
        arguments: &Value,
        by_value: bool,
    ) -> Result<Value, BrowserError> {
        let arguments = arguments.to_string();
        // The first attempt may hit a page that is being replaced.
        for is_last in [false, true] {
            let world = match self.active_tab()?.world {
                Some(world) => world,
                None => self.create_world().await?,
            };
            let params = json!({
                "expression": format!("{SCRIPT}; glovebox.{function}(...{arguments})"),
                "contextId": world,
                "returnByValue": by_value,
                "timeout": SCRIPT_TIMEOUT.as_millis() as u64,
                "userGesture": true,
            });
            match self.call_page("Runtime.evaluate", params).await {
                Ok(response) => return extract_result(response),
                Err(BrowserError::Refused(_)) if !is_last => self.active_tab()?.world = None,
                Err(error) => return Err(error),
            }
        }
        Err(BrowserError::Timeout)
    }

    async fn create_world(&mut self) -> Result<i64, BrowserError> {
        let tree = self.call_page("Page.getFrameTree", json!({})).await?;
        let frame = string_field(&tree["frameTree"]["frame"], "id");
        let params = json!({"frameId": frame, "worldName": "glovebox"});
        let created = self.call_page("Page.createIsolatedWorld", params).await?;
        let world = created["executionContextId"].as_i64();
        let world =
            world.ok_or_else(|| BrowserError::Refused("the page cannot run scripts".to_owned()))?;
        self.active_tab()?.world = Some(world);
        Ok(world)
    }

    /// Scrolls to an element and returns its center.
    pub(crate) async fn scroll_to(&mut self, element: &str) -> Result<Point, BrowserError> {
        let object = self.resolve_element(element).await?;
        let not_visible = || BrowserError::Refused(format!("the element {element} is not visible"));
        let map_refused = |error| match error {
            BrowserError::Refused(_) => not_visible(),
            other => other,
        };
        let params = json!({"objectId": object});
        self.call_page("DOM.scrollIntoViewIfNeeded", params.clone())
            .await
            .map_err(map_refused)?;
        let quads = self
            .call_page("DOM.getContentQuads", params)
            .await
            .map_err(map_refused)?;
        let corners = quads["quads"][0].as_array().into_iter().flatten();
        let corners: Vec<f64> = corners.filter_map(Value::as_f64).collect();
        let [x1, y1, _, _, x3, y3, _, _] = corners.as_slice() else {
            return Err(not_visible());
        };
        Ok(Point {
            x: f64::midpoint(*x1, *x3),
            y: f64::midpoint(*y1, *y3),
        })
    }
}

/// Extracts the script's result. The response may have any shape: any process in the sandbox can
/// forge one.
fn extract_result(mut response: Value) -> Result<Value, BrowserError> {
    let thrown = &response["exceptionDetails"];
    if !thrown.is_null() {
        return Err(script_error(thrown));
    }
    Ok(response
        .get_mut("result")
        .map(Value::take)
        .unwrap_or_default())
}

/// Returns the script's error message, truncated since a page can influence it.
fn script_error(thrown: &Value) -> BrowserError {
    let description = string_field(&thrown["exception"], "description");
    let first = description.lines().next().unwrap_or_default();
    let reason = first.strip_prefix("Error: ").unwrap_or(first);
    BrowserError::Refused(match reason {
        "" => "a script of the page interfered".to_owned(),
        reason => short_line(reason, MAX_REASON_CHARS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_of_any_shape_is_accepted() {
        for response in [
            json!(1),
            json!([1]),
            json!("result"),
            json!(null),
            json!({}),
        ] {
            assert_eq!(extract_result(response), Ok(Value::Null));
        }
        assert_eq!(
            extract_result(json!({"result": {"value": 1}})),
            Ok(json!({"value": 1}))
        );
        assert!(extract_result(json!({"exceptionDetails": 1})).is_err());
    }
}

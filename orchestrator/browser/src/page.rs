//! What is asked of our own script in a page.

use std::time::Duration;

use serde_json::{Value, json};

use crate::browser::{Browser, Fault, short, text};

const SCRIPT: &str = include_str!("page.js");

/// How long our script may run: it has bounds of its own, the page's layout has none.
const RUNNING: Duration = Duration::from_secs(8);

/// The longest reason of the script's, in characters.
const LONGEST_REASON: usize = 300;

/// An element, or a place on the page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

impl Browser {
    /// Calls a function of our script in the page in front, and answers with what it gives.
    pub(crate) async fn evaluate(&mut self, function: &str, arguments: &Value) -> Result<Value, Fault> {
        let result = self.run(function, arguments, true).await?;
        Ok(result["value"].clone())
    }

    /// The browser's own name for an element.
    pub(crate) async fn find(&mut self, element: &str) -> Result<String, Fault> {
        let result = self.run("element", &json!([element]), false).await?;
        Ok(text(&result, "objectId"))
    }

    async fn run(&mut self, function: &str, arguments: &Value, by_value: bool) -> Result<Value, Fault> {
        let listed = arguments.to_string();
        // The first attempt may meet a page that has just gone.
        for is_last in [false, true] {
            let world = match self.front()?.world {
                Some(world) => world,
                None => self.make_world().await?,
            };
            let params = json!({
                "expression": format!("{SCRIPT}; glovebox.{function}(...{listed})"),
                "contextId": world,
                "returnByValue": by_value,
                "timeout": RUNNING.as_millis() as u64,
                "userGesture": true,
            });
            match self.ask("Runtime.evaluate", params).await {
                Ok(answer) => return taken(answer),
                Err(Fault::Refused(_)) if !is_last => self.front()?.world = None,
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::Slow)
    }

    async fn make_world(&mut self) -> Result<i64, Fault> {
        let tree = self.ask("Page.getFrameTree", json!({})).await?;
        let frame = text(&tree["frameTree"]["frame"], "id");
        let params = json!({"frameId": frame, "worldName": "glovebox"});
        let made = self.ask("Page.createIsolatedWorld", params).await?;
        let world = made["executionContextId"].as_i64();
        let world = world.ok_or_else(|| Fault::Refused("the page takes no script".to_owned()))?;
        self.front()?.world = Some(world);
        Ok(world)
    }

    /// The middle of an element, after it was scrolled to.
    pub(crate) async fn reach(&mut self, element: &str) -> Result<Point, Fault> {
        let object = self.find(element).await?;
        let nowhere = || Fault::Refused(format!("the element {element} is not to be seen"));
        let scrolled = self.ask("DOM.scrollIntoViewIfNeeded", json!({"objectId": object})).await;
        if let Err(Fault::Refused(_)) = scrolled {
            return Err(nowhere());
        }
        scrolled?;
        let quads = match self.ask("DOM.getContentQuads", json!({"objectId": object})).await {
            Ok(answer) => answer,
            Err(Fault::Refused(_)) => return Err(nowhere()),
            Err(fault) => return Err(fault),
        };
        let corners: Vec<f64> =
            quads["quads"][0].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let [x1, y1, _, _, x3, y3, _, _] = corners.as_slice() else { return Err(nowhere()) };
        Ok(Point { x: f64::midpoint(*x1, *x3), y: f64::midpoint(*y1, *y3) })
    }
}

/// What our script gave. An answer may be of any shape: whatever runs in the sandbox can write one.
fn taken(mut answer: Value) -> Result<Value, Fault> {
    let thrown = &answer["exceptionDetails"];
    if !thrown.is_null() {
        return Err(reason(thrown));
    }
    Ok(answer.get_mut("result").map(Value::take).unwrap_or_default())
}

/// Why our script gave up; what the page could make of it is bounded.
fn reason(thrown: &Value) -> Fault {
    let said = text(&thrown["exception"], "description");
    let first = said.lines().next().unwrap_or_default();
    let reason = first.strip_prefix("Error: ").unwrap_or(first);
    Fault::Refused(match reason {
        "" => "the page's own script was in the way".to_owned(),
        reason => short(reason, LONGEST_REASON),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_any_shape_is_taken() {
        for answer in [json!(1), json!([1]), json!("result"), json!(null), json!({})] {
            assert_eq!(taken(answer), Ok(Value::Null));
        }
        assert_eq!(taken(json!({"result": {"value": 1}})), Ok(json!({"value": 1})));
        assert!(taken(json!({"exceptionDetails": 1})).is_err());
    }
}

//! A client of server-sent events.

use serde_json::{Value, json};

use crate::glovebox::TEST_TIMEOUT;

/// The messages of a response.
pub struct ServerSentEvents {
    response: reqwest::Response,
    text: String,
}

impl ServerSentEvents {
    /// Reads a response of status 200.
    pub fn new(response: reqwest::Response) -> Self {
        assert_eq!(response.status(), 200);
        Self {
            response,
            text: String::new(),
        }
    }

    /// Returns the response. What it has received already is lost.
    pub fn into_response(self) -> reqwest::Response {
        self.response
    }

    /// Returns the next message as `{type, id, data}`; keep-alive messages have none of them.
    /// Panics if none arrives in time.
    pub async fn next(&mut self) -> Value {
        loop {
            if let Some((message, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| message.lines().find_map(|line| line.strip_prefix(name));
                let data: Option<Value> =
                    field("data: ").map(|data| serde_json::from_str(data).unwrap());
                let message = json!({"type": field("event: "), "id": field("id: "), "data": data});
                self.text = rest.to_owned();
                return message;
            }
            let chunk = tokio::time::timeout(TEST_TIMEOUT, self.response.chunk()).await;
            let chunk = chunk
                .expect("the stream continues")
                .unwrap()
                .expect("the stream is open");
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

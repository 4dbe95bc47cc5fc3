//! What an agent can ask of a browser, in V0's words: calls such as `click('12')`, one after the other, in the little language
//! of BrowserGym. Only values: `browser` performs them, the security rules look where they lead.

mod address;
mod call;
mod reader;
#[cfg(test)]
mod tests;

pub use address::{InvalidAddress, address};
pub use call::{BrowserCall, Button, InvalidCalls, MAX_CALLS, Modifier, parse};

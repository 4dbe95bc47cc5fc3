//! Parses V0's browser actions: a sequence of calls such as `click('12')`, in BrowserGym's syntax.
//! Only data: the crate `browser` performs the calls, and the security rules assess their targets.

mod address;
mod call;
mod parser;
#[cfg(test)]
mod tests;

pub use address::{InvalidAddress, normalize_address};
pub use call::{BrowserCall, Button, InvalidCalls, MAX_CALLS, Modifier, parse};

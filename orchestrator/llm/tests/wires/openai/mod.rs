//! OpenAI's chat completions.

mod errors;
mod malformed;
mod responses;

//! OpenAI's chat completions.

mod answers;
mod breaks;
mod refusals;

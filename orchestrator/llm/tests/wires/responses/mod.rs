//! OpenAI's Responses API.

mod choice;
mod errors;
mod scene;
mod success;

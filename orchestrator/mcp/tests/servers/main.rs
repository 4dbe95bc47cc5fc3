//! The client against servers: the reference ones from npm and PyPI, and scripted ones that do what no good one does.

mod hostile;
mod http;
mod lives;
mod reference;
mod scene;
mod script;

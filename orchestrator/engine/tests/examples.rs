//! Runs the examples.

#[path = "../examples/custom_llm.rs"]
mod custom_llm;
#[path = "../examples/custom_sandbox_provider.rs"]
mod custom_sandbox_provider;

#[test]
fn custom_llm_repeats_the_message() {
    custom_llm::main().unwrap();
}

#[test]
fn custom_sandbox_provider_keeps_files() {
    custom_sandbox_provider::main().unwrap();
}

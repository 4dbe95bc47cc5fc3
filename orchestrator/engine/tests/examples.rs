//! Runs the example.

#[path = "../examples/custom_llm.rs"]
mod custom_llm;

#[test]
fn custom_llm_repeats_the_message() {
    custom_llm::main().unwrap();
}

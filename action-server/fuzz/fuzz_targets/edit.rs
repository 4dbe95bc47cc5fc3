#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| action_server::fuzzing::edit(bytes));

//! The contract of sandboxes on the remote backends, and what only they do.

mod direct_only;
mod flood;
mod lending;
mod pausing;
mod program;
mod runtime_api;
mod tls;

use tests::sandbox_contract::remote::{DirectServers, SandboxHostBackend};

mod lent_local {
    use super::SandboxHostBackend;
    tests::sandbox_contract!(SandboxHostBackend::over_local());
    tests::sandbox_faults!(SandboxHostBackend::over_local());
}

mod lent_busybox {
    use super::SandboxHostBackend;
    tests::sandbox_contract!(SandboxHostBackend::over_busybox());
    tests::sandbox_faults!(SandboxHostBackend::over_busybox());
}

/// Not the cases of starts: that backend starts nothing.
mod direct {
    use super::DirectServers;
    tests::sandbox_contract!(DirectServers::new();
        commands::echo_is_heard_and_observed,
        commands::the_shell_keeps_its_folder_and_variables,
        commands::an_exit_code_is_observed,
        commands::a_megabyte_of_output_arrives_whole,
        commands::a_cancel_ends_the_process_tree_and_the_observation_comes,
        files::a_file_is_written_read_and_edited,
        recovery::an_action_asked_for_twice_runs_once,
        recovery::a_host_that_starts_again_attaches_to_what_runs,
        recovery::a_server_killed_in_mid_command_is_lost_within_five_seconds,
    );
}

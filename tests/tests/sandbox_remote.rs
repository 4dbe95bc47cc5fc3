//! The contract of sandboxes on the remote backends, and their own features.

mod existing_server;
mod flood;
mod leasing;
mod pause;
mod program;
mod runtime_api;
mod tls;
mod unreachable;

use tests::sandbox_contract::remote::{DirectServerBackend, SandboxHostBackend};

mod leased_local {
    use super::SandboxHostBackend;
    tests::sandbox_contract!(SandboxHostBackend::over_local());
    tests::sandbox_faults!(SandboxHostBackend::over_local());
}

mod leased_busybox {
    use super::SandboxHostBackend;
    tests::sandbox_contract!(SandboxHostBackend::over_busybox());
    tests::sandbox_faults!(SandboxHostBackend::over_busybox());
}

/// Without the cases for starts, because this backend starts nothing.
mod direct {
    use super::DirectServerBackend;
    tests::sandbox_contract!(DirectServerBackend::new();
        commands::output_is_streamed_and_observed,
        commands::shell_keeps_its_folder_and_variables,
        commands::exit_code_is_observed,
        commands::megabyte_of_output_arrives_completely,
        commands::cancel_kills_the_process_tree_and_completes_the_action,
        files::file_is_written_read_and_edited,
        recovery::repeated_action_runs_once,
        recovery::restarted_host_attaches_to_a_running_action,
        recovery::killed_server_is_lost_within_five_seconds,
    );
}

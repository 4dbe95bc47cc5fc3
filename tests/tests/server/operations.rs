//! What an operator needs: TLS with files that are replaced, probes, metrics, a base path.

mod base_path;
mod deploy;
mod metrics;
mod probes;
mod tls;

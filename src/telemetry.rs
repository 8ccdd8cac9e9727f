//! Logs to stderr, and the registry that `/metrics` prints.

use tracing_subscriber::EnvFilter;

/// Installs the subscriber: text for people, JSON for collectors. Called once, by `main`.
pub fn init(filter: &str, json: bool) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // Only `main` calls this; a second call keeps the first subscriber.
    let _installed = if json {
        logs.json().try_init()
    } else {
        logs.try_init()
    };
}

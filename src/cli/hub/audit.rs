//! The hub's flags about the audit.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::cli::exit::{Code, Failure};
use crate::cli::{connect, duration, size};
use crate::hub::AuditConfig;
use crate::hub::audit::Durability;
use crate::hub::audit::retain::Retention;
use crate::hub::audit::sink::Sink;

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum AuditDurability {
    Crash,
    Fsync,
}

/// What becomes of audit records.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Audit")]
#[expect(
    clippy::struct_field_names,
    reason = "the fields name the flags, among the hub's others"
)]
pub(super) struct AuditArgs {
    /// What a record outlives that was made before its request went on: `crash`, the end of the hub at any moment; `fsync`, a
    /// power cut too, and each request waits for the disk
    #[arg(
        long,
        env = "LINESMAN_AUDIT_DURABILITY",
        value_name = "WHICH",
        default_value = "crash"
    )]
    audit_durability: AuditDurability,
    /// How long audit records are kept
    #[arg(long, env = "LINESMAN_AUDIT_KEEP", value_name = "TIME", default_value = "400d", value_parser = duration::parse)]
    audit_keep: Duration,
    /// How many audit records are kept at most
    #[arg(
        long,
        env = "LINESMAN_AUDIT_MAX_RECORDS",
        value_name = "N",
        default_value_t = 20_000_000
    )]
    audit_max_records: u64,
    /// How many bytes of audit records are kept at most, such as 500MiB; on disk they take about as much
    #[arg(long, env = "LINESMAN_AUDIT_MAX_BYTES", value_name = "SIZE", default_value = "10GiB", value_parser = size::parse)]
    audit_max_bytes: u64,
    /// File that audit records are appended to as JSON lines
    #[arg(long, env = "LINESMAN_AUDIT_FILE", value_name = "FILE")]
    audit_file: Option<PathBuf>,
    /// URL that audit records are posted to as JSON lines: https, or http on this machine
    #[arg(long, env = "LINESMAN_AUDIT_WEBHOOK", value_name = "URL")]
    audit_webhook: Option<String>,
    /// File with the webhook's bearer token
    #[arg(
        long,
        env = "LINESMAN_AUDIT_WEBHOOK_TOKEN_FILE",
        value_name = "FILE",
        requires = "audit_webhook"
    )]
    audit_webhook_token_file: Option<PathBuf>,
    /// PEM file with the CA of the webhook's certificate; without it, the system's roots
    #[arg(
        long,
        env = "LINESMAN_AUDIT_WEBHOOK_CA",
        value_name = "FILE",
        requires = "audit_webhook"
    )]
    audit_webhook_ca: Option<PathBuf>,
}

impl AuditArgs {
    pub(super) fn config(self) -> Result<AuditConfig> {
        let mut sinks: Vec<Sink> = Vec::new();
        sinks.extend(self.audit_file.map(Sink::File));
        if let Some(url) = self.audit_webhook {
            sinks.push(Sink::Webhook {
                url: receiver("--audit-webhook", url)?,
                token_file: self.audit_webhook_token_file,
                ca: self
                    .audit_webhook_ca
                    .as_deref()
                    .map(connect::read_ca)
                    .transpose()?,
            });
        }
        Ok(AuditConfig {
            durability: match self.audit_durability {
                AuditDurability::Crash => Durability::Crash,
                AuditDurability::Fsync => Durability::Fsync,
            },
            retention: Retention {
                age: self.audit_keep,
                records: self.audit_max_records,
                bytes: self.audit_max_bytes,
            },
            sinks,
        })
    }
}

/// A URL that a flag names: what is sent there says who does what, and does not leave the machine in clear. The URL may
/// hold a secret: errors name the flag.
pub(super) fn receiver(flag: &str, url: String) -> Result<String> {
    let parsed: http::Uri = url.parse().with_context(|| format!("read {flag}"))?;
    let here = matches!(parsed.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
    match parsed.scheme_str() {
        Some("https") => Ok(url),
        Some("http") if here => Ok(url),
        _ => Err(Failure::new(
            Code::Usage,
            format!("the URL of {flag} is neither https nor http on this machine"),
            "give an https URL, or run the receiver beside the hub",
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_do_not_leave_the_machine_in_clear() {
        for (url, fits) in [
            ("https://siem.example.org/in", true),
            ("http://127.0.0.1:8080/in", true),
            ("http://localhost/in", true),
            ("http://siem.example.org/in", false),
            ("siem.example.org", false),
            ("file:///tmp/x", false),
        ] {
            let read = receiver("--audit-webhook", url.to_owned());
            assert_eq!(read.is_ok(), fits, "{url}");
        }
    }
}

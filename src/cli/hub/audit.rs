//! The hub's flags about the audit.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::cli::exit::{Code, Failure};
use crate::cli::{connect, duration, size};
use crate::hub::AuditConfig;
use crate::hub::audit::Durability;
use crate::hub::audit::retain::Retention;
use crate::hub::audit::sink::{AuditFile, Sink};
use crate::secret::Secret;

/// What is older is removed for good, with the hub's start: a slip of the pen must not take what others have to look at.
const LEAST_KEEP: Duration = Duration::from_hours(24);
const LEAST_RECORDS: u64 = 10_000;
const LEAST_BYTES: u64 = 10 << 20;

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
    /// How long audit records are kept, 1d at least; older ones are removed every hour
    #[arg(long, env = "LINESMAN_AUDIT_KEEP", value_name = "TIME", default_value = "400d", value_parser = keep)]
    audit_keep: Duration,
    /// How many audit records are kept at most; 10000 at least
    #[arg(
        long,
        env = "LINESMAN_AUDIT_MAX_RECORDS",
        value_name = "N",
        default_value_t = 20_000_000,
        value_parser = max_records
    )]
    audit_max_records: u64,
    /// How many bytes of audit records are kept at most, such as 500MiB, 10MiB at least; on disk they take about as much
    #[arg(long, env = "LINESMAN_AUDIT_MAX_BYTES", value_name = "SIZE", default_value = "10GiB", value_parser = max_bytes)]
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
        sinks.extend(self.audit_file.map(AuditFile::new).map(Sink::File));
        if let Some(url) = self.audit_webhook {
            sinks.push(Sink::Webhook {
                url: Secret::new(receiver("--audit-webhook", url)?),
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

fn keep(text: &str) -> Result<Duration, String> {
    let why = "all older records would be removed within two hours";
    duration::at_least(text, LEAST_KEEP, why)
}

/// Why less is refused.
const ALL_BUT_THE_NEWEST: &str = "all but the newest records would be removed at the start";

fn max_records(text: &str) -> Result<u64, String> {
    let records = text.parse::<u64>().map_err(|e| e.to_string())?;
    if records < LEAST_RECORDS {
        return Err(format!("less than {LEAST_RECORDS}: {ALL_BUT_THE_NEWEST}"));
    }
    Ok(records)
}

fn max_bytes(text: &str) -> Result<u64, String> {
    size::at_least(text, LEAST_BYTES, ALL_BUT_THE_NEWEST)
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
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: AuditArgs,
    }

    #[test]
    fn no_slip_of_the_pen_removes_the_record() {
        let kept = |flags: &[&str]| {
            let line = ["hub"].iter().chain(flags);
            let kept = Line::try_parse_from(line)?.args.config().unwrap().retention;
            Ok::<_, clap::Error>((kept.age, kept.records, kept.bytes))
        };
        let whole = Retention::default();
        assert_eq!(kept(&[]).unwrap(), (whole.age, whole.records, whole.bytes));
        let least = [
            "--audit-keep=1d",
            "--audit-max-records=10000",
            "--audit-max-bytes=10MiB",
        ];
        let expected = (LEAST_KEEP, LEAST_RECORDS, LEAST_BYTES);
        assert_eq!(kept(&least).unwrap(), expected);
        for flag in [
            "--audit-keep=0",
            "--audit-keep=400",
            "--audit-keep=400s",
            "--audit-keep=23h",
            "--audit-max-records=0",
            "--audit-max-records=20",
            "--audit-max-bytes=0",
            "--audit-max-bytes=10",
        ] {
            assert!(kept(&[flag]).is_err(), "{flag}");
        }
    }

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

//! The hub's flags about the audit.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::cli::exit::{Code, Failure, unread};
use crate::cli::{connect, duration, size};
use crate::hub::AuditConfig;
use crate::hub::audit::retain::Retention;
use crate::hub::audit::sink::{AuditFile, Sink, headers};
use crate::hub::audit::{Commands, Durability};
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

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum AuditCommands {
    On,
    Off,
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
    /// What is recorded of a command that is run in a container (`kubectl exec`): `on`, the container and the command with its
    /// arguments, which may hold secrets; `off`, the container alone
    #[arg(
        long,
        env = "LINESMAN_AUDIT_COMMANDS",
        value_name = "WHICH",
        default_value = "on"
    )]
    audit_commands: AuditCommands,
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
    /// File with the headers that the webhook is sent in place of a bearer token, one `Name: value` a line, read anew for each use
    #[arg(
        long,
        env = "LINESMAN_AUDIT_WEBHOOK_HEADER_FILE",
        value_name = "FILE",
        requires = "audit_webhook",
        conflicts_with = "audit_webhook_token_file"
    )]
    audit_webhook_header_file: Option<PathBuf>,
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
        if let Some(path) = self.audit_file {
            can_be_made(&path)?;
            sinks.push(Sink::File(AuditFile::new(path)));
        }
        if let Some(url) = self.audit_webhook {
            let header_file = self.audit_webhook_header_file;
            if let Some(path) = &header_file {
                are_headers(path)?;
            }
            if let Some(path) = &self.audit_webhook_token_file {
                look_for_secret("--audit-webhook-token-file", path);
            }
            let ca = self.audit_webhook_ca.as_deref();
            let ca = ca.map(|path| connect::read_roots("--audit-webhook-ca", path));
            sinks.push(Sink::Webhook {
                url: Secret::new(receiver("--audit-webhook", url)?),
                token_file: self.audit_webhook_token_file,
                header_file,
                ca: ca.transpose()?,
            });
        }
        Ok(AuditConfig {
            durability: match self.audit_durability {
                AuditDurability::Crash => Durability::Crash,
                AuditDurability::Fsync => Durability::Fsync,
            },
            commands: match self.audit_commands {
                AuditCommands::On => Commands::On,
                AuditCommands::Off => Commands::Off,
            },
            retention: Retention {
                age: self.audit_keep,
                records: self.audit_max_records,
                bytes: self.audit_max_bytes,
            },
            sinks,
            lives: true,
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

/// A directory that is not there is found at the start, and not when records wait.
fn can_be_made(file: &Path) -> Result<(), Failure> {
    let Some(directory) = file.parent().filter(|d| !d.as_os_str().is_empty()) else {
        return Ok(());
    };
    if directory.is_dir() {
        return Ok(());
    }
    let (file, directory) = (file.display(), directory.display());
    Err(Failure::new(
        Code::Usage,
        format!("{file} of --audit-file cannot be made: there is no directory {directory}"),
        "make it, or name a file in one that is there",
    ))
}

/// A file that cannot be sent from is found at the start, and not when records wait.
fn are_headers(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| unread(&format!("read {shown}"), &e))?;
    let read = headers::parse(&text).map(drop);
    read.map_err(|why| {
        let text = format!("the headers in {shown}: {why}");
        let next = "write one header a line, such as 'Authorization: Splunk TOKEN'";
        Failure::new(Code::Usage, text, next)
    })
}

/// A file with a secret that is read anew for each use, and may be written yet: what is wrong with it is told at the start.
pub(super) fn look_for_secret(flag: &str, path: &Path) {
    if let Some(why) = no_secret(path) {
        tracing::warn!(file = %path.display(), "{flag} has no secret now: {why}");
    }
}

fn no_secret(path: &Path) -> Option<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => text.trim().is_empty().then(|| "it is empty".to_owned()),
        Err(error) => Some(error.to_string()),
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
    use clap::Parser as _;

    use super::*;
    use crate::cli::exit::code;

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
    fn commands_are_recorded_unless_somebody_says_otherwise() {
        let recorded = |flags: &[&str]| {
            let line = ["hub"].iter().chain(flags);
            let config = Line::try_parse_from(line)?.args.config();
            Ok::<_, clap::Error>(config.unwrap().commands)
        };
        assert_eq!(recorded(&[]).unwrap(), Commands::On);
        assert_eq!(recorded(&["--audit-commands=on"]).unwrap(), Commands::On);
        assert_eq!(recorded(&["--audit-commands=off"]).unwrap(), Commands::Off);
        assert!(recorded(&["--audit-commands=no"]).is_err());
    }

    #[test]
    fn an_audit_file_needs_its_directory() {
        let name = format!("linesman-audit-file-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        drop(std::fs::remove_dir_all(&directory));
        let config = |path: &Path| {
            let file = path.to_str().unwrap();
            let line = Line::try_parse_from(["hub", "--audit-file", file]).unwrap();
            line.args.config().map(|config| config.sinks.len())
        };
        let inside = directory.join("audit.jsonl");
        let refused = config(&inside).unwrap_err();
        assert_eq!(code(&refused), Code::Usage, "{refused:#}");
        std::fs::create_dir_all(&directory).unwrap();
        assert_eq!(config(&inside).unwrap(), 1);
        assert_eq!(config(Path::new("audit.jsonl")).unwrap(), 1);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn headers_of_the_webhook_come_from_a_file_and_are_in_no_error_and_no_debug() {
        let name = format!("linesman-audit-headers-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let shown = path.display().to_string();
        let flags = [
            "hub",
            "--audit-webhook",
            "https://siem.example.org/in",
            "--audit-webhook-header-file",
            shown.as_str(),
        ];
        let with = |more: &[&str]| {
            let line = [&flags[..], more].concat();
            Line::try_parse_from(line).map(|line| line.args.config())
        };
        std::fs::write(&path, "Authorization: Splunk hunter2\nX-Key: hunter2\n").unwrap();
        let config = with(&[]).unwrap().unwrap();
        let [Sink::Webhook { header_file, .. }] = &config.sinks[..] else {
            panic!("{config:?}")
        };
        assert_eq!(header_file.as_deref(), Some(path.as_path()));
        assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
        assert!(with(&["--audit-webhook-token-file", &shown]).is_err());
        for wrong in [
            "hunter2\n",
            "Content-Type: hunter2\n",
            "X-Key: hunter2\u{7}\n",
        ] {
            std::fs::write(&path, wrong).unwrap();
            let error = with(&[]).unwrap().unwrap_err();
            assert_eq!(code(&error), Code::Usage, "{error:#}");
            assert!(!format!("{error:#}").contains("hunter2"), "{error:#}");
        }
        std::fs::remove_file(&path).unwrap();
        let gone = with(&[]).unwrap().unwrap_err();
        assert_eq!(code(&gone), Code::Usage, "{gone:#}");
    }

    /// Who writes it may start after the hub, and not every receiver asks for one.
    #[test]
    fn a_file_without_the_webhooks_token_is_told_and_keeps_no_hub_from_starting() {
        let name = format!("linesman-audit-token-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let shown = path.display().to_string();
        let with = || {
            let url = "https://siem.example.org/in";
            let file = "--audit-webhook-token-file";
            let line = ["hub", "--audit-webhook", url, file, &shown];
            Line::try_parse_from(line).unwrap().args.config()
        };
        std::fs::write(&path, "s3cret\n").unwrap();
        assert_eq!((with().unwrap().sinks.len(), no_secret(&path)), (1, None));
        std::fs::write(&path, "\n").unwrap();
        let empty = Some("it is empty".to_owned());
        assert_eq!((with().unwrap().sinks.len(), no_secret(&path)), (1, empty));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(with().unwrap().sinks.len(), 1);
        assert!(no_secret(&path).is_some());
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

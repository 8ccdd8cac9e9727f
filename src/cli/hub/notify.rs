//! The hub's flags about whom it tells of troubles.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::audit::receiver;
use crate::cli::exit::{Code, Failure, unread};
use crate::cli::{connect, duration};
use crate::hub::notify::{Config, Sink};
use crate::secret::Secret;

/// A file with a secret holds one line.
const MAX_SECRET: u64 = 4_096;
/// Shorter secrets can be guessed from one signed notice.
const LEAST_SECRET: usize = 16;

/// Whom the hub tells of troubles.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Notices")]
#[expect(
    clippy::struct_field_names,
    reason = "the fields name the flags, among the hub's others"
)]
pub(super) struct NotifyArgs {
    /// URL that notices of troubles are posted to as JSON: https, or http on this machine
    #[arg(long, env = "LINESMAN_NOTIFY_URL", value_name = "URL")]
    notify_url: Option<String>,
    /// File with the secret that notices are signed with (HMAC-SHA256)
    #[arg(
        long,
        env = "LINESMAN_NOTIFY_SECRET_FILE",
        value_name = "FILE",
        requires = "notify_url"
    )]
    notify_secret_file: Option<PathBuf>,
    /// PEM file with the CA of the receiver's certificate; without it, the system's roots
    #[arg(
        long,
        env = "LINESMAN_NOTIFY_CA",
        value_name = "FILE",
        requires = "notify_url"
    )]
    notify_ca: Option<PathBuf>,
    /// File with the URL of an incoming webhook of Slack (or what takes the same) that notices are posted to as text
    #[arg(long, env = "LINESMAN_NOTIFY_SLACK_URL_FILE", value_name = "FILE")]
    notify_slack_url_file: Option<PathBuf>,
    /// How often a trouble that lasts is told again; 0 = never
    #[arg(long, env = "LINESMAN_NOTIFY_REMIND_EVERY", value_name = "TIME", default_value = "4h", value_parser = duration::parse)]
    notify_remind_every: Duration,
}

impl NotifyArgs {
    pub(super) fn config(self) -> Result<Config> {
        let mut sinks = Vec::new();
        if let Some(url) = self.notify_url {
            let secret = self.notify_secret_file.as_deref().map(secret).transpose()?;
            let ca = self.notify_ca.as_deref();
            let ca = ca.map(|path| connect::read_roots("--notify-ca", path));
            sinks.push(Sink::Webhook {
                url: Secret::new(receiver("--notify-url", url)?),
                secret,
                ca: ca.transpose()?,
            });
        }
        if let Some(path) = self.notify_slack_url_file {
            let url = line(&path)?;
            let url = receiver("--notify-slack-url-file", url)?;
            sinks.push(Sink::Slack {
                url: Secret::new(url),
            });
        }
        let remind = self.notify_remind_every;
        let remind = (!remind.is_zero()).then(|| remind.try_into());
        Ok(Config {
            sinks,
            remind: remind.transpose().context("--notify-remind-every")?,
            ..Config::default()
        })
    }
}

fn secret(path: &Path) -> Result<Secret<String>> {
    let text = line(path)?;
    if text.len() < LEAST_SECRET {
        let text = format!(
            "the secret in {} has less than {LEAST_SECRET} characters",
            path.display()
        );
        let next = "make one: openssl rand -hex 32";
        return Err(Failure::new(Code::Usage, text, next).into());
    }
    Ok(Secret::new(text))
}

/// The one line of a file.
fn line(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_SECRET).read_to_string(&mut text));
    read.map_err(|e| unread(&format!("read {}", path.display()), &e))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: NotifyArgs,
    }

    fn parsed(flags: &[&str]) -> Result<Config> {
        let line = ["hub"].iter().chain(flags);
        Line::try_parse_from(line)?.args.config()
    }

    #[test]
    fn secrets_come_from_files_and_are_in_no_error_and_no_debug() {
        let folder = std::env::temp_dir().join(format!("linesman-notify-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let good = file("secret", "0123456789abcdef0123456789abcdef\n");
        let short = file("short", "hunter2\n");
        let slack = file("slack", "https://hooks.example.org/T0/B0/hunter2\n");
        let clear = file("clear", "http://hooks.example.org/T0/B0/hunter2\n");
        let url = [
            "--notify-url",
            "https://alerts.example.org/in?token=hunter2",
        ];
        let with = |more: &[&str]| parsed(&[&url[..], more].concat());
        let config = with(&[
            "--notify-secret-file",
            &good,
            "--notify-slack-url-file",
            &slack,
        ])
        .unwrap();
        assert_eq!(config.sinks.len(), 2);
        assert_eq!(config.remind, Some(time::Duration::hours(4)));
        let shown = format!("{config:?}");
        assert!(
            !shown.contains("hunter2") && !shown.contains("0123456789"),
            "{shown}"
        );
        for wrong in [
            with(&["--notify-secret-file", &short]),
            with(&["--notify-slack-url-file", &clear]),
            parsed(&["--notify-url", "http://alerts.example.org/hunter2"]),
        ] {
            let error = format!("{:#}", wrong.unwrap_err());
            assert!(!error.contains("hunter2"), "{error}");
        }
        let never = parsed(&["--notify-remind-every", "0s"]).unwrap();
        assert_eq!((never.remind, never.sinks.len()), (None, 0));
        std::fs::remove_dir_all(folder).unwrap();
    }
}

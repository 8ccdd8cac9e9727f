//! `linesman githost rotate-host-key`: the hub's own Git server gets another host key.

use std::time::Duration;

use anyhow::Result;

use super::{BUILTIN, print};
use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::output::{Output, progress_line};
use crate::cli::wait::{self, Found, Patience};
use crate::wire::api::{HostKeyView, RotateHostKey, ToldGitHost};
use crate::wire::id::ClusterName;

/// Clusters that are named where a rotation waits for many.
const NAMED: usize = 5;

const EXAMPLES: &str = "\
The new key is told to every cluster beside the present one. When all that are in reach say that their engines
have it (with Argo CD two minutes later), the Git server shows it; when all were shown it, the old one is told
no longer. No fetch of a cluster fails. A cluster out of reach is waited for a day. If the present key may be
in wrong hands, do not wait: --now.

People and pipelines that push know the present key alone, and nothing waits for them: ssh refuses the new
one, as if somebody else answered. Each runs 'linesman catalog clone DIR' again on the clone that there is,
which brings the keys that are told. Who has a known_hosts file of their own takes the old key out of it
(ssh-keygen -R '[HOST]:PORT') and puts the new one of 'linesman githost show -o json' in.

Examples:
  linesman githost rotate-host-key builtin --wait
  linesman githost rotate-host-key builtin --now";

/// For whoever pushes: no cluster needs it.
const CLONES: &str = "next:  people and pipelines that push meet the new key: each runs 'linesman catalog clone DIR' again on its clone, \
                      or, with a known_hosts of its own, ssh-keygen -R '[HOST]:PORT' there";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The Git host's name
    #[arg(default_value = BUILTIN, value_parser = duration::other)]
    name: String,
    /// Show the new key at once; clusters that do not know it yet fetch nothing until they do
    #[arg(long)]
    now: bool,
    /// Then wait until the old key is gone: 10m at most, or TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "10m", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let mut host = client
        .rotate_host_key(&args.name, RotateHostKey { now: false })
        .await?;
    // Without a cluster to wait for, it may be shown already.
    if args.now && key(&host, "next").is_some() {
        host = client
            .rotate_host_key(&args.name, RotateHostKey { now: true })
            .await?;
    }
    if let Some(lack) = lacks(&host) {
        progress_line(&lack);
    }
    let Some(limit) = args.wait else {
        progress_line("it goes on by itself; see: linesman githost show");
        progress_line(CLONES);
        return print(args.output.output, &host);
    };
    let patience = Patience {
        limit,
        next: "the rotation goes on by itself; see: linesman githost show",
    };
    let asked = wait::until("it is done", patience, async || {
        let host = client.githost(&args.name).await?;
        let lack = lacks(&host);
        Ok(Found::of(host, lack))
    });
    let (host, took) = asked.await?;
    progress_line(&format!("the old key is gone ({took:.1} s)"));
    progress_line(CLONES);
    print(args.output.output, &host)
}

fn key<'a>(host: &'a ToldGitHost, state: &str) -> Option<&'a HostKeyView> {
    host.keys.iter().find(|k| k.state == state)
}

/// What a rotation still waits for; None = it is over.
fn lacks(host: &ToldGitHost) -> Option<String> {
    let of_hub = |k: &&HostKeyView| k.state == "old" && k.source == "hub" && !k.served;
    let whom = match host.waits_for.as_slice() {
        [] => "the hub's next look".to_owned(),
        some => {
            let named: Vec<&str> = some.iter().take(NAMED).map(ClusterName::as_str).collect();
            let more = some.len().saturating_sub(NAMED);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            format!("{}{more}", named.join(", "))
        }
    };
    if let Some(next) = key(host, "next") {
        let print = &next.fingerprint;
        return Some(format!(
            "{print} is told and not shown yet; waits for {whom}"
        ));
    }
    let old = host.keys.iter().find(of_hub)?;
    let print = &old.fingerprint;
    Some(format!("{print} is told still; waits for {whom}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::host;
    use super::*;

    #[test]
    fn a_rotation_is_over_when_the_old_key_is_gone() {
        let mut host = host();
        let with = |host: &mut ToldGitHost, states: &[(&str, bool)]| {
            let template = host.keys[0].clone();
            let of = |(state, served): &(&str, bool)| HostKeyView {
                state: (*state).to_owned(),
                served: *served,
                ..template.clone()
            };
            host.keys = states.iter().map(of).collect();
        };
        with(&mut host, &[("current", true), ("next", false)]);
        host.waits_for = (1..8).map(|n| format!("eu{n}").parse().unwrap()).collect();
        let told = lacks(&host).unwrap();
        assert!(
            told.ends_with("not shown yet; waits for eu1, eu2, eu3, eu4, eu5 and 2 more"),
            "{told}"
        );
        with(&mut host, &[("old", false), ("current", true)]);
        host.waits_for.clear();
        assert!(
            lacks(&host)
                .unwrap()
                .ends_with("waits for the hub's next look")
        );
        with(&mut host, &[("current", true)]);
        assert_eq!(lacks(&host), None);
    }
}

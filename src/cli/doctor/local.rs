//! This machine's end: name, port, proxy, TLS, clock, login, kubectl.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::process::Command;
use tokio::time::timeout;

use super::tried;
use crate::cli::connect::Access;
use crate::client::{self, Client};
use crate::clock;
use crate::wire::PROTOCOL;
use crate::wire::api::Check;

const WAIT: Duration = Duration::from_secs(5);
/// Tokens and certificates are judged by the clock.
const SKEW: i64 = 60;

fn check(name: &str, ok: bool, found: impl Into<String>, fix: impl Into<String>) -> Check {
    Check {
        name: name.to_owned(),
        ok,
        found: found.into(),
        fix: fix.into(),
    }
}

/// From the name to the hub's first answer, each step on its own; and whether there was one.
pub(super) async fn network(hub: &str, client: &Client) -> (Vec<Check>, bool) {
    let Ok(url) = client::address(hub) else {
        return (Vec::new(), false);
    };
    let (host, port) = (
        url.host_str().unwrap_or_default().to_owned(),
        url.port_or_known_default().unwrap_or(443),
    );
    let mut checks = Vec::new();
    match client::proxy(&url) {
        // Name and port are the proxy's business then.
        Some(proxy) => checks.push(check(
            "proxy",
            true,
            format!("calls go through {proxy}"),
            "",
        )),
        None => checks.extend(reach(&host, port).await),
    }
    let asked = clock::now();
    let info = client.info().await;
    // The hub read its clock about half way between question and answer.
    let middle: OffsetDateTime = asked + (clock::now() - asked) / 2;
    let at = info.as_ref().ok().map(|info| info.time);
    checks.push(tried("tls", info, |info| {
        let (min, max) = (info.protocol.min, info.protocol.max);
        let fits = if min <= PROTOCOL.max && PROTOCOL.min <= max {
            ""
        } else {
            ", which this program does not speak"
        };
        format!(
            "hub {} answers, version {}, protocol {min}-{max}{fits}",
            info.hub_id, info.version
        )
    }));
    if let Some(at) = at {
        let skew = middle.unix_timestamp() - at;
        let fix = "set this machine's clock (NTP), or the hub's";
        checks.push(check("clock", skew.abs() <= SKEW, off(skew), fix));
    }
    (checks, at.is_some())
}

/// By how many seconds this machine's clock is off, in words.
fn off(skew: i64) -> String {
    match skew {
        0 => "as the hub's".to_owned(),
        1.. => format!("{skew} s ahead of the hub's"),
        _ => format!("{} s behind the hub's", skew.unsigned_abs()),
    }
}

async fn reach(host: &str, port: u16) -> Vec<Check> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<_> = match timeout(WAIT, tokio::net::lookup_host((bare, port))).await {
        Ok(Ok(found)) => found.collect(),
        Ok(Err(e)) => {
            return vec![check(
                "dns",
                false,
                format!("{host}: {e}"),
                "correct the hub's name, or this machine's DNS",
            )];
        }
        Err(_) => {
            return vec![check(
                "dns",
                false,
                format!("{host}: no answer"),
                "see /etc/resolv.conf",
            )];
        }
    };
    let list = addresses
        .iter()
        .map(|a| a.ip().to_string())
        .collect::<Vec<_>>()
        .join(", ");
    let dns = check("dns", true, format!("{host} is {list}"), "");
    let connected = timeout(WAIT, tokio::net::TcpStream::connect(addresses.as_slice())).await;
    let fix = "see that the hub runs and that no firewall is between";
    let tcp = match connected {
        Ok(Ok(_)) => check("tcp", true, format!("port {port} takes connections"), ""),
        Ok(Err(e)) => check("tcp", false, format!("port {port}: {e}"), fix),
        Err(_) => check("tcp", false, format!("port {port}: no answer"), fix),
    };
    vec![dns, tcp]
}

pub(super) async fn login(access: &Access, client: &Client) -> Check {
    if access.token.is_none() {
        let fix = format!("run: linesman login {}", access.hub);
        return check("login", false, "no session and no token file", fix);
    }
    tried("login", client.whoami().await, |me| {
        let until = me
            .expires_at
            .map(|at| format!(", until {at}"))
            .unwrap_or_default();
        format!("{} with roles {}{until}", me.user, me.roles.join(", "))
    })
}

/// Whether the adoption YAML could be applied from here. Without kubectl there is nothing to say.
pub(super) async fn kubectl() -> Vec<Check> {
    let Some(context) = run(&["config", "current-context"])
        .await
        .filter(|(ok, _)| *ok)
    else {
        return Vec::new();
    };
    let context = context.1;
    if context.starts_with("linesman-") {
        return vec![check(
            "kubectl",
            true,
            format!("the current context {context} goes through the hub"),
            "",
        )];
    }
    match run(&[
        "auth",
        "can-i",
        "*",
        "*",
        "--all-namespaces",
        "--request-timeout=5s",
    ])
    .await
    {
        Some((_, answer)) if answer.ends_with("yes") => {
            vec![check(
                "kubectl",
                true,
                format!("context {context} may apply adoption YAML"),
                "",
            )]
        }
        Some((_, answer)) if answer.ends_with("no") => vec![check(
            "kubectl",
            true,
            format!(
                "context {context} is not cluster-admin there; someone else has to apply the adoption YAML"
            ),
            "",
        )],
        _ => vec![check(
            "kubectl",
            true,
            format!("the cluster of context {context} does not answer from here"),
            "",
        )],
    }
}

async fn run(args: &[&str]) -> Option<(bool, String)> {
    let output = timeout(
        WAIT + WAIT,
        Command::new("kubectl")
            .args(args)
            .kill_on_drop(true)
            .output(),
    )
    .await
    .ok()?
    .ok()?;
    Some((
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    ))
}

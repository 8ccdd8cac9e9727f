//! This machine's end: name, port, proxy, TLS, clock, login, kubectl.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use anyhow::Result;
use time::OffsetDateTime;
use tokio::process::Command;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::tried;
use crate::cli::connect::Access;
use crate::cli::progress;
use crate::client::{self, Client};
use crate::clock;
use crate::tcp;
use crate::wire::PROTOCOL;
use crate::wire::api::{Check, HubInfo};

const WAIT: Duration = Duration::from_secs(5);
/// A step without an answer for so long is told of, as a call to the hub is.
const SLOW: Duration = Duration::from_secs(2);
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

/// From the name to the hub's first answer, each step on its own, told when it is known; and whether there was an answer.
pub(super) async fn network(
    hub: &str,
    client: &Client,
    mut tell: impl FnMut(Check) -> Result<()>,
) -> Result<bool> {
    let Ok(url) = client::address(hub) else {
        return Ok(false);
    };
    let (host, port) = (
        url.host_str().unwrap_or_default().to_owned(),
        url.port_or_known_default().unwrap_or(443),
    );
    if let Some(proxy) = client::proxy(&url) {
        // Name and port are the proxy's business then.
        let way = format!("calls go through {proxy}");
        tell(check("proxy", true, way, ""))?;
    } else {
        let (dns, addresses) = name(&host, port).await;
        tell(dns)?;
        if let Some(addresses) = addresses {
            tell(connection(&addresses, port).await)?;
        }
    }
    let asked = clock::now();
    let info = client.info().await;
    // The hub read its clock about half way between question and answer.
    let middle: OffsetDateTime = asked + (clock::now() - asked) / 2;
    let at = info.as_ref().ok().map(|info| info.time);
    tell(match info {
        Ok(info) => answers(&info),
        Err(error) => tried("tls", Err::<(), _>(error), |()| String::new()),
    })?;
    if let Some(at) = at {
        let skew = middle.unix_timestamp() - at;
        let fix = "set this machine's clock (NTP), or the hub's";
        tell(check("clock", skew.abs() <= SKEW, off(skew), fix))?;
    }
    Ok(at.is_some())
}

/// What the hub says of itself, and whether it and this program understand each other.
fn answers(info: &HubInfo) -> Check {
    let (min, max) = (info.protocol.min, info.protocol.max);
    let fits = min <= PROTOCOL.max && PROTOCOL.min <= max;
    let lack = if fits {
        ""
    } else {
        ", which this program does not speak"
    };
    let found = format!(
        "hub {} answers, version {}, protocol {min}-{max}{lack}",
        info.hub_id, info.version
    );
    let fix = format!(
        "take the program of the hub's version, {}, or upgrade the hub",
        info.version
    );
    check("tls", fits, found, fix)
}

/// By how many seconds this machine's clock is off, in words.
fn off(skew: i64) -> String {
    match skew {
        0 => "as the hub's".to_owned(),
        1.. => format!("{skew} s ahead of the hub's"),
        _ => format!("{} s behind the hub's", skew.unsigned_abs()),
    }
}

/// What comes of it within [`WAIT`].
async fn answered<F: Future>(operation: &str, step: F) -> Result<F::Output, Elapsed> {
    let mut answer = pin!(timeout(WAIT, step));
    if let Ok(answer) = timeout(SLOW, &mut answer).await {
        return answer;
    }
    progress::slow(operation);
    answer.await
}

/// The name, and what it stands for.
async fn name(host: &str, port: u16) -> (Check, Option<Vec<SocketAddr>>) {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = answered(
        "look up the hub's name",
        tokio::net::lookup_host((bare, port)),
    )
    .await;
    let addresses: Vec<_> = match found {
        Ok(Ok(found)) => found.collect(),
        Ok(Err(e)) => {
            let fix = "correct the hub's name, or this machine's DNS";
            return (check("dns", false, format!("{host}: {e}"), fix), None);
        }
        Err(_) => {
            let found = format!("{host}: no answer");
            return (check("dns", false, found, "see /etc/resolv.conf"), None);
        }
    };
    let list: Vec<_> = addresses.iter().map(|a| a.ip().to_string()).collect();
    let found = format!("{host} is {}", list.join(", "));
    (check("dns", true, found, ""), Some(addresses))
}

async fn connection(addresses: &[SocketAddr], port: u16) -> Check {
    let connect = tcp::connect(addresses);
    let fix = "see that the hub runs and that no firewall is between";
    match answered("connect to the hub's port", connect).await {
        Ok(Ok(_)) => check("tcp", true, format!("port {port} takes connections"), ""),
        Ok(Err(e)) => check("tcp", false, format!("port {port}: {e}"), fix),
        Err(_) => check("tcp", false, format!("port {port}: no answer"), fix),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Protocol;

    #[test]
    fn a_hub_that_this_program_does_not_understand_is_no_good_check() {
        let later = Protocol {
            min: PROTOCOL.max + 1,
            max: PROTOCOL.max + 2,
        };
        for (protocol, ok, lack) in [
            (PROTOCOL, true, ""),
            (later, false, ", which this program does not speak"),
        ] {
            let info = HubInfo {
                hub_id: "h1".to_owned(),
                version: "9.0.0".to_owned(),
                protocol,
                time: 0,
                trust: None,
                trust_chain: Vec::new(),
                oidc: false,
            };
            let (min, max) = (protocol.min, protocol.max);
            let found = format!("hub h1 answers, version 9.0.0, protocol {min}-{max}{lack}");
            let fix = "take the program of the hub's version, 9.0.0, or upgrade the hub";
            let told = answers(&info);
            assert_eq!((told.ok, told.found, told.fix.as_str()), (ok, found, fix));
        }
    }
}

//! Leases of the engine's controllers: what each is called, and who holds it.

use kube::core::DynamicObject;
use serde_json::Value;
use time::OffsetDateTime;

use crate::agent::plan::state::Lease;
use crate::clock;
use crate::keys::sha256_hex;

/// What follows a controller's name in that of its Lease.
const SUFFIX: &str = "-leader-election";
/// So many digits of a selector's SHA-256 follow that.
const HASH: usize = 8;
/// The Lease of Argo CD's one controller that may have one: where `applicationsetcontroller.enable.leader.election` of
/// `argocd-cmd-params-cm` says so (argo-cd, `cmd/argocd-applicationset-controller/commands`). In the manifests nobody does.
const APPLICATIONSETS: (&str, &str) = (
    "58ac56fa.applicationsets.argoproj.io",
    "argocd-applicationset-controller",
);

/// The controller whose Lease has this name, be it of the install or of a shard.
pub fn led_by(lease: &str) -> Option<&str> {
    let (name, controller) = APPLICATIONSETS;
    if lease == name {
        return Some(controller);
    }
    let cut = lease.rsplit_once('-').filter(|(_, end)| is_hash(end));
    let plain = cut.map_or(lease, |(plain, _)| plain);
    plain.strip_suffix(SUFFIX)
}

fn is_hash(end: &str) -> bool {
    let digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    end.len() == HASH && end.chars().all(digit)
}

/// The name of a controller's Lease. With a label selector Flux' controllers put the first eight hexadecimal digits of the SHA-256 of
/// its text, just as it was given, behind a hyphen at the end (their `main.go`; fluxcd/pkg, `GenerateID` in
/// `runtime/leaderelection/leaderelection.go`).
pub fn lease_of(controller: &str, selector: Option<&str>) -> String {
    let (name, own) = APPLICATIONSETS;
    if controller == own {
        return name.to_owned();
    }
    let hash = selector.map_or_else(String::new, |text| {
        let digits = sha256_hex(text.as_bytes());
        digits.chars().take(HASH).collect()
    });
    let hyphen = if hash.is_empty() { "" } else { "-" };
    format!("{controller}{SUFFIX}{hyphen}{hash}")
}

/// A controller's Lease with its name, read at `seen`; none for any other Lease.
pub fn lease(live: &DynamicObject, seen: OffsetDateTime) -> Option<(String, Lease)> {
    let name = live.metadata.name.as_deref()?;
    led_by(name)?;
    let text = |pointer| live.data.pointer(pointer).and_then(Value::as_str);
    let holder = text("/spec/holderIdentity")?.split('_').next()?;
    let lease = Lease {
        uid: live.metadata.uid.clone()?,
        holder: holder.to_owned(),
        acquired: text("/spec/acquireTime").and_then(clock::parse_rfc3339),
        renewed: clock::parse_rfc3339(text("/spec/renewTime")?)?,
        seen,
    };
    Some((name.to_owned(), lease))
}

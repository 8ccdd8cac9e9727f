//! `docs/conditions.md` is made from the set of conditions and what `doctor` says of each:
//! `LINESMAN_UPDATE_GOLDEN=1 cargo test --lib cluster::page` writes it.

use std::fmt::Write as _;

use super::{ConditionType, fix};
use crate::cli::cluster::wait::tests::cluster;
use crate::wire::api::ToldCluster;
use crate::wire::report::{Phase, Weight};

const HEAD: &str = "# Conditions

Made from the program's own words; a test keeps it so. `linesman cluster show NAME` lists the conditions of a cluster, each with its reason, its
message and the time since when it holds; `linesman cluster list -o wide` has those that are not as they should be in its column `WHY`, and each is a
check of `linesman doctor --cluster NAME`.

*Bad when* is the status in which a condition is not as it should be, and the phase that the cluster is in then, unless something worse makes
another one (`linesman cluster list --help` has them all). *noted*: it is shown and fails its check, and the phase stays as it is; so it is with
reason `NotServed` of `Guarded` and `NamespaceMissing` of `Uncovered`. While `ObserveOnly` is True, a missing guard is not reported.
A condition that is not listed has not been reported; *Unknown* is one of a cluster that is not heard now. *What to do* is what `doctor` says, with
`eu1` for the cluster's name; where it depends on the condition's reason, the reasons stand before it.

| condition | what it says | bad when | what to do |
|---|---|---|---|
";

/// All of the closed set: whoever reads one of its words and finds another one names them.
fn all() -> Vec<ConditionType> {
    let refused = serde_json::from_str::<ConditionType>("\"\"").unwrap_err();
    let refused = refused.to_string();
    let words = refused.split('`').skip(3).step_by(2);
    words
        .map(|word| serde_json::from_value(word.into()).unwrap())
        .collect()
}

/// What holds where it is True.
fn says(kind: ConditionType) -> &'static str {
    use ConditionType as C;
    match kind {
        C::Joined => "the agent has redeemed its join token, and the hub knows its keys",
        C::LineUp => {
            "the agent's line to the hub is up; of one that is down, why the last one ended (the hub's own word)"
        }
        C::DeployKeyRegistered => "the catalog's Git host has the cluster's deploy key",
        C::HostKeysKnown => {
            "the cluster has been told by which keys it knows the catalog's Git host"
        }
        C::HostKeyMismatch => {
            "the Git host shows the agent or the engine a key that the cluster was not told"
        }
        C::GitReachable => "the agent reads the catalog, and the engine fetches it",
        C::GitOverLine => {
            "the line carries the engine's Git; *Unknown* where Git goes to its host directly"
        }
        C::EngineInstalled => "every object of the engine's install is there",
        C::EngineHealthy => {
            "the engine works: its controllers are available, and it has no fault of its own"
        }
        C::EngineCurrent => {
            "version and registry of the engine are as the hub wants them; else how far a change is, what it waits for, or why it was taken back"
        }
        C::EngineFromGit => "the catalog itself brings controllers of the engine",
        C::Synced => "the engine has applied the catalog, and its root reports no failure",
        C::ChildrenReady => {
            "the sync objects that the catalog brought below the root are Ready; of sources only whether they can be read: what follows one that is not fetched any more stays Ready; *Unknown* for at most a minute while one is not Ready, for whatever reasons one after the other, or is not done with what the root has just applied (140 s for an Application of Argo CD, also for one that is Progressing since it applied that): then the cluster stays Healthy, and `cluster wait --for healthy` waits"
        }
        C::Quarantined => {
            "an object is held back from Git because its commit harms the engine, or suspended because its controller cannot read it"
        }
        C::SnapshotFresh => {
            "the agent has kept the engine as it last worked: that is the state that it restores"
        }
        C::Guarded => {
            "the API server refuses deletions of the engine's CRDs, Namespace and roots (policy `linesman-guard`)"
        }
        C::ObserveOnly => "somebody else manages the engine: the agent writes nothing of it",
        C::Paused => {
            "the agent mends nothing: a maintenance window, `heal: off` of the cluster's owner, or an owner's policy that could not be read yet"
        }
        C::SafeHealsOnly => {
            "the agent only puts back what is missing: many clusters fail alike, or the cluster's owner has `heal: safe`"
        }
        C::AgentCurrent => {
            "the agent runs the requested image; else how far the change is, what it waits for, or why the image was taken back"
        }
        C::PolicyAccepted => "ConfigMap `linesman-policy` could be read, or there is none",
        C::Uncovered => {
            "a namespace of the owner's list is missing, the list (ConfigMap `linesman-scope`) cannot be read, or the agent could not bind its roles there"
        }
        C::RightsLost => "the agent lacks rights that its manifests give; it names each",
        C::JoinConflict => {
            "an agent that would join or recover as this cluster was refused (the hub's own word)"
        }
        C::IdentityRevoked => {
            "an operator revoked the cluster's keys: the hub takes nothing from it (the hub's own word)"
        }
        C::HealsTaken => {
            "the hub keeps every fault that the agent tells of; said only where there were more at once than it keeps of a cluster (the hub's own word)"
        }
        C::HubUnderstood => {
            "the agent knows every word of what the hub tells it; said only where that was not so"
        }
        C::HubTrusted => {
            "what the hub says of its own keys goes back to the key in the adoption YAML; said only where that was not so"
        }
    }
}

fn bad(kind: ConditionType) -> String {
    let Some((status, weight)) = kind.bad() else {
        return "never".to_owned();
    };
    let phase = match weight {
        Weight::Conflict => Phase::Conflict,
        Weight::Broken => Phase::Broken,
        Weight::Degraded => Phase::Degraded,
        Weight::Paused => Phase::Paused,
        Weight::Noted => return format!("{status:?}: *noted*"),
    };
    format!("{status:?}: {phase:?}")
}

/// What stands for every reason that is not named.
const OTHERS: &str = "";

/// Reasons that have a remedy of their own; none = one remedy stands for all.
fn reasons(kind: ConditionType) -> &'static [&'static str] {
    match kind {
        ConditionType::JoinConflict => &["KeyKnown", "IncarnationChanged", OTHERS],
        ConditionType::EngineCurrent => &["Changing", OTHERS],
        ConditionType::Quarantined => &["UndecodableObject", OTHERS],
        ConditionType::Guarded => &["Missing", "Altered", OTHERS],
        ConditionType::Paused => &["Maintenance", "HealOff", "PolicyInvalid"],
        ConditionType::SafeHealsOnly => &["Incident", "HealSafe"],
        ConditionType::PolicyAccepted => &["Invalid", OTHERS],
        ConditionType::Uncovered => &["NamespaceMissing", "NoScope", "Foreign", OTHERS],
        _ => &[],
    }
}

fn remedy(kind: ConditionType, view: &ToldCluster) -> String {
    let each = reasons(kind).iter();
    let each: Vec<String> = each
        .map(|reason| {
            let fix = fix(kind, reason, view);
            if *reason == OTHERS {
                format!("Any other reason: {fix}")
            } else {
                format!("`{reason}`: {fix}")
            }
        })
        .collect();
    if each.is_empty() {
        fix(kind, OTHERS, view)
    } else {
        each.join(". ")
    }
}

fn page() -> String {
    let view = cluster(Phase::Degraded, &[], vec![]);
    let mut text = HEAD.to_owned();
    for kind in all() {
        let (says, bad, remedy) = (says(kind), bad(kind), remedy(kind, &view));
        writeln!(text, "| `{kind:?}` | {says} | {bad} | {remedy} |").unwrap();
    }
    text
}

#[test]
fn the_printed_page_is_todays() {
    let path = "docs/conditions.md";
    let page = page();
    if std::env::var_os("LINESMAN_UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/conditions.md is old; run: LINESMAN_UPDATE_GOLDEN=1 cargo test --lib cluster::page"
    );
}

/// The page had one remedy where `doctor` has another by the reason: that a window of the owner's ends by itself, and new YAML without
/// `--new-cluster` for a cluster that was made anew.
#[test]
fn what_depends_on_the_reason_has_the_remedy_of_doctor_on_the_page() {
    use ConditionType as C;
    let view = cluster(Phase::Degraded, &[], vec![]);
    let page = page();
    for (kind, reason) in [
        (C::JoinConflict, "KeyKnown"),
        (C::JoinConflict, "IncarnationChanged"),
        (C::EngineCurrent, "Changing"),
        (C::Quarantined, "UndecodableObject"),
        (C::Guarded, "Missing"),
        (C::Guarded, "Altered"),
        (C::PolicyAccepted, "Invalid"),
        (C::Uncovered, "NamespaceMissing"),
        (C::Uncovered, "NoScope"),
        (C::Uncovered, "Foreign"),
        (C::Paused, "Maintenance"),
        (C::Paused, "HealOff"),
        (C::Paused, "PolicyInvalid"),
        (C::SafeHealsOnly, "Incident"),
        (C::SafeHealsOnly, "HealSafe"),
    ] {
        let begins = format!("| `{kind:?}` |");
        let row = page.lines().find(|row| row.starts_with(&begins)).unwrap();
        let told = format!("`{reason}`: {}", fix(kind, reason, &view));
        assert!(row.contains(&told), "{told}: {row}");
    }
    // Whatever else they say: what the page has for all of them is what doctor has for a reason that it does not know.
    for (kind, reason) in [
        (C::JoinConflict, "TokenRedeemed"),
        (C::JoinConflict, "KeysLost"),
        (C::Guarded, "NotServed"),
        (C::Quarantined, "BadEngineCommit"),
        (C::Uncovered, "Refused"),
    ] {
        let begins = format!("| `{kind:?}` |");
        let row = page.lines().find(|row| row.starts_with(&begins)).unwrap();
        let told = format!("Any other reason: {}", fix(kind, reason, &view));
        assert!(row.contains(&told), "{told}: {row}");
    }
}

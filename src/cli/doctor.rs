//! `linesman doctor`: looks at both ends and says what is wrong, why, and how to mend it.

mod local;

use anyhow::Result;
use serde::Serialize;

use super::connect::Connect;
use super::exit::{Code, Failure};
use super::output::{Format, Output, document, emit, rows_text, status};
use crate::client::Client;
use crate::wire::api::{Check, Component, Diagnosis, ToldCluster, ToldCondition, Verdict};
use crate::wire::id::ClusterName;
use crate::wire::report::{ConditionType, Status};

const EXAMPLES: &str = "\
Examples:
  linesman doctor
  linesman doctor --cluster eu1       # its line, its conditions, and each component: exists, works, fresh

The cluster's agent is asked to look now (by an operator); without its line what the hub knew last is shown, and marked.
Ends with 1 where a check fails.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Look at this cluster as well
    #[arg(long, value_name = "NAME")]
    cluster: Option<ClusterName>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

/// A check with the end that it was made at.
#[derive(Debug, Serialize)]
struct Finding {
    end: &'static str,
    #[serde(flatten)]
    check: Check,
    /// Of a component of a cluster: the three questions.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    parts: Option<Parts>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Parts {
    exists: Verdict,
    works: Verdict,
    fresh: Verdict,
}

impl From<Component> for Finding {
    fn from(component: Component) -> Self {
        let ok = component.ok();
        Self {
            end: "component",
            parts: Some(Parts {
                exists: component.exists,
                works: component.works,
                fresh: component.fresh,
            }),
            check: Check {
                name: component.name,
                ok,
                found: component.found,
                fix: component.fix,
            },
        }
    }
}

pub(super) async fn run(args: Args) -> Result<()> {
    let access = args.connect.found()?;
    let mut results = Vec::new();
    let mut add = |end, checks: Vec<Check>| {
        let parts = None;
        results.extend(
            checks
                .into_iter()
                .map(|check| Finding { end, check, parts }),
        );
    };
    let mut client = access.client()?;
    add("local", local::network(&access.hub, &client).await);
    // Only now, so that a hub that cannot be reached is told as such.
    let access = match args.connect.access().await {
        Ok(renewed) => {
            client = renewed.client()?;
            renewed
        }
        Err(_) => access,
    };
    let me = local::login(&access, &client).await;
    let known = me.ok;
    add("local", vec![me]);
    add("local", local::kubectl().await);
    if known {
        add("hub", hub(&client).await);
    }
    if let Some(name) = args.cluster.as_ref().filter(|_| known) {
        let (checks, components) = cluster(&client, name).await;
        add("cluster", checks);
        results.extend(components.into_iter().map(Finding::from));
    }
    print(args.output.output, &results)?;
    match results.iter().filter(|r| !r.check.ok).count() {
        0 => Ok(()),
        count => Err(Failure::new(
            Code::Failed,
            format!("{count} of {} checks failed", results.len()),
            "see the lines with 'fix'",
        )
        .into()),
    }
}

fn print(format: Format, results: &[Finding]) -> Result<()> {
    match format {
        Format::Json | Format::Yaml => emit(&document(format, &results)?),
        Format::Name => emit(
            &results
                .iter()
                .filter(|r| !r.check.ok)
                .map(|r| r.check.name.clone() + "\n")
                .collect::<String>(),
        ),
        Format::Table | Format::Wide => emit(&tables(results)),
    }
}

fn tables(results: &[Finding]) -> String {
    let (mut rows, mut components) = (Vec::new(), Vec::new());
    for Finding { end, check, parts } in results {
        let fix = Some(check.fix.as_str()).filter(|fix| !check.ok && !fix.is_empty());
        if let Some(parts) = parts {
            let said = [parts.exists, parts.works, parts.fresh].map(Verdict::as_str);
            let [exists, works, fresh] = said;
            let row = [&check.name, exists, works, fresh, &check.found];
            components.push(row.map(str::to_owned).to_vec());
            let next = fix.map(|fix| [" ", " ", " ", "fix", fix].map(str::to_owned).to_vec());
            components.extend(next);
        } else {
            let state = if check.ok { "ok" } else { "failed" };
            let row = [*end, &check.name, state, &check.found];
            rows.push(row.map(str::to_owned).to_vec());
            let next = fix.map(|fix| [" ", " ", "fix", fix].map(str::to_owned).to_vec());
            rows.extend(next);
        }
    }
    let header = ["END", "CHECK", "STATE", "FOUND"];
    let mut text = rows_text(Some(header.map(str::to_owned).to_vec()), rows);
    if !components.is_empty() {
        let header = ["COMPONENT", "EXISTS", "WORKS", "FRESH", "FOUND"];
        text.push('\n');
        text += &rows_text(Some(header.map(str::to_owned).to_vec()), components);
    }
    text
}

/// A check that is as good as the result of a call.
fn tried<T>(
    name: &str,
    result: Result<T, crate::client::Error>,
    found: impl FnOnce(T) -> String,
) -> Check {
    let name = name.to_owned();
    match result {
        Ok(value) => Check {
            name,
            ok: true,
            found: found(value),
            fix: String::new(),
        },
        Err(e) => Check {
            name,
            ok: false,
            found: e.to_string(),
            fix: e.next(),
        },
    }
}

async fn hub(client: &Client) -> Vec<Check> {
    match client.checks().await {
        Ok(checks) => checks,
        Err(e) => vec![tried("checks", Err::<(), _>(e), |()| String::new())],
    }
}

/// What the hub knows, and what the cluster's agent finds when it is asked now.
async fn cluster(client: &Client, name: &ClusterName) -> (Vec<Check>, Vec<Component>) {
    let view = match client.cluster(name).await {
        Ok(view) => view,
        Err(e) => {
            let check = tried("record", Err::<(), _>(e), |()| String::new());
            return (vec![check], Vec::new());
        }
    };
    let mut checks = conditions(&view);
    if view.line.up {
        let version = client.cluster_version(name).await;
        checks.push(tried("api", version, |v| {
            format!(
                "Kubernetes {} answers through the line",
                v["gitVersion"].as_str().unwrap_or("of unknown version")
            )
        }));
    }
    match client.diagnosis(name).await {
        Ok(found) if found.live => {
            let text = format!(
                "{} components, seen at {}",
                found.components.len(),
                found.at
            );
            checks.push(Check {
                name: "diagnosis".to_owned(),
                ok: true,
                found: text,
                fix: String::new(),
            });
            (checks, found.components)
        }
        Ok(found) => {
            for check in checks.iter_mut().filter(|c| c.name != "line") {
                check.found = format!("last known: {}", check.found);
            }
            checks.push(away(&found));
            (checks, Vec::new())
        }
        Err(e) => {
            checks.push(tried("diagnosis", Err::<(), _>(e), |()| String::new()));
            (checks, Vec::new())
        }
    }
}

fn away(found: &Diagnosis) -> Check {
    let seen = match found.at.as_str() {
        "" => "never seen".to_owned(),
        at => format!("the above is what was known at {at}"),
    };
    Check {
        name: "diagnosis".to_owned(),
        ok: false,
        found: format!("not live: {}; {seen}", found.note),
        fix: LINE_FIX.to_owned(),
    }
}

/// The line and the conditions of a cluster as checks.
fn conditions(view: &ToldCluster) -> Vec<Check> {
    // Of a cluster out of reach nothing else is known.
    let known = |c: &&ToldCondition| view.line.up || c.status != Status::Unknown;
    let others = view
        .conditions
        .iter()
        .filter(|c| c.kind != ConditionType::LineUp);
    let mut checks = vec![line(view)];
    checks.extend(
        others
            .filter(known)
            .filter_map(|c| condition(c, &view.name)),
    );
    checks
}

const LINE_FIX: &str = "see in the cluster: kubectl -n linesman get pods; kubectl -n linesman logs deploy/linesman-agent";

fn line(view: &ToldCluster) -> Check {
    let says = view
        .conditions
        .iter()
        .find(|c| c.kind == ConditionType::LineUp);
    let says = says.map(|c| c.message.as_str()).unwrap_or_default();
    let seen = view.last_seen.as_deref().unwrap_or("never");
    Check {
        name: "line".to_owned(),
        ok: view.line.up,
        found: if view.line.up {
            format!("up, {says}")
        } else {
            format!("down, last seen {seen}; {says}")
        },
        fix: LINE_FIX.to_owned(),
    }
}

/// None = of a kind of which only a later build knows whether it is bad when it holds.
fn condition(condition: &ToldCondition, cluster: &ClusterName) -> Option<Check> {
    let kind = *condition.kind.known()?;
    // These are bad when they hold; all others when they do not.
    let bad = matches!(
        kind,
        ConditionType::HostKeyMismatch
            | ConditionType::Quarantined
            | ConditionType::ObserveOnly
            | ConditionType::Paused
            | ConditionType::SafeHealsOnly
            | ConditionType::Uncovered
            | ConditionType::RightsLost
            | ConditionType::JoinConflict
    );
    let wanted = if bad { Status::False } else { Status::True };
    let text = [&condition.reason, &condition.message]
        .map(String::as_str)
        .join(": ");
    Some(Check {
        name: format!("{kind:?}"),
        // Whoever installs the engine, it is well.
        ok: condition.status == wanted || kind == ConditionType::EngineFromGit,
        found: format!(
            "{} {}",
            status(&condition.status),
            text.trim_end_matches(": ")
        ),
        fix: fix(kind, cluster),
    })
}

fn fix(kind: ConditionType, name: &ClusterName) -> String {
    match kind {
        ConditionType::Joined | ConditionType::JoinConflict => {
            format!("apply new YAML in the cluster: linesman cluster readopt {name} --file adopt.yaml")
        }
        ConditionType::RightsLost => {
            format!("apply the YAML again, it restores the roles: linesman cluster readopt {name} --file adopt.yaml")
        }
        ConditionType::DeployKeyRegistered => "look at the hub's checks above, and at the catalog's Git host".to_owned(),
        ConditionType::HostKeysKnown | ConditionType::HostKeyMismatch => {
            "see who meets which key: linesman githost show; if the Git host's was changed on purpose: linesman githost accept-host-key".to_owned()
        }
        ConditionType::GitReachable => {
            format!("see that the cluster reaches the catalog's Git host, or let Git go over the line: linesman cluster git {name} line")
        }
        ConditionType::GitOverLine => {
            "see that the hub itself reaches the catalog's Git host: its end of the line dials it".to_owned()
        }
        ConditionType::EngineInstalled | ConditionType::EngineHealthy => {
            format!("see what is being mended: linesman heal list {name}")
        }
        ConditionType::EngineCurrent => {
            format!("see what it says, then: linesman engine set {name} flux|argocd VERSION")
        }
        ConditionType::HubUnderstood => {
            format!("give the cluster an agent of the hub's version: linesman cluster upgrade {name}; where it could not join: linesman cluster readopt {name}")
        }
        ConditionType::AgentCurrent => {
            format!("see what it says, then another image, or no wish: linesman cluster upgrade {name}")
        }
        ConditionType::Synced => {
            "see what the engine says: kubectl -n flux-system get gitrepositories,kustomizations".to_owned()
        }
        ConditionType::ChildrenReady => {
            "mend the catalog: see kubectl get kustomizations,helmreleases --all-namespaces".to_owned()
        }
        ConditionType::Guarded => {
            format!("apply the YAML again, it gives the agent the right to its policy (Kubernetes 1.30 or later): linesman cluster readopt {name} --file adopt.yaml")
        }
        ConditionType::LineUp
        | ConditionType::EngineFromGit
        | ConditionType::Quarantined
        | ConditionType::SnapshotFresh
        | ConditionType::ObserveOnly
        | ConditionType::Paused
        | ConditionType::SafeHealsOnly
        | ConditionType::PolicyAccepted
        | ConditionType::Uncovered => format!("see: linesman cluster show {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::word::Word;

    fn says(kind: ConditionType, status: Status) -> ToldCondition {
        let since = "2026-01-01T00:00:00Z".to_owned();
        ToldCondition {
            kind: kind.into(),
            status: status.into(),
            reason: "Why".to_owned(),
            message: String::new(),
            since,
        }
    }

    #[test]
    fn a_condition_is_good_when_it_is_as_wanted() {
        let name: ClusterName = "eu1".parse().unwrap();
        for (kind, status, ok) in [
            (ConditionType::Synced, Status::True, true),
            (ConditionType::Synced, Status::False, false),
            (ConditionType::Synced, Status::Unknown, false),
            (ConditionType::HostKeyMismatch, Status::False, true),
            (ConditionType::HostKeyMismatch, Status::True, false),
        ] {
            let check = condition(&says(kind, status), &name).unwrap();
            assert_eq!(check.ok, ok, "{kind:?} {status:?}");
            assert!(!check.fix.is_empty());
        }
        let mut later = says(ConditionType::Synced, Status::True);
        later.status = Word::Later("Mostly".to_owned());
        let check = condition(&later, &name).unwrap();
        assert!(
            !check.ok && check.found.starts_with("Mostly Why"),
            "{check:?}"
        );
        later.kind = Word::Later("Compacted".to_owned());
        assert_eq!(condition(&later, &name), None);
    }

    fn component(name: &str, works: Verdict) -> Component {
        Component {
            name: name.to_owned(),
            exists: Verdict::Yes,
            works,
            fresh: Verdict::None,
            found: "as it is".to_owned(),
            fix: "mend it".to_owned(),
        }
    }

    #[test]
    fn components_have_a_table_of_their_own_with_the_next_action_of_those_that_fail() {
        let line = Check {
            name: "line".to_owned(),
            ok: true,
            found: "up".to_owned(),
            fix: "none".to_owned(),
        };
        let results = [
            Finding {
                end: "cluster",
                check: line,
                parts: None,
            },
            component("CRDs", Verdict::Yes).into(),
            component("guard policy", Verdict::No).into(),
        ];
        assert_eq!(
            tables(&results),
            "END      CHECK  STATE  FOUND\n\
             cluster  line   ok     up\n\
             \n\
             COMPONENT     EXISTS  WORKS  FRESH  FOUND\n\
             CRDs          yes     yes    -      as it is\n\
             guard policy  yes     no     -      as it is\n\
             \x20                            fix    mend it\n"
        );
        assert!(results[1].check.ok && !results[2].check.ok);
        let json = serde_json::to_value(&results[2]).unwrap();
        assert_eq!(json["works"], "no");
        assert_eq!(json["end"], "component");
    }

    #[test]
    fn what_is_not_live_is_marked_and_fails() {
        let found = Diagnosis {
            live: false,
            at: "2026-01-01T00:00:00Z".to_owned(),
            note: "the agent has no line to this hub now".to_owned(),
            components: Vec::new(),
        };
        let check = away(&found);
        assert!(
            !check.ok && check.found.starts_with("not live: "),
            "{check:?}"
        );
        assert!(check.found.contains("known at 2026-01-01"), "{check:?}");
    }
}

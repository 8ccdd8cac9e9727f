//! Constrained impersonation (KEP-5284), which the lab's API server knows: it is used, and holds the owner's read-only
//! policy where the gate is out of the way (L39). `classic`: the same where the API server does not know it.

use std::path::Path;

use serde_json::{Value, json};

use crate::kubectl;
use crate::support::audit::Mark;
use crate::support::place::{output, run};
use crate::support::world::{self, World};
use crate::support::{figure, seconds, shown, until};

pub(crate) mod asked;
mod classic;
mod granted;

use asked::{Caller, Form, line_account, of_a_pod};

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/linesman-line-subjects";

/// The role's verbs, each once.
fn verbs(world: &World) -> Vec<String> {
    let role = world.api.get(ROLE).unwrap();
    let rules = role["rules"].as_array().cloned().unwrap_or_default();
    let mut verbs: Vec<String> = rules
        .iter()
        .flat_map(|rule| rule["verbs"].as_array().cloned().unwrap_or_default())
        .map(|verb| verb.as_str().unwrap().to_owned())
        .collect();
    verbs.sort();
    verbs.dedup();
    verbs
}

/// Whether the API server does this for `linesman-line` acting as the hub's admin.
fn may(kubeconfig: &Path, args: &[&str]) -> Result<(), String> {
    let mut kubectl = crate::support::place::kubectl();
    kubectl.arg("--kubeconfig").arg(kubeconfig);
    kubectl.args(["--as", "linesman:admin", "--as-group", "linesman:admin"]);
    let done = output(kubectl.args(args));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if done.status.success() {
        Ok(())
    } else {
        Err(said)
    }
}

fn policy(world: &World, read_only: bool) {
    let mut kubectl = world.place.kubectl();
    kubectl.args(["-n", "linesman"]);
    if read_only {
        let literal = "--from-literal=readOnly=true";
        run(kubectl.args(["create", "configmap", "linesman-policy", literal]));
    } else {
        run(kubectl.args(["delete", "configmap", "linesman-policy"]));
    }
}

/// The constraint that the API server's audit log names for impersonated requests of the line.
fn constraints(world: &World) -> Vec<Value> {
    let line = "system:serviceaccount:linesman:linesman-line";
    let events = Mark::beginning(&world.audit).events().into_iter();
    events
        .filter(|e| {
            e["user"]["username"] == line && e["impersonatedUser"]["username"] == "linesman:admin"
        })
        .map(|e| e["authenticationMetadata"]["impersonationConstraint"].clone())
        .collect()
}

/// L39, L35.
#[test]
#[ignore = "needs a real cluster: make test"]
fn the_api_server_itself_constrains_what_the_line_may_do() {
    let world = world::adopted();
    kubectl::ready(&world);
    let through = |args: &[&str]| output(world.through_line().args(args));
    assert!(through(&["get", "namespaces"]).status.success());
    let held = verbs(&world);
    assert!(
        held.contains(&"impersonate:user-info".to_owned()),
        "{held:?}"
    );
    assert!(!held.contains(&"impersonate".to_owned()), "{held:?}");
    let seen = constraints(&world);
    assert!(
        seen.last() == Some(&json!("impersonate:user-info")),
        "{seen:?}"
    );
    let account = line_account(&world);
    let configmap = ["-n", "default", "create", "configmap", "past-the-gate"];
    assert_eq!(may(&account, &configmap), Ok(()));
    assert!(may(&account, &["--as-group", "system:masters", "get", "pods"]).is_err());
    let gone_wrong = Caller::past_the_gate(&account, ["linesman:admin"; 2]);
    let gated = Caller::through_the_line(&world);
    let forms = of_a_pod(kubectl::NAMESPACE, kubectl::POD);
    // What is refused later is there, and is asked for as it should be.
    assert_eq!(gone_wrong.misses(&forms), [""; 0]);
    assert_eq!(gated.misses(&forms), [""; 0]);

    policy(&world, true);
    // The API server keeps a verdict for 10 s.
    let took = until("the API server holds the policy", seconds(60), || {
        may(
            &account,
            &[
                "-n",
                "default",
                "create",
                "configmap",
                "not-read-only",
                "--dry-run=server",
            ],
        )
        .is_err()
    });
    figure(
        "L39",
        "owner's read-only policy → held by the API server itself",
        "≤ 15 s",
        shown(took),
    );
    reads_pass(&account);
    writes_are_refused(&account);
    assert_eq!(gone_wrong.reaches(&forms, "cannot impersonate"), [""; 0]);
    the_gate_holds(&world, &gated, &forms);
    policy(&world, false);
    until("the role is whole again", seconds(60), || {
        verbs(&world).iter().any(|verb| verb.ends_with(":patch"))
    });
    assert!(
        through(&["-n", "default", "delete", "configmap", "past-the-gate"])
            .status
            .success()
    );
}

/// The owner's read-only policy, at the gate: these forms are refused, and reads pass.
fn the_gate_holds(world: &World, gated: &Caller, forms: &[Form]) {
    let through = |args: &[&str]| output(world.through_line().args(args));
    assert_eq!(gated.reaches(forms, "agent: "), [""; 0]);
    assert!(through(&["get", "pods"]).status.success());
    assert!(
        !through(&["-n", "default", "create", "configmap", "x"])
            .status
            .success()
    );
}

fn reads_pass(account: &Path) {
    let reads: [&[&str]; 5] = [
        &["get", "pods,nodes,customresourcedefinitions"],
        &[
            "-n",
            "linesman",
            "get",
            "deployment",
            "linesman-agent",
            "--subresource=status",
        ],
        &[
            "-n",
            "linesman",
            "logs",
            "deployment/linesman-agent",
            "--tail=1",
        ],
        &["get", "--raw", "/version"],
        &["auth", "whoami"],
    ];
    for read in reads {
        assert_eq!(may(account, read), Ok(()), "{read:?}");
    }
}

fn writes_are_refused(account: &Path) {
    let writes: [&[&str]; 4] = [
        &["-n", "default", "create", "configmap", "not-read-only"],
        &["-n", "default", "delete", "configmap", "past-the-gate"],
        &[
            "-n",
            "default",
            "annotate",
            "configmap",
            "past-the-gate",
            "a=b",
        ],
        &["-n", kubectl::NAMESPACE, "exec", kubectl::POD, "--", "true"],
    ];
    for write in writes {
        let done = may(account, write);
        let refused = done
            .as_ref()
            .is_err_and(|said| said.contains("cannot impersonate"));
        assert!(refused, "{write:?}: {done:?}");
    }
}

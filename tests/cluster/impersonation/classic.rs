//! Classic impersonation, by the names in a role alone: all that the API servers of most clusters know. A lab of its own has the
//! gate of the other form switched off.

use serde_json::{Value, json};

use super::asked::{Caller, line_account, of_a_pod};
use super::granted::acts_as_granted_only;
use super::{ROLE, constraints, may, policy, the_gate_holds};
use crate::kubectl::{self, bare::never_alone};
use crate::support::place::output;
use crate::support::world::{CLASSIC, World};
use crate::support::{figure, seconds, shown, until};

/// For the figures.
const AT: &str = " (classic impersonation)";

/// H34, L35, L39: granted names only, never the account alone, and the owner's read-only policy held by the gate.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_api_server_that_knows_classic_impersonation_only_is_reached_by_granted_names_alone() {
    let mut world = World::open(CLASSIC);
    world.adopt();
    kubectl::ready(&world);
    let metrics = world.api.text("/metrics").unwrap();
    let off = r#"feature_enabled{name="ConstrainedImpersonation",stage="ALPHA"} 0"#;
    assert!(metrics.contains(off), "the gate is on");

    assert!(through(&world, &["get", "namespaces"]));
    is_classic(&world);
    acts_as_granted_only(&world, AT);
    never_alone(&world, AT);
    let seen = constraints(&world);
    assert!(!seen.is_empty(), "nobody was acted as");
    assert!(seen.iter().all(Value::is_null), "{seen:?}");
    let account = line_account(&world);
    assert_eq!(may(&account, &["get", "pods"]), Ok(()));
    let masters = may(&account, &["--as-group", "system:masters", "get", "pods"]);
    let refused = |said: &String| said.contains("cannot impersonate resource");
    assert!(masters.as_ref().is_err_and(refused), "{masters:?}");
    is_read_only_by_its_gate(&world);
    is_classic(&world);
    world.close();
}

/// The role once it is settled: names of ours by the classic verb, and nothing else, no rule of the question which form it is either.
fn is_classic(world: &World) {
    let mut rules = Vec::new();
    until("the role is classic", seconds(60), || {
        let role = world.api.get(ROLE).unwrap();
        rules = role["rules"].as_array().cloned().unwrap_or_default();
        !rules.is_empty()
            && rules
                .iter()
                .all(|rule| rule["verbs"] == json!(["impersonate"]))
    });
    for rule in rules {
        let names = rule["resourceNames"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let ours = |name: &Value| {
            name.as_str()
                .is_some_and(|name| name.starts_with("linesman:"))
        };
        assert!(!names.is_empty() && names.iter().all(ours), "{rule}");
        assert_eq!(rule["apiGroups"], json!([""]), "{rule}");
        let kinds = [json!(["users"]), json!(["groups"])];
        assert!(kinds.contains(&rule["resources"]), "{rule}");
    }
}

/// L39, where nobody but the gate can hold it.
fn is_read_only_by_its_gate(world: &World) {
    let forms = of_a_pod(kubectl::NAMESPACE, kubectl::POD);
    let gated = Caller::through_the_line(world);
    // What is refused later is asked for as it should be.
    assert_eq!(gated.misses(&forms), [""; 0]);
    let create = [
        "-n",
        "default",
        "create",
        "configmap",
        "not-read-only",
        "--dry-run=server",
    ];
    policy(world, true);
    let took = until("the gate holds the policy", seconds(60), || {
        !through(world, &create)
    });
    figure(
        "L39",
        &format!("owner's read-only policy → held by the agent's gate{AT}"),
        "≤ 15 s",
        shown(took),
    );
    the_gate_holds(world, &gated, &forms);
    policy(world, false);
    until("writes pass again", seconds(60), || through(world, &create));
}

/// Whether kubectl does this through the line.
fn through(world: &World, args: &[&str]) -> bool {
    output(world.through_line().args(args)).status.success()
}

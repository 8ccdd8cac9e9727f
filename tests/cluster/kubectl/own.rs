//! What is the agent's own, asked for as the hub's admin, whom RBAC lets do anything.

use super::*;

const REFUSED: [&[&str]; 8] = [
    &["-n", "linesman", "get", "secrets"],
    &["-n", "linesman", "get", "secret", "linesman-keys"],
    &["-n", "flux-system", "get", "secret", "flux-system"],
    &["-n", "linesman", "create", "token", "linesman-agent"],
    &["-n", "linesman", "create", "configmap", "theirs"],
    &["-n", "linesman", "delete", "secret", "linesman-line-bind"],
    &["annotate", "clusterrole", "linesman-agent", "a=b"],
    &["label", "namespace", "linesman", "a=b"],
];

const PASSES: [&[&str]; 4] = [
    &["-n", "linesman", "get", "pods,configmaps,events"],
    &[
        "-n",
        "flux-system",
        "get",
        "secrets",
        "--field-selector",
        "metadata.name!=flux-system",
    ],
    &[
        "get",
        "secrets",
        "--all-namespaces",
        "--field-selector",
        "metadata.namespace!=linesman,metadata.namespace!=flux-system,metadata.namespace!=argocd",
    ],
    &["get", "secrets", "--all-namespaces", "-l", "owner=helm"],
];

#[test]
#[ignore = "needs a real cluster: make test"]
fn the_hubs_admin_reads_no_private_key_and_changes_nothing_of_the_agents() {
    let world = world::adopted();
    until("the line is up", seconds(60), || world.line_is_up());
    let through = |args: &[&str]| {
        let asked = output(world.through_line().args(args));
        let said = String::from_utf8_lossy(&asked.stderr).into_owned();
        (asked.status.success(), said)
    };
    for args in REFUSED {
        let (done, said) = through(args);
        assert!(
            !done && said.contains("'ownNamespace: allow'"),
            "{args:?}: {said}"
        );
    }
    for args in PASSES {
        let (done, said) = through(args);
        assert!(done, "{args:?}: {said}");
    }
    // A list of all leaves out those that hold keys, and says so.
    let all = ["get", "secrets", "--all-namespaces"];
    let listed = output(world.through_line().args(all));
    let (lines, said) = (
        String::from_utf8_lossy(&listed.stdout),
        String::from_utf8_lossy(&listed.stderr),
    );
    assert!(listed.status.success(), "{said}");
    let shown = lines
        .lines()
        .any(|line| line.starts_with("linesman ") || line.contains(" flux-system "));
    assert!(!shown, "{lines}");
    let owner = |args: &[&str]| run(world.place.kubectl().args(["-n", "linesman"]).args(args));
    let keys = [
        "-n",
        "linesman",
        "get",
        "secret",
        "linesman-keys",
        "-o",
        "name",
    ];
    owner(&[
        "create",
        "configmap",
        "linesman-policy",
        "--from-literal=ownNamespace=allow",
    ]);
    until("the owner's policy opens it", seconds(60), || {
        through(&keys).0
    });
    owner(&["delete", "configmap", "linesman-policy"]);
    until("it is shut again", seconds(60), || !through(&keys).0);
}

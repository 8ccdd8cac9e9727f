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

/// Of a query of more than 10,000 parts Go reads none (`net/url`, `urlmaxqueryparams`), so that a selector which leaves the keys out would
/// leave out nothing.
#[test]
#[ignore = "needs a real cluster: make test"]
fn no_private_key_is_read_by_a_query_that_the_api_server_does_not_read() {
    let world = world::adopted();
    until("the line is up", seconds(60), || world.line_is_up());
    let none = "/api/v1/secrets?fieldSelector=metadata.name%3Dnone";
    let unread = format!("{none}{}", "&".repeat(10_000));
    let names = |path: &str| -> Vec<String> {
        let list = world.api.get(path).unwrap();
        let items = list["items"].as_array().unwrap().iter();
        let names = items.map(|secret| secret["metadata"]["name"].as_str().unwrap().to_owned());
        names.collect()
    };
    assert_eq!(names(none), Vec::<String>::new());
    assert!(names(&unread).iter().any(|name| name == "linesman-keys"));
    let args = ["proxy", "--port=0", "--append-server-path"];
    let (_proxy, lines) = Running::start(&mut Protocol::WebSocket.kubectl(&world, &args));
    let told = line(&lines, "the address is told", |line| {
        line.contains("127.0.0.1:")
    });
    let port = told.rsplit(':').next().unwrap().trim().parse().unwrap();
    let through = |path: &str| {
        let mut answer = String::new();
        ask(port, path).read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = through(none);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = through(&unread);
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("'ownNamespace: allow'"),
        "{answer}"
    );
}

//! A cluster's life at the hub, verb by verb.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Hub, json_of};
use crate::cli::{Home, mode};

/// H35: what the YAML covers is asked for in words, and a new YAML covers no more by the way.
#[test]
fn namespaces_are_kept_over_a_readoption_and_grow_by_the_operators_word_only() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    for (list, says) in [
        ("shop,Shop", "'Shop' is not the name of a namespace"),
        ("shop,shop", "namespace shop is named twice"),
        ("linesman", "namespace linesman holds keys"),
    ] {
        home.run(&["cluster", "add", "eu1", "--namespaces", list])
            .fails(2, says);
    }
    let covered = |args: &[&str]| -> String {
        let ran = home.run(args);
        assert_eq!(ran.code, 0, "{ran:?}");
        let objects = ran.out.split("---\n");
        let map = objects.filter(|o| o.contains("  namespaces: |"));
        let map = map.last().unwrap_or_default();
        let lines = map.lines().filter(|l| l.starts_with("    "));
        let names: Vec<&str> = lines.map(str::trim).filter(|l| !l.contains(':')).collect();
        names.join(",")
    };
    let add = ["cluster", "add", "eu1", "--namespaces", "shop-db,shop"];
    assert_eq!(covered(&add), "shop,shop-db");
    let readopt = ["cluster", "readopt", "eu1"];
    let with = |more: &[&str]| covered(&[&readopt[..], more].concat());
    assert_eq!(with(&[]), "shop,shop-db");
    assert_eq!(with(&["--access", "edit"]), "shop,shop-db");
    assert_eq!(with(&["--namespaces", "mail"]), "mail");
    assert_eq!(with(&["--strict"]), "flux-system,linesman");
    assert_eq!(with(&["--whole-cluster"]), "");
    let shown = home.run(&["cluster", "show", "eu1"]).out;
    assert!(shown.contains("namespaces shop-db, shop"), "{shown}");
    let shown = json_of(&home.run(&["cluster", "show", "eu1", "-o", "json"]));
    assert_eq!(shown["scope"]["namespaces"], json!(["shop-db", "shop"]));
}

/// H59
#[test]
fn a_clusters_life_ends_each_verb_with_its_code() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);

    home.run(&["cluster", "show", "eu1"])
        .fails(3, "show cluster eu1");
    let garbage = home.write("garbage.yaml", "kind: Nonsense\n");
    home.run(&["engine", "import", garbage.to_str().unwrap()])
        .fails(
            1,
            "bundle: neither a Flux nor an Argo CD install: no CRD of theirs is in it\n",
        );
    Hub::import(&home);
    assert_eq!(
        json_of(&home.run(&["engine", "list", "-o", "json"]))[0]["engine"],
        "flux"
    );

    let added = home.run(&["cluster", "add", "eu1", "--label", "env=prod"]);
    assert_eq!(added.code, 0, "{added:?}");
    assert!(
        added.out.starts_with("---\n") && added.out.contains("lmj1."),
        "{added:?}"
    );
    assert!(!added.err.contains("lmj1."), "{added:?}");
    home.run(&["cluster", "add", "eu1"])
        .fails(5, "add cluster eu1");

    let waited = home.run(&["cluster", "wait", "eu1", "--timeout", "1s"]);
    waited.fails(6, "no word from cluster eu1 yet");

    let told = home.run(&["cluster", "engine", "eu1", "flux"]);
    assert!(
        told.code == 0 && told.out.contains("flux 1.8.0"),
        "{told:?}"
    );
    let other = home.run(&["cluster", "engine", "eu1", "argocd"]);
    other.fails(5, "prune each other's work");

    let again = home.run(&["cluster", "readopt", "eu1", "--file", "adopt.yaml"]);
    assert_eq!((again.code, again.out.as_str()), (0, ""), "{again:?}");
    assert_eq!(mode(&home.0.join("adopt.yaml")), 0o600);
    assert_ne!(
        fs::read_to_string(home.0.join("adopt.yaml")).unwrap(),
        added.out
    );

    assert_eq!(home.run(&["cluster", "list", "-o", "name"]).out, "eu1\n");
    let table = home.run(&["cluster", "list", "-l", "env=prod"]).out;
    assert!(
        table.starts_with("NAME ") && table.contains("\neu1 "),
        "{table}"
    );
    home.run(&["cluster", "remove", "eu1"])
        .fails(2, "needs a yes");
    assert_eq!(home.run(&["cluster", "remove", "eu1", "--yes"]).code, 0);
    home.run(&["cluster", "show", "eu1"])
        .fails(3, "show cluster eu1");

    let audit = home.run(&["audit", "list", "-o", "json"]);
    assert!(
        json_of(&audit)
            .as_array()
            .is_some_and(|records| records.len() >= 3),
        "{audit:?}"
    );
    assert!(
        !audit.out.contains("lmj1.") && !audit.out.contains(&hub.token()),
        "{audit:?}"
    );
}

/// Roles that stayed would be those of whoever makes the agent's namespace and ServiceAccount anew.
#[test]
fn what_an_agent_out_of_reach_leaves_is_named_with_the_commands_that_take_it_away() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    let removed = home.run(&["cluster", "remove", "eu1", "--yes"]);
    assert_eq!((removed.code, removed.out.as_str()), (0, ""), "{removed:?}");
    let lines: Vec<&str> = removed.err.lines().collect();
    assert_eq!(
        lines,
        [
            "cluster eu1 removed from the hub; its engine, workloads and catalog stay",
            "it never joined; if its YAML was applied, end the agent there and take its rights away:",
            "  kubectl delete namespace linesman",
            "  kubectl delete clusterrolebindings,clusterroles -l app.kubernetes.io/name=linesman-agent",
            "  kubectl delete rolebindings -A -l app.kubernetes.io/name=linesman-agent",
            "  kubectl delete rolebindings -A --field-selector metadata.name=linesman-engine",
            "  kubectl delete validatingadmissionpolicies,validatingadmissionpolicybindings linesman-guard",
        ]
    );
}

#[test]
fn the_yaml_reaches_the_pipe_before_the_wait() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    let mut child = home
        .linesman(&["cluster", "add", "eu1", "--wait=20s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Ends only when the program has closed its stdout, which kubectl waits for.
    let yaml = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    assert!(yaml.contains("lmj1."));
    // From there on the same process is `cluster wait`.
    let file = format!("/proc/{}/cmdline", child.id());
    let until = Instant::now() + Duration::from_secs(10);
    let mut arguments = String::new();
    while !arguments.contains("wait\0") && Instant::now() < until {
        arguments = fs::read_to_string(&file).unwrap();
        std::thread::yield_now();
    }
    assert!(
        arguments.contains("wait\0") && !arguments.contains("lmt1") && !arguments.contains("lmj1"),
        "{arguments:?}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Labels as kubectl has them; what cannot be undone is asked for, and what is not there is said.
#[test]
fn clusters_are_labelled_revoked_and_accepted_in_words() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    let added = home.run(&["cluster", "add", "eu1", "--label", "env=dev"]);
    assert_eq!(added.code, 0, "{added:?}");
    let label = |changes: &[&str]| {
        let words = ["cluster", "label", "eu1", "-o", "json"];
        home.run(&[&words, changes].concat())
    };
    let told = json_of(&label(&["team=shop"]));
    assert_eq!(told, json!({"labels": {"env": "dev", "team": "shop"}}));
    label(&["env=prod"]).fails(5, "the cluster has the label env=dev");
    let told = label(&["env=prod", "team-", "--overwrite"]);
    assert!(
        told.err.contains("cluster eu1 has now: env=prod"),
        "{told:?}"
    );
    assert_eq!(json_of(&told), json!({"labels": {"env": "prod"}}));
    for (changes, says) in [
        (&["env"][..], "write KEY=VALUE, or KEY- to remove it"),
        (&[], "<KEY=VALUE|KEY->"),
    ] {
        let ran = label(changes);
        assert!(ran.code == 2 && ran.err.contains(says), "{ran:?}");
    }

    let revoke = ["cluster", "revoke", "eu1"];
    home.run(&revoke)
        .fails(2, "run: linesman cluster revoke eu1 --yes");
    home.run(&[&revoke[..], &["--yes"]].concat())
        .fails(3, "cluster eu1 has not joined: there is no key to revoke");
    let accept = ["cluster", "accept", "SHA256:dGhlIGZpbmdlcnByaW50"];
    home.run(&accept)
        .fails(3, "see: linesman cluster list --unknown");
    home.run(&[&accept[..], &["--yes"]].concat()).fails(3, "");
    let unknown = home.run(&["cluster", "list", "--unknown", "-o", "json"]);
    assert_eq!(json_of(&unknown), json!([]));
}

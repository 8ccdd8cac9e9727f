//! The kubeconfig that the program prints, writes and merges.

use std::collections::BTreeSet;
use std::fs;

use super::{Hub, json_of};
use crate::cli::{Home, mode};

#[test]
fn a_kubeconfig_works_for_kubectl_without_any_key() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    home.run(&["kubeconfig", "eu1"])
        .fails(3, "show cluster eu1");
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    let printed = home.run(&["kubeconfig", "eu1"]);
    assert_eq!(printed.code, 0, "{printed:?}");
    assert!(!printed.out.contains(&hub.token()));
    assert!(
        printed.out.contains(&format!("{}/clusters/eu1", hub.url)),
        "{printed:?}"
    );
    assert_eq!(home.run(&["kubeconfig", "eu1", "--into", "config"]).code, 0);
    assert_eq!(
        fs::read_to_string(home.0.join("config")).unwrap(),
        printed.out
    );
    assert_eq!(mode(&home.0.join("config")), 0o600);

    // What kubectl does with it: run the plugin, send its token, trust the CA in the file.
    let config = linesman::yaml::documents(&printed.out).unwrap().remove(0);
    let plugin = config["users"][0]["user"]["exec"]["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a.as_str().unwrap());
    let credential = json_of(&home.run(&plugin.collect::<Vec<_>>()));
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let (status, answer) = hub.get(
        &format!("{server}/version"),
        credential["status"]["token"].as_str().unwrap(),
    );
    assert_eq!(status, 503, "{answer}");
    assert_eq!(answer["kind"], "Status", "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .is_some_and(|m| m.contains("line")),
        "{answer}"
    );
}

/// Whom a grant lets into a cluster needs no role at the hub for it.
#[test]
fn who_has_a_grant_alone_gets_a_kubeconfig() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    assert_eq!(home.run(&["user", "add", "ada"]).code, 0);
    let create = ["token", "create", "--user", "ada", "--title", "t"];
    let made = home.run(&[&create[..], &["--file", "ada.token"]].concat());
    assert_eq!(made.code, 0, "{made:?}");
    let hers = |what: &str| home.run(&["kubeconfig", what, "--token-file", "ada.token"]);
    hers("eu1").fails(4, "ada has no grant on cluster eu1");
    let add = ["grant", "add", "user:ada", "--cluster", "eu1"];
    let given = home.run(&[&add[..], &["--group", "view"]].concat());
    assert_eq!(given.code, 0, "{given:?}");
    let made = hers("eu1");
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.out.contains("/clusters/eu1"), "{made:?}");
    hers("eu2").fails(4, "ada has no grant on cluster eu2");
    let all = hers("--all");
    all.fails(4, "ada lacks the role viewer");
    assert!(all.err.contains("linesman grant list"), "{all:?}");
}

/// Several at once, kubectl among them, lose nothing of each other: each takes the lock that kubectl takes.
#[test]
fn merges_into_one_kubeconfig_are_all_kept() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    let names: Vec<String> = (1..=4).map(|n| format!("eu{n}")).collect();
    for name in &names {
        assert_eq!(home.run(&["cluster", "add", name]).code, 0);
    }
    let lock = home.write(".kube/config.lock", "");
    home.run(&["kubeconfig", "eu1", "--merge"])
        .fails(5, "config.lock is there");
    assert!(lock.exists() && !home.0.join(".kube/config").exists());
    fs::remove_file(&lock).unwrap();
    let children: Vec<_> = names
        .iter()
        .map(|name| {
            home.linesman(&["kubeconfig", name, "--merge"])
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let text = fs::read_to_string(home.0.join(".kube/config")).unwrap();
    let config = linesman::yaml::documents(&text).unwrap().remove(0);
    let contexts = config["contexts"].as_array().unwrap().iter();
    let contexts: BTreeSet<&str> = contexts.map(|c| c["name"].as_str().unwrap()).collect();
    let expected: Vec<String> = names
        .iter()
        .map(|name| format!("linesman-{name}"))
        .collect();
    assert_eq!(contexts, expected.iter().map(String::as_str).collect());
    assert!(!lock.exists());
}

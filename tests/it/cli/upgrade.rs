//! Upgrades of several clusters' agents, as far as they go without an agent.

use super::Home;
use super::hub::Hub;

#[test]
fn clusters_that_are_not_there_are_left_out_of_an_upgrade_and_named() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    let image = format!("registry.example.org/linesman@sha256:{}", "0f".repeat(32));
    let upgrade = |whom: &[&str]| {
        let args = [&["cluster", "upgrade", "--image", &image], whom].concat();
        home.run(&args)
    };
    upgrade(&["--all"]).fails(3, "the hub has no clusters");
    for (name, stage) in [("eu1", "stage=prod"), ("lab", "stage=test")] {
        let added = home.run(&["cluster", "add", name, "--label", stage]);
        assert_eq!(added.code, 0, "{added:?}");
    }
    upgrade(&["-l", "stage=none"]).fails(3, "no cluster has the labels stage=none");
    let left_out = "1 left out, for they are not there: eu1";
    upgrade(&["-l", "stage=prod"]).fails(1, left_out);
    for unclear in [&["eu1", "--all"][..], &[]] {
        assert_eq!(upgrade(unclear).code, 2, "{unclear:?}");
    }
    let withdrawn = home.run(&["cluster", "upgrade", "--all", "--withdraw"]);
    assert!(
        withdrawn.code == 0 && withdrawn.err.contains("cluster lab, 2 of 2"),
        "{withdrawn:?}"
    );
    let yaml = home.run(&["cluster", "upgrade", "--all", "--withdraw", "-o", "yaml"]);
    let told = linesman::yaml::documents(&yaml.out).unwrap();
    let names: Vec<_> = told.iter().map(|cluster| &cluster["name"]).collect();
    assert_eq!(names, ["eu1", "lab"]);
}

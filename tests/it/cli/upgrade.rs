//! Upgrades of several clusters' agents, as far as they go without an agent.

use serde_json::Value;

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
    upgrade(&["-l", "stage=none"]).fails(3, "no cluster matches stage=none");
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
}

/// A program reads one document, as of the verbs that list; also where clusters were left out, and the exit code says so.
#[test]
fn an_upgrade_of_several_clusters_tells_programs_one_list() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    for name in ["eu1", "lab"] {
        let added = home.run(&["cluster", "add", name]);
        assert_eq!(added.code, 0, "{added:?}");
    }
    let names = |told: &Value| -> Vec<String> {
        let all = told.as_array().expect("a list").iter();
        all.map(|cluster| cluster["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let withdraw = ["cluster", "upgrade", "--all", "--withdraw", "-o"];
    let json = home.run(&[&withdraw[..], &["json"]].concat());
    let told: Value = serde_json::from_str(&json.out).expect("one document");
    assert_eq!(names(&told), ["eu1", "lab"]);
    let yaml = home.run(&[&withdraw[..], &["yaml"]].concat());
    let below = yaml.out.lines().map(|line| format!("  {line}\n"));
    let told = format!("all:\n{}", below.collect::<String>());
    let told = linesman::yaml::documents(&told).expect("one document");
    let told: Vec<_> = told.iter().map(|told| names(&told["all"])).collect();
    assert_eq!(told, [["eu1", "lab"]]);
    let lines = home.run(&[&withdraw[..], &["name"]].concat());
    assert_eq!(lines.out, "eu1\nlab\n");

    let image = format!("registry.example.org/linesman@sha256:{}", "0f".repeat(32));
    let image = [
        "cluster", "upgrade", "--all", "--image", &image, "-o", "json",
    ];
    let left_out = home.run(&image);
    let told: Value = serde_json::from_str(&left_out.out).expect("one document");
    assert_eq!((left_out.code, names(&told)), (1, Vec::new()));
}

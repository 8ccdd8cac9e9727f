//! `catalog lint`: what it finds in a catalog on disk.

use serde_json::Value;

use super::Home;

#[test]
fn a_broken_catalog_ends_with_one_and_names_the_file() {
    let home = Home::new();
    home.write("catalog/clusters/eu1/apps.yaml", "a: [\n");
    let ran = home.run(&["catalog", "lint", "catalog"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("clusters/eu1/apps.yaml"), "{ran:?}");
    let json = home.run(&["catalog", "lint", "catalog", "-o", "json"]);
    assert_eq!(
        serde_json::from_str::<Value>(&json.out).unwrap()[0]["file"],
        "clusters/eu1/apps.yaml"
    );
    home.run(&["catalog", "lint", "state"])
        .fails(3, "is no catalog");
    let sound = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n";
    home.write("catalog/clusters/eu1/apps.yaml", sound);
    let ran = home.run(&["catalog", "lint", "catalog"]);
    let told = (ran.code, ran.out.as_str(), ran.err.as_str());
    assert_eq!(told, (0, "", "1 file, nothing to mend\n"));
}

/// What is not checked is said: one byte more than is read of a file.
#[test]
fn a_file_that_is_too_long_to_check_is_a_finding() {
    const LIMIT: usize = 4 << 20;
    let home = Home::new();
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n";
    let long = |size: usize| format!("{map}#{}", "x".repeat(size - map.len() - 1));
    let name = "catalog/clusters/eu1/apps.yaml";
    home.write(name, &long(LIMIT));
    let lint = || home.run(&["catalog", "lint", "catalog", "-o", "json"]);
    assert_eq!(lint().code, 0);
    home.write(name, &long(LIMIT + 1));
    let ran = lint();
    assert_eq!(ran.code, 1, "{ran:?}");
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(found[0]["file"], "clusters/eu1/apps.yaml");
    assert_eq!(
        found[0]["message"],
        "has 4194305 bytes and was not checked: no more than 4194304 of a file are read"
    );
}

/// Flux leaves links out, and Argo CD follows some: whoever pushes one is told.
#[test]
fn a_symbolic_link_is_a_finding_where_a_cluster_would_miss_it() {
    let home = Home::new();
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n";
    home.write("catalog/clusters/eu1/map.yaml", map);
    home.write("catalog/base/other.yaml", map);
    home.write("catalog/README.md", "");
    home.write("outside.yaml", map);
    let lint = || home.run(&["catalog", "lint", "catalog", "-o", "json"]);
    let linked = |target: &str, name: &str| {
        let path = home.0.join("catalog").join(name);
        std::os::unix::fs::symlink(target, path).unwrap();
    };
    // No cluster misses it.
    linked("README.md", "INTRO.md");
    assert_eq!(lint().code, 0);
    linked("../../base/other.yaml", "clusters/eu1/linked.yaml");
    linked("../base", "clusters/eu2");
    linked("../outside.yaml", "outside.md");
    let absolute = home.0.join("catalog/README.md");
    linked(absolute.to_str().unwrap(), "absolute.md");
    linked("nowhere", "nowhere");
    let ran = lint();
    assert_eq!(ran.code, 1, "{ran:?}");
    let found: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    let found: Vec<(&str, &str)> = found
        .iter()
        .map(|f| (f["file"].as_str().unwrap(), f["message"].as_str().unwrap()))
        .collect();
    let left_out = "is a symbolic link and was not checked: Flux leaves it out";
    let refused = "is a symbolic link that is absolute or leaves the catalog: Flux leaves it out, and Argo CD takes nothing from \
                   such a repository";
    let wanted = [
        ("absolute.md", refused),
        ("clusters/eu1/linked.yaml", left_out),
        ("clusters/eu2", left_out),
        ("nowhere", "is a symbolic link to what is not there"),
        ("outside.md", refused),
    ];
    assert_eq!(found, wanted);
}

//! Grants as an operator gives, explains and takes them back.

use super::Home;
use super::hub::{Hub, json_of};

#[test]
fn a_grant_for_two_hours_is_given_explained_and_revoked() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    home.run(&["grant", "check", "ada", "eu1", "-o", "name"]);
    let none = home.run(&["grant", "check", "ada", "eu1"]);
    assert!(
        none.code == 4 && none.err.contains("ada has no grant on cluster eu1"),
        "{none:?}"
    );
    assert!(
        none.err.contains("next:  run: linesman grant add user:ada"),
        "{none:?}"
    );

    let add = [
        "grant",
        "add",
        "user:ada",
        "--cluster",
        "eu1",
        "--group",
        "edit",
        "-n",
        "shop",
    ];
    let rest = ["--for", "2h", "--reason", "TICKET-1", "-o", "json"];
    let made = json_of(&home.run(&[&add[..], &rest[..]].concat()));
    let id = made[0]["id"].as_str().unwrap();
    let listed = home.run(&["grant", "list"]).out;
    assert!(
        listed.starts_with("ID ") && listed.contains("TICKET-1") && listed.contains("in shop"),
        "{listed}"
    );

    let yes = home.run(&["grant", "check", "ada", "eu1"]);
    assert!(
        yes.code == 0 && yes.out.contains("linesman:edit") && yes.out.contains(id),
        "{yes:?}"
    );
    let path = "/api/v1/namespaces/other/pods";
    let no = home.run(&["grant", "check", "ada", "eu1", "--path", path]);
    assert!(
        no.code == 4 && no.out.contains("no: it is for namespace shop"),
        "{no:?}"
    );

    let revoked = home.run(&["grant", "revoke", id]);
    assert_eq!((revoked.code, revoked.out.as_str()), (0, ""), "{revoked:?}");
    home.run(&["grant", "revoke", id]).fails(3, "show grant");
    assert_eq!(home.run(&["grant", "check", "ada", "eu1"]).code, 4);
}

#[test]
fn a_grant_names_its_clusters_in_one_way() {
    let home = Home::new();
    for more in [
        &[][..],
        &["--all-clusters", "--cluster", "eu1"],
        &["--labels", "a", "--all-clusters"],
    ] {
        let args = [&["grant", "add", "user:ada", "--group", "view"], more].concat();
        let ran = home.run(&args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
    }
}

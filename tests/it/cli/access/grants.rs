//! Grants: given, explained, listed and revoked.

use std::time::Duration;

use linesman::hub::access::GrantRules;

use super::{asks, execute};
use crate::cli::Home;
use crate::cli::hub::{Hub, json_of};

/// A name that is misspelt grants nothing, and one that is yet to come may be meant.
#[test]
fn a_grant_says_whom_and_what_the_hub_does_not_have() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    assert_eq!(home.run(&["user", "add", "ada"]).code, 0);
    let warnings = |subject: &str, cluster: &str| -> Vec<String> {
        let add = ["grant", "add", subject, "--cluster", cluster];
        let ran = home.run(&[&add[..], &["--group", "view"]].concat());
        assert!(ran.code == 0 && ran.out.contains("no end"), "{ran:?}");
        ran.err.lines().map(str::to_owned).collect()
    };
    let none: Vec<String> = Vec::new();
    assert_eq!(warnings("user:ada", "eu1"), none);
    assert_eq!(warnings("group:sre", "eu1"), none);
    assert_eq!(
        warnings("user:eve", "us1"),
        [
            "warning: the hub has no cluster us1; the grant counts when there is one of that name",
            "warning: the hub has no user eve; add one: linesman user add eve"
        ]
    );
}

/// What the hub's operator asks of grants holds for whoever gives one, an admin too.
#[test]
fn a_hub_may_ask_for_an_end_and_a_reason_of_each_grant() {
    let home = Home::new();
    let rules = GrantRules {
        longest: Some(Duration::from_hours(8)),
        reasoned: true,
    };
    let hub = Hub::granting(&home, rules);
    hub.log_in(&home);
    let give = |more: &[&str]| {
        let add = ["grant", "add", "group:sre", "--all-clusters"];
        home.run(&[&add[..], &["--group", "view"], more].concat())
    };
    let no_end = "a grant of this hub has an end, in 8h at the latest (--grant-max)";
    give(&["--reason", "TICKET-1"]).fails(2, no_end);
    give(&["--reason", "TICKET-1", "--for", "9h"]).fails(2, no_end);
    let no_reason = give(&["--for", "8h"]);
    no_reason.fails(2, "a grant of this hub says why it is given");
    assert!(no_reason.err.contains("--reason TICKET-1"), "{no_reason:?}");
    let given = give(&["--for", "8h", "--reason", "TICKET-1", "-o", "json"]);
    assert_eq!(json_of(&given)[0]["reason"], "TICKET-1");
    // That of the first admin was there before.
    let listed = home.run(&["grant", "list"]).out;
    assert!(
        listed.contains("user:admin") && listed.contains("group:sre"),
        "{listed}"
    );
}

/// What the hub says helps, in its own words: no group of those who only look deletes anything.
fn helps(home: &Home) {
    let delete = [
        "--path",
        "/api/v1/namespaces/other/pods/x",
        "--method",
        "DELETE",
    ];
    let no = home.run(&[&["grant", "check", "ada", "eu1"][..], &delete].concat());
    assert!(
        no.code == 4
            && no
                .err
                .contains("--group edit (or with another group, which RBAC lets 'delete pods')"),
        "{no:?}"
    );
    let nobody = home.run(&["grant", "check", "adda", "eu1"]);
    assert!(
        nobody.code == 4
            && nobody
                .err
                .contains("adda does not get through: the hub has no user adda\n")
            && nobody.err.contains(
                "next:  check the name: linesman user list; or add it: linesman user add adda"
            ),
        "{nobody:?}"
    );
}

/// One that was revoked is not lost to who asks why nothing passes any more.
fn over(home: &Home, id: &str) {
    let ended = home.run(&["grant", "check", "ada", "eu1"]);
    assert!(
        ended.code == 4 && ended.out.contains("no: it was revoked by admin at 2"),
        "{ended:?}"
    );
    let all = home.run(&["grant", "list", "--user", "ada", "--all"]).out;
    assert!(all.contains(id) && all.contains("revoked at 2"), "{all}");
}

fn misspelt(home: &Home) {
    let add = ["grant", "add", "user:ada", "--cluster", "eu1"];
    let add = [&add[..], &["--group", "veiw"][..]].concat();
    for command in [&add[..], &["grant", "check", "ada", "eu1"][..]] {
        let ran = home.run(command);
        let warns = "warning: no adoption YAML binds linesman:veiw: ";
        assert!(ran.code == 0 && ran.err.contains(warns), "{ran:?}");
    }
}

#[test]
fn a_grant_for_two_hours_is_given_explained_and_revoked() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    assert_eq!(home.run(&["cluster", "add", "eu1"]).code, 0);
    assert_eq!(home.run(&["user", "add", "ada"]).code, 0);
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
    let acting = ["--as", "bob", "--as-group", "view"];
    let made = json_of(&home.run(&[&add[..], &rest[..], &acting[..]].concat()));
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

    let check = ["grant", "check", "ada", "eu1", "--as", "bob", "--as-group"];
    let yes = home.run(&[&check[..], &["view"]].concat());
    assert!(yes.code == 0 && yes.out.contains("linesman:bob"), "{yes:?}");
    let no = home.run(&[&check[..], &["edit"]].concat());
    assert!(
        no.code == 4
            && no.out.contains("no: it does not let act as bob in edit")
            && no.err.contains("--group view --as bob --as-group edit"),
        "{no:?}"
    );

    helps(&home);
    asks(&home, &["grant", "revoke", id]);
    let revoked = home.run(&["grant", "revoke", id, "--yes"]);
    assert_eq!((revoked.code, revoked.out.as_str()), (0, ""), "{revoked:?}");
    home.run(&["grant", "revoke", id]).fails(3, "show grant");
    over(&home, id);
    misspelt(&home);
}

/// Who reaches a cluster now is not lost among what is over; how much of that is left out is said.
#[test]
fn grants_that_ended_are_listed_where_they_are_asked_for() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    Hub::import(&home);
    for name in ["eu1", "us1"] {
        assert_eq!(home.run(&["cluster", "add", name]).code, 0);
    }
    let mut made = Vec::new();
    for (subject, cluster) in [
        ("user:ada", "eu1"),
        ("user:bob", "us1"),
        ("user:ada", "us1"),
    ] {
        let add = [
            "grant",
            "add",
            subject,
            "--cluster",
            cluster,
            "--group",
            "view",
        ];
        let ran = home.run(&[&add[..], &["--for", "2h", "-o", "name"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        made.push(ran.out.trim().to_owned());
    }
    let over =
        |id: &str| format!("UPDATE access_grant SET expires_at = 1 + created_at WHERE id = '{id}'");
    execute(hub.data(), over(&made[2]));
    let listed = |more: &[&str]| {
        let ran = home.run(&[&["grant", "list", "-o", "name"][..], more].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        let ids: Vec<String> = ran.out.lines().map(str::to_owned).collect();
        (ids, ran.err)
    };
    let one = "1 grant that has ended is not shown: --all\n";
    let (ids, said) = listed(&["--user", "ada"]);
    assert_eq!((&ids[..], said.as_str()), (&made[..1], one));
    let (ids, said) = listed(&["--user", "ada", "--all"]);
    assert_eq!(
        (ids, said.as_str()),
        (vec![made[0].clone(), made[2].clone()], "")
    );
    // That of the first admin is on each of them.
    let (ids, said) = listed(&["--cluster", "us1"]);
    assert!(
        ids.contains(&made[1]) && ids.len() == 2 && said == one,
        "{ids:?} {said}"
    );
    let none = home.run(&["grant", "list", "--cluster", "us1", "--user", "ada"]);
    assert_eq!(
        (none.out.as_str(), none.err.as_str()),
        ("", format!("no grants in force\n{one}").as_str())
    );
    home.run(&["grant", "list", "--cluster", "eu9"])
        .fails(3, "there is no cluster 'eu9'");
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

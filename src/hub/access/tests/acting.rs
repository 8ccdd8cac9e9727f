use super::*;

const BOTH: &str = "g1 user:ada * admin as=user:bob,group:edit,group:view";

fn acting(user: &str, groups: &[&str]) -> Acting {
    Acting {
        user: user.to_owned(),
        groups: groups.iter().map(|g| (*g).to_owned()).collect(),
    }
}

/// L10: `--as` goes as exactly who is named, by the grants that name all of it.
#[test]
fn acting_as_someone_is_being_exactly_them() {
    let bob = acting("bob", &["edit"]);
    let allowed = asked_as(&[BOTH, "g2 user:ada * ops"], DELETE, Some(&bob)).unwrap();
    assert_eq!(
        allowed,
        Allowed {
            subject: Impersonation {
                user: "linesman:bob".to_owned(),
                groups: vec!["linesman:edit".to_owned()],
                actor: Some("linesman:ada".to_owned()),
                mode: Mode::Full,
                namespaces: None,
            },
            by: vec!["g1".to_owned()],
            until: None,
        }
    );
    // Without --as-group, without groups: not with those of the grant.
    let alone = asked_as(&[BOTH], DELETE, Some(&acting("bob", &[]))).unwrap();
    assert_eq!(alone.subject.groups, Vec::<String>::new());
    assert_eq!(asked(&[BOTH], DELETE).unwrap().subject.actor, None);
}

/// Grants, whom they are asked to let act as, the request, and the rule that refuses.
type NotAs = (
    &'static [&'static str],
    (&'static str, &'static [&'static str]),
    &'static str,
    &'static str,
);

const NOT_AS: &[NotAs] = &[
    (&[BOTH], ("eve", &[]), LIST, "Impersonation"),
    (&[BOTH], ("bob", &["admin"]), LIST, "Impersonation"),
    (&[BOTH], ("ada", &[]), LIST, "Impersonation"),
    (&[BOTH], ("edit", &["bob"]), LIST, "Impersonation"),
    // What two grants allow apart they do not allow together.
    (
        &[
            "g1 user:ada * admin as=user:bob",
            "g2 user:ada * admin as=group:edit",
        ],
        ("bob", &["edit"]),
        LIST,
        "Impersonation",
    ),
    // The limits of the grant that lets it hold, whatever others allow.
    (
        &["g1 user:ada * view read as=user:bob", "g2 user:ada * admin"],
        ("bob", &[]),
        DELETE,
        "NoGrant",
    ),
    (
        &["g1 user:ada * view ns=b as=user:bob", "g2 user:ada * admin"],
        ("bob", &[]),
        LIST,
        "NoGrant",
    ),
    (
        &[
            "g1 user:ada * admin as=user:bob for=0",
            "g2 user:ada * admin",
        ],
        ("bob", &[]),
        LIST,
        "Impersonation",
    ),
    (
        &["g1 user:ada eu2 admin as=user:bob", "g2 user:ada * admin"],
        ("bob", &[]),
        LIST,
        "Impersonation",
    ),
    (
        &["g1 user:eve * admin as=user:bob"],
        ("bob", &[]),
        LIST,
        "NoGrant",
    ),
];

/// L10
#[test]
fn acting_as_someone_takes_one_grant_that_names_all_of_it() {
    for (grants, (user, groups), request, rule) in NOT_AS {
        let denied = asked_as(grants, request, Some(&acting(user, groups))).unwrap_err();
        assert_eq!(denied.rule, *rule, "{grants:?} {user} {groups:?}: {denied}");
    }
}

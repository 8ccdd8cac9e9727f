use std::collections::BTreeMap;

use http::Method;

use super::*;
use crate::kubeapi::path;

mod acting;
mod narrow;

const NOON: i64 = 1_800_000_000;

pub(super) fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(NOON + seconds).unwrap()
}

/// `id subject clusters groups`, then any of `as=user:a,group:b`, `ns=a,b`, `read`, `for=SECONDS`.
pub(super) fn grant(text: &str) -> Grant {
    let mut words = text.split(' ');
    let mut next = || words.next().unwrap();
    let (id, subject, clusters, groups) = (next(), next(), next(), next());
    let set = |text: &str| text.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
    let clusters = match clusters.split_once('?') {
        _ if clusters == "*" => Clusters::All,
        Some((_, selector)) => Clusters::Labelled(selector.parse().unwrap()),
        None => Clusters::Named(clusters.split(',').map(|n| n.parse().unwrap()).collect()),
    };
    let mut grant = Grant {
        id: id.to_owned(),
        subject: subject.parse().unwrap(),
        clusters,
        groups: set(groups),
        act_as: BTreeSet::new(),
        namespaces: None,
        mode: Mode::Full,
        expires_at: None,
        revoked_at: None,
        revoked_by: None,
        reason: "TICKET-1".to_owned(),
        created_by: "admin".to_owned(),
        created_at: at(-60),
        rev: 1,
    };
    for word in words {
        match word.split_once('=') {
            Some(("as", list)) => {
                grant.act_as = set(list).iter().map(|s| s.parse().unwrap()).collect();
            }
            Some(("ns", list)) => grant.namespaces = Some(set(list)),
            Some(("for", seconds)) => grant.expires_at = Some(at(seconds.parse().unwrap())),
            _ => grant.mode = Mode::Read,
        }
    }
    grant
}

/// `METHOD /path` by ada of group sre, on eu1 labelled env=prod, at noon.
fn asked(grants: &[&str], request: &str) -> Result<Allowed, Denied> {
    asked_as(grants, request, None)
}

fn asked_as(grants: &[&str], request: &str, acting: Option<&Acting>) -> Result<Allowed, Denied> {
    let grants: Vec<Grant> = grants.iter().map(|g| grant(g)).collect();
    let groups = ["sre".to_owned()];
    let asker = Asker {
        name: "ada",
        groups: &groups,
    };
    let (name, labels) = (
        "eu1".parse().unwrap(),
        BTreeMap::from([("env".to_owned(), "prod".to_owned())]),
    );
    let place = Place {
        name: &name,
        labels: &labels,
    };
    let held = reaching(&grants, &asker, &place, at(0))?;
    decide(&asker, &held, &info(request), acting)
}

fn info(request: &str) -> RequestInfo {
    let (method, target) = request.split_once(' ').unwrap();
    let method: Method = method.parse().unwrap();
    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(p, q)| (p, Some(q)));
    path::classify(&method, path, query).unwrap()
}

const LIST: &str = "GET /api/v1/namespaces/a/pods";
const DELETE: &str = "DELETE /api/v1/namespaces/a/pods/x";
const ALL_PODS: &str = "GET /api/v1/pods";

/// Grants, request, and: the ids that say yes with groups, mode, namespaces; or a part of the refusal.
type Row = (
    &'static [&'static str],
    &'static str,
    Result<&'static str, &'static str>,
);

const ROWS: &[Row] = &[
    (
        &["g1 user:ada * admin"],
        DELETE,
        Ok("g1 linesman:admin full *"),
    ),
    (
        &["g1 user:ada eu1,eu2 admin"],
        DELETE,
        Ok("g1 linesman:admin full *"),
    ),
    (
        &["g1 group:sre ?env=prod edit,view"],
        DELETE,
        Ok("g1 linesman:edit,linesman:view full *"),
    ),
    // Nothing fits.
    (&[], LIST, Err("ada has no grant on cluster eu1")),
    (
        &["g1 user:bob * admin"],
        LIST,
        Err("ada has no grant on cluster eu1"),
    ),
    (
        &["g1 group:dev * admin"],
        LIST,
        Err("ada has no grant on cluster eu1"),
    ),
    (
        &["g1 user:ada eu2 admin"],
        LIST,
        Err("ada has no grant on cluster eu1"),
    ),
    (
        &["g1 user:ada ?env!=prod admin"],
        LIST,
        Err("ada has no grant on cluster eu1"),
    ),
    // A user is not a group of the same name.
    (
        &["g1 group:ada * admin", "g2 user:sre * admin"],
        LIST,
        Err("has no grant"),
    ),
    // The end is the first moment without.
    (
        &["g1 user:ada * admin for=1"],
        LIST,
        Ok("g1 linesman:admin full *"),
    ),
    (&["g1 user:ada * admin for=0"], LIST, Err("has no grant")),
    // Read-only.
    (
        &["g1 user:ada * view read"],
        LIST,
        Ok("g1 linesman:view read *"),
    ),
    (
        &["g1 user:ada * view read"],
        "GET /api/v1/pods?watch=1",
        Ok("g1 linesman:view read *"),
    ),
    (
        &["g1 user:ada * view read"],
        "GET /version",
        Ok("g1 linesman:view read *"),
    ),
    (
        &["g1 user:ada * view read"],
        DELETE,
        Err("grant g1: it is read-only, and 'delete pods' is more"),
    ),
    (
        &["g1 user:ada * view read"],
        "GET /api/v1/namespaces/a/pods/x/exec",
        Err("'get pods/exec'"),
    ),
    (
        &["g1 user:ada * view read"],
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        Ok("g1 linesman:view read *"),
    ),
    // Namespaces.
    (
        &["g1 user:ada * edit ns=a,b"],
        DELETE,
        Ok("g1 linesman:edit full a,b"),
    ),
    (
        &["g1 user:ada * edit ns=b"],
        DELETE,
        Err("grant g1: it is for namespace b"),
    ),
    (
        &["g1 user:ada * edit ns=a,b"],
        ALL_PODS,
        Err("it is for the namespaces a, b"),
    ),
    (
        &["g1 user:ada * edit ns=a"],
        "GET /apis",
        Ok("g1 linesman:edit full a"),
    ),
    // The namespace itself is not within it.
    (
        &["g1 user:ada * admin ns=a"],
        "GET /api/v1/namespaces/a",
        Ok("g1 linesman:admin full a"),
    ),
    (
        &["g1 user:ada * admin ns=a"],
        "PATCH /api/v1/namespaces/a",
        Err("grant g1: it is for namespace a, and 'patch namespaces' changes a namespace itself"),
    ),
    (
        &["g1 user:ada * admin ns=a"],
        "PUT /api/v1/namespaces/a/finalize",
        Err("'update namespaces/finalize' changes a namespace itself"),
    ),
    // Several: groups add up, of those that cover the request, within the limits of each.
    (
        &["g1 user:ada * admin read", "g2 group:sre * edit ns=a"],
        LIST,
        Ok("g1,g2 linesman:admin,linesman:edit read a"),
    ),
    (
        &["g1 user:ada * admin read", "g2 group:sre * edit ns=a"],
        DELETE,
        Ok("g2 linesman:edit full a"),
    ),
    (
        &["g1 user:ada * admin read", "g2 group:sre * edit ns=a"],
        ALL_PODS,
        Ok("g1 linesman:admin read *"),
    ),
    (
        &["g1 user:ada * edit ns=a,b", "g2 user:ada * view ns=a,c"],
        LIST,
        Ok("g1,g2 linesman:edit,linesman:view full a"),
    ),
    (
        &["g1 user:ada * admin read", "g2 group:sre * edit ns=b"],
        DELETE,
        Err(
            "grant g1: it is read-only, and 'delete pods' is more than reading; grant g2: it is for namespace b",
        ),
    ),
];

#[test]
fn each_grant_says_yes_or_why_not() {
    for (grants, request, expected) in ROWS {
        let decided = asked(grants, request);
        match (decided, expected) {
            (Ok(allowed), Ok(expected)) => {
                let subject = allowed.subject;
                let mode = if subject.mode == Mode::Read {
                    "read"
                } else {
                    "full"
                };
                let namespaces = subject.namespaces.map_or_else(
                    || "*".to_owned(),
                    |n| n.into_iter().collect::<Vec<_>>().join(","),
                );
                let said = format!(
                    "{} {} {mode} {namespaces}",
                    allowed.by.join(","),
                    subject.groups.join(",")
                );
                assert_eq!(
                    (said.as_str(), subject.user.as_str()),
                    (*expected, "linesman:ada")
                );
            }
            (Err(denied), Err(expected)) => {
                assert!(
                    denied.reason.contains(expected),
                    "{grants:?} {request}: {denied}"
                );
                assert!(!denied.next.is_empty());
            }
            (decided, _) => panic!("{grants:?} {request}: {decided:?}"),
        }
    }
}

#[test]
fn access_ends_with_the_first_grant_that_gave_it() {
    let grants = [
        "g1 user:ada * view for=60",
        "g2 user:ada * edit for=30",
        "g3 user:ada * admin",
    ];
    assert_eq!(asked(&grants, LIST).unwrap().until, Some(at(30)));
    assert_eq!(asked(&["g3 user:ada * admin"], LIST).unwrap().until, None);
}

#[test]
fn what_the_agent_would_refuse_is_refused_here() {
    let many: Vec<String> = (0..33).map(|n| format!("g{n}")).collect();
    let too_many = format!("g1 user:ada * {}", many.join(","));
    for bad in [too_many.as_str(), "g1 user:ada * a\r\nb", "g1 user:ada * "] {
        let denied = asked(&[bad], LIST).unwrap_err();
        assert!(denied.reason.contains("cannot be sent"), "{denied}");
    }
}

#[test]
fn subjects_are_read_in_their_two_forms() {
    for text in ["user:ada@example.org", "group:a:b"] {
        assert_eq!(text.parse::<Subject>().unwrap().to_string(), text);
    }
    for text in [
        "ada",
        "user:",
        "role:x",
        "user:a b",
        "group:x\n",
        "system:masters",
    ] {
        assert!(text.parse::<Subject>().is_err(), "{text}");
    }
}

#[test]
fn an_agent_learns_the_names_that_grants_give_on_its_cluster() {
    let grants: Vec<Grant> = [
        "g1 group:sre * view,edit",
        "g2 user:bob eu2 admin",
        "g3 user:eve eu1 admin for=-1",
        "g4 user:zoe ?env=prod ops as=user:robot,group:deploy",
        "g5 user:zoe eu2 ops as=user:elsewhere,group:elsewhere",
    ]
    .iter()
    .map(|g| grant(g))
    .collect();
    let sre = ["sre".to_owned()];
    let users = [("ada", &sre[..]), ("bob", &[]), ("eve", &[]), ("zoe", &[])];
    let (name, labels) = (
        "eu1".parse().unwrap(),
        BTreeMap::from([("env".to_owned(), "prod".to_owned())]),
    );
    let place = Place {
        name: &name,
        labels: &labels,
    };
    let askers = users.iter().map(|(name, groups)| Asker { name, groups });
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|n| (*n).to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(
        subjects(&grants, askers, &place, at(0)),
        (
            ["robot", "zoe", "ada"].map(str::to_owned).to_vec(),
            set(&["deploy", "edit", "ops", "view"])
        )
    );
}

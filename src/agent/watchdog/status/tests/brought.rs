//! What the catalog brought.

use super::*;

#[test]
fn a_broken_sync_object_shows_and_leaves_engine_and_root_well() {
    let install = plan::tests::install();
    let mut observed = working(&install);
    let child = |trouble: Option<(&str, &str)>| Child {
        trouble: trouble.map(|(r, m)| (r.to_owned(), m.to_owned())),
        ..Child::default()
    };
    let id = |name| ObjectId::new(Kind::Kustomization, "apps", name);
    observed.children = Arc::new(BTreeMap::from([
        (id("fine"), child(None)),
        (
            id("shop"),
            child(Some(("BuildFailed", "no such file 'x.yaml'"))),
        ),
    ]));
    let told = told(&install, &observed);
    assert_eq!(
        told["ChildrenReady"],
        (
            Status::False,
            "BuildFailed".to_owned(),
            "1 of 2 sync objects: Kustomization apps/shop is not Ready: BuildFailed: no such file \
             'x.yaml'; mend the catalog: the message names the file or object"
                .to_owned()
        )
    );
    for (kind, good) in [("EngineHealthy", "Healthy"), ("Synced", "Synced")] {
        assert_eq!(status(&told, kind), (Status::True, good.to_owned()));
    }
}

/// Whoever waits for a push was told that all is well for the minute in which its failure is no fault yet.
#[test]
fn what_a_commit_has_just_broken_is_neither_a_fault_nor_well() {
    let install = plan::tests::install();
    let mut observed = working(&install);
    let id = ObjectId::new(Kind::Kustomization, "apps", "shop");
    let broken = Child {
        trouble: Some(("BuildFailed".to_owned(), "no such file".to_owned())),
        ..Child::default()
    };
    let late = Child {
        tried: "main@sha1:0".to_owned(),
        ..Child::default()
    };
    let said = |observed: &Observed, seconds| {
        let history = History {
            followed: Followed {
                revision: "main@sha1:1".to_owned(),
                former: vec![("main@sha1:0".to_owned(), at(0))],
                ..Followed::default()
            },
            ..History::default()
        };
        let told = told_after(seconds, &install, observed, history);
        told["ChildrenReady"].clone()
    };
    let (waits, end) = ("Waits".to_owned(), rfc3339(at(60)));
    observed.children = Arc::new(BTreeMap::from([(id.clone(), broken)]));
    let text =
        format!("{id} is not Ready: BuildFailed: no such file; a fault if it is so at {end}");
    let young = (Status::Unknown, waits.clone(), text);
    for seconds in [0, 59] {
        assert_eq!(said(&observed, seconds), young, "after {seconds} s");
    }
    assert_eq!(said(&observed, 60).0, Status::False);

    let works = Child {
        pending: true,
        ..Child::default()
    };
    let release = ObjectId::new(Kind::HelmRelease, "apps", "shop");
    for (id, child) in [(id, late), (release, works)] {
        observed.children = Arc::new(BTreeMap::from([(id.clone(), child)]));
        let text = format!("{id} is not done with main@sha1:1 yet; it is waited for until {end}");
        let behind = (Status::Unknown, waits.clone(), text);
        for seconds in [0, 59] {
            assert_eq!(said(&observed, seconds), behind, "after {seconds} s");
        }
        // It may take its time.
        let ready = (Status::True, "Ready".to_owned(), String::new());
        assert_eq!(said(&observed, 60), ready);
    }
}

/// What a commit cannot start is Progressing for minutes in Argo CD before it is Degraded, and a wait for the push was told that all is well.
#[test]
fn an_application_that_is_progressing_since_a_commit_is_not_called_ready_for_a_while() {
    let install = plan::tests::install();
    let id = ObjectId::new(Kind::Application, "argocd", "shop");
    let child = Child {
        tried: "2".to_owned(),
        rolls: Some(at(5)),
        ..Child::default()
    };
    let observed = Observed {
        children: Arc::new(BTreeMap::from([(id.clone(), child)])),
        ..working(&install)
    };
    let (end, ready) = (rfc3339(at(140)), "Ready".to_owned());
    let waits = format!("{id} is not done with 2 yet; it is waited for until {end}");
    for (seconds, expected) in [
        (10, (Status::Unknown, "Waits".to_owned(), waits.clone())),
        (139, (Status::Unknown, "Waits".to_owned(), waits)),
        (140, (Status::True, ready, String::new())),
    ] {
        let history = History {
            followed: Followed {
                revision: "2".to_owned(),
                former: vec![("1".to_owned(), at(0))],
                ..Followed::default()
            },
            ..History::default()
        };
        let told = told_after(seconds, &install, &observed, history);
        assert_eq!(told["ChildrenReady"], expected, "after {seconds} s");
    }
}

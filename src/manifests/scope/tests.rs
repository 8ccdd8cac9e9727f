use super::*;

fn options(namespaces: &[&str], strict: bool) -> ScopeOptions {
    ScopeOptions {
        namespaces: namespaces.iter().map(|n| (*n).to_owned()).collect(),
        strict,
    }
}

fn scope(namespaces: &[&str], strict: bool, access: AccessLevel) -> Scope {
    Scope {
        namespaces: namespaces.iter().map(|n| (*n).to_owned()).collect(),
        strict,
        access,
    }
}

fn data(map: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(map["data"].clone()).unwrap()
}

#[test]
fn what_was_asked_for_is_what_the_config_map_says() {
    let (edit, admin) = (AccessLevel::Edit, AccessLevel::Admin);
    for (asked, access, meant) in [
        (options(&[], false), admin, None),
        (
            options(&["b", "a"], false),
            edit,
            Some(scope(&["a", "b"], false, edit)),
        ),
        (
            options(&["a"], true),
            admin,
            Some(scope(&["a"], true, AccessLevel::View)),
        ),
        (
            options(&["a"], true),
            AccessLevel::Off,
            Some(scope(&["a"], true, AccessLevel::Off)),
        ),
        (
            options(&[], true),
            admin,
            Some(scope(&["flux-system", "linesman"], true, AccessLevel::View)),
        ),
    ] {
        assert_eq!(check(&asked, &EngineNamespaces::default()), Ok(()));
        let found = Scope::of(&asked, access, "flux-system");
        let chosen = AdoptionOptions {
            access,
            scope: Some(asked),
            ..AdoptionOptions::default()
        };
        // As the hub tells it of a cluster.
        let bound = found.as_ref().map_or(access, |scope| scope.access);
        assert_eq!(most(&chosen), bound);
        assert_eq!(found, meant);
        if let Some(scope) = found {
            let engines = EngineNamespaces::default();
            assert_eq!(
                Scope::parse(&data(&scope.config_map()), &engines),
                Ok(scope)
            );
        }
    }
}

#[test]
fn a_list_with_a_mistake_is_refused_as_a_whole() {
    let many: Vec<String> = (0..=MOST).map(|n| format!("n{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let name = |n: &str| Err(ScopeError::Name(n.to_owned()));
    for (listed, refused) in [
        (&["a", "B"][..], name("B")),
        (&["-a"], name("-a")),
        (&["a b"], name("a b")),
        (&[""], name("")),
        (&["a", "b", "a"], Err(ScopeError::Twice("a".to_owned()))),
        (&many, Err(ScopeError::Many(51))),
        (
            &["a", "linesman"],
            Err(ScopeError::Reserved("linesman".to_owned())),
        ),
        (&["argocd"], Err(ScopeError::Reserved("argocd".to_owned()))),
        (&many[1..], Ok(())),
    ] {
        let engines = EngineNamespaces::default();
        let said = check(&options(listed, false), &engines);
        assert_eq!(said, refused, "{listed:?}");
    }
    let elsewhere = EngineNamespaces::new("gitops".to_owned());
    let chosen = check(&options(&["gitops"], false), &elsewhere);
    assert_eq!(chosen, Err(ScopeError::Reserved("gitops".to_owned())));
}

#[test]
fn a_config_map_that_cannot_be_read_covers_nothing_more() {
    let parse = |rows: &[(&str, &str)]| {
        let rows = rows.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Scope::parse(&rows.collect(), &EngineNamespaces::default())
    };
    let by_hand = parse(&[("namespaces", " a, b\nc "), ("access", "view")]);
    assert_eq!(
        by_hand,
        Ok(scope(&["a", "b", "c"], false, AccessLevel::View))
    );
    // Nobody is let in where the owner does not say how far.
    let silent = parse(&[("namespaces", "a")]);
    assert_eq!(silent, Ok(scope(&["a"], false, AccessLevel::Off)));
    for row in [
        ("Namespaces", "a"),
        ("namespaces", "a,*"),
        ("namespaces", "flux-system"),
        ("strict", "yes"),
        ("access", "cluster-admin"),
    ] {
        assert!(parse(&[row]).is_err(), "{row:?}");
    }
}

#[test]
fn the_level_bounds_the_bindings_and_no_group_gets_more_than_its_namespace() {
    let names = |strict, access| scope(&["a"], strict, access).bindings();
    assert_eq!(names(false, AccessLevel::Admin), BINDINGS);
    assert_eq!(
        names(false, AccessLevel::View),
        ["linesman-read", "linesman-view"]
    );
    assert_eq!(names(true, AccessLevel::View), ["linesman-view"]);
    assert_eq!(names(true, AccessLevel::Off), [""; 0]);
    let all = BINDINGS.map(|name| binding(name, "a"));
    let roles = all.each_ref().map(|b| b["roleRef"]["name"].clone());
    assert_eq!(roles, ["linesman-read", "view", "edit", "admin"]);
    let subjects = all.each_ref().map(|b| b["subjects"][0]["name"].clone());
    assert_eq!(
        subjects,
        [
            "linesman-agent",
            "linesman:view",
            "linesman:edit",
            "linesman:admin"
        ]
    );
    assert!(all.iter().all(|b| b["metadata"]["namespace"] == "a"));
}

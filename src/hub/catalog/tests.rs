use super::*;

fn record(name: &str) -> ClusterRecord {
    ClusterRecord {
        name: name.parse().unwrap(),
        engine: EngineKind::Flux,
        engines: EngineNamespaces::default(),
        labels: BTreeMap::new(),
        url: "ssh://git@hub.example.com:2222/catalog.git".to_owned(),
        branch: "main".to_owned(),
    }
}

fn under(name: &str) -> Files {
    let own = |path: &String| {
        path.starts_with(&format!("clusters/{name}/"))
            || path.starts_with(&format!("apps/hello/overlays/{name}/"))
    };
    template().into_iter().filter(|(p, _)| own(p)).collect()
}

/// H38 of `cluster add`.
#[test]
fn the_example_is_what_cluster_add_writes() {
    for name in ["eu1", "us1"] {
        let files = files(&record(name));
        assert_eq!(files, under(name));
        assert!(files.contains_key(&format!("clusters/{name}/apps.yaml")));
    }
}

#[test]
fn a_directory_is_for_the_engine_whose_kinds_it_has_or_for_both() {
    let record = |engine| ClusterRecord {
        engine,
        ..record("eu1")
    };
    let (flux, argocd) = (EngineKind::Flux, EngineKind::Argocd);
    let plain = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n".to_vec();
    let rollout =
        b"apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: a}\n".to_vec();
    let own: Files = [
        ("both/a.yaml".to_owned(), plain.clone()),
        ("both/rollout.yaml".to_owned(), rollout),
        ("none/README.md".to_owned(), plain.clone()),
        ("none/empty.yaml".to_owned(), b"# nothing\n".to_vec()),
        ("clusters/eu1-2/a.yaml".to_owned(), plain),
    ]
    .into();
    let other = |file: &str, other| {
        Err(Unsuited::Other {
            file: file.to_owned(),
            other,
        })
    };
    for (files, path, engine, expected) in [
        (&files(&record(flux)), "clusters/eu1", flux, Ok(())),
        (
            &files(&record(flux)),
            "clusters/eu1",
            argocd,
            other("clusters/eu1/apps.yaml", flux),
        ),
        (&files(&record(argocd)), "clusters/eu1/", argocd, Ok(())),
        (
            &files(&record(argocd)),
            "clusters/eu1",
            flux,
            other("clusters/eu1/apps.yaml", argocd),
        ),
        (&own, "both", flux, Ok(())),
        (&own, "both", argocd, Ok(())),
        (&own, "none", argocd, Err(Unsuited::Empty)),
        (&own, "clusters/eu1", argocd, Err(Unsuited::Empty)),
    ] {
        assert_eq!(suits(files, path, engine), expected, "{path} {engine}");
    }
}

/// What the new cluster's engine finds in the catalog then, and where.
fn begun(there: &Files, record: &ClusterRecord) -> Result<(String, Files), Unsuited> {
    let start = start(there, record)?;
    let mut then = there.clone();
    for (path, content) in start.files {
        if !(start.over.is_empty() && then.contains_key(&path)) {
            then.insert(path, content);
        }
    }
    Ok((start.path, then))
}

/// `eu1` and `us1` of a new hub's catalog are written for Flux, and the first cluster with Argo CD may well be one of them.
#[test]
fn the_example_gives_way_to_the_engine_that_is_asked_for_where_nobody_touched_it() {
    let flux = record("eu1");
    let argocd = ClusterRecord {
        engine: EngineKind::Argocd,
        ..flux.clone()
    };
    let path = "clusters/eu1".to_owned();
    let template = template();
    let mut expected = template.clone();
    expected.extend(files(&argocd));
    // As it is on a new hub, and done again.
    for (there, record, then) in [
        (&template, &flux, &template),
        (&template, &argocd, &expected),
        (&expected, &argocd, &expected),
        (&expected, &flux, &template),
    ] {
        let begun = begun(there, record);
        assert_eq!(begun, Ok((path.clone(), then.clone())), "{record:?}");
    }

    // As it was found: what somebody changes from then on is not written over.
    let over = start(&template, &argocd).unwrap().over;
    assert!(over.contains_key("clusters/eu1/apps.yaml"));
    for (path, content) in &over {
        assert_eq!(template.get(path), Some(content), "{path}");
    }

    // What else somebody has there stays, and what is missing comes.
    let own = "clusters/eu1/own.yaml";
    let overlay = "apps/hello/overlays/eu1/index.html";
    let mut theirs = template.clone();
    theirs.remove("clusters/eu1/base.yaml");
    for theirs in [&mut theirs, &mut expected] {
        for (file, text) in [
            (own, "apiVersion: v1\nkind: ConfigMap\n"),
            (overlay, "mine"),
        ] {
            theirs.insert(file.to_owned(), text.as_bytes().to_vec());
        }
    }
    assert_eq!(begun(&theirs, &argocd), Ok((path, expected)));
}

#[test]
fn a_new_cluster_begins_in_nothing_that_is_written_for_the_other_engine() {
    let flux = record("eu1");
    let argocd = ClusterRecord {
        engine: EngineKind::Argocd,
        ..flux.clone()
    };
    let apps = "clusters/eu1/apps.yaml";
    let mut touched = template();
    touched.get_mut(apps).unwrap().push(b'\n');
    let other = Unsuited::Other {
        file: apps.to_owned(),
        other: EngineKind::Flux,
    };
    assert_eq!(begun(&touched, &argocd), Err(other));
    assert!(begun(&touched, &flux).is_ok());

    // Nor where it has been handed over, or shall be: there its root stays.
    let own = "clusters/eu1.argocd".to_owned();
    let application = files(&argocd)[apps].clone();
    touched.insert(format!("{own}/a.yaml"), application);
    assert_eq!(begun(&touched, &argocd), Ok((own, touched.clone())));
    let (path, _) = begun(&touched, &flux).unwrap();
    assert_eq!(path, "clusters/eu1");
}

#[test]
fn a_new_cluster_is_named_nowhere_else() {
    let files = files(&record("ap-southeast-7"));
    assert_eq!(files.len(), under("eu1").len());
    for (path, content) in files {
        assert!(path.contains("/ap-southeast-7/"), "{path}");
        assert!(
            !String::from_utf8(content).unwrap().contains("eu1"),
            "{path}"
        );
    }
}

#[test]
fn a_cluster_with_argo_cd_gets_applications_of_the_same_paths() {
    let record = ClusterRecord {
        engine: EngineKind::Argocd,
        ..record("ap1")
    };
    let elsewhere = ClusterRecord {
        engines: EngineNamespaces::new("gitops".to_owned()),
        ..record.clone()
    };
    let (files, moved) = (files(&record), files(&elsewhere));
    for path in ["clusters/ap1/apps.yaml", "clusters/ap1/base.yaml"] {
        let text = |files: &Files| String::from_utf8(files[path].clone()).unwrap();
        let usual = "\n  namespace: argocd\n";
        assert!(text(&files).contains(usual), "{path}");
        let there = text(&files).replace(usual, "\n  namespace: gitops\n");
        assert_eq!(text(&moved), there);
    }
    let paths: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        [
            "apps/hello/overlays/ap1/index.html",
            "apps/hello/overlays/ap1/kustomization.yaml",
            "clusters/ap1/apps.yaml",
            "clusters/ap1/base.yaml",
        ]
    );
    for (file, path) in [("apps", "apps/hello/overlays/ap1"), ("base", "base")] {
        let text = &files[&format!("clusters/ap1/{file}.yaml")];
        let text = std::str::from_utf8(text).unwrap();
        let application = yaml::documents(text).unwrap().remove(0);
        assert_eq!(
            application["spec"]["source"],
            serde_json::json!({"repoURL": record.url, "targetRevision": "main", "path": path})
        );
    }
}

#[test]
fn the_template_holds_the_shipped_files() {
    let template = template();
    for path in [
        "README.md",
        "base/kustomization.yaml",
        "clusters/us1/base.yaml",
    ] {
        let shipped = Path::new("catalog-example").join(path);
        assert_eq!(template.get(path), std::fs::read(shipped).ok().as_ref());
    }
}

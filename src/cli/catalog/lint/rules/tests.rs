use super::*;

fn files(list: &[(&str, &str)]) -> Files {
    list.iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

fn messages(list: &[(&str, &str)]) -> Vec<String> {
    lint(&files(list))
        .into_iter()
        .map(|f| format!("{}: {}", f.file, f.message))
        .collect()
}

fn flux(name: &str, path: &str, more: &str) -> String {
    format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}, namespace: flux-system}}\n\
         spec: {{path: {path}, sourceRef: {{kind: GitRepository, name: flux-system}}{more}}}\n"
    )
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n";

#[test]
fn a_good_catalog_has_no_findings() {
    let apps = flux("apps", "./apps/web", ", dependsOn: [{name: base}]");
    let base = flux("base", "./base", "");
    let good = [
        ("README.md", ""),
        ("clusters/eu1/apps.yaml", apps.as_str()),
        ("clusters/eu1/base.yaml", base.as_str()),
        (
            "apps/web/kustomization.yaml",
            "resources: [web.yaml, ../../base]\npatches: [{path: patch.yaml}]\n",
        ),
        ("apps/web/web.yaml", MAP),
        ("apps/web/patch.yaml", MAP),
        ("base/kustomization.yaml", "resources: [map.yaml]\n"),
        ("base/map.yaml", MAP),
    ];
    assert_eq!(messages(&good), Vec::<String>::new());
}

#[test]
fn paths_that_lead_nowhere_are_found() {
    let apps = flux("apps", "./apps/wbe", ", dependsOn: [{name: base}]");
    let bad = [
        ("clusters/eu1/apps.yaml", apps.as_str()),
        (
            "apps/web/kustomization.yaml",
            "resources: [web.yml, ../../.., https://example.org/x]\n",
        ),
        ("apps/web/web.yaml", MAP),
    ];
    assert_eq!(
        messages(&bad),
        [
            "apps/web/kustomization.yaml: resources '../../..' leaves the repository",
            "apps/web/kustomization.yaml: resources 'web.yml' is not there",
            "apps/web/web.yaml: is applied to no cluster: the kustomization.yaml beside it does not name it",
            "clusters/eu1/apps.yaml: Kustomization apps depends on 'base', which this cluster does not have",
            "clusters/eu1/apps.yaml: Kustomization apps: spec.path './apps/wbe' is not there",
        ]
    );
}

#[test]
fn a_source_that_nobody_defines_is_found() {
    let other = flux("other", "./x", "").replace("name: flux-system}}", "name: charts}}");
    let none = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: none}\nspec: {path: ./}\n";
    let defined = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: charts, namespace: flux-system}\n";
    let bad = [
        ("clusters/eu1/none.yaml", none),
        ("clusters/eu1/other.yaml", other.as_str()),
    ];
    assert_eq!(
        messages(&bad),
        [
            "clusters/eu1/none.yaml: Kustomization none has no spec.sourceRef with kind and name",
            "clusters/eu1/other.yaml: Kustomization other: the catalog defines no GitRepository 'charts' to take it from",
        ]
    );
    let good = [
        ("clusters/eu1/other.yaml", other.as_str()),
        ("clusters/eu1/charts.yaml", defined),
    ];
    assert_eq!(messages(&good), Vec::<String>::new());
}

#[test]
fn objects_that_harm_are_found() {
    let bad = [
        ("clusters/EU/a.yaml", MAP),
        ("clusters/eu1/a.yaml", MAP),
        ("clusters/eu1/b.yaml", MAP),
        (
            "clusters/eu1/c.yaml",
            "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: x}\n",
        ),
        (
            "clusters/eu1/d.yaml",
            "apiVersion: v1\nkind: Secret\nmetadata: {name: t}\ndata: {a: b}\nsops: {mac: x}\n",
        ),
        ("clusters/eu1/e.yaml", "image: {tag: 1}\n"),
        ("clusters/eu1/f.yaml", "a: [\n"),
        ("charts/values.yaml", "image: {tag: 1}\n"),
    ];
    let found = messages(&bad);
    assert_eq!(found.len(), 5, "{found:#?}");
    assert!(
        found[0].starts_with("clusters/EU: 'EU' is not a cluster name"),
        "{found:#?}"
    );
    assert_eq!(
        found[1],
        "clusters/eu1/b.yaml: ConfigMap a stands in clusters/eu1/a.yaml as well"
    );
    assert!(
        found[2].starts_with("clusters/eu1/c.yaml: Secret s in clear text"),
        "{found:#?}"
    );
    assert_eq!(
        found[3],
        "clusters/eu1/e.yaml: is no Kubernetes object: no apiVersion or kind"
    );
    assert!(
        found[4].starts_with("clusters/eu1/f.yaml: does not parse"),
        "{found:#?}"
    );
}

#[test]
fn a_path_is_resolved_inside_the_repository_only() {
    for (base, path, target) in [
        ("a/b", "c.yaml", Some("a/b/c.yaml")),
        ("a/b", "../c", Some("a/c")),
        ("a", "..", Some("")),
        ("", "./x/", Some("x")),
        ("a", "../..", None),
        ("a", "/etc/passwd", None),
    ] {
        assert_eq!(resolve(base, path).as_deref(), target, "{base} {path}");
    }
}

#[test]
fn the_catalog_that_a_hub_starts_with_has_no_findings() {
    let template = crate::hub::catalog::template();
    let files: Files = template
        .into_iter()
        .map(|(name, content)| (name, String::from_utf8(content).unwrap()))
        .collect();
    assert!(files.len() > 5);
    assert_eq!(lint(&files), []);
}

#[test]
fn an_application_names_a_repository_and_a_path_that_is_there() {
    let application = |source: &str| {
        format!(
            "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {{name: web, namespace: argocd}}\n\
             spec: {{source: {source}}}\n"
        )
    };
    let good = application("{repoURL: 'ssh://git@hub/catalog.git', path: apps/web}");
    let lost = application("{repoURL: 'ssh://git@hub/catalog.git', path: apps/wbe}");
    let other = application("{repoURL: 'https://example.org/charts', path: none}");
    let empty = application("{path: apps/web}");
    let found = messages(&[
        ("apps/web/web.yaml", MAP),
        ("clusters/a/web.yaml", good.as_str()),
        ("clusters/b/web.yaml", lost.as_str()),
        ("clusters/c/web.yaml", other.as_str()),
        ("clusters/d/web.yaml", empty.as_str()),
    ]);
    assert_eq!(
        found,
        [
            "clusters/b/web.yaml: Application web: spec.source.path 'apps/wbe' is not there",
            "clusters/d/web.yaml: Application web has no spec.source.repoURL",
        ]
    );
}

/// What the API server would refuse at sight; a patch is applied to what it is laid over.
#[test]
fn a_name_that_is_none_is_found_and_one_of_a_patch_is_not() {
    let bad = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: BAD_Name}\ndata: [1]\n";
    let found = messages(&[
        ("clusters/eu1/map.yaml", bad),
        (
            "apps/web/kustomization.yaml",
            "resources: [web.yaml]\npatches: [{path: patch.yaml}]\n",
        ),
        ("apps/web/web.yaml", MAP),
        ("apps/web/patch.yaml", bad),
    ]);
    assert_eq!(
        found,
        [
            "clusters/eu1/map.yaml: ConfigMap BAD_Name: data is no map",
            "clusters/eu1/map.yaml: ConfigMap BAD_Name: no API server takes metadata.name 'BAD_Name'",
        ]
    );
}

/// W27: what the hub writes of a cluster's agent is in order, with either engine.
#[test]
fn a_copy_of_the_agent_has_no_findings() {
    use crate::hub::catalog::{copy, template};
    use crate::manifests::{self, AdoptionValues, EngineNamespaces};
    use crate::wire::api::EngineKind;

    let manifests = manifests::copy::copy(&AdoptionValues::placeholders()).unwrap();
    let manifests = manifests::copy::to_yaml(&manifests);
    let mut all = template();
    for (name, engine) in [("eu1", EngineKind::Flux), ("ap1", EngineKind::Argocd)] {
        all.extend(copy::files(&copy::Copied {
            name: &name.parse().unwrap(),
            engine,
            engines: &EngineNamespaces::default(),
            follows: &format!("clusters/{name}"),
            url: "ssh://git@hub.example.com:2222/catalog.git",
            branch: "main",
            manifests: &manifests,
        }));
    }
    let text = |(path, bytes): (String, Vec<u8>)| (path, String::from_utf8(bytes).unwrap());
    assert_eq!(lint(&all.into_iter().map(text).collect()), []);
}

/// The documents prescribe `clusters/NAME.ENGINE` for what an engine is to follow that takes the other's place.
#[test]
fn a_directory_is_named_by_its_cluster_and_maybe_an_engine() {
    let told = |directory: &str| {
        let file = format!("clusters/{directory}/a.yaml");
        let found = messages(&[(file.as_str(), MAP)]);
        found.first().map(|m| m.contains("is not a cluster name"))
    };
    for (directory, wrong) in [
        ("eu1", None),
        ("eu1.flux", None),
        ("eu1.argocd", None),
        ("eu1.argo", Some(true)),
        ("eu1.flux.argocd", Some(true)),
        (".flux", Some(true)),
    ] {
        assert_eq!(told(directory), wrong, "{directory}");
    }
}

/// What the hub refuses in a hand-over, and what the other engine would never read.
#[test]
fn one_clusters_directory_is_for_one_engine() {
    let flux = flux("apps", "./", "");
    let argo = |kind: &str| {
        format!(
            "apiVersion: argoproj.io/v1alpha1\nkind: {kind}\nmetadata: {{name: web, namespace: argocd}}\n\
             spec: {{source: {{repoURL: 'https://example.org/charts', path: x}}}}\n"
        )
    };
    let (application, rollout) = (argo("Application"), argo("Rollout"));
    let found = lint(&files(&[
        ("clusters/eu1/a.yaml", application.as_str()),
        ("clusters/eu1/b.yaml", flux.as_str()),
        ("clusters/eu1.flux/a.yaml", application.as_str()),
        // Each has one of its own, and a rollout is nobody's.
        ("clusters/eu2/a.yaml", flux.as_str()),
        ("clusters/eu2/b.yaml", rollout.as_str()),
        ("clusters/eu2.argocd/a.yaml", application.as_str()),
        ("clusters/eu2.argocd/map.yaml", MAP),
    ]));
    let expected = [
        finding(
            "clusters/eu1.flux/a.yaml",
            "Application web is for argocd, and eu1.flux for flux: a cluster has one engine",
            "keep here what flux reads; what argocd is to follow in its place stands in clusters/eu1.argocd",
        ),
        finding(
            "clusters/eu1/b.yaml",
            "Kustomization apps is for flux, and clusters/eu1/a.yaml for argocd: a cluster has one engine",
            "keep here what argocd reads; what flux is to follow in its place stands in clusters/eu1.flux",
        ),
    ];
    assert_eq!(found, expected);
}

/// Of other servers and names nothing is known.
#[test]
fn a_slip_in_the_catalogs_url_is_found() {
    let application = |name: &str, url: &str| {
        format!(
            "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {{name: {name}, namespace: argocd}}\n\
             spec: {{source: {{repoURL: '{url}', path: apps}}}}\n"
        )
    };
    let read = |urls: &[&str]| {
        let named = urls.iter().enumerate();
        let all: String = named
            .map(|(at, url)| application(&format!("app-{at}"), url) + "---\n")
            .collect();
        messages(&[
            ("clusters/eu1/apps.yaml", all.as_str()),
            ("apps/a.yaml", MAP),
        ])
    };
    let hub = "ssh://git@hub:2222/catalog.git";
    for slip in ["catlog.git", "catalgo.git", "catalogs"] {
        let url = format!("ssh://git@hub:2222/{slip}");
        let expected = format!(
            "clusters/eu1/apps.yaml: Application app-1 reads {url}, and the hub serves no repository but 'catalog.git'"
        );
        assert_eq!(read(&[hub, &url]), [expected]);
        // Where nobody names the hub, it may be anything.
        assert_eq!(read(&[&url]), Vec::<String>::new());
    }
    let others = [
        "ssh://git@hub:2222/catalog",
        "ssh://git@hub:2222/shop.git",
        "ssh://git@git.example.org/catlog.git",
        "ssh://git@hub:2222/team/catlog.git",
        "https://hub:2222/catlog.git",
    ];
    let all: Vec<&str> = [hub].into_iter().chain(others).collect();
    assert_eq!(read(&all), Vec::<String>::new());
}

#[test]
fn an_object_that_stands_twice_in_one_file_is_not_sought_in_another() {
    let twice = format!("{MAP}---\n{MAP}");
    assert_eq!(
        messages(&[("clusters/eu1/a.yaml", twice.as_str())]),
        ["clusters/eu1/a.yaml: ConfigMap a stands in this file twice"]
    );
}
